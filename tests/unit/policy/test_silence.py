"""When a replica that says nothing is taken to hang, and for how long it is left alone."""

import pytest

from pilothouse.model.units import SECOND
from pilothouse.policy.silence import EJECTION_BASE, EJECTION_CAP, SILENCES, ejection


@pytest.mark.parametrize(
    ("silences", "seconds"), [(0, 0), (SILENCES - 1, 0), (SILENCES, 30), (SILENCES + 1, 60), (SILENCES + 100, 300)]
)
def test_longer_each_time_up_to_a_cap(silences: int, seconds: int) -> None:
    assert ejection(silences) == seconds * SECOND
    assert EJECTION_BASE == 30 * SECOND
    assert EJECTION_CAP == 300 * SECOND
