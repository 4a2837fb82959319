"""The body of an inference request: read what routing needs, keep the client's own bytes, edit only what must change.

The dialects agree on the fields read here (`model`, `stream`, the output limit), so one reader serves all routes.
"""

import re

import msgspec

from pilothouse.model.errors import Refusal
from pilothouse.model.fleet import DeploymentView
from pilothouse.model.requests import Route
from pilothouse.wire.long_strings import without_long_strings

MAX_MODEL_NAME_BYTES = 256
"""Longer than any name in use; the name goes into messages and look-ups."""

LARGE_BODY_BYTES = 32 * 1024
"""From here on it pays to read a body without its long strings."""

MAX_CHOICES = 128
"""As many answers to one request as OpenAI allows; what more a request asks for does not weigh more."""

_USAGE_ASKED = b'"stream_options":{"include_usage":true},'
_OUTPUT_LIMIT_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")

_KEY = re.compile(rb'[ \t\n\r]*"((?:[^"\\]|\\.)*)"[ \t\n\r]*:[ \t\n\r]*', re.DOTALL)
_AFTER_VALUE = re.compile(rb"[ \t\n\r]*([,}])")

_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class InferenceBody:
    """One request body. `max_output_tokens` is 0 where not given; `choices` are the answers asked for (`n`).

    `fields` are the top-level fields as raw JSON; those of a large body lack what stands in their long strings (see
    `whole_fields`).
    """

    __slots__ = ("asks_usage", "choices", "data", "fields", "max_output_tokens", "model", "stream")

    def __init__(self, data: bytes, fields: dict[str, msgspec.Raw], model: str) -> None:
        self.data = data
        self.fields = fields
        self.model = model
        self.stream = False
        self.asks_usage = False
        self.max_output_tokens = 0
        self.choices = 1

    def whole_fields(self) -> dict[str, msgspec.Raw]:
        """The top-level fields with all that stands in them. Raises msgspec.DecodeError if a long string is invalid."""
        return self.fields if len(self.data) < LARGE_BODY_BYTES else _decode_object(self.data)


def read(data: bytes, route: Route) -> InferenceBody | Refusal:
    """Decode `data` as the body of a request to `route`, or say what is wrong with it."""
    try:
        # msgspec skips over text inside raw values without looking at its encoding; two parsers could disagree on it.
        if not data.isascii():
            str(data, "utf-8")
    except UnicodeDecodeError as error:
        return Refusal(code="invalid_json", message=f"The body is not UTF-8: byte {error.start} is invalid.")
    fields: dict[str, msgspec.Raw] | Refusal
    if len(data) < LARGE_BODY_BYTES:
        fields = _read_fields(data)
    else:
        fields = _read_fields(without_long_strings(data))
        if isinstance(fields, Refusal):
            fields = _read_fields(data)  # to say at which byte it is wrong, or to tell long keys apart
    if isinstance(fields, Refusal):
        return fields
    raw_model = fields.get("model")
    if raw_model is None:
        return Refusal(code="missing_required_parameter", message="You must provide a model parameter.", param="model")
    model = _decode_any(raw_model)
    if not isinstance(model, str):
        return _wrong_type("model", "a string", model)
    if not model or len(model) > MAX_MODEL_NAME_BYTES:
        return Refusal(
            code="invalid_value",
            message=f"model must have between 1 and {MAX_MODEL_NAME_BYTES} characters.",
            param="model",
        )
    body = InferenceBody(data, fields, model)
    refusal = _read_stream(body, route) if "stream" in fields else None
    if refusal is None and not fields.keys().isdisjoint(_OUTPUT_LIMIT_FIELDS):
        refusal = _read_output_limit(body)
    if refusal is None and "n" in fields:
        refusal = _read_choices(body)
    return refusal or body


def _read_fields(text: bytes) -> dict[str, msgspec.Raw] | Refusal:
    try:
        fields = _decode_object(text)
    except msgspec.ValidationError:
        return Refusal(code="invalid_json", message="The body must be one JSON object.")
    except msgspec.DecodeError as error:
        return unreadable(error)
    except RecursionError:
        return Refusal(code="invalid_json", message="The body is nested too deeply.")
    if not _keys_are_unique(text, fields):
        return Refusal(code="duplicate_key", message="A top-level key of the body is repeated; send each key once.")
    return fields


def unreadable(error: msgspec.DecodeError) -> Refusal:
    """What a client is told about a body that is not JSON."""
    return Refusal(code="invalid_json", message=f"The body could not be parsed as JSON: {error}.")


def _read_stream(body: InferenceBody, route: Route) -> Refusal | None:
    stream = _decode_any(body.fields["stream"])
    if stream is None:
        return None
    if not isinstance(stream, bool):
        return _wrong_type("stream", "a boolean", stream)
    if route is Route.EMBEDDINGS and stream:
        return Refusal(code="invalid_value", message="Embeddings cannot be streamed.", param="stream")
    body.stream = stream
    raw_options = body.fields.get("stream_options")
    if raw_options is not None:
        options = _decode_any(raw_options)
        if options is not None and not isinstance(options, dict):
            return _wrong_type("stream_options", "an object", options)
        body.asks_usage = options is not None and options.get("include_usage") is True
    return None


def _read_output_limit(body: InferenceBody) -> Refusal | None:
    fields = body.fields
    for name in _OUTPUT_LIMIT_FIELDS:
        if name not in fields:
            continue
        value = _decode_any(fields[name])
        if value is None:
            continue
        if type(value) is not int:
            return _wrong_type(name, "an integer", value)
        # llama.cpp takes -1 as "no limit"; engines judge the value, it only weighs load here.
        # Where two limits are given, the larger counts: a small one must not hide a large one.
        if value > body.max_output_tokens:
            body.max_output_tokens = value
    return None


def _read_choices(body: InferenceBody) -> Refusal | None:
    value = _decode_any(body.fields["n"])
    if value is None:
        return None
    if type(value) is not int:
        return _wrong_type("n", "an integer", value)
    body.choices = min(max(value, 1), MAX_CHOICES)  # engines judge the value
    return None


def _wrong_type(param: str, expected: str, value: object) -> Refusal:
    names = {bool: "a boolean", str: "a string", list: "an array", dict: "an object", type(None): "null"}
    got = names.get(type(value), "a number")
    return Refusal(code="invalid_type", message=f"{param} must be {expected}, but is {got}.", param=param)


def _keys_are_unique(data: bytes, fields: dict[str, msgspec.Raw]) -> bool:
    """Whether `data`, a valid JSON object that decoded to `fields`, has each key once.

    A decoder keeps a repeated key at its first place with its last value. So the text is walked: if at every place
    stands the next key with exactly the value that was decoded, and the text ends with the last, nothing was repeated.
    """
    if _encode(fields) == data:
        return True  # written without spaces, as most clients do: one comparison settles it
    position = data.index(b"{") + 1
    ended = not fields
    for key, raw in fields.items():
        spelled = _KEY.match(data, position)
        if spelled is None or not _spells(spelled[1], key):
            return False
        position = spelled.end()
        value = bytes(raw)
        if not data.startswith(value, position):
            return False
        after = _AFTER_VALUE.match(data, position + len(value))
        if after is None:
            # The value decoded is only the beginning of the one that stands here.
            return False
        position = after.end()
        ended = after[1] == b"}"
    return ended


def _spells(text: bytes, key: str) -> bool:
    """Whether `text`, between its quotes, is `key`, as it is or with escapes."""
    return text == key.encode() or (b"\\" in text and _decode_any(b'"%b"' % text) == key)


class Additions(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of an engine that the client did not ask for, and must not see.

    `usage`: the usage event of a stream. `stream`: a stream, from which the answer has to be put together. `progress`:
    events that tell how far the engine has read the prompt.
    """

    usage: bool = False
    stream: bool = False
    progress: bool = False


NOTHING = Additions()


def additions(body: InferenceBody, route: Route, deployment: DeploymentView) -> Additions:
    """What to add to `body` for an engine with these abilities."""
    if route not in (Route.CHAT_COMPLETIONS, Route.COMPLETIONS):
        return NOTHING
    progress_field = deployment.progress_field
    streams = body.stream or progress_field is not None
    return Additions(
        usage=streams and deployment.reports_stream_usage and not body.asks_usage,
        stream=streams and not body.stream,
        progress=progress_field is not None and progress_field not in body.fields,
    )


def for_engine(body: InferenceBody, deployment: DeploymentView, added: Additions = NOTHING, ours: bytes = b"") -> bytes:
    """The body to send to an engine: the client's own bytes unless a field has to change.

    The model gets the name under which the deployment serves it, and the engine's internal fields are taken out. `ours`
    are members that the gateway puts in their place (JSON, each with a comma behind it).
    Raises msgspec.DecodeError where that needs a field's whole text and a long string in it is invalid.
    """
    fields, served_model = body.fields, deployment.served_model
    renamed = served_model is not None and served_model != body.model
    if not renamed and not added.stream and not added.progress and fields.keys().isdisjoint(deployment.reserved_fields):
        if not added.usage and not ours:
            return body.data
        if not added.usage or "stream_options" not in fields:
            opening = body.data.index(b"{") + 1
            usage = _USAGE_ASKED if added.usage else b""
            return b"{%b%b%b" % (ours, usage, body.data[opening:])
    fields = body.whole_fields()
    edited: dict[str, object] = {name: raw for name, raw in fields.items() if name not in deployment.reserved_fields}
    if renamed:
        edited["model"] = served_model
    if added.stream:
        edited["stream"] = True
    if added.progress and deployment.progress_field is not None:
        edited[deployment.progress_field] = True
    if added.usage:
        options = _decode_any(fields["stream_options"]) if "stream_options" in fields else None
        edited["stream_options"] = {**(options or {}), "include_usage": True}
    encoded = _encode(edited)
    return b"{%b%b" % (ours, encoded[1:]) if ours else encoded
