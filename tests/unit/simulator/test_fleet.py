import itertools
from collections.abc import Iterable

from pilothouse.model.units import SECOND
from pilothouse.policy.draw import Draws
from pilothouse.simulator.fleet import Fault, FaultKind, Fleet, Outcome, Replica
from pilothouse.simulator.gates import Taken
from pilothouse.simulator.hosted import HostedEngine, HostedSpec
from pilothouse.simulator.routers import LeastLoaded
from pilothouse.simulator.turn import Turn
from simulated import engine, turns


def run(made: Iterable[Turn], count: int = 2, **others: object) -> Outcome:
    replicas = [Replica(str(index), engine()) for index in range(count)]
    return Fleet(replicas, LeastLoaded(count, Draws(0)), **others).run(made)  # type: ignore[arg-type]


def test_turns_are_shared_out() -> None:
    outcome = run(turns([(10, 100, 20)] * 20))
    assert len(outcome.records.served()) == 20
    replicas = list(outcome.records.columns["replica"])
    assert replicas.count(0) == replicas.count(1) == 10


def test_a_replica_that_dies_before_the_first_token_loses_nothing_that_a_gateway_would_retry() -> None:
    made = turns([(100_000, 200, 50)] * 10)
    outcome = run(made, faults=[Fault(kind=FaultKind.CRASH, replica=0, at_s=0.3, for_s=1.0)])
    records = outcome.records
    lost = [row for row in range(len(records)) if records.faults[records.fault[row]] == "replica_lost"]
    assert len(records) == 10
    assert all(records.columns["replica"][row] == 0 for row in lost)
    assert lost


def test_a_slow_node_and_a_stall_take_longer() -> None:
    shapes = [(1_000, 100, 50)] * 10
    normal = run(turns(shapes), count=1).ended_ns
    slow = run(turns(shapes), count=1, faults=[Fault(kind=FaultKind.SLOW, replica=0, at_s=0, for_s=60, factor=3.0)])
    stalled = run(turns(shapes), count=1, faults=[Fault(kind=FaultKind.STALL, replica=0, at_s=0.05, for_s=5)])
    assert slow.ended_ns > 2.5 * normal
    assert normal + 4 * SECOND < stalled.ended_ns < normal + 6 * SECOND


def test_the_way_to_a_replica_takes_time() -> None:
    near, far = (run(turns([(0, 100, 5)]), network_ns=delay).records.columns["first_ns"][0] for delay in (0, 7_000))
    assert far == near + 7_000


def test_nobody_is_ready_before_its_cold_start() -> None:
    replicas = [Replica("0", engine(), from_ns=5 * SECOND)]
    outcome = Fleet(replicas, LeastLoaded(1, Draws(0))).run(turns([(0, 100, 5)]))
    assert outcome.records.columns["first_ns"][0] > 5 * SECOND


def test_a_session_asks_again_after_thinking() -> None:
    first, second = turns([(0, 100, 5), (0, 200, 5)])
    first.then = (second, 3 * SECOND)
    columns = run([first]).records.columns
    assert columns["arrival_ns"][1] == columns["finished_ns"][0] + 3 * SECOND


def test_a_hosted_engine_refuses_beyond_its_limit() -> None:
    spec = HostedSpec(ttft_s=0.5, tokens_per_s=100, requests_per_minute=3)
    outcome = Fleet([Replica("0", HostedEngine(spec))], LeastLoaded(1, Draws(0))).run(turns([(1_000, 100, 11)] * 5))
    assert len(outcome.records.served()) == 3
    row = outcome.records.served()[0]
    columns = outcome.records.columns
    assert columns["finished_ns"][row] - columns["first_ns"][row] == SECOND // 10
    assert "rate_limited" in outcome.records.faults


class OneAtATime:
    """A gate that lets one turn through at a time and refuses the fourth that waits."""

    def __init__(self) -> None:
        self.waiting: list[Turn] = []
        self.busy = False

    def submit(self, turn: Turn, now: int) -> str | None:
        if len(self.waiting) == 3:
            return "queue_full"
        self.waiting.append(turn)
        return None

    def take(self, now: int) -> Taken:
        if self.busy or not self.waiting:
            return Taken((), ())
        self.busy = True
        return Taken((self.waiting.pop(0),), ())

    def ended(self, turn: Turn, now: int) -> None:
        self.busy = False

    def wake_ns(self) -> int | None:
        return None


def test_a_gate_orders_and_refuses() -> None:
    records = run(turns([(1, 100, 20)] * 6), gate=OneAtATime()).records
    assert len(records.served()) == 4
    assert records.faults == ["", "queue_full"]
    spans = sorted((records.columns["queued_ns"][row], records.columns["finished_ns"][row]) for row in records.served())
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_a_stale_view_is_as_old_as_it_may_be() -> None:
    router = LeastLoaded(2, Draws(0), stale_ns=1_000)
    first, second, third = turns([(0, 100, 5)] * 3)
    chosen = router.choose(first, 0, ())
    assert chosen is not None
    router.started(first, chosen, 0)
    router.started(second, chosen, 500)
    assert router.choose(third, 1_000, ()) == 1 - chosen
    router.ended(first, chosen, 1_100)
    router.ended(second, chosen, 1_100)
    router.started(third, 1 - chosen, 1_100)
    assert router.choose(third, 1_900, ()) == 1 - chosen  # not seen yet
    assert router.choose(third, 2_000, ()) == chosen
