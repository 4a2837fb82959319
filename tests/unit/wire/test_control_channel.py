"""Frames of the control channel, however they are cut."""

import pytest

from pilothouse.model.control import ControlMessage, ReplicaSuspected, WorkerJoined
from pilothouse.model.ids import ReplicaId
from pilothouse.wire.control_channel import MAX_FRAME_BYTES, ControlChannelError, Decoder, encode

MESSAGES: tuple[ControlMessage, ...] = (
    WorkerJoined(index=0, pid=7),
    ReplicaSuspected(replica=ReplicaId("m-0"), reason="connection refused"),
    WorkerJoined(index=1, pid=8),
)


@pytest.mark.parametrize("size", [1, 3, 4, 5, 1000])
def test_messages_come_out_as_they_went_in(size: int) -> None:
    stream = b"".join(map(encode, MESSAGES))
    decoder = Decoder()
    found = [each for start in range(0, len(stream), size) for each in decoder.feed(stream[start : start + size])]
    assert tuple(found) == MESSAGES


def test_a_frame_begins_with_its_length() -> None:
    frame = encode(MESSAGES[0])
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


def test_a_frame_that_is_announced_as_too_long_is_refused_at_once() -> None:
    decoder = Decoder()
    assert decoder.feed(MAX_FRAME_BYTES.to_bytes(4, "big")) == []
    with pytest.raises(ControlChannelError, match="was announced"):
        Decoder().feed((MAX_FRAME_BYTES + 1).to_bytes(4, "big"))


@pytest.mark.parametrize("payload", [b"", b"{", b"7", b'{"type":"Other"}', b'{"type":"WorkerJoined"}', b"[" * 100_000])
def test_a_frame_that_is_no_message_is_refused(payload: bytes) -> None:
    with pytest.raises(ControlChannelError, match="not a control message"):
        Decoder().feed(len(payload).to_bytes(4, "big") + payload)
