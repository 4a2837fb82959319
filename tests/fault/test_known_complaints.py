"""What users of other gateways complain of, each as a test. T5 and T14 are in test_upstream_framing.py."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from data_plane import ENGINE_KEY, MODEL, RunningPlane, chat, data_plane, request, settled, snapshot
from pilothouse.telemetry import catalogue
from pilothouse.testing.fake_engine import EngineOptions, FakeEngine, Script

pytestmark = pytest.mark.asyncio

CHAT = "/v1/chat/completions"


def engine(**more: object) -> FakeEngine:
    known = {"served_model_names": (MODEL,), "api_key": ENGINE_KEY, "time_scale": 0.01, **more}
    return FakeEngine(EngineOptions(**known))  # type: ignore[arg-type]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for happens elsewhere
        await asyncio.sleep(0.005)


class TestDisconnects:
    """T1. LiteLLM 13774, 37140, 31499, 30244, 14457; SGLang 11399, 19524; SMG 2136."""

    async def test_t1_a_disconnect_in_a_long_prefill_is_seen_at_once(self, tmp_path: Path) -> None:
        """SMG 2136: it was unseen until the next send, and the relay pinned for up to 1,800 s."""
        async with engine() as upstream, data_plane(snapshot([upstream.port]), tmp_path) as plane:
            upstream.script(Script(delay_s=600))
            wire = await plane.send(request(CHAT, chat(stream=True)))
            await until(lambda: upstream.state().in_flight == 1)
            wire.abort()
            await until(lambda: upstream.state().in_flight == 0)
            await settled(plane)

    async def test_t1_every_phase_gives_back_exactly_once(self, tmp_path: Path) -> None:
        """LiteLLM 27955: the slot of a cancelled stream leaked. A hundred clients leave at every moment there is."""
        async with engine() as upstream, data_plane(snapshot([upstream.port]), tmp_path) as plane:
            wires = []
            for number in range(100):
                upstream.script(Script(stall_after=number % 5))
                wires.append(await plane.send(request(CHAT, chat(stream=number % 2 == 0, max_tokens=20))))
                await asyncio.sleep(0.001 * (number % 7))
                if number % 3:
                    wires[-1].abort()
            for wire in wires:
                wire.abort()
            await settled(plane)
            await until(lambda: upstream.state().in_flight == 0)
            ended = plane.count(catalogue.REQUESTS)
            assert ended == plane.ended("client_disconnected") + plane.ended("ok")
            assert all(each.in_flight_requests == each.load_tokens == 0 for each in plane.plane.table.replicas.values())

    async def test_t1_a_client_that_leaves_while_others_share_its_replica_stops_only_its_own(
        self, tmp_path: Path
    ) -> None:
        """SGLang 11399: ids that were prefixes of one another aborted the wrong request."""
        async with engine() as upstream, data_plane(snapshot([upstream.port]), tmp_path) as plane:
            upstream.script(Script(stall_after=2), times=12)
            wires = [await plane.send(request(CHAT, chat(stream=True))) for _ in range(12)]
            await until(lambda: upstream.state().in_flight == 12)
            ids = {seen.header("x-request-id") for seen in upstream.requests}
            assert len(ids) == 12
            assert not any(a != b and str(a).startswith(str(b)) for a in ids for b in ids)
            wires[5].abort()
            await until(lambda: upstream.state().in_flight == 11)
            await asyncio.sleep(0.05)
            assert upstream.state().in_flight == 11
            for wire in wires:
                wire.abort()


class TestCounters:
    """T8. llm-d-router 2295, 1739, 1474; vllm-router 176, 177; SGLang 9484."""

    async def test_t8_load_counts_to_the_end_of_sequence_and_not_to_the_headers(self, tmp_path: Path) -> None:
        """SGLang 9484, vllm-router 176: the counter was released at the headers."""
        async with engine() as one, engine() as two, data_plane(snapshot([one.port, two.port]), tmp_path) as plane:
            one.script(Script(stall_after=2), times=20)
            two.script(Script(stall_after=2), times=20)
            wires = []
            for _ in range(10):
                wires.append(await plane.send(request(CHAT, chat(stream=True))))
                await wires[-1].head()
            assert [one.state().in_flight, two.state().in_flight] == [5, 5], "streams under way weigh"
            assert plane.in_flight()[0] == 10
            for wire in wires:
                wire.abort()

    async def test_t8_a_slow_request_is_never_forgotten_while_it_lives(self, tmp_path: Path) -> None:
        """llm-d-router 2295: a reaper forgot live requests after five minutes, and the gate saw phantom capacity."""
        async with engine() as upstream, data_plane(snapshot([upstream.port]), tmp_path) as plane:
            upstream.script(Script(delay_s=30))
            wire = await plane.send(request(CHAT, chat()))
            await until(lambda: plane.in_flight()[0] == 1)
            for _ in range(9):
                plane.turn(60)
            assert plane.in_flight()[0] == 1, "nine minutes later it still counts"
            wire.abort()

    async def test_t8_counts_do_not_go_negative_when_a_replica_comes_and_goes(self, tmp_path: Path) -> None:
        """llm-d-router 1739: an endpoint that flapped left negative counters."""
        async with engine() as upstream, data_plane(snapshot([upstream.port]), tmp_path) as plane:
            upstream.script(Script(stall_after=1), times=3)
            wires = [await plane.send(request(CHAT, chat(stream=True))) for _ in range(3)]
            for wire in wires:
                await wire.head()
            first = next(iter(plane.plane.table.replicas.values()))
            for version, ports in ((2, []), (3, [upstream.port]), (4, []), (5, [upstream.port])):
                plane.plane.apply(snapshot(ports, version=version))
            again = next(iter(plane.plane.table.replicas.values()))
            assert again is not first
            assert (await plane.ask(CHAT, chat(max_tokens=1))).status == 200
            assert (first.in_flight_requests, again.in_flight_requests) == (3, 0)
            for wire in wires:
                wire.abort()
            await until(lambda: first.in_flight_requests == 0)
            for replica in (first, again):
                replica.show_load()
                assert replica.load_tokens == 0
            assert plane.count(catalogue.IN_FLIGHT_REQUESTS) == plane.count(catalogue.IN_FLIGHT_TOKENS) == 0

    async def test_t8_own_requests_count_at_once_and_no_herd_follows_a_stale_number(self, tmp_path: Path) -> None:
        """vllm-router 177: two choices by polled numbers sent a whole burst to one replica between two polls."""
        async with contextlib.AsyncExitStack() as stack:
            engines = [await stack.enter_async_context(engine()) for _ in range(4)]
            fleet = snapshot([each.port for each in engines])
            plane: RunningPlane = await stack.enter_async_context(data_plane(fleet, tmp_path))
            for each in engines:
                each.script(Script(stall_after=0), times=40)
            wires = [await plane.send(request(CHAT, chat())) for _ in range(40)]
            await until(lambda: sum(each.state().in_flight for each in engines) == 40)
            assert [each.state().in_flight for each in engines] == [10] * 4
            for wire in wires:
                wire.abort()


class TestSize:
    """T13. GIE 2928, 854, 2115; llm-d-router 1909. Streams and memory: `make bars ISSUE=data-plane`, `make soak`."""

    @pytest.mark.parametrize("kilobytes", [7, 130, 200, 1000])
    @pytest.mark.parametrize("stream", [False, True])
    async def test_t13_large_prompts_arrive_whole(self, kilobytes: int, stream: bool, tmp_path: Path) -> None:
        """GIE 854, 2115: above 128 KB a 500, above 6 KB a failure."""
        async with (
            engine(max_model_len=1_200_000, kv_blocks=100_000) as upstream,
            data_plane(snapshot([upstream.port]), tmp_path) as plane,
        ):
            body = chat(messages=[{"role": "user", "content": "x" * 1000 * kilobytes}], stream=stream, max_tokens=1)
            upstream.script(Script(text="ok"))
            await plane.ask(CHAT, body)
            sent = upstream.requests[-1].json()
            assert sent["messages"] == body["messages"]

    async def test_t13_names_from_requests_do_not_become_labels(self, tmp_path: Path) -> None:
        """llm-d-router 1909: metric labels grew with the model names that clients made up."""
        async with engine() as upstream, data_plane(snapshot([upstream.port]), tmp_path) as plane:
            await plane.ask(CHAT, chat(max_tokens=1))
            counts = []
            for number in range(50):
                await plane.ask(CHAT, chat(model=f"made-up-{number}"))
                await plane.ask(f"/v1/made-up/{number}")
                await plane.ask(f"/v1/models/made-up-{number}", method="GET")
                counts.append(plane.series())
            assert counts == [counts[0]] * 50
