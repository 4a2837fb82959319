"""What the fake model decides to say."""

from typing import Any

import pytest

from pilothouse.testing.fake_engine.answers import PlannedAnswer, plan_answer
from pilothouse.testing.fake_engine.dialects.base import TextRequest
from pilothouse.testing.fake_engine.errors import RequestRefusedError
from pilothouse.testing.fake_engine.options import EngineOptions
from pilothouse.testing.fake_engine.scripts import NORMAL, Script
from pilothouse.testing.fake_engine.tokens import TextSource, tokenize

OPTIONS = EngineOptions(max_model_len=64, output_tokens_min=5, output_tokens_max=20)
PROMPT = tokenize("the question")


def plan(script: Script = NORMAL, choice: int = 0, **request: Any) -> PlannedAnswer:
    asked = TextRequest(model=None, prompts=[PROMPT], **request)
    return plan_answer(TextSource(0), OPTIONS, asked, script, PROMPT, choice)


def test_the_limit_is_the_length() -> None:
    answer = plan(max_tokens=7)
    assert len(answer.tokens) == len(answer.pieces) == 7
    assert answer.answer.finish_reason == "length"
    assert answer.answer.text == "".join(answer.pieces)


def test_without_a_limit_the_length_is_drawn_between_the_bounds() -> None:
    lengths = {len(plan(seed=seed).tokens) for seed in range(200)}
    assert lengths == set(range(5, 21))
    assert plan().answer.finish_reason == "stop"
    assert plan(seed=3) == plan(seed=3)


def test_choices_differ() -> None:
    assert plan(choice=0, max_tokens=9).answer.text != plan(choice=1, max_tokens=9).answer.text


def test_the_context_is_the_last_limit() -> None:
    short = EngineOptions(max_model_len=8, output_tokens_min=50, output_tokens_max=50)
    asked = TextRequest(model=None, prompts=[PROMPT])
    answer = plan_answer(TextSource(0), short, asked, NORMAL, PROMPT, 0)
    assert len(answer.tokens) == 8 - len(PROMPT)
    assert answer.answer.finish_reason == "length"


@pytest.mark.parametrize("limit", [62, 1000])
def test_a_limit_beyond_the_context_is_refused(limit: int) -> None:
    with pytest.raises(RequestRefusedError, match=rf"too large: {limit}.*\({limit} > 64 - 3\)") as caught:
        plan(max_tokens=limit)
    assert (caught.value.status, caught.value.param) == (400, "max_tokens")


def test_a_prompt_that_fills_the_context_is_refused() -> None:
    prompt = tokenize("x" * 256)
    asked = TextRequest(model=None, prompts=[prompt])
    with pytest.raises(RequestRefusedError, match="has 64 input tokens"):
        plan_answer(TextSource(0), OPTIONS, asked, NORMAL, prompt, 0)


def test_a_scripted_text_is_said_to_its_end() -> None:
    answer = plan(Script(text="Grüße, Welt!"))
    assert answer.answer.text == "Grüße, Welt!"
    assert answer.answer.finish_reason == "stop"
    assert "".join(answer.pieces) == "Grüße, Welt!"
    assert len(answer.tokens) == len(answer.pieces)


def test_a_scripted_text_yields_to_the_limit() -> None:
    answer = plan(Script(text="one two three"), max_tokens=2)
    assert answer.answer.text == "one two "
    assert answer.answer.finish_reason == "length"


def test_scripted_length_and_reason() -> None:
    assert len(plan(Script(output_tokens=3), max_tokens=9).tokens) == 3
    assert plan(Script(output_tokens=3), max_tokens=9).answer.finish_reason == "stop"
    assert plan(Script(output_tokens=30), max_tokens=9).answer.finish_reason == "length"
    assert plan(Script(output_tokens=0)).tokens.tolist() == []
    assert plan(Script(finish_reason="tool_calls"), max_tokens=9).answer.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("stop", "text", "tokens", "matched"),
    [
        (("o t",), "one tw", 3, "o t"),  # "one |two |thre|e fo|ur": the tokens that hold it are generated, too
        (("one",), "", 1, "one"),
        (("two", "three"), "one ", 2, "two"),
        (("ree f", "thr"), "one two ", 3, "thr"),
        (("nowhere",), "one two three four", 5, None),
    ],
)
def test_stop_strings_end_the_answer_before_them(
    stop: tuple[str, ...], text: str, tokens: int, matched: str | None
) -> None:
    answer = plan(Script(text="one two three four"), stop=stop)
    assert answer.answer.text == text
    assert "".join(answer.pieces) == text
    assert len(answer.tokens) == len(answer.pieces) == tokens
    assert (answer.answer.finish_reason, answer.answer.stop) == ("stop", matched)
