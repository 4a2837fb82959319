"""Which arm a session gets."""

from collections import Counter

import pytest

from pilothouse.policy.canary.split import SLOTS, Arm, ArmRule, Split, make_split, reweigh

SESSIONS = [f"session-{number}" for number in range(5_000)]


def arm(name: str, weight: int = 0, mirror: float = 0.0) -> Arm:
    return Arm(name=name, deployments=(f"dep-{name}",), weight=weight, mirror=mirror)


def drawn(split: Split, tenant: str = "acme") -> list[str]:
    return [split.choose(tenant, session).arm for session in SESSIONS]


def moved(before: Split, after: Split) -> float:
    pairs = zip(drawn(before), drawn(after), strict=True)
    return sum(old != new for old, new in pairs) / len(SESSIONS)


def test_weights_are_kept() -> None:
    split = make_split("m", [arm("a", 95), arm("b", 5)])
    share = Counter(drawn(split))["b"] / len(SESSIONS)
    assert 0.04 < share < 0.06
    assert Counter(split.owners) == {0: 9_500, 1: 500}


def test_an_arm_is_drawn_once_per_tenant_and_session() -> None:
    arms = [arm("a", 1), arm("b", 1)]
    assert drawn(make_split("m", arms)) == drawn(make_split("m", arms))
    assert drawn(make_split("m", arms)) != drawn(make_split("m", arms), "other")
    assert drawn(make_split("m", arms)) != drawn(make_split("n", arms))


def test_a_change_of_weights_moves_only_what_it_must() -> None:
    before = make_split("m", [arm("a", 95), arm("b", 5)])
    after = reweigh(before, [arm("a", 90), arm("b", 10)])
    assert Counter(after.owners) == {0: 9_000, 1: 1_000}
    assert sum(old != new for old, new in zip(before.owners, after.owners, strict=True)) == 500
    assert 0.04 < moved(before, after) < 0.06
    kept = [(old, new) for old, new in zip(drawn(before), drawn(after), strict=True) if old == "b"]
    assert all(new == "b" for _, new in kept)


def test_arms_come_and_go_and_are_told_by_name() -> None:
    before = make_split("m", [arm("a", 50), arm("b", 50)])
    after = reweigh(before, [arm("c", 10), arm("b", 50), arm("a", 40)])
    assert 0.08 < moved(before, after) < 0.12
    without = reweigh(after, [arm("a", 1)])
    assert set(drawn(without)) == {"a"}
    assert without.choose("acme", "s").rule is ArmRule.ONLY_ARM


def test_a_tester_may_ask_for_an_arm_and_others_may_not() -> None:
    split = make_split("m", [arm("a", 1), arm("b", 0)])
    assert split.choose("acme", "s", asked="b", may_ask=True).arm == "b"
    assert split.choose("acme", "s", asked="b", may_ask=True).rule is ArmRule.HEADER
    assert split.choose("acme", "s", asked="b").arm == "a"
    assert split.choose("acme", "s", asked="gone", may_ask=True).arm == "a"


def test_a_tenant_is_pinned() -> None:
    split = make_split("m", [arm("a", 1), arm("b", 1)], {"acme": "b", "lost": "gone"})
    assert set(drawn(split)) == {"b"}
    assert split.choose("acme", "s").rule is ArmRule.PIN
    assert set(drawn(split, "lost")) == {"a", "b"}
    assert set(drawn(reweigh(split, split.arms, {}))) == {"a", "b"}
    assert set(drawn(reweigh(split, split.arms))) == {"b"}


def test_a_shadow_gets_a_share_of_each_arms_sessions_and_serves_nobody() -> None:
    split = make_split("m", [arm("a", 1), arm("b", 1), arm("shadow", 0, 0.2)])
    choices = [split.choose("acme", session) for session in SESSIONS]
    assert {choice.arm for choice in choices} == {"a", "b"}
    for name in ("a", "b"):
        of_arm = [choice for choice in choices if choice.arm == name]
        share = sum(choice.shadows == ("shadow",) for choice in of_arm) / len(of_arm)
        assert 0.17 < share < 0.23
    assert split.choose("acme", "s", asked="shadow", may_ask=True).shadows == ()


def test_small_and_odd_weights_add_up() -> None:
    split = make_split("m", [arm("a", 1_000_000), arm("b", 1), arm("c", 1)])
    assert len(split.owners) == SLOTS
    assert Counter(split.owners) == {0: SLOTS - 2, 1: 1, 2: 1}
    thirds = make_split("m", [arm("a", 1), arm("b", 1), arm("c", 1)])
    assert sorted(Counter(thirds.owners).values()) == [3_333, 3_333, 3_334]


@pytest.mark.parametrize("weights", [(), (0,), (1, -1)])
def test_a_split_needs_weights(weights: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="weight"):
        make_split("m", [arm(f"a{place}", weight) for place, weight in enumerate(weights)])
