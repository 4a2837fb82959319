"""Framing of the control channel between controller and workers: a length and a JSON message.

A frame is a 4-byte big-endian length and that many bytes of one `model/control.py` message.
"""

import msgspec

from pilothouse.model.control import ControlMessage

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""A snapshot with 100,000 keys is about 12 MB; anything larger than this is not one of ours."""

_LENGTH_BYTES = 4
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ControlMessage)


class ControlChannelError(Exception):
    """Raised by `Decoder.feed` when the peer does not speak this protocol. The connection is of no more use."""


def encode(message: ControlMessage) -> bytes:
    """The frame of `message`."""
    payload = _encoder.encode(message)
    return len(payload).to_bytes(_LENGTH_BYTES, "big") + payload


class Decoder:
    """Byte pump: bytes as they arrive in, whole messages out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[ControlMessage]:
        """All messages completed by `data`. Raises ControlChannelError."""
        buffer = self._buffer
        buffer += data
        messages: list[ControlMessage] = []
        while len(buffer) >= _LENGTH_BYTES:
            length = int.from_bytes(buffer[:_LENGTH_BYTES], "big")
            if length > MAX_FRAME_BYTES:
                raise ControlChannelError(f"a frame of {length} bytes was announced; {MAX_FRAME_BYTES} is the limit")
            end = _LENGTH_BYTES + length
            if len(buffer) < end:
                break
            try:
                messages.append(_decoder.decode(memoryview(buffer)[_LENGTH_BYTES:end].tobytes()))
            except (msgspec.MsgspecError, RecursionError) as error:
                raise ControlChannelError(f"a frame is not a control message: {error}") from error
            del buffer[:end]
        return messages
