import random

import pytest

from pilothouse.policy.limits.token_estimate import MediaCost, TokenEstimator


def test_the_prior_is_four_bytes_a_token() -> None:
    assert TokenEstimator().estimate(4000) == 1001
    assert TokenEstimator().estimate(0) == 1


@pytest.mark.parametrize(("ratio", "fixed"), [(0.25, 0), (0.2, 30), (0.9, 12)])
def test_the_ratio_and_the_templates_part_are_learned(ratio: float, fixed: int) -> None:
    draw = random.Random(3)
    estimator = TokenEstimator()
    for _ in range(600):
        size = int(10 ** draw.uniform(1.5, 5))
        estimator.observe(size, max(1, round((fixed + ratio * size) * draw.uniform(0.95, 1.05))))
    assert estimator.error.absolute < 0.05
    assert abs(estimator.error.bias) < 0.02
    assert estimator.estimate(50_000) == pytest.approx(fixed + ratio * 50_000, rel=0.03)


def test_requests_of_one_size_teach_it_too() -> None:
    estimator = TokenEstimator()
    for _ in range(300):
        estimator.observe(1000, 400)
    assert estimator.estimate(1000) == pytest.approx(400, abs=8)


def test_a_model_that_changes_is_followed() -> None:
    draw = random.Random(3)
    estimator = TokenEstimator()
    for ratio in (0.2, 0.5):
        for _ in range(1000):
            size = draw.randint(100, 10_000)
            estimator.observe(size, round(ratio * size))
    assert estimator.estimate(10_000) == pytest.approx(5000, rel=0.02)


def test_the_error_tells_which_way_it_is_off() -> None:
    estimator = TokenEstimator()
    estimator.observe(4000, 500)
    assert estimator.error.observations == 1
    assert estimator.error.bias == pytest.approx(1.0, abs=0.01)


def test_media_have_declared_costs_and_teach_nothing() -> None:
    estimator = TokenEstimator(MediaCost(image=1000, audio_second=50))
    before = estimator.estimate(4000)
    assert estimator.estimate(4000, images=2, audio_seconds=1.5) == before + 2075
    for _ in range(100):
        estimator.observe(4000, 9000, images=1)
    assert estimator.estimate(4000) == before
    assert estimator.error.observations == 100


def test_nonsense_from_an_engine_teaches_nothing() -> None:
    estimator = TokenEstimator()
    estimator.observe(4000, 0)
    estimator.observe(0, 10)
    assert estimator.error.observations == 0
    for _ in range(500):
        estimator.observe(10, 1_000_000)
    assert estimator.estimate(1000) <= 1_000_000 + 1501
