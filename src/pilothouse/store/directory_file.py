"""The directory of tenants and keys as a file, from which a worker starts without a controller or a database.

It is a sequence of parts, so that a worker that serves can take in a hundred thousand keys without holding its event
loop up. The gateway uses this too, so it needs nothing but msgspec.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from pilothouse.model.tenants import TenantDirectory
from pilothouse.store.private_files import read_private, replace_private

KEYS_PER_PART = 500
"""About a millisecond to decode."""

_LENGTH_BYTES = 4
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(TenantDirectory).decode


def write_directory(path: Path, directory: TenantDirectory) -> None:
    """Replace the file in one step. Raises PilothouseError state_unreadable."""
    first = msgspec.structs.replace(directory, keys=())
    parts = [first]
    parts += [
        TenantDirectory(version=directory.version, keys=directory.keys[start : start + KEYS_PER_PART])
        for start in range(0, len(directory.keys), KEYS_PER_PART)
    ]
    replace_private(path, b"".join(map(_framed, parts)))


def read_parts(path: Path) -> Iterator[TenantDirectory]:
    """The parts of the file, all of one version; none if there is no file.

    Raises:
        PilothouseError: state_unreadable.
        msgspec.MsgspecError: the file is damaged.
    """
    data = read_private(path) or b""
    at = 0
    while at < len(data):
        start = at + _LENGTH_BYTES
        at = start + int.from_bytes(data[at:start], "big")
        yield _decode(data[start:at])


def _framed(part: TenantDirectory) -> bytes:
    content = _encode(part)
    return len(content).to_bytes(_LENGTH_BYTES, "big") + content
