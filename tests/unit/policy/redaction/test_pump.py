"""The pump: the same result however the text is cut, nothing sent before it is decided, and bounds."""

import itertools

import pytest

from filter_cases import TRUE, everything
from pilothouse.model.filters import Action, FilterSpec, PatternSpec, PhrasesSpec
from pilothouse.policy.redaction.compiled import CompiledFilter, apply, compile_filters

FILTERS = {
    (action, engine): compile_filters([everything(action)], direction="output", engine=engine)
    for action in (Action.REDACT, Action.MASK, Action.HASH, Action.BLOCK)
    for engine in ("hyperscan", "re2")
}
FOLLOWING = ", then more words"


def _sent(compiled: CompiledFilter, pieces: list[str]) -> tuple[str, list[str]]:
    """All that is sent, and what was sent after each piece."""
    channel = compiled.channel(compiled.turn())
    text, sent, steps = "", "", []
    for piece in [*pieces, None]:
        if piece is None:
            decided = channel.close() if channel.state.blocked is None else len(text)
        else:
            text += piece
            decided = channel.feed(piece)
        if channel.state.blocked is not None:
            sent = apply(text[: _decided_at(channel.feed(""), text)], channel.edits)
            break
        sent = apply(text[:decided], [edit for edit in channel.edits if edit[1] <= decided])
        steps.append(sent)
    return sent, steps


def _decided_at(position: int, text: str) -> int:
    return min(position, len(text))


@pytest.mark.parametrize("action", [Action.REDACT, Action.MASK, Action.HASH, Action.BLOCK])
@pytest.mark.parametrize(("entity", "before", "value"), TRUE)
def test_cut_at_every_offset_the_result_is_that_of_the_whole(
    entity: str, before: str, value: str, action: Action
) -> None:
    compiled = FILTERS[action, "hyperscan"]
    text = before + value + FOLLOWING
    whole, _ = _sent(compiled, [text])
    for cut in range(1, len(text)):
        assert _sent(compiled, [text[:cut], text[cut:]])[0] == whole
    pieces, steps = _sent(compiled, list(text))
    assert pieces == whole
    # Nothing is taken back, and no beginning of the value is ever out.
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(steps))
    if action in (Action.REDACT, Action.BLOCK):
        assert value[: max(2, len(value) // 2)] not in whole


@pytest.mark.parametrize(("entity", "before", "value"), TRUE)
def test_both_engines_send_the_same(entity: str, before: str, value: str) -> None:
    text = before + value + FOLLOWING
    results = [_sent(FILTERS[Action.REDACT, engine], list(text)) for engine in ("hyperscan", "re2")]

    assert results[0] == results[1]


def test_clean_prose_waits_for_its_next_word_boundary_at_most() -> None:
    compiled = FILTERS[Action.REDACT, "hyperscan"]
    channel = compiled.channel(compiled.turn())
    text = ""
    for piece in ["The", " quick", " brown", ".", " I", " don", "'t", " know", ","]:
        text += piece
        decided = channel.feed(piece)
        assert " " not in text[decided:].lstrip()
    assert decided == len(text)


def test_what_kills_a_candidate_releases_it_at_once() -> None:
    compiled = FILTERS[Action.REDACT, "hyperscan"]
    channel = compiled.channel(compiled.turn())

    assert channel.feed("card 4111 1111 1111") == 5
    assert channel.feed(" and") == 20
    assert channel.feed(" x") == 24


def test_the_bound_is_the_longest_that_any_detector_needs() -> None:
    matcher = FILTERS[Action.REDACT, "hyperscan"].enforcing
    assert matcher is not None

    assert matcher.bound == 320
    assert matcher.weak_bound == 90
    channel = FILTERS[Action.REDACT, "hyperscan"].channel(FILTERS[Action.REDACT, "hyperscan"].turn())
    for fed in range(1, 3000):
        decided = channel.feed("x")
        assert fed - decided <= matcher.weak_bound


def test_an_address_still_open_at_the_bound_is_treated_as_found() -> None:
    compiled = FILTERS[Action.REDACT, "hyperscan"]
    text = "to bob@" + "a.b" * 200 + " end"

    assert _sent(compiled, list(text))[0] == "to [EMAIL_1] end"
    assert _sent(compiled, [text])[0] == "to [EMAIL_1] end"


@pytest.mark.parametrize("engine", ["hyperscan", "re2"])
def test_an_own_expression_still_open_at_its_bound_is_treated_as_found(engine: str) -> None:
    spec = FilterSpec(
        name="x",
        output={"order": Action.REDACT},
        patterns=(PatternSpec(name="order", pattern="ORD-[0-9]+X", max_chars=20),),
    )
    compiled = compile_filters([spec], direction="output", engine=engine)

    assert _sent(compiled, list("an ORD-" + "1" * 100 + " end"))[0] == "an [ORDER_1] end"
    assert _sent(compiled, list("an ORD-12X end"))[0] == "an [ORDER_1] end"
    assert _sent(compiled, list("an ORD-12 end"))[0] == "an ORD-12 end"


def test_a_long_secret_is_decided_at_its_marker_and_swallowed() -> None:
    compiled = FILTERS[Action.REDACT, "hyperscan"]
    channel = compiled.channel(compiled.turn())
    for piece in ["key:\n-----BEGIN PRIVATE KEY-----\n", *["MIIEvQIBADANBgkqhkiG9w0BAQ\n"] * 200]:
        decided = channel.feed(piece)
    # Nothing waits: the key is being swallowed as it comes.
    assert decided == 5 + 28 + 27 * 200
    channel.feed("-----END PRIVATE KEY-----\nbye.")
    channel.close()
    assert "".join(replacement for _, _, replacement in channel.edits) == "[PRIVATE_KEY_1]"


def test_a_stall_decides_what_is_open_but_not_the_beginning_of_a_word() -> None:
    compiled = FILTERS[Action.REDACT, "hyperscan"]
    channel = compiled.channel(compiled.turn())
    channel.feed("mail bob")
    assert channel.stalled() == 5
    channel.feed("@exam")
    channel.stalled()
    channel.feed("ple.com now")
    channel.close()
    assert apply("mail bob@example.com now", channel.edits) == "mail [EMAIL_1] now"


def test_monitored_entities_are_counted_and_delay_nothing() -> None:
    compiled = compile_filters([everything(Action.MONITOR)], direction="output")
    turn = compiled.turn()
    channel = compiled.channel(turn)
    fed = 0
    for piece in "to jane@example.com":
        fed += len(piece)
        assert channel.feed(piece) == fed
    channel.close()
    assert turn.counts == {("email", Action.MONITOR): 1}
    assert not channel.edits


def test_placeholders_are_stable_in_a_turn() -> None:
    compiled = FILTERS[Action.REDACT, "hyperscan"]
    text = "a@example.com b@example.com A@example.com, 4111 1111 1111 1111 or 4111-1111-1111-1111"

    assert (
        compiled.whole(text, compiled.turn())[0]
        == "[EMAIL_1] [EMAIL_2] [EMAIL_1], [PAYMENT_CARD_1] or [PAYMENT_CARD_1]"
    )


def test_a_mask_leaves_four_and_a_hash_depends_on_the_key() -> None:
    mask, digest = FILTERS[Action.MASK, "hyperscan"], FILTERS[Action.HASH, "hyperscan"]
    other = compile_filters([FilterSpec(name="x", output={"email": Action.HASH}, hash_key="other")], direction="output")

    assert mask.whole("4111 1111 1111 1111", mask.turn())[0] == "**** **** **** 1111"
    hashed = [each.whole("a@example.com", each.turn())[0] for each in (digest, digest, other)]
    assert hashed[0] == hashed[1] != hashed[2]
    assert hashed[0].startswith("[EMAIL:")


def test_phrases_are_found_as_whole_words_whatever_their_case_and_spaces() -> None:
    spec = FilterSpec(
        name="x",
        output={"codename": Action.REDACT},
        phrases=(PhrasesSpec(name="codename", phrases=("Blue Falcon", "blue falcon two", "ox")),),
    )
    compiled = compile_filters([spec], direction="output")
    for text, expected in (
        ("the BLUE  falcon flew", "the [CODENAME_1] flew"),
        ("the blue falcon two flew", "the [CODENAME_1] flew"),
        ("a blue falconer, a box", "a blue falconer, a box"),
        ("blue", "blue"),
    ):
        assert _sent(compiled, [text])[0] == expected
        assert _sent(compiled, list(text))[0] == expected


def test_a_hundred_thousand_phrases_cost_what_one_costs() -> None:
    phrases = tuple(f"word{number} of list {number % 977}" for number in range(100_000))
    spec = FilterSpec(name="x", output={"l": Action.REDACT}, phrases=(PhrasesSpec(name="l", phrases=phrases),))
    compiled = compile_filters([spec], direction="output")

    assert compiled.whole("a word99999 of list 345, and word99999 of list 344", compiled.turn())[0] == (
        "a [L_1], and word99999 of list 344"
    )
