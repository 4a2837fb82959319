"""Which filters apply to which turns of a worker, and what is compiled for them."""

import msgspec
import pytest

from data_plane import MODEL, snapshot
from pilothouse.gateway.filter_sets import FilterSets
from pilothouse.model.filters import Action, FilterSpec
from pilothouse.model.fleet import FleetSnapshot
from pilothouse.policy.redaction.matcher import Matcher

FOR_ALL = FilterSpec(name="all", output={"email": Action.MASK})
OURS = FilterSpec(name="ours", tenants=("tests",), output={"email": Action.REDACT}, input={"jwt": Action.BLOCK})
ELSEWHERE = FilterSpec(name="elsewhere", models=("another",), output={"all": Action.BLOCK})


def fleet(*filters: FilterSpec) -> FleetSnapshot:
    return msgspec.structs.replace(snapshot([1]), filters=filters)


def sets(*filters: FilterSpec, before: FilterSets | None = None) -> FilterSets:
    return FilterSets(fleet(*filters), before)


def test_without_filters_a_model_has_none() -> None:
    assert sets().of_model(MODEL) is None
    assert sets(ELSEWHERE).of_model(MODEL) is None


def test_a_named_tenant_has_its_own_set_and_others_what_is_for_all() -> None:
    model = sets(FOR_ALL, OURS).of_model(MODEL)
    assert model is not None
    ours, others = model.of("tests"), model.of("who-ever")
    assert ours is not None
    assert others is not None
    assert ours.input is not None
    assert others.input is None
    assert ours.output is not None
    assert others.output is not None
    assert ours.output.whole("a@b.io", ours.output.turn())[0] == "[EMAIL_1]"
    assert others.output.whole("a@b.io", others.output.turn())[0] == "*@*.io"


def test_a_filter_of_one_tenant_leaves_the_others_without() -> None:
    model = sets(OURS).of_model(MODEL)
    assert model is not None
    assert model.of("who-ever") is None


def test_equal_sets_are_compiled_once_and_taken_over() -> None:
    both = FilterSpec(name="both", output={"email": Action.REDACT}, input={"email": Action.REDACT})
    first = sets(both)
    assert len(first.compiled) == 1
    second = sets(both, OURS, before=first)
    assert first.compiled.items() <= second.compiled.items()
    assert next(iter(first.compiled.values())) in second.compiled.values()


def test_they_serve_snapshots_with_the_same_filters_and_models() -> None:
    some = sets(OURS)
    assert some.serves(msgspec.structs.replace(fleet(OURS), version=9))
    assert not some.serves(fleet(FOR_ALL))
    assert not some.serves(msgspec.structs.replace(fleet(OURS), models=()))
    assert sets().serves(msgspec.structs.replace(fleet(), models=()))


@pytest.mark.parametrize("fail_open", [False, True])
def test_what_cannot_be_compiled_refuses_its_turns_unless_declared(
    fail_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Matcher, "__init__", broken)
    model = sets(msgspec.structs.replace(OURS, fail_open=fail_open)).of_model(MODEL)
    if fail_open:
        assert model is None
    else:
        assert model is not None
        ours = model.of("tests")
        assert ours is not None
        assert ours.refusal is not None
        assert ours.refusal.code == "filter_failed"
