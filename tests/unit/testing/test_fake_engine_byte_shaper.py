"""How a response's bytes are cut up, slowed down and cut off."""

import asyncio

import pytest

from pilothouse.testing.fake_engine.byte_shaper import ByteShaper
from pilothouse.testing.fake_engine.scripts import Script


class Wire:
    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.endings: list[str] = []
        self.ended = asyncio.Event()

    def shaper(self, script: Script) -> ByteShaper:
        return ByteShaper(
            script, write=self.pieces.append, cut=lambda: self.end("cut"), finished=lambda: self.end("finished")
        )

    def end(self, how: str) -> None:
        self.endings.append(how)
        self.ended.set()


def test_pieces_have_the_sizes_in_turn() -> None:
    wire = Wire()
    shaper = wire.shaper(Script(split=(1, 3)))
    shaper.write(b"abcdef")
    shaper.write(b"ghi")
    shaper.end()
    assert wire.pieces == [b"a", b"bcd", b"e", b"f", b"g", b"hi"]
    assert wire.endings == ["finished"]


@pytest.mark.parametrize("limit", range(7))
def test_exactly_so_many_bytes_leave_before_the_cut(limit: int) -> None:
    wire = Wire()
    shaper = wire.shaper(Script(close_after_bytes=limit))
    shaper.write(b"abc")
    shaper.write(b"defg")
    shaper.end()
    assert b"".join(wire.pieces) == b"abcdefg"[:limit]
    assert wire.endings == ["cut"]


def test_a_shorter_response_is_not_cut() -> None:
    wire = Wire()
    shaper = wire.shaper(Script(close_after_bytes=8))
    shaper.write(b"abcdefg")
    shaper.end()
    assert b"".join(wire.pieces) == b"abcdefg"
    assert wire.endings == ["finished"]


@pytest.mark.asyncio
async def test_an_interval_passes_between_pieces_and_the_end_waits_for_them() -> None:
    wire = Wire()
    shaper = wire.shaper(Script(split=(2,), write_interval_s=0.001))
    shaper.write(b"abcde")
    shaper.end()
    assert wire.pieces == [b"ab"]
    assert wire.endings == []
    await wire.ended.wait()
    assert wire.pieces == [b"ab", b"cd", b"e"]
    assert wire.endings == ["finished"]


@pytest.mark.asyncio
async def test_nothing_is_written_after_the_client_has_gone() -> None:
    wire = Wire()
    shaper = wire.shaper(Script(split=(1,), write_interval_s=0.001))
    shaper.write(b"abc")
    shaper.stop()
    shaper.end()
    await asyncio.sleep(0.005)
    assert wire.pieces == [b"a"]
    assert wire.endings == []
