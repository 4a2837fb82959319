"""Events are cut at empty lines, whatever ends a line, and leave as they came."""

import pytest

from pilothouse.wire import sse
from pilothouse.wire.sse import MAX_EVENT_BYTES, EventCutter


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [b"data: a\n\n", b"data: b\n\n"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"data: a\r\n\r\n", b"data: b\r\n\r\n"]),
        (b"data: a\r\rdata: b\r\r", [b"data: a\r\r", b"data: b\r\r"]),
        (b"data: a\n\r\ndata: b\n\n", [b"data: a\n\r\n", b"data: b\n\n"]),
        (b": hello\n\ndata: a\ndata: b\n\n", [b": hello\n\n", b"data: a\ndata: b\n\n"]),
        (b"data: a\r\n\r\ndata: cut", [b"data: a\r\n\r\n", b"data: cut"]),
        (b"data: a\n\ndata: cut", [b"data: a\n\n", b"data: cut"]),
        (b"", []),
    ],
)
def test_events_are_split_at_empty_lines(stream: bytes, events: list[bytes]) -> None:
    assert sse.split(stream) == events


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: a\n\n", b"a"),
        (b"data:a\n\n", b"a"),
        (b"data:  a\n\n", b" a"),
        (b"event: x\r\ndata: a\r\nid: 1\r\n\r\n", b"a"),
        (b"data: a\ndata: b\n\n", b"a\nb"),
        (b"data: a\rdata: b\r\r", b"a\nb"),
        (b": comment\n\n", b""),
        (b"data\n\n", b""),
        (b"", b""),
    ],
)
def test_the_data_of_an_event(event: bytes, data: bytes) -> None:
    assert sse.data_of(event) == data


def test_an_event_is_written_with_or_without_a_name() -> None:
    assert sse.event(b"{}") == b"data: {}\n\n"
    assert sse.event(b"{}", b"error") == b"event: error\ndata: {}\n\n"


def test_whole_events_pass_and_the_rest_waits() -> None:
    cutter = EventCutter()
    assert cutter.feed(b"data: a\n\n") == b"data: a\n\n"
    assert cutter.feed(b"data: b\n\ndata") == b"data: b\n\n"
    assert cutter.feed(b": c") == b""
    assert cutter.feed(b"\n") == b""
    assert cutter.feed(b"\n") == b"data: c\n\n"
    assert cutter.close() == b""


@pytest.mark.parametrize("ending", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_a_boundary_may_be_cut(ending: bytes) -> None:
    stream = b"data: a" + ending + b"data: b" + ending
    assert EventCutter().feed(stream + b"data") == stream
    cutter = EventCutter()
    out = [cutter.feed(stream[index : index + 1]) for index in range(len(stream))]
    assert b"".join(out) + cutter.close() == stream
    assert all(piece.strip(b"\r\n") in (b"", b"data: a", b"data: b") for piece in out)


def test_an_event_that_lost_its_end_comes_out_at_the_end() -> None:
    cutter = EventCutter()
    assert cutter.feed(b"data: a") == b""
    assert cutter.close() == b"data: a"
    assert cutter.close() == b""


def test_an_event_above_the_bound_passes_in_pieces() -> None:
    cutter = EventCutter()
    large = b"data: " + b"x" * MAX_EVENT_BYTES
    assert (cutter.feed(large), cutter.oversize) == (large, True)
    assert cutter.feed(b"yy\n") == b"yy"
    assert (cutter.feed(b"\ndata: b\n\n"), cutter.oversize) == (b"\n\ndata: b\n\n", False)
    assert cutter.feed(b"data: c\n\n") == b"data: c\n\n"
