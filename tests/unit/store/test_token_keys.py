"""Keys of issuers: read from key sets, and fetched from a real server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from joserfc.jwk import ECKey, OctKey, RSAKey

from pilothouse.model.spec import TokenIssuerSpec
from pilothouse.policy.tokens import key_ring
from pilothouse.policy.tokens.identity import AuthProblem, TenantIdentity, TokenFault
from pilothouse.policy.tokens.verifier import TokenVerifier
from pilothouse.store import token_keys
from pilothouse.store.token_keys import KeySetError, TokenKeysKeeper, read_key_set
from token_making import EC, ISSUER, OKP, RSA, claims, issuer_spec, key_set, token

NEW = ECKey.generate_key("P-256", {"kid": "new"})


def jwks(*keys: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"keys": keys})


def test_only_keys_that_check_signatures_are_taken() -> None:
    ec = EC.as_dict(private=False)
    found = read_key_set(
        jwks(
            ec,
            {**ec, "kid": "enc", "use": "enc"},
            {**ec, "kid": "ops", "key_ops": ["sign"]},
            {**ec, "kid": "alg", "alg": "RS256"},
            {**ec, "kid": "point", "x": ec["y"]},
            {**ec, "kid": 7},
            {"kty": "RSA", "kid": "broken", "n": "AQAB"},
            {"kty": "new", "kid": "unknown"},
            {**OctKey.generate_key(256).as_dict(), "kid": "secret", "alg": "HS256"},
        )
    )
    assert [(key.key_id, key.algorithms) for key in found] == [("ec-1", frozenset({"ES256"}))]


def test_a_short_rsa_key_is_not_taken() -> None:
    with pytest.warns(Warning, match="2048"):
        short = RSAKey.generate_key(1024).as_dict(private=False)
    with pytest.raises(KeySetError, match="no key"):
        read_key_set(jwks(short))


def test_a_key_with_an_algorithm_is_good_for_that_one() -> None:
    found = read_key_set(jwks({**RSA.as_dict(private=False), "alg": "PS256"}))
    assert found[0].algorithms == {"PS256"}
    assert not found[0].verifies("RS256", b"", b"")


def test_a_private_key_that_an_issuer_publishes_by_mistake_is_read_as_its_public_half() -> None:
    found = read_key_set(jwks(EC.as_dict(private=True)))
    assert not found[0]._key.is_private


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"keys":{}}', b'{"keys":[]}', b'{"keys":[1]}', b"[" * 9999])
def test_what_is_no_key_set(content: bytes) -> None:
    with pytest.raises(KeySetError):
        read_key_set(content)


def test_a_set_of_too_many_keys_is_not_read() -> None:
    with pytest.raises(KeySetError, match="at most"):
        read_key_set(jwks(*[EC.as_dict(private=False)] * 101))


class KeyServer:
    """An issuer's web server on loopback. `answer` is the whole HTTP answer."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer = b""

    def publish(self, body: bytes, status: str = "200 OK", more: str = "") -> None:
        self.answer = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{more}\r\n".encode() + body

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            writer.write(self.answer)
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def running(
    server: KeyServer, **changes: Any
) -> AsyncIterator[tuple[TokenVerifier, list[str], Callable[[], float]]]:
    """A keeper of this server's keys: the verifier, what has failed, and the time."""
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    spec: TokenIssuerSpec = issuer_spec(**{"jwks_url": f"http://127.0.0.1:{port}/jwks", **changes})
    verifier, failures = TokenVerifier([spec]), list[str]()
    keeper = TokenKeysKeeper(verifier, lambda _, reason: failures.append(reason))
    task = asyncio.ensure_future(keeper.run())
    try:
        yield verifier, failures, keeper._now_s
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        listener.close()
        await listener.wait_closed()


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(2000):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came to it")


def good_token(key: Any, now_s: float) -> bytes:
    return token(key, claims(exp=int(now_s) + 60))


@pytest.mark.asyncio
async def test_keys_come_from_a_server_and_a_new_one_is_fetched_when_a_token_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_ring, "COOLDOWN_S", 0.0)
    server = KeyServer()
    server.publish(key_set(RSA, EC, OKP))
    async with running(server) as (tokens, failures, now_s):
        bearer = good_token(EC, now_s())
        found = tokens.identity_of(bearer, now_s())
        assert isinstance(found, AuthProblem)
        assert found.fault is TokenFault.KEYS_UNAVAILABLE
        await until(lambda: isinstance(tokens.identity_of(bearer, now_s()), TenantIdentity))
        assert server.asked == 1
        server.publish(key_set(EC, NEW))
        newer = good_token(NEW, now_s())
        await until(lambda: isinstance(tokens.identity_of(newer, now_s()), TenantIdentity))
        assert server.asked == 2
        assert failures == []


@pytest.mark.asyncio
async def test_a_flood_of_made_up_key_names_does_not_reach_the_issuer() -> None:
    server = KeyServer()
    server.publish(key_set(EC))
    async with running(server) as (tokens, _, now_s):
        bearer = good_token(EC, now_s())
        await until(lambda: isinstance(tokens.identity_of(bearer, now_s()), TenantIdentity))
        body = claims(exp=int(now_s()) + 60)
        for at in range(500):
            assert isinstance(tokens.identity_of(token(EC, body, kid=f"k{at}"), now_s()), AuthProblem)
            if at % 50 == 0:
                await asyncio.sleep(0)
        assert server.asked == 1
        assert isinstance(tokens.identity_of(bearer, now_s()), TenantIdentity)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("body", "status", "more", "reason"),
    [
        (b"", "302 Found", "location: http://169.254.169.254/\r\n", "status is 302"),
        (b"", "500 Internal Server Error", "", "status is 500"),
        (b"x" * 2000, "200 OK", "", "longer than 1000 bytes"),
        (b"<html>", "200 OK", "", "not a JSON Web Key Set"),
    ],
)
async def test_answers_that_are_no_keys_are_told(
    body: bytes, status: str, more: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_keys, "MAX_SET_BYTES", 1000)
    server = KeyServer()
    server.publish(body, status, more)
    async with running(server) as (tokens, failures, now_s):
        await until(lambda: bool(failures))
        assert reason in failures[0]
        assert isinstance(tokens.identity_of(good_token(EC, now_s()), now_s()), AuthProblem)


@pytest.mark.asyncio
async def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_keys, "FETCH_TIMEOUT_S", 0.05)
    async with running(KeyServer()) as (_, failures, _now):
        await until(lambda: bool(failures))


@pytest.mark.asyncio
async def test_a_name_that_leads_to_a_link_local_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_keys, "leads_to_metadata", lambda host: host == "127.0.0.1")
    server = KeyServer()
    server.publish(key_set(EC))
    async with running(server) as (_, failures, _now):
        await until(lambda: bool(failures))
        assert failures == ["the URL leads to a link-local address"]


@pytest.mark.asyncio
async def test_keys_in_a_file_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys.json"
    async with running(KeyServer(), jwks_url=None, jwks_file=str(path)) as (tokens, failures, now_s):
        monkeypatch.setattr(tokens.rings[ISSUER], "_refresh_s", 0.01)
        await until(lambda: bool(failures))
        assert failures[0].startswith("keys.json cannot be read")
    path.write_bytes(key_set(EC))
    async with running(KeyServer(), jwks_url=None, jwks_file=str(path)) as (tokens, failures, now_s):
        monkeypatch.setattr(tokens.rings[ISSUER], "_refresh_s", 0.01)
        bearer = good_token(EC, now_s())
        await until(lambda: isinstance(tokens.identity_of(bearer, now_s()), TenantIdentity))
        path.write_bytes(key_set(NEW))
        await until(lambda: isinstance(tokens.identity_of(bearer, now_s()), AuthProblem))
        assert failures == []
