import random

import pytest

from pilothouse.policy.limits.expected_output import PRIOR_TOKENS, ExpectedOutput


def test_before_anything_is_known_the_prior_is_expected() -> None:
    assert ExpectedOutput().expect("t", "m", None) == PRIOR_TOKENS


def test_max_tokens_bounds_what_is_reserved() -> None:
    expected = ExpectedOutput()
    assert expected.expect("t", "m", 100) == 100
    assert expected.expect("t", "m", 10_000) == PRIOR_TOKENS
    assert expected.expect("t", "m", 0) == 1


def test_every_choice_counts() -> None:
    assert ExpectedOutput().expect("t", "m", 100, choices=4) == 400


@pytest.mark.parametrize("quantile", [0.5, 0.9])
@pytest.mark.parametrize("mean", [20.0, 300.0, 3000.0])
def test_the_quantile_is_learned(quantile: float, mean: float) -> None:
    draw = random.Random(7)
    expected = ExpectedOutput(quantile)
    covered = 0
    for n in range(4000):
        tokens = 1 + int(draw.expovariate(1 / mean))
        if n >= 1000:
            covered += tokens <= expected.expect("t", "m", None)
        expected.observe("t", "m", tokens)
    assert covered / 3000 == pytest.approx(quantile, abs=0.05)


def test_a_tenant_that_changes_is_followed() -> None:
    expected = ExpectedOutput()
    for _ in range(200):
        expected.observe("t", "m", 20)
    assert expected.expect("t", "m", None) <= 30
    for _ in range(200):
        expected.observe("t", "m", 2000)
    assert expected.expect("t", "m", None) >= 1500


def test_tenants_do_not_share_what_is_learned_but_new_ones_start_from_the_models() -> None:
    expected = ExpectedOutput()
    for _ in range(200):
        expected.observe("small", "m", 10)
    for _ in range(200):
        expected.observe("large", "m", 1000)
    assert expected.expect("small", "m", None) < 20
    assert expected.expect("large", "m", None) > 800
    assert expected.expect("new", "m", None) > 20
    assert expected.expect("new", "other", None) == PRIOR_TOKENS


def test_what_is_kept_is_bounded() -> None:
    expected = ExpectedOutput(max_learned=10)
    for tenant in range(100):
        expected.observe(f"t{tenant}", "m", 5000)
    assert expected.expect("t0", "other", None) == PRIOR_TOKENS
    assert len(expected._learned) == 10


def test_requests_for_one_token_teach_nothing() -> None:
    expected = ExpectedOutput()
    for _ in range(500):
        expected.observe("t", "m", 1, cut_off=True)
    assert expected.expect("t", "m", None) == PRIOR_TOKENS
    expected.observe("t", "m", 5000, cut_off=True)
    assert expected.expect("t", "m", None) > PRIOR_TOKENS
