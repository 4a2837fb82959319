"""A fleet in virtual time: arrivals pass a gate and a router, engines serve them, faults happen."""

import enum
from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Protocol, runtime_checkable

import msgspec

from pilothouse.model.units import SECOND, DurationNs
from pilothouse.policy.retry import Failure, RetryBudget, classify_loss
from pilothouse.simulator.gates import Gate
from pilothouse.simulator.records import Records
from pilothouse.simulator.routers import Router
from pilothouse.simulator.token_gaps import TokenGaps
from pilothouse.simulator.turn import NEVER, Turn

_FAR = 1 << 62


class AnyEngine(Protocol):
    """What a fleet needs of an engine; see `engine.Engine`."""

    gaps: TokenGaps
    busy_ns: int
    output_tokens: int
    prefill_tokens: int
    preemptions: int

    @property
    def next_ns(self) -> int | None:
        """When `advance` has to be called; `None` when idle."""
        ...

    def submit(self, turn: Turn, now: int) -> None:
        """A turn arrives."""
        ...

    def advance(self) -> list[Turn]:
        """Be at `next_ns`: the turns that ended then."""
        ...

    def turns(self) -> list[Turn]:
        """Everything it has."""
        ...

    def crash(self) -> list[Turn]:
        """Lose everything."""
        ...


@runtime_checkable
class SlowableEngine(Protocol):
    """An engine whose steps a fault can make slower."""

    slowness: float
    stalled_until_ns: int


class FaultKind(enum.StrEnum):
    """What may happen to a replica."""

    CRASH = "crash"
    """It loses everything and is back after the fault's duration (its cold start)."""
    STALL = "stall"
    """Its next step begins only after the fault's duration."""
    SLOW = "slow"
    """Its steps take `factor` as long for the fault's duration."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of one replica."""

    kind: FaultKind
    replica: int
    at_s: float
    for_s: float
    factor: float = 1.0


class Replica:
    """One replica of a simulated fleet."""

    __slots__ = ("deployment", "engine", "from_ns", "gpus", "name", "pool", "price_per_hour")

    def __init__(
        self,
        name: str,
        engine: AnyEngine,
        *,
        deployment: str = "",
        pool: str = "",
        gpus: int = 1,
        price_per_hour: float = 0.0,
        from_ns: int = 0,
    ) -> None:
        """`price_per_hour` is that of all its GPUs together; it takes turns from `from_ns` on."""
        self.name = name
        self.engine = engine
        self.deployment = deployment
        self.pool = pool
        self.gpus = gpus
        self.price_per_hour = price_per_hour
        self.from_ns = from_ns


class Outcome:
    """What a run left behind."""

    def __init__(self, records: Records, replicas: Sequence[Replica], ended_ns: int) -> None:
        self.records = records
        self.replicas = replicas
        self.ended_ns = ended_ns

    def gaps(self) -> TokenGaps:
        """Pauses between tokens of all engines."""
        merged = TokenGaps()
        for replica in self.replicas:
            merged.merge(replica.engine.gaps)
        return merged


class Fleet:
    """Replicas behind one gateway. A fleet runs once."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        router: Router,
        *,
        gate: Gate | None = None,
        faults: Sequence[Fault] = (),
        network_ns: int = 0,
        until_ns: int | None = None,
    ) -> None:
        """`network_ns` is the way to a replica and back; at `until_ns` whatever runs is cut off as `unfinished`."""
        self._replicas = replicas
        self._engines = [replica.engine for replica in replicas]
        self._router = router
        self._gate = gate
        self._network_ns = network_ns
        self._until_ns = _FAR if until_ns is None else until_ns
        self._excluded: set[int] = set()
        self._records = Records()
        self._due: list[tuple[int, int]] = []
        """(instant, replica), with entries that are out of date among them."""
        self._way: deque[tuple[int, Turn]] = deque()
        self._later: list[tuple[int, int, Turn | Fault | int | None]] = []
        """Turns of sessions, faults, ends of faults, and replicas that become ready."""
        self._retries = RetryBudget()
        self._sequence = 0
        self._now = 0
        self._held: list[Turn] = []
        """Turns for which there was no replica at all."""
        self._awaiting: dict[Turn, int] = {}
        for index, replica in enumerate(replicas):
            if replica.from_ns > 0:
                self._excluded.add(index)
                self._put(replica.from_ns, index)
        for fault in faults:
            self._put(round(fault.at_s * SECOND), fault)

    def run(self, turns: Iterable[Turn]) -> Outcome:
        """Serve `turns`, which come in the order of their arrival, and everything that follows from them.

        Raises:
            ValueError: a turn comes before the one ahead of it, or never fits into the engine it was sent to.
        """
        arrivals = iter(turns)
        arriving = next(arrivals, None)
        arrives = arriving.arrival_ns if arriving is not None else _FAR
        engines, due, later, way = self._engines, self._due, self._later, self._way
        add = self._records.add
        until = self._until_ns
        while True:
            at = due[0][0] if due else _FAR
            other = later[0][0] if later else _FAR
            if way and way[0][0] < other:
                other = way[0][0]
            if arrives < at and arrives < other:
                if arrives > until:
                    break
                assert arriving is not None
                if arrives < self._now:
                    raise ValueError(f"turn {arriving.key} comes out of order")
                self._now = arrives
                self._arrive(arriving, arrives)
                arriving = next(arrivals, None)
                arrives = arriving.arrival_ns if arriving is not None else _FAR
            elif at <= other:
                if at == _FAR or at > until:
                    break
                index = heappop(due)[1]
                engine = engines[index]
                if engine.next_ns != at:
                    continue
                self._now = at
                ended = engine.advance()
                if self._awaiting:
                    self._hear_first_tokens(at)
                if ended:
                    for turn in ended:
                        self._end(turn, index, at)
                        add(turn)
                    if self._gate is not None:
                        self._take(at)
                following = engine.next_ns
                if following is not None:
                    heappush(due, (following, index))
            else:
                if other > until:
                    break
                self._now = other
                if way and way[0][0] == other:
                    turn = way.popleft()[1]
                    self._submit(turn, turn.replica, other)
                else:
                    self._happen(heappop(later)[2], other)
        self._cut_off()
        return Outcome(self._records, self._replicas, self._now)

    def _arrive(self, turn: Turn, now: int) -> None:
        self._retries.requests += 1
        if self._gate is None:
            self._route(turn, now)
            return
        refused = self._gate.submit(turn, now)
        if refused is not None:
            self._refuse(turn, refused, now)
        self._take(now)

    def _take(self, now: int) -> None:
        """Send what the gate lets through."""
        gate = self._gate
        assert gate is not None
        taken = gate.take(now)
        for turn, code in taken.refused:
            self._refuse(turn, code, now)
        for turn in taken.sent:
            self._route(turn, now)
        wake = gate.wake_ns()
        if wake is not None and wake > now:
            self._put(wake, None)

    def _refuse(self, turn: Turn, code: str, now: int) -> None:
        turn.fault = code
        self._records.add(turn)
        self._follow(turn, now)

    def _route(self, turn: Turn, now: int) -> None:
        index = self._router.choose(turn, now, self._excluded)
        if index is None:
            self._held.append(turn)
            return
        turn.replica = index
        turn.attempts += 1
        self._router.started(turn, index, now)
        if self._router.hears_first_tokens:
            self._awaiting[turn] = index
        if self._network_ns:
            self._way.append((now + self._network_ns, turn))
        else:
            self._submit(turn, index, now)

    def _submit(self, turn: Turn, index: int, now: int) -> None:
        if index in self._excluded:  # it crashed while the turn was on its way
            self._lose(turn, index, now, Failure.CONNECT_FAILED)
            return
        engine = self._engines[index]
        before = engine.next_ns
        engine.submit(turn, now)
        following = engine.next_ns
        if following is not None and following != before:
            heappush(self._due, (following, index))

    def _end(self, turn: Turn, index: int, now: int) -> None:
        self._router.ended(turn, index, now)
        if self._gate is not None:
            self._gate.ended(turn, now)
        if turn.then is not None:
            self._follow(turn, now)

    def _hear_first_tokens(self, now: int) -> None:
        for turn, index in [each for each in self._awaiting.items() if each[0].first_ns != NEVER]:
            del self._awaiting[turn]
            self._router.first_token(turn, index, now)

    def _follow(self, turn: Turn, now: int) -> None:
        """The user of a session thinks, and then asks again."""
        if turn.then is not None:
            following, think_ns = turn.then
            following.arrival_ns = now + think_ns
            self._put(following.arrival_ns, following)

    def _happen(self, what: "Turn | Fault | int | None", now: int) -> None:
        if isinstance(what, Turn):
            self._arrive(what, now)
        elif isinstance(what, Fault):
            self._strike(what, now)
        elif what is None:
            self._take(now)
        elif what >= 0:
            self._ready(what, now)
        else:
            engine = self._engines[-what - 1]
            if isinstance(engine, SlowableEngine):
                engine.slowness = 1.0

    def _strike(self, fault: Fault, now: int) -> None:
        engine = self._engines[fault.replica]
        end = now + round(fault.for_s * SECOND)
        if fault.kind is FaultKind.CRASH:
            self._excluded.add(fault.replica)
            self._put(end, fault.replica)
            for turn in engine.crash():
                sent_since = DurationNs(now - max(turn.queued_ns, 0))
                self._lose(turn, fault.replica, now, classify_loss(reused=True, since_sent=sent_since))
            if self._gate is not None:
                self._take(now)
        elif isinstance(engine, SlowableEngine):
            if fault.kind is FaultKind.STALL:
                engine.stalled_until_ns = end
            else:
                engine.slowness = fault.factor
                self._put(end, -fault.replica - 1)

    def _lose(self, turn: Turn, index: int, now: int, failure: Failure) -> None:
        """A turn whose replica died: tried elsewhere where a gateway would, else over."""
        self._router.ended(turn, index, now)
        self._awaiting.pop(turn, None)
        if turn.first_ns == NEVER and self._retries.may_retry(failure, turn.attempts):
            self._route(turn, now)
            return
        turn.fault = "replica_lost"
        if self._gate is not None:
            self._gate.ended(turn, now)
        self._records.add(turn)
        self._follow(turn, now)

    def _ready(self, index: int, now: int) -> None:
        self._excluded.discard(index)
        held, self._held = self._held, []
        for turn in held:
            self._route(turn, now)

    def _put(self, at: int, what: "Turn | Fault | int | None") -> None:
        self._sequence += 1
        heappush(self._later, (at, self._sequence, what))

    def _cut_off(self) -> None:
        """Everything that the end of the run found under way."""
        left = [turn for engine in self._engines for turn in engine.turns()]
        left += [turn for _, turn in self._way] + self._held
        for turn in left:
            turn.fault = turn.fault or "unfinished"
            self._records.add(turn)
