"""Each detector: what it finds, and what it leaves alone."""

import pytest

from filter_cases import FALSE, TRUE, everything
from pilothouse.model.filters import Action, FilterSpec, PatternSpec
from pilothouse.policy.redaction.compiled import CompiledFilter, compile_filters
from pilothouse.policy.redaction.plan import BUILT_IN

ENGINES = ("hyperscan", "re2")
SPEC = everything(Action.REDACT)
FILTERS = {engine: compile_filters([SPEC], direction="output", engine=engine) for engine in ENGINES}
ALONE: dict[str, CompiledFilter] = {}


def _alone(entity: str) -> CompiledFilter:
    """The detectors of one entity, so that no other one finds it first."""
    if entity not in ALONE:
        spec = everything(Action.REDACT)
        one = FilterSpec(
            name=entity,
            output={entity: Action.REDACT},
            phone_regions=spec.phone_regions,
            id_countries=spec.id_countries,
        )
        ALONE[entity] = compile_filters([one], direction="output")
    return ALONE[entity]


def test_every_entity_has_true_and_false_cases() -> None:
    assert {entity for entity, _, _ in TRUE} == set(BUILT_IN)
    assert {entity for entity, _ in FALSE} == set(BUILT_IN)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("entity", "before", "value"), TRUE)
def test_a_value_is_found_whole(entity: str, before: str, value: str, engine: str) -> None:
    found, blocked = FILTERS[engine].whole(f"Well, {before}{value}, then.", FILTERS[engine].turn())

    assert (found, blocked) == (f"Well, {before}[{entity.upper()}_1], then.", None)


@pytest.mark.parametrize(("entity", "before", "value"), TRUE)
def test_a_value_is_found_by_its_own_detector_alone(entity: str, before: str, value: str) -> None:
    compiled = _alone(entity)
    found, _ = compiled.whole(f"Well, {before}{value}", compiled.turn())

    assert found == f"Well, {before}[{entity.upper()}_1]"


@pytest.mark.parametrize(("entity", "text"), FALSE)
def test_what_only_looks_like_one_stays(entity: str, text: str) -> None:
    compiled = _alone(entity)

    assert compiled.whole(text, compiled.turn())[0] == text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (" ".join(["\uff14" + "\uff11" * 3, *["\uff11" * 4] * 3]), "[PAYMENT_CARD_1]"),
        ("jane\uff20example\uff0ecom", "[EMAIL_1]"),
        ("ja\u200bne@exam\u00adple.com", "[EMAIL_1]"),
        ("DE89\u00a03704\u202f0044 0532 0130 00", "[IBAN_1]"),
        ("\u0664" + "\u0661" * 15, "[PAYMENT_CARD_1]"),
        ("\U0001d7d2" + "\U0001d7cf" * 15, "[PAYMENT_CARD_1]"),
        ("536\u201122\u20111234", "[US_SSN_1]"),
    ],
)
def test_other_spellings_of_the_same_value_are_found(text: str, found: str) -> None:
    compiled = FILTERS["hyperscan"]

    assert compiled.whole(f"« {text} »", compiled.turn())[0] == f"« {found} »"


def test_what_overlaps_is_one_match_under_the_strictest_action() -> None:
    group = PatternSpec(name="group", pattern="[0-9]{4} [0-9]{4}")
    for other in (Action.REDACT, Action.BLOCK):
        spec = FilterSpec(name="x", output={"payment_card": Action.MASK, "group": other}, patterns=(group,))
        compiled = compile_filters([spec], direction="output")
        found, blocked = compiled.whole("4111 1111 1111 1111", compiled.turn())
        assert (found == "[PAYMENT_CARD_1]", blocked is not None) == (other is Action.REDACT, other is Action.BLOCK)


def test_national_numbers_need_no_clock() -> None:
    for country, number in (
        ("BE", "85.07.30-033.28"), ("KR", "971013-9019902"), ("NO", "151086 95088"), ("ZA", "id 7503305044089"),
        ("DK", "211062-5629"),
    ):  # fmt: skip
        spec = FilterSpec(name="x", output={"national_id": Action.REDACT}, id_countries=(country,))
        compiled = compile_filters([spec], direction="output")
        assert "[NATIONAL_ID_1]" in compiled.whole(f"number {number}", compiled.turn())[0], country
