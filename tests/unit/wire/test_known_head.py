"""A repeated head is taken without a parser only when it is the same, whole, with exactly the body it announces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.wire.known_head import KnownHead

LIMIT = 10_000


def message(
    body: bytes, *, length: str | None = None, before: bytes = b"A: 1\r\n", after: bytes = b"B: 2\r\n"
) -> bytes:
    number = str(len(body)) if length is None else length
    return b"POST / HTTP/1.1\r\n%bContent-Length: %b\r\n%b\r\n%b" % (before, number.encode(), after, body)


def learned(data: bytes) -> KnownHead:
    known = KnownHead()
    known.learn(data)
    return known


@given(st.lists(st.integers(0, 1200), min_size=2, max_size=8))
def test_bodies_of_any_length_are_taken_one_after_the_other(lengths: list[int]) -> None:
    known = learned(message(b"x" * lengths[0]))
    for length in lengths[1:]:
        assert known.body_of(message(b"y" * length), LIMIT) == b"y" * length


@pytest.mark.parametrize("length", [1, 9, 10, 11, 98, 99, 100, 101, 999, 1000, 1001])
@pytest.mark.parametrize("before", [8, 50, 500])
def test_the_number_of_digits_may_change(before: int, length: int) -> None:
    known = learned(message(b"x" * before))
    assert known.body_of(message(b"y" * length), LIMIT) == b"y" * length


@pytest.mark.parametrize(
    "data",
    [
        message(b"abcd")[:-1],
        message(b"abcd") + b"G",
        message(b"abcd", length="3"),
        message(b"abcd", length="5"),
        message(b"abcd", length="04"),
        message(b"abcd", length="+4"),
        message(b"abcd", length="0x4"),
        message(b"abcd", length="4 "),
        message(b"abcd", length="4, 4"),
        message(b"abcd", before=b"A: 2\r\n"),
        message(b"abcd", after=b"B: 3\r\n"),
        message(b"abcd", after=b"Transfer-Encoding: chunked\r\n"),
        message(b"abcd").replace(b"Content-Length", b"content-length"),
        message(b"abcd").replace(b"\r\n", b"\n"),
        b"",
        b"P",
    ],
)
def test_anything_else_is_left_to_the_parser(data: bytes) -> None:
    assert learned(message(b"efgh")).body_of(data, LIMIT) is None


def test_a_body_above_the_limit_is_left_to_the_parser() -> None:
    known = learned(message(b"ab"))
    assert known.body_of(message(b"x" * 10), 10) == b"x" * 10
    assert known.body_of(message(b"x" * 11), 10) is None
    assert known.body_of(message(b"x" * 111), 110) is None


def test_percent_signs_are_not_directives() -> None:
    before, after = b"A: 100%d%%\r\n", b"B: %s\r\n"
    known = learned(message(b"ab", before=before, after=after))
    assert known.body_of(message(b"xyz", before=before, after=after), LIMIT) == b"xyz"


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\nA: 1\r\n\r\n", message(b"abcd", length="4 "), message(b"abcd", length="")]
)
def test_a_head_without_a_plain_length_is_not_learned(data: bytes) -> None:
    assert learned(data).body_of(data, LIMIT) is None


def test_what_was_learned_can_be_forgotten() -> None:
    known = learned(message(b"abcd"))
    known.forget()
    assert known.body_of(message(b"abcd"), LIMIT) is None
