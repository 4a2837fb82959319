"""Clients that disconnect from a real engine: its generation stops, and every counter returns to zero."""

import json
import secrets
import socket
import statistics
import time
from typing import Any

import httpx2

from benchmarks.bars.report import Bar, main, tell
from benchmarks.fleets import Home, home, wait_for

STOPS_WITHIN_S = 1.0
RUNS = 3
GIVE_UP_S = 5.0


def measure() -> list[Bar]:
    """Each way to leave, against llama.cpp."""
    with home() as one:
        one.run("up", "--detach")
        engines = _engines(one)
        bars = []
        for name, stream, leave in (
            ("before the first byte", True, _leave_at_once),
            ("mid-stream", True, _leave_mid_stream),
            ("non-streaming", False, _leave_at_once),
        ):
            times = []
            for _ in range(RUNS):
                leave(one, engines, stream=stream)
                times.append(_time_to_stop(engines))
            tell(f"disconnecting {name}: " + ", ".join(f"{each:.2f} s" for each in times))
            bars.append(
                Bar(
                    name=f"disconnect {name}: generation stops",
                    limit=f"< {STOPS_WITHIN_S:g} s",
                    measured=f"{statistics.median(times):.2f} s, at most {max(times):.2f} s ({RUNS} times)",
                    passed=max(times) < STOPS_WITHIN_S,
                    details={"runs_s": [round(each, 2) for each in times]},
                )
            )
        left = _counters(one)
        bars.append(Bar(name="counters after all of it", limit="0", measured=f"{left:g}", passed=left == 0))
        return bars


def _time_to_stop(engines: list[tuple[str, str]]) -> float:
    """Seconds until no slot generates; `GIVE_UP_S` if that is not seen."""
    try:
        return wait_for(lambda: _busy(engines) == 0, "generation stops", timeout_s=GIVE_UP_S)
    except TimeoutError:
        wait_for(lambda: _busy(engines) == 0, "the answer ends by itself", timeout_s=60)
        return GIVE_UP_S


def _counters(one: Home) -> float:
    """In-flight requests and tokens, once the gauges have had the time of a tick."""
    time.sleep(0.5)
    return one.gauge("pilothouse_in_flight_requests") + one.gauge("pilothouse_in_flight_tokens")


def _engines(one: Home) -> list[tuple[str, str]]:
    """URL and key of each replica, from its record."""
    records = (one.directory / "state" / "pilothouse" / "default" / "replicas").glob("*.json")
    found = []
    for record in records:
        fields: dict[str, Any] = json.loads(record.read_text())
        endpoint = fields.get("endpoint", fields)
        key = str(endpoint.get("authorization") or f"Bearer {fields.get('key') or fields.get('api_key')}")
        found.append((f"http://127.0.0.1:{endpoint['port']}", key))
    return found


def _busy(engines: list[tuple[str, str]]) -> int:
    """Slots that are generating, as llama.cpp says."""
    return sum(
        slot["is_processing"]
        for url, key in engines
        for slot in httpx2.get(f"{url}/slots", headers={"authorization": key}).raise_for_status().json()
    )


def _ask(one: Home, *, stream: bool) -> socket.socket:
    """A connection on which a long request has been sent. Its prompt is new: the engine has to read all of it."""
    story = f"{secrets.token_hex(8)}: write a very long story about the sea. " * 8
    message = {"role": "user", "content": story}
    body = json.dumps(
        {"model": "smollm2", "messages": [message], "stream": stream, "max_tokens": 400, "ignore_eos": True}
    ).encode()
    host, port = one.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {one.key()}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    connection.sendall(head.encode() + body)
    return connection


def _leave_at_once(one: Home, engines: list[tuple[str, str]], *, stream: bool) -> None:
    """Disconnect as soon as the engine works on the request, with nothing received."""
    with _ask(one, stream=stream) as connection:
        wait_for(lambda: _busy(engines) == 1, "generation begins")
        connection.setblocking(False)
        try:
            connection.recv(1)
        except BlockingIOError:
            return
    raise RuntimeError("the engine answered before the client could leave")


def _leave_mid_stream(one: Home, engines: list[tuple[str, str]], *, stream: bool) -> None:
    """Disconnect after some events."""
    with _ask(one, stream=stream) as connection:
        received = b""
        while received.count(b"data: ") < 10:
            received += connection.recv(65536)
        if _busy(engines) != 1:
            raise RuntimeError("the engine is not generating while its stream is being read")


if __name__ == "__main__":
    main("foundation", measure())
