"""The least loaded of the candidates."""

from pilothouse.policy.draw import Draws
from pilothouse.policy.routing import least_loaded

DRAWS = Draws(1)


def test_the_least_loaded_is_taken() -> None:
    assert least_loaded([3, 1, 2], "r", DRAWS) == 1
    assert least_loaded([3, 1, 2], "r", DRAWS, excluded={1}) == 2


def test_ties_are_drawn() -> None:
    assert {least_loaded([1, 1, 5], f"r{number}", DRAWS) for number in range(50)} == {0, 1}
    assert {least_loaded([0, 1, 1], f"r{number}", DRAWS, excluded={0}) for number in range(50)} == {1, 2}


def test_there_may_be_nobody() -> None:
    assert least_loaded([], "r", DRAWS) is None
    assert least_loaded([1], "r", DRAWS, excluded={0}) is None
