"""The bytes of a board file: header, directory, slots.

    0        header      eight 8-byte words in the host's byte order, see `Word`
    64       directory   append-only records: length, CRC-32, MessagePack of `Record`
    64+512K  slots       8-byte floats; a record says which are its own

A record is complete before the header's series count includes it, and slots are aligned, so a reader in another
process needs no lock: it sees whole numbers of whole series. Files stay on one host, so nothing is byte-swapped.
"""

import enum
import struct
import sys
import zlib
from collections.abc import Iterator

import msgspec

LAYOUT_VERSION = 1
HEADER_BYTES = 64
DIRECTORY_BYTES = 512 * 1024  # some 4,000 series at 130 bytes each
SLOT_COUNT = 8192  # some 100 models with four histograms of 18 slots each
BOARD_BYTES = HEADER_BYTES + DIRECTORY_BYTES + 8 * SLOT_COUNT

# Kept free for the series with all labels "other" that take over when the rest is used up.
RESERVED_SLOTS = 512
RESERVED_DIRECTORY_BYTES = 16 * 1024

MAGIC = int.from_bytes(b"PHBOARD\n", sys.byteorder)

_RECORD_HEAD = struct.Struct("=II")


class Word(enum.IntEnum):
    """Where each word of the header is."""

    MAGIC = 0
    LAYOUT_VERSION = 1
    WORKER = 2
    PID = 3
    SNAPSHOT_VERSION = 4
    SERIES = 5


class Kind(enum.StrEnum):
    """What a series is, in Prometheus' terms."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One series. `labels` are sorted by name. `slot` is its first slot.

    A histogram has one slot for each of `bounds` (upper, inclusive), one for what is above the last, and one for the
    sum of the observed values.
    """

    name: str
    kind: Kind
    labels: tuple[tuple[str, str], ...]
    slot: int
    bounds: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """How many slots it has."""
        return slots_needed(self.kind, self.bounds)


class DamagedBoard(Exception):  # noqa: N818 - what it is, not that it is raised
    """The bytes are not a board of this layout. The message says what is wrong."""


def slots_needed(kind: Kind, bounds: tuple[float, ...]) -> int:
    """Slots of one series of this kind."""
    return len(bounds) + 2 if kind is Kind.HISTOGRAM else 1


def pack_record(record: Record) -> bytes:
    """The record as it stands in the directory."""
    body = msgspec.msgpack.encode(record)
    return _RECORD_HEAD.pack(len(body), zlib.crc32(body)) + body


def check_header(words: memoryview) -> None:
    """Raise `DamagedBoard` unless `words` begin a board of this layout."""
    if words[Word.MAGIC] != MAGIC:
        raise DamagedBoard("the file does not begin as a board does")
    if words[Word.LAYOUT_VERSION] != LAYOUT_VERSION:
        raise DamagedBoard(f"the layout is version {words[Word.LAYOUT_VERSION]}, not {LAYOUT_VERSION}")


def records(directory: memoryview, count: int) -> Iterator[tuple[Record, int]]:
    """The `count` records of a directory, each with the offset after it.

    A last record whose checksum fails is left out: on hosts that reorder stores, the count can be seen before the
    record. Anything else that does not fit raises `DamagedBoard`.
    """
    offset = 0
    for index in range(count):
        body_at = offset + _RECORD_HEAD.size
        if body_at > len(directory):
            raise DamagedBoard(f"series {index} of {count} lies outside the directory")
        length, checksum = _RECORD_HEAD.unpack_from(directory, offset)
        body = bytes(directory[body_at : body_at + length])
        if not body or len(body) != length or zlib.crc32(body) != checksum:
            if index == count - 1:
                return
            raise DamagedBoard(f"series {index} of {count} is damaged")
        offset = body_at + length
        yield _decode(body, index), offset


def _decode(body: bytes, index: int) -> Record:
    try:
        record = msgspec.msgpack.decode(body, type=Record)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedBoard(f"series {index} cannot be read: {error}") from error
    if record.slot < 0 or record.slot + record.width > SLOT_COUNT:
        raise DamagedBoard(f"series {index} points outside the slots")
    return record
