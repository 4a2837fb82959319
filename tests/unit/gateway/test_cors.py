"""Web pages of declared origins may call, others may not."""

from pathlib import Path

import pytest

from data_plane import ENGINE_KEY, MODEL, Answer, chat, data_plane, request, snapshot
from pilothouse.testing.fake_engine import EngineOptions, FakeEngine

pytestmark = pytest.mark.asyncio

CHAT = "/v1/chat/completions"
PAGE = "https://chat.example.com"
EXPOSED = "x-request-id, x-pilothouse-request-id, x-pilothouse-overhead-ms, retry-after"


def asks(origin: str, method: str = "POST", headers: str | None = "authorization, content-type") -> dict[str, str]:
    return {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        **({"Access-Control-Request-Headers": headers} if headers is not None else {}),
    }


def permissions(answer: Answer) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}


async def test_a_browsers_question_is_answered_for_a_declared_origin(tmp_path: Path) -> None:
    async with data_plane(snapshot([]), tmp_path, origins=(PAGE,)) as plane:
        answer = await plane.ask(CHAT, method="OPTIONS", key=None, headers=asks(PAGE))
        assert answer.status == 200
        assert permissions(answer) == {
            "access-control-allow-origin": PAGE,
            "access-control-allow-methods": "POST",
            "access-control-allow-headers": "authorization, content-type",
            "access-control-max-age": "600",
            "access-control-expose-headers": EXPOSED,
        }
        assert answer.headers["vary"] == "origin"
        models = await plane.ask("/v1/models", method="OPTIONS", key=None, headers=asks(PAGE, "GET", None))
        assert models.headers["access-control-allow-methods"] == "GET, HEAD"
        assert "access-control-allow-headers" not in models.headers


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "http://chat.example.com", "null", "https://CHAT.example.com"]
)
async def test_other_origins_get_no_permission(origin: str, tmp_path: Path) -> None:
    async with data_plane(snapshot([]), tmp_path, origins=(PAGE,)) as plane:
        assert permissions(await plane.ask(CHAT, method="OPTIONS", key=None, headers=asks(origin))) == {}
        answer = await plane.ask("/v1/models", method="GET", headers={"Origin": origin})
        assert (answer.status, permissions(answer)) == (200, {})
        assert answer.headers["vary"] == "origin", "a cache must not give this answer to another origin"


async def test_a_star_stands_for_all(tmp_path: Path) -> None:
    async with data_plane(snapshot([]), tmp_path, origins=("*",)) as plane:
        answer = await plane.ask("/v1/models", method="GET", headers={"Origin": "https://any.example"})
        assert permissions(answer)["access-control-allow-origin"] == "https://any.example"


@pytest.mark.parametrize("names", ["a: b", "a\tb", "x" * 3000, "a, (b)", ""])
async def test_names_that_are_no_names_are_not_repeated(names: str, tmp_path: Path) -> None:
    async with data_plane(snapshot([]), tmp_path, origins=(PAGE,)) as plane:
        answer = await plane.ask(CHAT, method="OPTIONS", key=None, headers=asks(PAGE, headers=names))
        assert (answer.status, "access-control-allow-headers" in answer.headers) == (200, False)


async def test_without_declared_origins_options_is_no_method(tmp_path: Path) -> None:
    async with data_plane(snapshot([]), tmp_path) as plane:
        answer = await plane.ask(CHAT, method="OPTIONS", headers=asks(PAGE))
        assert (answer.status, permissions(answer), "vary" in answer.headers) == (405, {}, False)


async def test_a_page_can_read_answers_streams_and_errors(tmp_path: Path) -> None:
    options = EngineOptions(served_model_names=(MODEL,), api_key=ENGINE_KEY, time_scale=0.01)
    async with FakeEngine(options) as engine, data_plane(snapshot([engine.port]), tmp_path, origins=(PAGE,)) as plane:
        for body in (chat(max_tokens=2), chat(max_tokens=2, stream=True), chat(model="none")):
            answer = await plane.ask(CHAT, body, headers={"Origin": PAGE})
            assert permissions(answer) == {
                "access-control-allow-origin": PAGE,
                "access-control-expose-headers": EXPOSED,
            }
        refused = await plane.ask(CHAT, chat(), key=None, headers={"Origin": PAGE})
        assert (refused.status, permissions(refused)["access-control-allow-origin"]) == (401, PAGE)
        wire = await plane.send(request(CHAT, chat(max_tokens=1), headers={"Origin": PAGE}) * 2)
        for _ in range(2):
            assert permissions(await wire.answer())["access-control-allow-origin"] == PAGE


async def test_a_preflight_for_a_path_that_is_not_there_is_a_404(tmp_path: Path) -> None:
    async with data_plane(snapshot([]), tmp_path, origins=(PAGE,)) as plane:
        assert (await plane.ask("/v2/chat", method="OPTIONS", key=None, headers=asks(PAGE))).status == 404
