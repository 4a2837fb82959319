"""Clients that disconnect from a real engine: its generation stops, and every counter returns to zero."""

import json
import threading
import time
from typing import Any

import httpx2

from benchmarks.bars.report import Bar, main, tell
from benchmarks.fleets import Home, home, wait_for

STOPS_WITHIN_S = 1.0
LONG = {"role": "user", "content": "Write a very long story about the sea. " * 40}


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
            tell(f"disconnecting {name}")
            leave(one, engines, stream=stream)
            took = wait_for(lambda: _busy(engines) == 0, "generation stops", timeout_s=20)
            bars.append(
                Bar(
                    name=f"disconnect {name}: generation stops",
                    limit=f"< {STOPS_WITHIN_S:g} s",
                    measured=f"{took:.2f} s",
                    passed=took < STOPS_WITHIN_S,
                )
            )
        left = _counters(one)
        bars.append(Bar(name="counters after all of it", limit="0", measured=f"{left:g}", passed=left == 0))
        return bars


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


def _request(one: Home, *, stream: bool) -> tuple[dict[str, Any], dict[str, str]]:
    body = {"model": "smollm2", "messages": [LONG], "stream": stream, "max_tokens": 1500, "ignore_eos": True}
    return body, {"authorization": f"Bearer {one.key()}"}


def _leave_at_once(one: Home, engines: list[tuple[str, str]], *, stream: bool) -> None:
    """Disconnect as soon as the engine works on the request, with nothing received."""
    body, headers = _request(one, stream=stream)
    client = httpx2.Client(timeout=0.6)

    def ask() -> None:
        try:
            client.post(f"{one.url}/v1/chat/completions", json=body, headers=headers)
        except httpx2.HTTPError:
            pass  # the time-out is how this client leaves

    thread = threading.Thread(target=ask)
    thread.start()
    wait_for(lambda: _busy(engines) == 1, "generation begins")
    thread.join()
    client.close()


def _leave_mid_stream(one: Home, engines: list[tuple[str, str]], *, stream: bool) -> None:
    """Disconnect after some events."""
    body, headers = _request(one, stream=stream)
    with httpx2.stream("POST", f"{one.url}/v1/chat/completions", json=body, headers=headers, timeout=60) as answer:
        lines = answer.iter_lines()  # held: a generator that is dropped would close the stream
        for _ in range(20):
            next(lines)
        if _busy(engines) != 1:
            raise RuntimeError("the engine is not generating while its stream is being read")


if __name__ == "__main__":
    main("foundation", measure())
