"""What is read in a request's body, what is refused, and what an engine gets of it."""

import json
from typing import Any

import pytest

from pilothouse.model.errors import Refusal
from pilothouse.model.fleet import DeploymentView
from pilothouse.model.ids import DeploymentName
from pilothouse.model.requests import Route
from pilothouse.wire import inference_body
from pilothouse.wire.inference_body import NOTHING, Additions, InferenceBody


def read(data: bytes | dict[str, Any], route: Route = Route.CHAT_COMPLETIONS) -> InferenceBody:
    body = inference_body.read(data if isinstance(data, bytes) else json.dumps(data).encode(), route)
    assert isinstance(body, InferenceBody), body
    return body


def refused(data: bytes | dict[str, Any], route: Route = Route.CHAT_COMPLETIONS) -> tuple[str, str | None]:
    refusal = inference_body.read(data if isinstance(data, bytes) else json.dumps(data).encode(), route)
    assert isinstance(refusal, Refusal)
    return refusal.code, refusal.param


def deployment(**fields: Any) -> DeploymentView:
    return DeploymentView(name=DeploymentName("d"), engine="fake", routes=(Route.CHAT_COMPLETIONS,), **fields)


class TestReading:
    def test_what_routing_needs(self) -> None:
        body = read({"model": "m", "stream": True, "max_tokens": 7, "stream_options": {"include_usage": True}})
        assert (body.model, body.stream, body.asks_usage, body.max_output_tokens) == ("m", True, True, 7)

    def test_nothing_more_is_needed_than_the_model(self) -> None:
        body = read(b' {"model" : "m"} ')
        assert (body.model, body.stream, body.asks_usage, body.max_output_tokens) == ("m", False, False, 0)

    @pytest.mark.parametrize(
        ("fields", "limit"),
        [
            ({"max_tokens": 7}, 7),
            ({"max_completion_tokens": 7}, 7),
            ({"max_output_tokens": 7}, 7),
            ({"max_tokens": 1, "max_completion_tokens": 9}, 9),
            ({"max_tokens": None}, 0),
            ({"max_tokens": -1}, 0),
        ],
    )
    def test_the_largest_output_limit_counts(self, fields: dict[str, Any], limit: int) -> None:
        assert read({"model": "m", **fields}).max_output_tokens == limit

    @pytest.mark.parametrize(
        ("fields", "stream", "asks"),
        [
            ({"stream": None}, False, False),
            ({"stream": True}, True, False),
            ({"stream": True, "stream_options": None}, True, False),
            ({"stream": True, "stream_options": {"include_usage": 1}}, True, False),
            ({"stream": False, "stream_options": {"include_usage": True}}, False, True),
        ],
    )
    def test_streams(self, fields: dict[str, Any], stream: bool, asks: bool) -> None:
        body = read({"model": "m", **fields})
        assert (body.stream, body.asks_usage) == (stream, asks)

    @pytest.mark.parametrize(
        ("data", "code", "param"),
        [
            (b"", "invalid_json", None),
            (b"{", "invalid_json", None),
            (b"[]", "invalid_json", None),
            (b'{"model":"m","a":"\xff"}', "invalid_json", None),
            (b'{"model":"m","a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "invalid_json", None),
            (b'{"model":"m","model":"n"}', "duplicate_key", None),
            ({"messages": []}, "missing_required_parameter", "model"),
            ({"model": 7}, "invalid_type", "model"),
            ({"model": None}, "invalid_type", "model"),
            ({"model": ""}, "invalid_value", "model"),
            ({"model": "m" * 300}, "invalid_value", "model"),
            ({"model": "m", "stream": "yes"}, "invalid_type", "stream"),
            ({"model": "m", "stream": True, "stream_options": []}, "invalid_type", "stream_options"),
            ({"model": "m", "max_tokens": True}, "invalid_type", "max_tokens"),
            ({"model": "m", "max_tokens": 1.5}, "invalid_type", "max_tokens"),
        ],
    )
    def test_what_is_refused(self, data: bytes | dict[str, Any], code: str, param: str | None) -> None:
        assert refused(data) == (code, param)

    def test_embeddings_are_not_streamed(self) -> None:
        assert refused({"model": "m", "stream": True}, Route.EMBEDDINGS) == ("invalid_value", "stream")
        assert not read({"model": "m", "stream": False}, Route.EMBEDDINGS).stream


class TestRepeatedKeys:
    @pytest.mark.parametrize(
        "data",
        [
            b'{"model":"m","a":1,"a":2}',
            b'{"model":"m","a":1,"a":1}',
            b'{"a":1,"model":"m","a":1}',
            b'{"model":"m", "a": 1, "\\u0061": 1}',
            b'{"model":"m","a":{"b":1},"a":{"b":1}}',
            b'{"model":"m","\\u006dodel":"n"}',
            b'{"model":"m","a":"x","a":"xx"}',
            b'{"model":"m","a":1,"a":12}',
            b'{"model":"m","a":12,"a":1}',
            b'{"a":1,"a":1,"model":"m"}',
        ],
    )
    def test_are_refused_however_they_are_written(self, data: bytes) -> None:
        assert refused(data) == ("duplicate_key", None)

    @pytest.mark.parametrize(
        "data",
        [
            b'{"model":"m","a":{"b":1,"b":2}}',
            b'{ "model" : "m" ,\n\t"a" : [1, {"model": 2}] }',
            b'{"model":"m","\\u0061":1}',
            b'{"model":"m","a\\"b":1,"c":"}"}',
            b'{"model":"m","":1," ":2}',
        ],
    )
    def test_only_top_level_ones_count(self, data: bytes) -> None:
        assert read(data).model == "m"


class TestAdditions:
    @pytest.mark.parametrize(
        ("fields", "abilities", "expected"),
        [
            ({}, {}, NOTHING),
            ({"stream": True}, {}, Additions(usage=True)),
            ({"stream": True, "stream_options": {"include_usage": True}}, {}, NOTHING),
            ({"stream": True}, {"reports_stream_usage": False}, NOTHING),
            ({}, {"progress_field": "p"}, Additions(usage=True, stream=True, progress=True)),
            ({"stream": True}, {"progress_field": "p"}, Additions(usage=True, progress=True)),
            ({"stream": True, "p": True}, {"progress_field": "p"}, Additions(usage=True)),
        ],
    )
    def test_only_what_the_client_did_not_ask_for(
        self, fields: dict[str, Any], abilities: dict[str, Any], expected: Additions
    ) -> None:
        body = read({"model": "m", **fields})
        assert inference_body.additions(body, Route.CHAT_COMPLETIONS, deployment(**abilities)) == expected

    def test_other_routes_have_no_such_fields(self) -> None:
        body = read({"model": "m", "stream": True})
        assert inference_body.additions(body, Route.MESSAGES, deployment(progress_field="p")) is NOTHING


class TestForEngines:
    def test_the_clients_own_bytes_unless_a_field_must_change(self) -> None:
        data = b' {"model" : "m", "x":[1 , 2]}'
        assert inference_body.for_engine(read(data), deployment(reserved_fields=("priority",))) is data

    def test_a_served_name_replaces_the_public_one(self) -> None:
        sent = inference_body.for_engine(read(b'{"model":"m","x":1.50}'), deployment(served_model="org/m"))
        assert sent == b'{"model":"org/m","x":1.50}'
        data = b'{"model": "m"}'
        assert inference_body.for_engine(read(data), deployment(served_model="m")) is data

    def test_reserved_fields_are_taken_out(self) -> None:
        body = read(b'{"model":"m","priority":1,"x":{"priority":2}}')
        sent = inference_body.for_engine(body, deployment(reserved_fields=("priority",)))
        assert sent == b'{"model":"m","x":{"priority":2}}'

    @pytest.mark.parametrize(
        ("options", "sent"),
        [
            ({}, {"include_usage": True}),
            ({"stream_options": None}, {"include_usage": True}),
            ({"stream_options": {"x": 1, "include_usage": False}}, {"x": 1, "include_usage": True}),
        ],
    )
    def test_usage_is_asked_for(self, options: dict[str, Any], sent: dict[str, Any]) -> None:
        fields = {"model": "m", "stream": True, **options}
        data = inference_body.for_engine(read(fields), deployment(), Additions(usage=True))
        assert json.loads(data) == {**fields, "stream_options": sent}

    def test_a_stream_with_progress_is_asked_for(self) -> None:
        added = Additions(usage=True, stream=True, progress=True)
        data = inference_body.for_engine(read({"model": "m", "x": 1}), deployment(progress_field="p"), added)
        expected = {"model": "m", "x": 1, "stream": True, "p": True, "stream_options": {"include_usage": True}}
        assert json.loads(data) == expected
