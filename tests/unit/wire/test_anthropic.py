"""Errors as the Anthropic clients expect them."""

import json

import pytest

from pilothouse.model.errors import Refusal
from pilothouse.model.ids import RequestId
from pilothouse.wire import anthropic


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("invalid_json", "invalid_request_error"),
        ("invalid_api_key", "authentication_error"),
        ("model_not_found", "not_found_error"),
        ("body_too_large", "request_too_large"),
        ("no_ready_replica", "overloaded_error"),
        ("replica_timeout", "timeout_error"),
        ("replica_lost", "api_error"),
        ("internal_error", "api_error"),
    ],
)
def test_the_type_follows_the_status(code: str, kind: str) -> None:
    body = anthropic.error_body(Refusal(code=code, message="m"), RequestId("req_1"))
    assert json.loads(body) == {"type": "error", "error": {"type": kind, "message": "m"}, "request_id": "req_1"}


def test_an_error_inside_a_stream_is_a_named_event() -> None:
    refusal = Refusal(code="replica_lost", message="m")
    event = anthropic.error_event(refusal, RequestId("req_1"))
    assert event == b"event: error\ndata: " + anthropic.error_body(refusal, RequestId("req_1")) + b"\n\n"
