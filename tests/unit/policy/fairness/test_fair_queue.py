import pytest

from pilothouse.model.fleet import Capacity
from pilothouse.model.tenants import Tier
from pilothouse.model.units import SECOND, DurationNs
from pilothouse.policy.fairness.queue import FairQueue, QueueSettings, TierSpec
from pilothouse.policy.fairness.ticket import Ticket, TicketState

NOW = 10**12
SETTINGS = QueueSettings(quantum=0.0)


def queue(slots: int = 10, tokens: int = 1000, settings: QueueSettings = SETTINGS) -> FairQueue:
    return FairQueue(settings, Capacity(slots=slots, tokens=tokens))


def ticket(tenant: str = "a", tokens: int = 100, tier: Tier = Tier.STANDARD, **more: object) -> Ticket:
    return Ticket(tenant, tier, tokens // 2, tokens - tokens // 2, **more)  # type: ignore[arg-type]


def submit(to: FairQueue, *tickets: Ticket, now: int = NOW) -> None:
    for each in tickets:
        assert to.submit(each, now) is None


def started(of: FairQueue, now: int = NOW) -> list[Ticket]:
    return list(of.take(now).started)


def test_what_fits_starts_at_once_and_the_rest_waits() -> None:
    fair = queue(tokens=250)
    tickets = [ticket() for _ in range(3)]
    submit(fair, *tickets)
    assert [each.state for each in tickets] == [TicketState.RUNNING, TicketState.RUNNING, TicketState.WAITING]
    assert started(fair) == []
    fair.finish(tickets[0], NOW, 50)
    assert started(fair) == [tickets[2]]


def test_a_request_larger_than_everything_runs_alone() -> None:
    fair = queue(tokens=250)
    large, small = ticket(tokens=900), ticket()
    submit(fair, large, small)
    assert (large.state, small.state) == (TicketState.RUNNING, TicketState.WAITING)
    fair.finish(large, NOW, 1)
    assert started(fair) == [small]


def test_tenants_take_turns_by_service() -> None:
    fair = queue(slots=1)
    submit(fair, ticket("first"))
    waiting = [ticket("noisy") for _ in range(4)] + [ticket("quiet") for _ in range(2)]
    submit(fair, *waiting)
    order = []
    for _ in waiting:
        fair.finish(_running(fair), NOW, 50)
        [running] = started(fair)
        order.append(running.tenant)
    assert order[:4] in (["noisy", "quiet", "noisy", "quiet"], ["quiet", "noisy", "quiet", "noisy"])


def _running(fair: FairQueue) -> Ticket:
    [found] = [each for tier in fair._order for each in tier.silent]
    return found


def test_a_tier_below_its_guarantee_goes_first() -> None:
    fair = queue(slots=2, tokens=1000)
    batch = [ticket("b", 400, Tier.BATCH) for _ in range(4)]
    urgent = ticket("r", 400, Tier.REALTIME)
    submit(fair, *batch, urgent)
    fair.finish(batch[0], NOW, 1)
    assert started(fair) == [urgent]


def test_a_guarantee_goes_before_urgency() -> None:
    fair = queue(slots=10, tokens=1000)
    urgent = [ticket("r", 250, Tier.REALTIME) for _ in range(6)]
    standard = ticket("s", 250, Tier.STANDARD)
    submit(fair, *urgent, standard)
    fair.finish(urgent[0], NOW, 1)
    assert started(fair) == [standard]  # realtime still has 750, more than its half


def test_batch_never_has_the_last_tenth() -> None:
    fair = queue()
    batch = [ticket("b", 100, Tier.BATCH) for _ in range(10)]
    submit(fair, *batch)
    assert [each.state for each in batch].count(TicketState.RUNNING) == 9
    urgent = ticket("r", 100, Tier.REALTIME)
    submit(fair, urgent)
    assert started(fair) == [urgent]


def test_a_tier_is_served_within_the_aging_bound() -> None:
    settings = QueueSettings(
        quantum=0.0,
        tiers=(TierSpec(tier=Tier.REALTIME, guarantee=1.0), TierSpec(tier=Tier.BATCH, guarantee=0.0)),
        aging_ns=DurationNs(10 * SECOND),
    )
    fair = queue(slots=1, settings=settings)
    running = ticket("r", tier=Tier.REALTIME)
    submit(fair, running)
    batch = [ticket("b", tier=Tier.BATCH) for _ in range(2)]
    submit(fair, *batch, *[ticket("r", tier=Tier.REALTIME) for _ in range(100)])
    served = []
    for second in range(1, 25):
        now = NOW + second * SECOND
        fair.finish(running, now, 1)
        [running] = started(fair, now)
        if running.tier is Tier.BATCH:
            served.append(second)
    assert served == [10, 20]


def test_an_aged_request_that_does_not_fit_is_waited_for() -> None:
    fair = queue(slots=10, tokens=1000)
    running = [ticket("r", 300, Tier.REALTIME) for _ in range(3)]
    submit(fair, *running)
    large = ticket("s", 900, Tier.STANDARD)
    submit(fair, large)
    later = NOW + 20 * SECOND
    submit(fair, ticket("r", 100, Tier.REALTIME), now=later)
    assert started(fair, later) == []
    for each in running[:2]:
        fair.finish(each, later, 1)
        assert started(fair, later) == []
    fair.finish(running[2], later, 1)
    assert started(fair, later)[0] is large


def test_no_tenant_gets_more_than_its_share_of_the_cache_while_others_wait() -> None:
    fair = queue(slots=10, tokens=1000)
    greedy = [ticket("greedy", 250, kv_share=0.5) for _ in range(6)]
    submit(fair, *greedy)
    assert [each.state for each in greedy].count(TicketState.RUNNING) == 4  # nobody else waited
    other = ticket("other", 300)
    submit(fair, other)
    for each in greedy[:2]:
        fair.finish(each, NOW, 1)
    assert started(fair) == [other]
    fair.finish(greedy[2], NOW, 1)
    assert started(fair) == [greedy[4]]


def test_a_share_that_is_smaller_than_a_request_admits_one() -> None:
    fair = queue()
    running = ticket("x", 900)
    submit(fair, running)
    small_share, other = ticket("a", 500, kv_share=0.1), ticket("b", 900)
    submit(fair, small_share, other)
    fair.finish(running, NOW, 1)
    assert small_share in started(fair)


def test_the_queue_is_bounded_in_requests_and_in_tokens() -> None:
    settings = QueueSettings(max_waiting=2, max_waiting_tokens=450)
    fair = queue(slots=1, settings=settings)
    submit(fair, ticket(), ticket(tokens=200), ticket(tokens=200))
    full = fair.submit(ticket(tokens=10), NOW)
    assert full is not None
    assert full.code == "queue_full"
    fair = queue(slots=1, settings=settings)
    submit(fair, ticket(), ticket(tokens=200))
    assert fair.submit(ticket(tokens=300), NOW) is not None
    assert fair.waiting == 1


def test_who_waits_for_too_long_is_told_so() -> None:
    fair = queue(slots=1)
    submit(fair, ticket())
    old = ticket()
    submit(fair, old)
    later = NOW + SETTINGS.max_wait_ns + 1
    submit(fair, ticket(), now=later)
    assert [(each, refusal.code) for each, refusal in fair.expire(later).dropped] == [(old, "queue_timeout")]
    assert fair.waiting == 1


def test_a_deadline_that_cannot_be_met_is_refused_early() -> None:
    fair = queue(slots=1)
    submit(fair, ticket())
    now = NOW
    for _ in range(5):  # the deployment does a hundred tokens a second
        submit(fair, ticket(), ticket(), now=now)
        now += SECOND
        fair.finish(_running(fair), now, 50)
        assert started(fair, now)
        fair.finish(_running(fair), now, 50)
        started(fair, now)
    submit(fair, *[ticket("slow") for _ in range(10)], now=now)
    refusal = fair.submit(ticket("slow", deadline=now + SECOND), now)
    assert refusal is not None
    assert refusal.code == "deadline_unreachable"
    # Of another tenant nothing is ahead: it may make it.
    assert fair.submit(ticket("quick", deadline=now + SECOND), now) is None


def test_a_deadline_that_has_passed_in_the_queue_drops_the_request() -> None:
    fair = queue(slots=1)
    running = ticket()
    submit(fair, running)
    late, fine = ticket(deadline=NOW + SECOND), ticket()
    submit(fair, late, fine)
    fair.finish(running, NOW + 2 * SECOND, 1)
    dispatch = fair.take(NOW + 2 * SECOND)
    assert [each for each, _ in dispatch.dropped] == [late]
    assert dispatch.started == (fine,)


def test_a_disconnect_while_queued_leaves_nothing_behind() -> None:
    fair = queue(slots=1)
    running, gone = ticket(), ticket("b")
    submit(fair, running, gone)
    fair.cancel(gone)
    fair.cancel(gone)
    assert (fair.waiting, fair.waiting_tokens, gone.state) == (0, 0, TicketState.CANCELLED)
    fair.finish(running, NOW, 1)
    assert started(fair) == []
    assert fair._tokens == fair._slots == 0
    assert not fair._held
    assert not fair._waiting_tenants


class TestPreemption:
    def filled(self) -> tuple[FairQueue, list[Ticket], Ticket]:
        fair = queue(slots=3)
        batch = [ticket("b", 100, Tier.BATCH) for _ in range(3)]
        submit(fair, *batch)
        urgent = ticket("r", 100, Tier.REALTIME)
        submit(fair, urgent)
        return fair, batch, urgent

    def test_the_newest_request_without_a_byte_makes_room(self) -> None:
        fair, batch, urgent = self.filled()
        assert fair.preempt(NOW) == (batch[2],)
        assert started(fair) == [urgent]
        assert batch[2].state is TicketState.WAITING

    def test_what_has_been_seen_is_not_taken_back(self) -> None:
        fair, batch, _ = self.filled()
        for each in batch[1:]:
            fair.first_byte(each)
        assert fair.preempt(NOW) == (batch[0],)
        fair, batch, _ = self.filled()
        for each in batch:
            fair.first_byte(each)
        assert fair.preempt(NOW) == ()

    def test_a_request_loses_its_place_once(self) -> None:
        fair, batch, urgent = self.filled()
        fair.preempt(NOW)
        started(fair)
        fair.finish(urgent, NOW, 1)
        assert started(fair) == [batch[2]]
        for each in batch[:2]:
            fair.first_byte(each)
        submit(fair, ticket("r", 100, Tier.REALTIME))
        assert fair.preempt(NOW) == ()

    def test_it_is_the_next_of_its_tenant_and_owes_nothing(self) -> None:
        fair, batch, urgent = self.filled()
        submit(fair, ticket("b", 100, Tier.BATCH))
        before = fair.export()["batch"]["b"]
        fair.preempt(NOW)
        assert fair.export()["batch"]["b"] < before or before == 0
        started(fair)
        fair.finish(urgent, NOW, 1)
        assert started(fair) == [batch[2]]

    def test_nobody_loses_its_place_for_nothing(self) -> None:
        fair = queue(slots=3, tokens=1000)
        submit(fair, *[ticket("s", 300) for _ in range(2)], ticket("b", 100, Tier.BATCH))
        submit(fair, ticket("r", 900, Tier.REALTIME))
        for each in list(fair._order[1].silent):
            fair.first_byte(each)
        assert fair.preempt(NOW) == ()


def test_counters_are_handed_to_the_next_worker() -> None:
    before = queue(slots=1)
    heavy = ticket("heavy", 800)
    submit(before, ticket("x"))
    submit(before, heavy, ticket("light"))
    before.finish(_running(before), NOW, 50)
    started(before)
    after = queue(slots=1)
    after.restore(before.export())
    submit(after, ticket("y"))
    first, second = ticket("heavy"), ticket("light")
    submit(after, first, second)
    after.finish(_running(after), NOW, 50)
    charged_more = max(before.export()["standard"], key=lambda name: before.export()["standard"][name])
    assert started(after) == [second if charged_more == "heavy" else first]


def test_progress_beyond_the_estimate_is_charged_as_it_comes() -> None:
    fair = queue(slots=1)
    running = ticket("a", 100)
    submit(fair, running)
    counters = fair._order[1].counters
    before = counters.accounts["a"].counter
    fair.progress(running, 40)
    assert counters.accounts["a"].counter == before
    fair.progress(running, 150)
    assert counters.accounts["a"].counter == before + 2 * 100
    fair.finish(running, NOW, 150)
    assert counters.accounts["a"].counter == before + 2 * 100


@pytest.mark.parametrize(("tokens", "idle"), [(700, True), (800, False)])
def test_idle_is_when_a_quarter_is_free_and_nobody_waits(tokens: int, idle: bool) -> None:
    fair = queue()
    submit(fair, ticket(tokens=tokens))
    assert fair.idle is idle
