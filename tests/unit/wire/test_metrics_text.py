import pytest

from pilothouse.wire.metrics_text import MAX_TEXT_BYTES, samples

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="smollm2"} 3.0
vllm:num_requests_running{engine="1",model_name="smollm2"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="smollm2"} 0.25
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="smollm2"} 17
"""


def test_every_sample_of_a_page_is_read() -> None:
    assert list(samples(VLLM)) == [
        ("vllm:num_requests_running", 3.0),
        ("vllm:num_requests_running", 1.0),
        ("vllm:kv_cache_usage_perc", 0.25),
        ("vllm:time_to_first_token_seconds_bucket", 17.0),
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"a 1", ("a", 1.0)),
        (b"a\t1", ("a", 1.0)),
        (b"  a 1  ", ("a", 1.0)),
        (b"a{} 1", ("a", 1.0)),
        (b'a {x="y"} 1', ("a", 1.0)),
        (b"a 1 1700000000000", ("a", 1.0)),
        (b"a -1.5e3", ("a", -1500.0)),
        (b"a +Inf", ("a", float("inf"))),
        (b"a -Inf", ("a", float("-inf"))),
        (b'a{x="a } b # c"} 2', ("a", 2.0)),
        (b'a{x="quote \\" } 9",y="\\\\"} 2', ("a", 2.0)),
        ('a{x="sömmer"} 2'.encode(), ("a", 2.0)),
        (b'a_total{x="y"} 2 # {trace_id="t"} 1.0 1700000000', ("a_total", 2.0)),
        (b"a 1\r", ("a", 1.0)),
    ],
)
def test_a_line_that_is_a_sample(line: bytes, expected: tuple[str, float]) -> None:
    assert list(samples(line)) == [expected]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"# HELP a 1",
        b"# EOF",
        b"a",
        b"a NaN",
        b"a one",
        b"9a 1",
        b'a{x="y" 1',
        b'a{x="y} 1',
        b"<html>",
        b"\xff\xfe 1",
    ],
)
def test_a_line_that_is_none_hides_no_other(line: bytes) -> None:
    assert list(samples(b"b 1\n" + line + b"\nc 2\n")) == [("b", 1.0), ("c", 2.0)]


def test_a_text_that_is_too_large_is_not_read() -> None:
    line = b"a 1\n"
    assert len(list(samples(line * 1000))) == 1000
    assert list(samples(line * (MAX_TEXT_BYTES // len(line) + 1))) == []


def test_a_hostile_line_takes_no_time() -> None:
    assert list(samples(b'a{x="' + b'\\"' * 500_000 + b"\nb 1")) == [("b", 1.0)]
