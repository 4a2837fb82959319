"""A text without its long strings decodes to the same thing with those strings empty."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilothouse.model.errors import Refusal
from pilothouse.model.fleet import DeploymentView
from pilothouse.model.ids import DeploymentName
from pilothouse.model.requests import Route
from pilothouse.wire import inference_body
from pilothouse.wire.inference_body import LARGE_BODY_BYTES, InferenceBody
from pilothouse.wire.long_strings import LONG, without_long_strings

PROMPT = "Hello, how are you? " * (LARGE_BODY_BYTES // 16)


def chat(content: str, **fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": content}], **fields}).encode()


def emptied(value: Any) -> Any:
    """What `without_long_strings` may make of a value at most."""
    if isinstance(value, str):
        return "" if len(json.dumps(value)) > LONG else value
    if isinstance(value, list):
        return [emptied(each) for each in value]
    if isinstance(value, dict):
        return {key: emptied(each) for key, each in value.items()}
    return value


class TestText:
    def test_a_prompt_is_left_out_and_what_stands_around_it_stays(self) -> None:
        text = without_long_strings(chat(PROMPT, max_tokens=7))
        assert json.loads(text) == json.loads(chat("", max_tokens=7))

    def test_an_escaped_quote_does_not_end_a_string(self) -> None:
        for content in ('say "yes" ' * 9 + PROMPT, PROMPT + '"', PROMPT + "\\", "\\" * 9 + '"' + PROMPT):
            assert json.loads(without_long_strings(chat(content))) == json.loads(chat(""))

    def test_a_text_of_many_quotes_is_left_to_the_decoder(self) -> None:
        data = chat('"' * 100_000)
        assert without_long_strings(data) == data

    def test_backslashes_without_end_are_left_to_the_decoder(self) -> None:
        data = chat("\\" * 1_000_000)
        assert without_long_strings(data) == data

    @pytest.mark.parametrize("text", [b"", b'"', b'{"a":"' + b"x" * 5000, b"\\" * 99, b'"' + b"\\" * 9999])
    def test_what_is_not_json_is_not_made_json(self, text: bytes) -> None:
        with pytest.raises(msgspec.DecodeError):
            msgspec.json.decode(without_long_strings(text))

    @given(
        st.recursive(
            st.integers()
            | st.text('ab"\\\u00e9\n', max_size=9)
            | st.sampled_from(['x"\\' * 999, "y" * 5000, "\\" * 70]),
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('k"\\', max_size=3), inner, max_size=4),
            max_leaves=12,
        ),
        st.booleans(),
    )
    @settings(max_examples=300)
    def test_only_long_strings_change(self, value: Any, spaced: bool) -> None:
        data = json.dumps(value, separators=(", ", ": ") if spaced else (",", ":"), ensure_ascii=spaced).encode()
        assert emptied(json.loads(without_long_strings(data))) == emptied(value)


class TestBody:
    def test_a_large_body_is_read_like_a_small_one(self) -> None:
        body = inference_body.read(chat(PROMPT, stream=True, max_tokens=7), Route.CHAT_COMPLETIONS)
        assert isinstance(body, InferenceBody)
        assert (body.model, body.stream, body.max_output_tokens) == ("m", True, 7)
        assert json.loads(bytes(body.whole_fields()["messages"]))[0]["content"] == PROMPT

    @pytest.mark.parametrize(
        ("data", "code", "told"),
        [
            (chat(PROMPT)[:-1], "invalid_json", "truncated"),
            (b'{"messages":"%b",,}' % (b"x" * 40_000), "invalid_json", "byte 40015"),
            (b'{"model":"m","messages":"%b","model":"n"}' % (b"x" * 40_000), "duplicate_key", "repeated"),
            (b'{"model":"%b"}' % (b"m" * 40_000), "invalid_value", "model must have"),
            (chat(PROMPT)[:-9] + b"\xff" + chat(PROMPT)[-9:], "invalid_json", "not UTF-8"),
        ],
    )
    def test_what_is_wrong_with_it_is_told_of_the_whole(self, data: bytes, code: str, told: str) -> None:
        refusal = inference_body.read(data, Route.CHAT_COMPLETIONS)
        assert isinstance(refusal, Refusal)
        assert refusal.code == code
        assert told in refusal.message

    def test_two_long_keys_are_two_keys(self) -> None:
        data = json.dumps({"model": "m", "a" * 40_000: 1, "b" * 40_000: 2}).encode()
        assert isinstance(inference_body.read(data, Route.CHAT_COMPLETIONS), InferenceBody)

    def test_an_edited_body_keeps_its_prompt(self) -> None:
        body = inference_body.read(chat(PROMPT, priority=1), Route.CHAT_COMPLETIONS)
        assert isinstance(body, InferenceBody)
        deployment = DeploymentView(
            name=DeploymentName("d"), engine="fake", routes=tuple(Route), reserved_fields=("priority",)
        )
        assert json.loads(inference_body.for_engine(body, deployment)) == json.loads(chat(PROMPT))
