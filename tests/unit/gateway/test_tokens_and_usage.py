"""Callers with tokens of other issuers, and tenants that ask for their own usage."""

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from data_plane import KEY, MODEL, RunningPlane, chat, data_plane, directory_of_tests, request, snapshot
from pilothouse.model.errors import PilothouseError, Refusal
from pilothouse.model.ids import TenantId
from pilothouse.model.tenants import Limits, RateLimit, Scope, Tier
from pilothouse.policy.tokens.verifier import TokenVerifier
from token_making import EC, ISSUER, RSA, claims, issuer_spec, public_keys, token

pytestmark = pytest.mark.asyncio

CHAT = "/v1/chat/completions"
USAGE = "/v1/organization/usage/completions"


@pytest.fixture
def verifier() -> TokenVerifier:
    made = TokenVerifier([issuer_spec()])
    made.install(ISSUER, public_keys(EC), time.time())
    return made


def good(**changes: Any) -> str:
    body = claims(**{"exp": int(time.time()) + 3600, "tenant": "tests", **changes})
    return token(EC, body).decode()


async def models(plane: RunningPlane, bearer: str) -> tuple[int, str]:
    answer = await plane.ask("/v1/models", method="GET", key=bearer)
    return answer.status, answer.code if answer.status != 200 else ""


class TestTokens:
    async def test_a_token_speaks_for_its_tenant(self, verifier: TokenVerifier, tmp_path: Path) -> None:
        async with data_plane(snapshot([]), tmp_path) as plane:
            assert await models(plane, good()) == (401, "invalid_api_key"), "no fleet accepts tokens unless it says so"
            plane.plane.tokens = verifier
            assert await models(plane, good()) == (200, "")
            assert (await plane.ask(CHAT, chat(), key=good())).code == "no_ready_replica"
            assert await models(plane, KEY) == (200, ""), "the fleet's own keys are accepted too"

    @pytest.mark.parametrize(
        ("bearer", "code"),
        [
            (good(tenant="nobody"), "invalid_token"),
            (good(exp=5), "token_expired"),
            (good(aud="somebody-else"), "invalid_token"),
            (good(iss="https://evil.example.com/"), "invalid_token"),
            (good()[:-5] + "AAAAA", "invalid_token"),
            (token(RSA, claims(tenant="tests"), alg="RS256").decode(), "invalid_token"),
            ("a.b.c", "invalid_token"),
        ],
        ids=["tenant", "end", "audience", "issuer", "signature", "key", "form"],
    )
    async def test_and_one_that_is_not_good_for_nobody(
        self, bearer: str, code: str, verifier: TokenVerifier, tmp_path: Path
    ) -> None:
        async with data_plane(snapshot([]), tmp_path) as plane:
            plane.plane.tokens = verifier
            assert await models(plane, bearer) == (401, code)

    async def test_a_revoked_tenants_tokens_stop_at_once(self, verifier: TokenVerifier, tmp_path: Path) -> None:
        async with data_plane(snapshot([]), tmp_path) as plane:
            plane.plane.tokens = verifier
            wire = await plane.send(request("/v1/models", method="GET", key=good()))
            assert (await wire.answer()).status == 200
            plane.plane.callers.revoke(["tests"])
            wire.writer.write(request("/v1/models", method="GET", key=good()))
            assert (await wire.answer()).status == 401

    async def test_the_tenants_limits_hold_for_all_its_tokens(self, verifier: TokenVerifier, tmp_path: Path) -> None:
        tenants = directory_of_tests(tenant={"limits": Limits(requests=RateLimit(per_minute=2))})
        async with data_plane(snapshot([1]), tmp_path, tenants=tenants) as plane:
            plane.plane.tokens = verifier
            turns = plane.plane.turns
            assert turns is not None
            callers = plane.plane.callers
            now = time.monotonic_ns()
            plans = []
            for name in ("alice", "bob"):
                identity = verifier.identity_of(good(sub=name).encode(), time.time())
                caller = callers.of_token(identity)  # type: ignore[arg-type]
                assert caller is not None
                plans.append(turns.plan(caller, now))
            assert plans[0] is not None
            assert plans[0] is plans[1]

    async def test_a_token_may_ask_for_less_urgency_and_not_for_more(
        self, verifier: TokenVerifier, tmp_path: Path
    ) -> None:
        async with data_plane(snapshot([]), tmp_path) as plane:
            tiers = []
            for tier in ("batch", "realtime"):
                identity = verifier.identity_of(good(tier=tier).encode(), time.time())
                caller = plane.plane.callers.of_token(identity)  # type: ignore[arg-type]
                assert caller is not None
                tiers.append(caller.tenant.tier)
            assert tiers == [Tier.BATCH, Tier.STANDARD]


class TestUsage:
    async def test_the_controllers_answer_goes_to_the_tenant(self, tmp_path: Path) -> None:
        asked: list[tuple[TenantId, str]] = []

        async def answer(tenant: TenantId, query: str) -> bytes:
            asked.append((tenant, query))
            await asyncio.sleep(0.01)
            return b'{"object":"page"}'

        async with data_plane(snapshot([]), tmp_path) as plane:
            plane.plane.ask_usage = answer
            got = await plane.ask(USAGE + "?start_time=5&bucket_width=1d", method="GET")
            assert (got.status, got.json()) == (200, {"object": "page"})
            assert asked == [(TenantId("tests"), "start_time=5&bucket_width=1d")]
            assert plane.ended("ok") == 1

    async def test_what_is_wrong_with_the_question_is_told(self, tmp_path: Path) -> None:
        async def refuse(tenant: TenantId, query: str) -> Refusal:
            return Refusal(code="invalid_value", message="start_time is needed.", param="start_time")

        async def away(tenant: TenantId, query: str) -> bytes:
            raise PilothouseError("usage_unavailable", "there is no controller")

        async with data_plane(snapshot([]), tmp_path) as plane:
            plane.plane.ask_usage = refuse
            got = await plane.ask(USAGE, method="GET")
            assert (got.status, got.code) == (400, "invalid_value")
            plane.plane.ask_usage = away
            got = await plane.ask(USAGE, method="GET")
            assert (got.status, got.code) == (503, "usage_unavailable")

    async def test_it_needs_a_key_with_the_scope(self, tmp_path: Path) -> None:
        tenants = directory_of_tests(key={"scopes": (Scope.INFERENCE,)})
        async with data_plane(snapshot([]), tmp_path, tenants=tenants) as plane:
            assert (await plane.ask(USAGE, method="GET")).code == "key_not_allowed"
            assert (await plane.ask(USAGE, method="GET", key=None)).code == "missing_api_key"
            assert (await plane.ask(USAGE, {"model": MODEL})).code == "method_not_allowed"

    async def test_a_client_that_leaves_is_not_answered(self, tmp_path: Path) -> None:
        waiting = asyncio.Event()

        async def never(tenant: TenantId, query: str) -> bytes:
            waiting.set()
            await asyncio.Event().wait()
            return b""

        async with data_plane(snapshot([]), tmp_path) as plane:
            plane.plane.ask_usage = never
            wire = await plane.send(request(USAGE, method="GET"))
            await waiting.wait()
            wire.abort()
            while plane.ended("client_disconnected") == 0:  # noqa: ASYNC110 - what is waited for happens elsewhere
                await asyncio.sleep(0.005)

    async def test_who_waits_when_the_worker_stops_hears_of_it(self, tmp_path: Path) -> None:
        waiting = asyncio.Event()

        async def never(tenant: TenantId, query: str) -> bytes:
            waiting.set()
            await asyncio.Event().wait()
            return b""

        async with data_plane(snapshot([]), tmp_path) as plane:
            plane.plane.ask_usage = never
            wire = await plane.send(request(USAGE, method="GET"))
            await waiting.wait()
            for connection in plane.plane.connections:
                assert connection.exchange is not None
                connection.exchange.fail(Refusal(code="shutting_down", message="The gateway is shutting down."))
            assert msgspec.json.decode((await wire.answer()).body)["error"]["code"] == "shutting_down"
