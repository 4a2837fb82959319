"""What is held back of a stream, what is taken out, what is learned."""

import pytest

from pilothouse.model.requests import Route, Usage
from pilothouse.wire.event_relay import MAX_HELD_BYTES, EventRelay

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}\n\n'
PROGRESS = b'data: {"choices":[{"index":0,"delta":{"role":"assistant"}}],"prompt_progress":{"total":9}}\n\n'
TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"sea"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}\n\n'
ERROR = b'data: {"error":{"code":400,"message":"too long"}}\n\n'
COMMENT = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"


def test_an_opening_is_held_back_until_content_comes() -> None:
    relay = EventRelay(Route.CHAT_COMPLETIONS)
    assert (relay.feed(ROLE), relay.begun) == (b"", False)
    assert (relay.feed(TEXT), relay.begun, relay.content_seen) == (ROLE + TEXT, True, True)
    assert relay.feed(TEXT) == TEXT


def test_an_event_cut_in_two_goes_on_whole() -> None:
    relay = EventRelay(Route.CHAT_COMPLETIONS)
    relay.feed(TEXT)
    assert relay.feed(TEXT[:20]) == b""
    assert relay.feed(TEXT[20:] + TEXT[:5]) == TEXT
    assert relay.close() == TEXT[:5]


def test_an_error_before_content_is_a_failure_and_nothing_goes_out() -> None:
    relay = EventRelay(Route.CHAT_COMPLETIONS)
    relay.feed(ROLE)
    assert relay.feed(ERROR + DONE) == b""
    assert relay.failure == ERROR
    assert relay.feed(TEXT) == b""
    assert relay.close() == b""
    assert not relay.begun


def test_an_error_after_content_is_the_clients_to_read() -> None:
    relay = EventRelay(Route.CHAT_COMPLETIONS)
    relay.feed(TEXT)
    assert relay.feed(ERROR) == ERROR
    assert relay.failure is None


def test_a_keep_alive_begins_the_stream_without_being_content() -> None:
    relay = EventRelay(Route.CHAT_COMPLETIONS)
    assert relay.feed(COMMENT) == COMMENT
    assert relay.begun
    assert not relay.content_seen


def test_usage_is_learned_and_shown_to_who_asked_for_it() -> None:
    relay = EventRelay(Route.CHAT_COMPLETIONS)
    assert relay.feed(TEXT + USAGE + DONE) == TEXT + USAGE + DONE
    assert relay.usage == Usage(input_tokens=5, output_tokens=2)


@pytest.mark.parametrize("before", [TEXT, b""], ids=["after content", "with content"])
def test_usage_is_hidden_from_who_did_not(before: bytes) -> None:
    relay = EventRelay(Route.CHAT_COMPLETIONS, hides_usage=True)
    out = relay.feed(before) if before else b""
    out += relay.feed(TEXT + USAGE + DONE)
    assert out == before + TEXT + DONE
    assert relay.usage == Usage(input_tokens=5, output_tokens=2)


def test_progress_is_hidden_from_who_did_not_ask_for_it() -> None:
    relay = EventRelay(Route.CHAT_COMPLETIONS, hides_progress=True)
    assert relay.feed(PROGRESS) == b""
    assert relay.feed(PROGRESS + ROLE + TEXT) == ROLE + TEXT


def test_progress_is_an_opening_to_who_asked_for_it() -> None:
    relay = EventRelay(Route.CHAT_COMPLETIONS)
    assert relay.feed(PROGRESS) == b""
    assert relay.feed(TEXT) == PROGRESS + TEXT


def test_a_stream_that_ends_without_content_goes_out_at_its_end() -> None:
    relay = EventRelay(Route.CHAT_COMPLETIONS)
    relay.feed(ROLE)
    assert relay.close() == ROLE
    assert relay.begun
    assert not relay.content_seen


def test_an_error_as_the_last_event_without_its_end_is_a_failure() -> None:
    relay = EventRelay(Route.CHAT_COMPLETIONS)
    relay.feed(ERROR[:-2])
    assert relay.close() == b""
    assert relay.failure == ERROR[:-2]


def test_what_is_too_long_for_an_opening_is_not_held() -> None:
    relay = EventRelay(Route.CHAT_COMPLETIONS)
    number = MAX_HELD_BYTES // len(ROLE)
    assert relay.feed(ROLE * number) == b""
    assert relay.feed(ROLE) == ROLE * (number + 1)
