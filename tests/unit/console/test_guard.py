"""The guard around applications other than ours: no second answer, no WebSocket past it."""

import pytest
from starlette.types import Message, Receive, Scope, Send

from pilothouse.console.guard import Guard


class Recorder:
    """An application that answers half and fails, and what was sent."""

    def __init__(self) -> None:
        self.called_with: list[str] = []
        self.sent: list[Message] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.called_with.append(scope["type"])
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            raise RuntimeError("after the head")

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def receive(self) -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def call(self, scope_type: str) -> None:
        scope = {"type": scope_type, "method": "GET", "path": "/livez", "headers": [(b"host", b"127.0.0.1")]}
        await Guard(self, token="t", allowed_hosts=())(scope, self.receive, self.send)


@pytest.mark.asyncio
async def test_a_failure_after_the_head_is_not_answered_twice() -> None:
    recorder = Recorder()
    with pytest.raises(RuntimeError, match="after the head"):
        await recorder.call("http")
    assert [message["type"] for message in recorder.sent] == ["http.response.start"]


@pytest.mark.asyncio
async def test_a_websocket_does_not_get_past_it() -> None:
    recorder = Recorder()
    await recorder.call("websocket")
    assert recorder.called_with == []
    assert recorder.sent == [{"type": "websocket.close"}]


@pytest.mark.asyncio
async def test_the_lifespan_is_not_a_call() -> None:
    recorder = Recorder()
    await recorder.call("lifespan")
    assert recorder.called_with == ["lifespan"]
