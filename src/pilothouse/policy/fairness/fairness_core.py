"""Fair service between clients: virtual token counters, with a quantum within which cached prefixes go first.

This module needs nothing but the standard library, so that an engine's scheduler can use it as it is.

Each client has a counter of the service it got: input tokens that had to be computed plus twice its output tokens,
divided by its weight (VTC: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024). The waiting client
with the least counter is next. A client that comes back from a pause is lifted to the least counter of those that
wait: what it did not use while away is not saved up.

With a quantum, every waiting client within it of the least counter may be next, and the one whose request has the
smallest uncached part is (the deficit longest-prefix match of Cao et al., "Locality-aware Fair Scheduling in LLM
Serving", 2025, with the deficit kept as a distance to the least counter). Since cached tokens are not charged, a
client that reuses its prefixes gets more done for the same share. Two clients that both keep waiting never differ by
more than VTC's bound plus the quantum:

    |S_f - S_g| <= 2 * max(input_price * longest input, output_price * output in flight) + quantum
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

INPUT_PRICE = 1.0
OUTPUT_PRICE = 2.0
"""An output token costs an engine about as much as two input tokens (w_p and w_q of the VTC paper)."""


_SLACK = 64  # entries of clients that went away, before they are cleared out


@dataclass(slots=True)
class Account:
    """One client's counter (service by weight), and how many of its requests wait."""

    counter: float = 0.0
    weight: float = 1.0
    waiting: int = 0
    handed_over: bool = False


@dataclass(slots=True)
class FairCounters:
    """The counters of all clients that share one queue. Clients are names; a client is known from its first `join`."""

    quantum: float = 0.0
    input_price: float = INPUT_PRICE
    output_price: float = OUTPUT_PRICE
    accounts: dict[str, Account] = field(default_factory=dict)
    _waiting: int = 0
    _level: float = 0.0  # counter of the client that left the queue last
    _head_start: float = 0.0  # what has to be served before the differences that were handed over are evened out
    _heap: list[tuple[float, str]] = field(default_factory=list)  # has an entry at or below each waiting counter

    def join(self, client: str, weight: float = 1.0) -> None:
        """A request of the client begins to wait."""
        account = self._account(client, weight)
        if account.waiting == 0:
            if not account.handed_over or self._head_start <= 0:
                account.counter = max(account.counter, self.level())
            account.handed_over = False
            if len(self._heap) > 2 * len(self.accounts) + _SLACK:
                self._heap = [(each.counter, name) for name, each in self.accounts.items() if each.waiting]
                heapq.heapify(self._heap)
            heapq.heappush(self._heap, (account.counter, client))
        account.waiting += 1
        self._waiting += 1

    def leave(self, client: str) -> None:
        """A request of the client waits no more: it was admitted, or went away."""
        account = self.accounts[client]
        account.waiting -= 1
        self._waiting -= 1
        if self._waiting == 0:
            self._level = account.counter

    def pass_through(self, client: str, weight: float = 1.0) -> None:
        """A request of the client is served without waiting, since nobody waits. As `join` and `leave`, but faster."""
        account = self._account(client, weight)
        if account.counter < self._level:
            account.counter = self._level
        else:
            self._level = account.counter

    def charge(self, client: str, input_tokens: float, output_tokens: float) -> None:
        """The client was served so much; negative to take back what was charged in expectation."""
        account = self.accounts[client]
        service = self.input_price * input_tokens + self.output_price * output_tokens
        account.counter += service / account.weight
        self._head_start -= service / account.weight
        if service < 0 and account.waiting:
            heapq.heappush(self._heap, (account.counter, client))

    def level(self) -> float:
        """The least counter of those that wait; with nobody waiting, that of the last who did."""
        least = self._pop()
        if least is None:
            return self._level
        heapq.heappush(self._heap, least)
        return least[0]

    def choose(
        self, allowed: Callable[[str], bool], uncached_ratio: Callable[[str], float] | None = None
    ) -> str | None:
        """Whose request is next: among the allowed clients that wait, by the rule above. `None` if there is none.

        `uncached_ratio` is the part of the client's first request that no cache holds, 0 to 1; equal parts go by
        counter.
        """
        best: str | None = None
        best_ratio = bound = 0.0
        seen: list[tuple[float, str]] = []
        while (entry := self._pop()) is not None:
            seen.append(entry)
            counter, client = entry
            if best is not None and counter > bound:
                break
            if not allowed(client):
                continue
            if best is None:
                best, bound = client, counter + self.quantum
                if uncached_ratio is None or self.quantum <= 0.0:
                    break
                best_ratio = uncached_ratio(client)
            elif uncached_ratio is not None and (ratio := uncached_ratio(client)) < best_ratio:
                best, best_ratio = client, ratio
        for entry in seen:
            heapq.heappush(self._heap, entry)
        return best

    def export(self) -> dict[str, float]:
        """How far clients are ahead of the level, to be handed to another process. What is behind it is a pause."""
        level = self.level()
        return {client: max(0.0, account.counter - level) for client, account in self.accounts.items()}

    def restore(self, counters: dict[str, float]) -> None:
        """Go on from what another process exported. For counters that have no clients yet.

        The handover is a pause for everybody: whoever comes back first does not lift the others to its own counter,
        until so much has been served that the differences would have been evened out.
        """
        self.accounts = {client: Account(counter=ahead, handed_over=True) for client, ahead in counters.items()}
        self._head_start = max(counters.values(), default=0.0)

    def _pop(self) -> tuple[float, str] | None:
        """The waiting client with the least counter, taken off the heap; its caller puts it back.

        An entry is out of date when its client went away or was charged since; a client whose counter fell has got a
        second, lower one.
        """
        while self._heap:
            counter, client = heapq.heappop(self._heap)
            account = self.accounts.get(client)
            if account is not None and account.waiting:
                if counter == account.counter:
                    return counter, client
                if counter < account.counter:
                    heapq.heappush(self._heap, (account.counter, client))
        return None

    def _account(self, client: str, weight: float) -> Account:
        account = self.accounts.get(client)
        if account is None:
            account = self.accounts[client] = Account()
        account.weight = weight
        return account
