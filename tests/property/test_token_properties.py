"""Tokens that were not signed by the issuer are never believed, and key ids cannot make an issuer be asked often."""

import itertools

import hypothesis.strategies as st
from hypothesis import given, settings

from pilothouse.policy.tokens.claims import judge
from pilothouse.policy.tokens.identity import AuthProblem, TenantIdentity, TokenFault
from pilothouse.policy.tokens.key_ring import COOLDOWN_S, REFRESH_S, KeyRing
from pilothouse.policy.tokens.verifier import TokenVerifier
from token_making import EC, ISSUER, NOW, RSA, claims, issuer_spec, part, public_keys, token

GOOD = token(EC)
KEYS = public_keys(RSA, EC)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def fresh() -> TokenVerifier:
    tokens = TokenVerifier([issuer_spec()])
    tokens.install(ISSUER, KEYS, NOW)
    return tokens


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_no_changed_byte_passes(at: int, mask: int) -> None:
    changed = bytearray(GOOD)
    changed[at] ^= mask
    assert isinstance(fresh().identity_of(bytes(changed), NOW), AuthProblem)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200) | st.lists(st.binary(max_size=60).map(part), max_size=4).map(b".".join))
def test_any_bytes_get_an_answer(bearer: bytes) -> None:
    assert isinstance(fresh().identity_of(bearer, NOW), AuthProblem)


@settings(max_examples=300, deadline=None)
@given(
    header=st.dictionaries(st.sampled_from(["alg", "kid", "crit", "b64", "jwk", "x"]), JSON, max_size=4),
    body=st.dictionaries(st.sampled_from(["iss", "aud", "exp", "nbf", "tenant", "tier", "sub"]), JSON, max_size=7),
    signature=st.binary(min_size=1, max_size=64),
)
def test_no_unsigned_claims_pass(header: dict[str, object], body: dict[str, object], signature: bytes) -> None:
    bearer = b".".join((part({"alg": "ES256", "kid": "ec-1", **header}), part({**claims(), **body}), part(signature)))
    assert isinstance(fresh().identity_of(bearer, NOW), AuthProblem)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["iss", "aud", "exp", "nbf", "tenant", "tier", "sub"]), JSON, max_size=7),
    st.floats(NOW - 10**6, NOW + 10**6),
)
def test_whoever_passes_does_so_within_the_tokens_time(body: dict[str, object], now_s: float) -> None:
    issuer = issuer_spec()
    found = judge({**claims(), **body}, issuer, now_s)
    if isinstance(found, TenantIdentity):
        assert now_s < found.expires_at_s
        assert found.tenant == {**claims(), **body}["tenant"]
    else:
        assert isinstance(found, TokenFault)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.floats(0.0, 40.0), st.text(max_size=2), st.booleans()), max_size=60))
def test_fetches_are_as_rare_as_the_cooldown_whatever_is_asked(steps: list[tuple[float, str, bool]]) -> None:
    ring = KeyRing()
    ring.install(KEYS, 0.0)
    now_s, fetched = 0.0, [0.0]
    for gap_s, key_id, works in steps:
        now_s += gap_s
        assert ring.find("ec-1", "ES256", now_s) is KEYS[1]
        ring.find(key_id, "ES256", now_s)
        if ring.due_in(now_s) == 0.0:
            fetched.append(now_s)
            ring.install(KEYS, now_s) if works else ring.failed(now_s)
    waits = [after - before for before, after in itertools.pairwise(fetched)]
    assert all(wait >= min(COOLDOWN_S, REFRESH_S, 10.0) for wait in waits)
