"""Chooses among the replicas of one deployment or arm: prefix, session and load weighed together."""

from collections.abc import Callable, Collection, Sequence

from pilothouse.policy.affinity.blocks import tokens_in
from pilothouse.policy.affinity.homes import digest_of
from pilothouse.policy.affinity.moves import MovePrice, price
from pilothouse.policy.affinity.prefix_index import PrefixIndex
from pilothouse.policy.affinity.scores import DEFAULT_POLICY, POLICIES, USES_INDEX, USES_PREFIX, Ask, Tuning
from pilothouse.policy.affinity.sessions import SessionHomes
from pilothouse.policy.affinity.shared_prefix import SharedPrefix, key_of
from pilothouse.policy.draw import Draws
from pilothouse.policy.routing.decision import RouteDecision, Rule

INDEX_BLOCKS = 4096
"""Blocks remembered for each replica: 4 to 16 MiB of prompts, one to four million tokens, what a large GPU's cache
holds. With 64 replicas they take about 60 MB."""


class ReplicaRouter:
    """The state behind the choice, for one worker. `choose` looks only; `sent` remembers.

    Everything is by index into `replicas`. Loads are the caller's: tokens in flight until end of sequence, its own and
    those of others as far as it knows them.
    """

    def __init__(
        self,
        draws: Draws,
        *,
        policy: str = DEFAULT_POLICY,
        tuning: Tuning | None = None,
        index_blocks: int = INDEX_BLOCKS,
        tokens_in: Callable[[int], int] = tokens_in,
    ) -> None:
        self.policy = policy
        self.replicas: tuple[str, ...] = ()
        self.homes = SessionHomes()
        self.uses_prefix = policy in USES_PREFIX
        """Whether a prompt's blocks matter; where not, none have to be hashed."""
        self._draws = draws
        self._score = POLICIES[policy]
        self._tuning = tuning or Tuning()
        self._uses_index = policy in USES_INDEX
        self._tokens_in = tokens_in
        self._index = PrefixIndex(0, index_blocks)
        self._shared = SharedPrefix()
        self._digests: list[int] = []
        self._slots: list[int] = []
        self._free: list[int] = []
        self._sent = 0

    def __len__(self) -> int:
        """Different blocks that the index knows."""
        return len(self._index)

    def set_replicas(self, replicas: Sequence[str]) -> None:
        """These are the replicas now. Those that stay keep what is known of them; what left is forgotten."""
        slots = dict(zip(self.replicas, self._slots, strict=True))
        for replica, slot in slots.items():
            if replica not in replicas:
                self._index.clear(slot)
                self._free.append(slot)
        self._slots = [slots[replica] if replica in slots else self._new_slot() for replica in replicas]
        self._digests = [digest_of(replica) for replica in replicas]
        self.replicas = tuple(replicas)

    def _new_slot(self) -> int:
        return self._free.pop() if self._free else self._index.add()

    def restarted(self, replica: str) -> None:
        """The replica's process is another one now, under the same name: its cache is empty."""
        self._index.clear(self._slots[self.replicas.index(replica)])

    def choose(
        self,
        request: str,
        tokens: int,
        loads: Sequence[int],
        blocks: Sequence[int] = (),
        *,
        excluded: Collection[int] = (),
        session: int | None = None,
        continues: bool = False,
    ) -> RouteDecision:
        """The replica for a prompt of `tokens` tokens with these block hashes.

        `excluded` are indices not to be taken. `session` is the session's digest, and `continues` says that the prompt
        has an answer in it: then the session's home is taken to hold all of it, also after the index was lost.
        """
        matched = self._matched(blocks, tokens)
        names: Sequence[str] = self.replicas
        digests = self._digests
        chosen_from: list[int] | None = None
        if excluded:
            chosen_from = [index for index in range(len(names)) if index not in excluded]
            names = [names[index] for index in chosen_from]
            loads = [loads[index] for index in chosen_from]
            matched = [matched[index] for index in chosen_from]
            digests = [digests[index] for index in chosen_from]
        else:
            loads = list(loads)
        scores: Sequence[float] = ()
        moved: MovePrice | None = None
        at: int | None = None
        if not names:
            rule = Rule.NO_CANDIDATE
        elif len(names) == 1:
            rule, at, scores = Rule.ONLY_CANDIDATE, 0, (0,)
        else:
            rule = Rule.SCORE
            home = None
            if session is not None:
                home = self.homes.find(session, digests)
                if continues:
                    matched[home] = tokens
            key = key_of(blocks, self._shared.leading(blocks)) if blocks else None
            scores = self._score(
                Ask(request, tokens, key, self._sent), matched, loads, digests, self._draws, self._tuning
            )
            at = self._lowest(scores, request)
            if home is not None:
                rule, at, moved = _stay_or_move(tokens, matched, loads, home, at)
        index = at if at is None or chosen_from is None else chosen_from[at]
        return RouteDecision(
            request=request,
            policy=self.policy,
            rule=rule,
            index=index,
            tokens=tokens,
            blocks=blocks,
            candidates=names,
            loads=loads,
            matched=matched,
            scores=scores,
            replica=None if index is None else self.replicas[index],
            left_out=[self.replicas[index] for index in sorted(excluded)],
            price=moved,
        )

    def sent(self, decision: RouteDecision, session: int | None = None) -> None:
        """The request went where it was decided: its prefix will be cached there, and its session lives there."""
        self._sent += 1
        index = decision.index
        if index is None:
            return
        if decision.blocks:
            self._shared.count(decision.blocks)
            if self._uses_index:
                self._index.sent(decision.blocks, self._slots[index])
        if session is not None and decision.rule is Rule.SESSION_MOVED:
            self.homes.move(session, self._digests[index])

    def _matched(self, blocks: Sequence[int], tokens: int) -> list[int]:
        """Tokens of the prompt that each replica should hold."""
        if not blocks or not self._uses_index:
            return [0] * len(self.replicas)
        counts = self._index.matched(blocks)
        tokens_in = self._tokens_in
        return [min(tokens_in(counts[slot]), tokens) if counts[slot] else 0 for slot in self._slots]

    def _lowest(self, scores: Sequence[float], request: str) -> int:
        lowest = min(scores)
        if scores.count(lowest) == 1:
            return scores.index(lowest)
        tied = [index for index, score in enumerate(scores) if score == lowest]
        return tied[self._draws.below(len(tied), request, "replica")]


def _stay_or_move(
    tokens: int, matched: Sequence[int], loads: Sequence[int], home: int, best: int
) -> tuple[Rule, int, MovePrice | None]:
    """A session stays where it is unless going to `best` pays."""
    if best == home:
        return Rule.SESSION_HOME, home, None
    weighed = price(
        prompt=tokens,
        held_at_home=matched[home],
        held_there=matched[best],
        load_at_home=loads[home],
        load_there=loads[best],
    )
    if weighed.pays:
        return Rule.SESSION_MOVED, best, weighed
    return Rule.SESSION_HOME, home, weighed
