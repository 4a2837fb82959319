import pytest

from pilothouse.model.effects import Effect, PlaceReplica, Probe, PublishState, WakeAt
from pilothouse.model.events import Event, ReplicaRequested
from pilothouse.model.fleet import ReplicaState
from pilothouse.model.units import MonotonicNs
from pilothouse.policy.machine import InvariantViolation
from pilothouse.testing import Matching, Playbook

REQUESTED = ReplicaRequested(at=MonotonicNs(7))


class Scripted:
    """Answers every event with the same effects."""

    def __init__(self, *effects: Effect) -> None:
        self.effects = effects
        self.broken = False

    def handle(self, _: Event) -> tuple[Effect, ...]:
        return self.effects

    def invariants(self) -> None:
        if self.broken:
            raise InvariantViolation("scripted", "broken", ())


def test_a_script_that_fits_passes() -> None:
    with Playbook(Scripted(Probe(token=1), PlaceReplica())) as play:
        play.given(REQUESTED).expect(Probe(token=1), PlaceReplica())


@pytest.mark.parametrize(
    "expected",
    [
        (Probe(token=2), PlaceReplica()),
        (PlaceReplica(), Probe(token=1)),
        (Probe(token=1),),
        (Probe(token=1), PlaceReplica(), PlaceReplica()),
        (Matching(Probe, token=2), PlaceReplica()),
    ],
)
def test_other_effects_fail(expected: tuple[Effect | Matching, ...]) -> None:
    with (
        pytest.raises(AssertionError, match="not the expected ones"),
        Playbook(Scripted(Probe(token=1), PlaceReplica())) as play,
    ):
        play.given(REQUESTED).expect(*expected)


def test_the_failure_shows_the_script_and_the_difference() -> None:
    with (
        pytest.raises(AssertionError) as failed,
        Playbook(Scripted(Probe(token=1), PublishState(state=ReplicaState.READY, detail="warm"))) as play,
    ):
        (
            play.given(REQUESTED)
            .expect(Probe(token=1), Matching(PublishState, detail="warm"))
            .given(REQUESTED)
            .expect(Probe(token=3), Matching(PublishState, detail="cold"))
        )
    lines = str(failed.value).splitlines()
    assert lines[1:5] == [
        "  >> ReplicaRequested(at=7)",
        "  << Probe(token=1)",
        "  << PublishState(state=<ReplicaState.READY: 'Ready'>, detail='warm')",
        "  >> ReplicaRequested(at=7)",
    ]
    assert "- << Probe(token=3)" in lines
    assert "+ << Probe(token=1)" in lines
    assert "- << PublishState(detail~'cold', ...)" in lines


def test_effects_that_nobody_expected_fail_at_the_next_event() -> None:
    with pytest.raises(AssertionError), Playbook(Scripted(PlaceReplica())) as play:
        play.given(REQUESTED).given(REQUESTED)


def test_effects_that_nobody_expected_fail_at_the_end() -> None:
    with pytest.raises(AssertionError), Playbook(Scripted(PlaceReplica())) as play:
        play.given(REQUESTED)


def test_another_failure_is_not_hidden_by_unexpected_effects() -> None:
    expectations: dict[str, Effect] = {}
    with pytest.raises(KeyError), Playbook(Scripted(PlaceReplica())) as play:
        play.given(REQUESTED).expect(expectations["placed"])


def test_a_script_outside_its_block_is_refused() -> None:
    play = Playbook(Scripted(PlaceReplica()))
    with pytest.raises(RuntimeError, match="asserts nothing"):
        play.given(REQUESTED)
    with pytest.raises(RuntimeError, match="asserts nothing"):
        play.expect()


def test_invariants_are_checked_after_every_event() -> None:
    machine = Scripted()
    machine.broken = True
    with pytest.raises(InvariantViolation), Playbook(machine) as play:
        play.given(REQUESTED)


def test_matching_looks_at_the_given_fields_only() -> None:
    wake = WakeAt(at=MonotonicNs(5), token=1)
    assert Matching(WakeAt, at=5).matches(wake)
    assert not Matching(WakeAt, at=6).matches(wake)
    assert not Matching(Probe).matches(wake)
    assert Matching(PublishState, detail="loop").matches(PublishState(state=ReplicaState.FAILED, detail="crash loop"))


def test_matching_refuses_fields_that_there_are_not() -> None:
    with pytest.raises(TypeError, match="WakeAt has no field when"):
        Matching(WakeAt, when=1)
