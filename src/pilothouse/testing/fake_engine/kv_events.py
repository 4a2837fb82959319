"""Publishes KV cache events over ZeroMQ as vLLM does (vllm/distributed/kv_events.py, 0.32 and 0.33).

Frames are [topic, sequence number as 8 bytes big-endian, msgpack]; the payload is the array [time, events, rank].
Who asks the replay socket with a first sequence number gets the batches that are kept, then the number -1. As arrays,
events are what vLLM sent before it sent maps; its replay answers had no topic then.
"""

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any, cast

import msgspec

from pilothouse.testing.fake_engine.cache_events import CacheEvent

if TYPE_CHECKING:
    import zmq

_END_OF_REPLAY = (-1).to_bytes(8, "big", signed=True)
_BUFFERED_BATCHES = 10_000  # vLLM's buffer_steps
_HIGH_WATER_MARK = 100_000  # vLLM's hwm


class KvEventsUnavailableError(Exception):
    """KV events were asked for and pyzmq is not installed."""

    def __init__(self) -> None:
        super().__init__("KV events need pyzmq: pip install 'pilothouse[kv-events]'")


class KvEventPublisher:
    """The publishing and the replaying socket, served by the running event loop.

    An endpoint with `*` or `::`, or one of `ipc://` or `inproc://`, is bound; any other is connected to, and the
    subscriber has to bind. The replay endpoint is always bound.
    """

    def __init__(
        self, endpoint: str, replay_endpoint: str | None = None, *, topic: str = "", as_arrays: bool = False
    ) -> None:
        try:
            import zmq
        except ImportError:
            raise KvEventsUnavailableError from None
        self._zmq = zmq
        self._topic = topic.encode()
        self._as_arrays = as_arrays
        self._encoder = msgspec.msgpack.Encoder()
        self._next = 0
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=_BUFFERED_BATCHES)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._loop = asyncio.get_running_loop()
        self._replay: zmq.Socket[bytes] | None = None
        self._publish = self._socket(zmq.PUB)
        try:
            if "*" in endpoint or "::" in endpoint or endpoint.startswith(("ipc://", "inproc://")):
                self._publish.bind(endpoint)
            else:
                self._publish.connect(endpoint)
            if replay_endpoint is not None:
                self._replay = self._socket(zmq.ROUTER)
                self._replay.bind(replay_endpoint)
                self._loop.add_reader(_descriptor(self._replay), self._serve_replays)
        except zmq.ZMQError as error:
            self.close()
            raise OSError(error.errno, f"KV events endpoint: {error.strerror}") from None

    @property
    def endpoint(self) -> str:
        """Where events are published, with the port that the system chose."""
        return _address(self._publish)

    @property
    def replay_endpoint(self) -> str | None:
        """Where past events can be asked for."""
        return None if self._replay is None else _address(self._replay)

    def publish(self, events: list[CacheEvent]) -> None:
        """One batch. Never waits: what a slow subscriber cannot take is dropped, and shows as a gap in the numbers."""
        batch = [time.time(), [_as_array(event) for event in events] if self._as_arrays else events, 0]
        payload = self._encoder.encode(batch)
        number, self._next = self._next, self._next + 1
        self._kept.append((number, payload))
        self._publish.send_multipart([self._topic, number.to_bytes(8, "big"), payload], self._zmq.NOBLOCK)

    def close(self) -> None:
        """Close both sockets."""
        if self._replay is not None:
            self._loop.remove_reader(_descriptor(self._replay))
            self._replay.close()
        self._publish.close()
        self._context.term()

    def _socket(self, kind: int) -> "zmq.Socket[bytes]":
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.set_hwm(_HIGH_WATER_MARK)
        return socket

    def _serve_replays(self) -> None:
        # The descriptor tells of changes only, so everything that is there has to be taken.
        while self._replay is not None:
            try:
                frames = self._replay.recv_multipart(self._zmq.NOBLOCK)
            except self._zmq.Again:
                return
            if len(frames) == 3 and len(frames[2]) == 8:
                self._replay_from(self._replay, frames[0], int.from_bytes(frames[2], "big"))

    def _replay_from(self, socket: "zmq.Socket[bytes]", client: bytes, start: int) -> None:
        address = [client, b""] if self._as_arrays else [client, b"", self._topic]
        for number, payload in self._kept:
            if number >= start:
                socket.send_multipart([*address, number.to_bytes(8, "big"), payload])
        socket.send_multipart([*address, _END_OF_REPLAY, b""])


def _descriptor(socket: "zmq.Socket[bytes]") -> int:
    return cast("int", socket.fd)


def _address(socket: "zmq.Socket[bytes]") -> str:
    return cast("bytes", socket.last_endpoint).rstrip(b"\0").decode()


def _as_array(event: CacheEvent) -> list[Any]:
    """An event as vLLM sent it before it sent maps: its type and its fields, in order."""
    fields = [getattr(event, name) for name in event.__struct_fields__]
    return [event.__struct_config__.tag, *fields]
