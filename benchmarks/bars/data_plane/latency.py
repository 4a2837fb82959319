"""What a request waits for the gateway: beside vllm-router at 32 connections, and a large prompt to its first token."""

import asyncio
import statistics
import time

import uvloop

from benchmarks import load
from benchmarks.bars.report import Bar, main, tell
from benchmarks.gateway_worker import KEY
from benchmarks.peers import Running, before_upstreams
from pilothouse.model.requests import Route

ROUNDS = 5
SECONDS = 3
CONNECTIONS = 32
PROMPTS = 300
FIRST_TOKEN_LIMIT_MS = 3.0


def measure() -> list[Bar]:
    """Both."""
    with before_upstreams(["pilothouse", "vllm-router"]) as (running, directory):
        p99: dict[str, list[float]] = {name: [] for name in ("direct", "pilothouse", "vllm-router")}
        for number in range(ROUNDS + 1):
            for name, figures in p99.items():
                proxy = running[name]
                cost = load.run(
                    proxy.port,
                    proxy.pids,
                    directory,
                    load.body(),
                    connections=CONNECTIONS,
                    seconds=SECONDS if number else 1,
                )
                if number:
                    figures.append(cost.latency_s["99"] * 1e3)
            if number:
                tell(f"round {number}: p99 " + ", ".join(f"{name} {each[-1]:.2f} ms" for name, each in p99.items()))
        added = {name: statistics.median(a - b for a, b in zip(p99[name], p99["direct"], strict=True)) for name in p99}
        text = load.body(200 * 1024, events=1)
        first: dict[str, float] = {}
        for name in ("direct", "pilothouse"):
            first[name] = statistics.median(uvloop.run(_first_events(running[name], text))) * 1e3
    extra_ms = first["pilothouse"] - first["direct"]
    return [
        Bar(
            name=f"added p99 at {CONNECTIONS} connections",
            limit=f"<= vllm-router's ({added['vllm-router']:.2f} ms)",
            measured=f"{added['pilothouse']:.2f} ms",
            passed=added["pilothouse"] <= added["vllm-router"],
            details={"p99_ms": {name: [round(each, 3) for each in figures] for name, figures in p99.items()}},
        ),
        Bar(
            name="a 200 KB prompt: added to first token",
            limit=f"< {FIRST_TOKEN_LIMIT_MS:g} ms",
            measured=f"{extra_ms:.2f} ms ({first['pilothouse']:.2f} beside {first['direct']:.2f} direct, medians)",
            passed=extra_ms < FIRST_TOKEN_LIMIT_MS,
        ),
    ]


async def _first_events(proxy: Running, text: str) -> list[float]:
    """Seconds from sending a request to its first event, one after the other on one connection."""
    body = text.encode()
    head = (
        f"POST {Route.CHAT_COMPLETIONS} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {KEY}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port, limit=2**20)
    found = []
    for _ in range(PROMPTS):
        began = time.perf_counter()
        writer.write(head + body)
        await reader.readuntil(b"data: ")
        found.append(time.perf_counter() - began)
        await reader.readuntil(b"0\r\n\r\n")
        await asyncio.sleep(0.005)
    writer.close()
    return found


if __name__ == "__main__":
    main("data_plane", measure())
