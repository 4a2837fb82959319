"""The choice among replicas, and what it remembers."""

from collections import Counter

import pytest

from pilothouse.policy.affinity.homes import digest_of
from pilothouse.policy.affinity.scores import POLICIES
from pilothouse.policy.draw import Draws
from pilothouse.policy.routing.decision import RouteDecision, Rule
from pilothouse.policy.routing.replica_router import ReplicaRouter

IDLE = [0, 0, 0, 0]
NAMES = [f"replica-{number}" for number in range(4)]


def router(
    policy: str = "new-prefill-x-load", *, replicas: list[str] = NAMES, index_blocks: int = 100
) -> ReplicaRouter:
    made = ReplicaRouter(Draws(3), policy=policy, index_blocks=index_blocks, tokens_in=(256).__mul__)
    made.set_replicas(replicas)
    return made


def send(
    to: ReplicaRouter, request: str, blocks: list[int], loads: list[int] = IDLE, session: int | None = None
) -> RouteDecision:
    decision = to.choose(request, 256 * len(blocks) or 10, loads, blocks, session=session)
    to.sent(decision, session)
    return decision


def chosen(decision: RouteDecision) -> int:
    assert decision.index is not None
    return decision.index


def test_a_prefix_goes_where_it_was_sent_before() -> None:
    routing = router()
    first = chosen(send(routing, "a", [1, 2, 3]))
    assert {chosen(send(routing, f"b{number}", [1, 2, 3, 4 + number])) for number in range(20)} == {first}


def test_choosing_alone_remembers_nothing() -> None:
    routing = router()
    routing.choose("a", 512, IDLE, [1, 2])
    assert len(routing) == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_decides_and_explains(policy: str) -> None:
    routing = router(policy)
    for number in range(10):
        decision = send(routing, f"r{number}", [1, 2, number + 10], [40, 30, 20, 10])
    reason = decision.reason()
    assert reason.policy == policy
    assert reason.rule is Rule.SCORE
    assert [one.replica for one in reason.candidates] == NAMES
    lowest = min(one.score for one in reason.candidates)
    assert next(one for one in reason.candidates if one.replica == reason.replica).score == lowest
    assert (reason.prompt_tokens, reason.blocks) == (768, 3)


def test_a_universal_first_block_does_not_send_everything_to_one_replica() -> None:
    """The public trace's block 0, which is in every request: longest-prefix routing piles all on one worker."""
    for policy in POLICIES:
        routing = router(policy, index_blocks=10_000)
        loads = [0] * 4
        for number in range(400):
            index = chosen(send(routing, f"r{number}", [0, 10 * number + 1, 10 * number + 2], loads))
            loads[index] += 768
        assert max(loads) < 1.6 * sum(loads) / 4, policy


def test_ties_are_broken_by_chance_that_can_be_repeated() -> None:
    taken = Counter(chosen(router().choose(f"r{number}", 10, IDLE)) for number in range(400))
    assert len(taken) == 4
    assert max(taken.values()) < 150
    assert chosen(router().choose("same", 10, IDLE)) == chosen(router().choose("same", 10, IDLE))


def test_excluded_replicas_are_not_taken() -> None:
    routing = router()
    decision = routing.choose("a", 10, [0, 5, 1, 2], excluded={0})
    assert (decision.index, decision.replica) == (2, "replica-2")
    assert decision.reason().left_out == ("replica-0",)
    assert [one.replica for one in decision.reason().candidates] == NAMES[1:]


def test_one_candidate_needs_no_score() -> None:
    decision = router().choose("a", 10, IDLE, excluded={0, 1, 3})
    assert (decision.rule, decision.index) == (Rule.ONLY_CANDIDATE, 2)


def test_without_candidates_there_is_a_decision_that_says_so() -> None:
    routing = router()
    decision = routing.choose("a", 10, IDLE, [1], excluded={0, 1, 2, 3})
    routing.sent(decision)
    assert (decision.rule, decision.index, decision.replica) == (Rule.NO_CANDIDATE, None, None)
    assert decision.reason().candidates == ()
    assert router(replicas=[]).choose("a", 10, []).rule is Rule.NO_CANDIDATE


def test_a_hot_prefix_spills_to_others_and_comes_back() -> None:
    """smg #1714, sglang #33625: a hot key saturates its replica while others idle."""
    routing = router()
    at = chosen(send(routing, "a", [1, 2, 3, 4]))
    busy = [0] * 4
    busy[at] = 50_000
    assert chosen(routing.choose("b", 1_280, busy, [1, 2, 3, 4, 5])) != at
    assert chosen(routing.choose("c", 1_280, IDLE, [1, 2, 3, 4, 5])) == at


def test_a_session_stays_at_home_on_every_worker_and_after_a_restart() -> None:
    """smg #1578, Dynamo #4904: same session, same replica, whichever gateway and whenever it started."""
    for number in range(50):
        session = digest_of(f"session-{number}")
        homes = {chosen(router().choose(f"w{worker}-{number}", 500, IDLE, session=session)) for worker in range(4)}
        assert len(homes) == 1


def test_a_restarted_gateway_trusts_that_a_session_is_cached_at_its_home() -> None:
    session = digest_of("session")
    at = chosen(router().choose("a", 4_000, IDLE, session=session))
    loads = [0] * 4
    loads[at] = 4_200
    stays = router().choose("b", 4_000, loads, session=session, continues=True)
    assert (stays.index, stays.rule) == (at, Rule.SESSION_HOME)
    assert stays.price is not None
    assert stays.price.lost == 4_000


def test_a_session_moves_between_turns_when_it_pays_and_the_decision_says_so() -> None:
    routing = router()
    session = digest_of("session")
    at = chosen(send(routing, "a", [1, 2], session=session))
    loads = [0] * 4
    loads[at] = 90_000
    moved = send(routing, "b", [1, 2, 3], loads, session)
    assert moved.rule is Rule.SESSION_MOVED
    assert moved.index != at
    price = moved.reason().price
    assert price is not None
    assert (price.lost, price.saved) == (512, 90_000)
    assert len(routing.homes) == 1
    after = send(routing, "c", [1, 2, 3, 4], session=session)
    assert (after.index, after.rule) == (moved.index, Rule.SESSION_HOME)


def test_a_draining_replicas_sessions_go_elsewhere_at_their_next_turn_and_spread() -> None:
    routing = router()
    homes = {n: chosen(routing.choose(f"a{n}", 10, IDLE, session=digest_of(f"s{n}"))) for n in range(200)}
    heirs = {
        chosen(routing.choose(f"b{n}", 10, IDLE, session=digest_of(f"s{n}"), excluded={0}))
        for n, at in homes.items()
        if at == 0
    }
    stayed = [
        n
        for n, at in homes.items()
        if at != 0 and chosen(routing.choose(f"c{n}", 10, IDLE, session=digest_of(f"s{n}"), excluded={0})) != at
    ]
    assert heirs == {1, 2, 3}
    assert stayed == []


def test_a_replica_that_restarts_in_place_holds_nothing() -> None:
    """llm-d-router #1736, AIBrix #2287."""
    routing = router()
    decision = send(routing, "a", [1, 2, 3])
    assert decision.replica is not None
    routing.restarted(decision.replica)
    assert [one.cached for one in routing.choose("b", 768, IDLE, [1, 2, 3]).reason().candidates] == [0] * 4


def test_a_removed_replica_is_forgotten_and_its_slot_is_used_again() -> None:
    """sglang's remove_worker: the index kept pointing at what was gone."""
    routing = router()
    for number in range(40):
        send(routing, f"r{number}", [number * 2 + 1, number * 2 + 2])
    held = {one.replica: one.cached for one in routing.choose("x", 512, IDLE, [1, 2]).reason().candidates}
    gone = next(name for name, cached in held.items() if cached)
    left = [name for name in NAMES if name != gone]
    routing.set_replicas(left)
    assert [one.cached for one in routing.choose("y", 512, [0] * 3, [1, 2]).reason().candidates] == [0] * 3
    routing.set_replicas([*left, "replica-9"])
    assert [one.cached for one in routing.choose("z", 512, IDLE, [1, 2]).reason().candidates] == [0] * 4
    routing.set_replicas(list(reversed(routing.replicas)))
    assert len(routing) > 0


def test_what_stays_keeps_its_cache_when_others_come_and_go() -> None:
    routing = router()
    decision = send(routing, "a", [1, 2])
    assert decision.replica is not None
    routing.set_replicas(["new-1", decision.replica, "new-2"])
    assert chosen(routing.choose("b", 512, [0] * 3, [1, 2])) == 1


def test_policies_without_a_prefix_need_no_blocks() -> None:
    assert not router("least-loaded").uses_prefix
    assert router("bounded-load-hash").uses_prefix
    hashed = router("bounded-load-hash")
    send(hashed, "a", [1, 2])
    assert len(hashed) == 0


def test_memory_is_bounded_over_unique_prompts() -> None:
    routing = router(index_blocks=50)
    for number in range(3_000):
        send(routing, f"r{number}", [number * 4 + offset for offset in range(4)], session=number)
    assert len(routing) <= 200


def test_a_session_alone_among_excluded_replicas_is_served_there() -> None:
    routing = router()
    decision = routing.choose("a", 10, IDLE, session=digest_of("s"), excluded={0, 1, 2})
    routing.sent(decision, digest_of("s"))
    assert (decision.rule, decision.index, len(routing.homes)) == (Rule.ONLY_CANDIDATE, 3, 0)


def test_a_new_session_has_nothing_cached_at_its_home() -> None:
    decision = router().choose("a", 10, IDLE, session=digest_of("s"))
    assert {one.cached for one in decision.reason().candidates} == {0}
