"""POST /v1/responses, without stored state."""

from collections.abc import Sequence
from typing import Any

import msgspec

from pilothouse.model.requests import Usage
from pilothouse.testing.fake_engine.dialects.base import (
    Answer,
    TextRequest,
    decode,
    event,
    json_string,
    limit,
    with_usage,
)
from pilothouse.testing.fake_engine.dialects.prompts import Message, chat_tokens
from pilothouse.testing.fake_engine.errors import bad_request
from pilothouse.testing.fake_engine.scripts import UsageReport


class ResponsesBody(msgspec.Struct, frozen=True):
    """The fields that the engine looks at; others are taken and ignored."""

    input: Any
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    stream: bool | None = None
    cache_salt: str | None = None
    tools: list[Any] | None = None


def parse(data: bytes) -> TextRequest:
    """Read a request. Raises RequestRefusedError."""
    body = decode(data, ResponsesBody)
    if isinstance(body.input, str):
        messages = [Message(role="user", content=body.input)]
    elif isinstance(body.input, list) and body.input:
        messages = [_message(item) for item in body.input]
    else:
        raise bad_request("1 validation error: `input` must be a string or a list of items", "input")
    return TextRequest(
        model=body.model,
        prompts=[chat_tokens(messages, system=body.instructions, tools=body.tools)],
        max_tokens=limit(body.max_output_tokens, "max_output_tokens"),
        stream=bool(body.stream),
        include_usage=True,
        salt=body.cache_salt or "",
    )


def _message(item: Any) -> Message:
    if not isinstance(item, dict):
        raise bad_request("1 validation error: an item of `input` must be an object", "input")
    if "role" in item:
        return Message(role=str(item["role"]), content=item.get("content"))
    return Message(role=str(item.get("type", "item")), content=[item])


class ResponsesWriter:
    """Writes `response` objects and the events that build one."""

    def __init__(self, request: TextRequest, request_id: str, created: int, model: str) -> None:
        self._id = f"resp_{request_id}"
        self._item_id = f"msg_{request_id}"
        self._created = created
        self._model = model
        self._max_tokens = request.max_tokens
        self._sequence = 0
        self._delta_tail = b',"item_id":%b,"logprobs":[],"output_index":0,"type":"response.output_text.delta"' % (
            json_string(self._item_id)
        )

    def opening(self, usage: Usage) -> list[bytes]:
        """The response, its one item and its one part, all empty."""
        empty = self._response("in_progress", [])
        return [
            self._event("response.created", response=empty),
            self._event("response.in_progress", response=empty),
            self._event("response.output_item.added", output_index=0, item=self._item("in_progress", None)),
            self._event(
                "response.content_part.added", output_index=0, content_index=0, item_id=self._item_id, part=_part("")
            ),
        ]

    def token(self, index: int, text: str, answer: Answer | None) -> list[bytes]:
        """One delta."""
        sequence = self._sequence
        self._sequence += 1
        return [
            b'event: response.output_text.delta\ndata: {"content_index":0,"delta":%b%b,"sequence_number":%d}\n\n'
            % (json_string(text), self._delta_tail, sequence)
        ]

    def closing(self, usage: Usage, answers: Sequence[Answer], report: UsageReport) -> list[bytes]:
        """The part, the item and the response, complete."""
        answer = answers[0]
        place = {"output_index": 0, "content_index": 0, "item_id": self._item_id}
        return [
            self._event("response.output_text.done", **place, text=answer.text, logprobs=[]),
            self._event("response.content_part.done", **place, part=_part(answer.text)),
            self._event("response.output_item.done", output_index=0, item=self._item(_status(answer), answer.text)),
            self._event("response.completed", response=self.whole(usage, answers, report)),
        ]

    def done(self) -> list[bytes]:
        """`response.completed` says it already."""
        return []

    def error(self, body: dict[str, Any]) -> list[bytes]:
        """An `error` event."""
        error = body.get("error")
        fields = error if isinstance(error, dict) else {"message": str(error)}
        message, code, param = fields.get("message"), fields.get("code"), fields.get("param")
        return [self._event("error", message=message, code=None if code is None else str(code), param=param)]

    def whole(self, usage: Usage, answers: Sequence[Answer], report: UsageReport) -> dict[str, Any]:
        """One `response`."""
        answer = answers[0]
        status = _status(answer)
        value = self._response(status, [self._item(status, answer.text)])
        if status == "incomplete":
            value["incomplete_details"] = {"reason": "max_output_tokens"}
        return with_usage(value, _usage_object(usage), report)

    def _response(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "created_at": self._created,
            "incomplete_details": None,
            "instructions": None,
            "metadata": None,
            "model": self._model,
            "object": "response",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "max_output_tokens": self._max_tokens,
            "status": status,
        }

    def _item(self, status: str, text: str | None) -> dict[str, Any]:
        content = [] if text is None else [_part(text)]
        return {"id": self._item_id, "type": "message", "role": "assistant", "status": status, "content": content}

    def _event(self, name: str, **fields: Any) -> bytes:
        value = {"type": name, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return event(msgspec.json.encode(value), name)


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": None}


def _status(answer: Answer) -> str:
    return "incomplete" if answer.finish_reason == "length" else "completed"


def _usage_object(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
