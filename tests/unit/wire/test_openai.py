"""What the gateway reads and writes in the OpenAI dialect."""

import json
from typing import Any

import pytest

from pilothouse.model.errors import Refusal
from pilothouse.model.fleet import ModelView
from pilothouse.model.ids import ModelName
from pilothouse.model.requests import Usage
from pilothouse.wire import openai
from pilothouse.wire.openai import MAX_PARSED_ANSWER_BYTES, Content

MODEL = ModelView(name=ModelName("m"), created=17, deployments=())
NESTED = b"[" * 100_000


def event(fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def delta(**fields: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": None}]})


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("invalid_json", "invalid_request_error"),
        ("invalid_api_key", "authentication_error"),
        ("no_ready_replica", "service_unavailable_error"),
        ("replica_lost", "upstream_error"),
        ("internal_error", "server_error"),
    ],
)
def test_an_error_has_message_type_param_and_code(code: str, kind: str) -> None:
    refusal = Refusal(code=code, message="m", param="p")
    error = {"error": {"message": "m", "type": kind, "param": "p", "code": code}}
    assert json.loads(openai.error_body(refusal)) == error
    assert openai.error_event(refusal) == b"data: " + openai.error_body(refusal) + b"\n\n"


def test_the_list_of_models() -> None:
    one = {"id": "m", "object": "model", "created": 17, "owned_by": "pilothouse"}
    assert json.loads(openai.model_list((MODEL,))) == {"object": "list", "data": [one]}
    assert json.loads(openai.model_body(MODEL)) == one


class TestUsageOfAnswers:
    @pytest.mark.parametrize(
        ("usage", "expected"),
        [
            ({"prompt_tokens": 3, "completion_tokens": 2}, (3, 2, 0)),
            ({"input_tokens": 3, "output_tokens": 2}, (3, 2, 0)),
            ({"prompt_tokens": 3}, (3, 0, 0)),
            ({"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}, (3, 2, 1)),
            ({"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {}}, (3, 2, 0)),
            ({"input_tokens": 3, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 1}}, (3, 2, 1)),
            ({"input_tokens": 3, "output_tokens": 2, "cache_read_input_tokens": 1}, (3, 2, 1)),
        ],
    )
    def test_in_every_dialect(self, usage: dict[str, Any], expected: tuple[int, int, int]) -> None:
        found = openai.usage_of_answer(json.dumps({"id": 1, "usage": usage}).encode())
        assert found == Usage(input_tokens=expected[0], output_tokens=expected[1], cached_tokens=expected[2])

    @pytest.mark.parametrize(
        "body",
        [
            b'{"id":1}',
            b'{"usage":null}',
            b'{"usage":{}}',
            b'{"usage":{"prompt_tokens":"3"}}',
            b'{"usage":7}',
            b'"usage"',
            b'{"usage":',
            b'{"usage":' + NESTED,
            b"\xff",
        ],
    )
    def test_none_is_none(self, body: bytes) -> None:
        assert openai.usage_of_answer(body) is None

    def test_in_a_very_long_answer_only_the_usage_is_read(self) -> None:
        text = b'{"text":"%b",' % (b"x" * MAX_PARSED_ANSWER_BYTES)
        found = openai.usage_of_answer(text + b'"usage": {"prompt_tokens":3,"completion_tokens":2},"z":1}')
        assert found == Usage(input_tokens=3, output_tokens=2)
        assert openai.usage_of_answer(text + b'"usage":7}') is None
        assert openai.usage_of_answer(text + b'"usage":{"prompt_tokens":"x"}}') is None


class TestContentOfEvents:
    @pytest.mark.parametrize(
        ("data", "content"),
        [
            (delta(role="assistant"), Content.NONE),
            (delta(role="assistant", content=""), Content.NONE),
            (delta(content=None), Content.NONE),
            (delta(), Content.NONE),
            (delta(content="a"), Content.SOME),
            (b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', Content.SOME),
            (b'data: {"choices":[{"delta":{"content":""}}]}\n\n', Content.NONE),
            (b'data: {"choices":[{"delta":{"content":"', Content.SOME),
            (b'data: {"choices":[{"delta":{"content":"a"}}],"error":{"message":"m"}}\n\n', Content.ERROR),
            (delta(reasoning_content="a"), Content.SOME),
            (delta(tool_calls=[{"index": 0}]), Content.SOME),
            (event({"choices": [{"delta": {}, "finish_reason": "stop"}]}), Content.SOME),
            (event({"choices": [{"text": "a"}]}), Content.SOME),
            (event({"choices": []}), Content.SOME),
            (event({"error": {"message": "m"}}), Content.ERROR),
            (event({"error": None, "choices": [{"delta": {}}]}), Content.NONE),
            (event({"type": "message_start"}), Content.NONE),
            (event({"type": "response.created"}), Content.NONE),
            (event({"type": "content_block_delta"}), Content.SOME),
            (event({"type": "error", "error": {"type": "overloaded_error"}}), Content.ERROR),
            (b": ping\n\n", Content.COMMENT),
            (b"data: [DONE]\n\n", Content.SOME),
            (b"data: {\n\n", Content.SOME),
            (b"data: " + NESTED + b"\n\n", Content.SOME),
        ],
    )
    def test_in_every_dialect(self, data: bytes, content: Content) -> None:
        assert openai.content_of_event(data) is content

    @pytest.mark.parametrize(
        ("error", "status"),
        [
            ({"code": 400, "message": "m"}, 400),
            ({"code": 200}, None),
            ({"code": "bad"}, None),
            ("m", None),
            ({}, None),
        ],
    )
    def test_an_error_may_name_a_status(self, error: Any, status: int | None) -> None:
        body = json.dumps({"error": error}).encode()
        assert openai.error_of_event(b"data: " + body + b"\n\n") == (status, body)

    @pytest.mark.parametrize("data", [b"{", b"{}", NESTED])
    def test_an_error_that_cannot_be_read_is_passed_on(self, data: bytes) -> None:
        assert openai.error_of_event(b"data: " + data + b"\n\n") == (None, data)


class TestUsageOfEvents:
    def test_the_last_one_counts_and_what_cannot_be_read_changes_nothing(self) -> None:
        first = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}})
        last = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
        broken = b'data: {"usage":\n\n'
        null = event({"choices": [], "usage": None})
        assert openai.usage_of_events(delta(content="a") + first + last) == Usage(input_tokens=3, output_tokens=2)
        assert openai.usage_of_events(broken + null) is None
        known = Usage(input_tokens=1, output_tokens=1)
        assert openai.usage_of_events(broken + null, known) is known

    def test_messages_tell_input_first_and_output_last(self) -> None:
        start = event(
            {"type": "message_start", "message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 2}}}
        )
        end = event({"type": "message_delta", "usage": {"output_tokens": 7}})
        usage = openai.usage_of_events(end, openai.usage_of_events(start))
        assert usage == Usage(input_tokens=5, output_tokens=7, cached_tokens=2)

    def test_responses_tell_it_in_their_last_event(self) -> None:
        done = event({"type": "response.completed", "response": {"usage": {"input_tokens": 5, "output_tokens": 7}}})
        assert openai.usage_of_events(done) == Usage(input_tokens=5, output_tokens=7)

    def test_the_usage_event_is_taken_out(self) -> None:
        usage = event({"choices": [], "usage": {"prompt_tokens": 3}}).replace(b'"choices": []', b'"choices":[]')
        text = delta(content="a")
        assert openai.without_usage(text + usage + b"data: [DONE]\n\n") == text + b"data: [DONE]\n\n"

    def test_an_event_with_content_only_loses_the_field(self) -> None:
        both = event({"choices": [{"delta": {"content": "a"}}], "usage": {"prompt_tokens": 3}})
        (data,) = [json.loads(each[6:]) for each in openai.without_usage(both).strip().split(b"\n\n")]
        assert data == {"choices": [{"delta": {"content": "a"}}]}

    @pytest.mark.parametrize("data", [b'{"a":"\\"usage\\""}', b'{"a":{"usage":1}}', b'{"usage":', b'"usage"'])
    def test_what_only_looks_like_usage_stays(self, data: bytes) -> None:
        assert openai.without_usage(b"data: " + data + b"\n\n") == b"data: " + data + b"\n\n"
