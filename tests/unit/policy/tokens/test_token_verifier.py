"""Whether tokens are good: signatures by real keys, and everything that must not pass."""

import hmac
from typing import Any

import pytest
from joserfc.jwk import ECKey

from pilothouse.model.tenants import Tier
from pilothouse.policy.tokens.compact import MAX_TOKEN_BYTES, is_token
from pilothouse.policy.tokens.identity import PROBLEMS, AuthProblem, TenantIdentity, TokenFault
from pilothouse.policy.tokens.verifier import TokenVerifier
from token_making import EC, ISSUER, NOW, OKP, RSA, claims, issuer_spec, part, public_keys, token


def verifier(**changes: Any) -> TokenVerifier:
    made = TokenVerifier([issuer_spec(**changes)])
    made.install(ISSUER, public_keys(RSA, EC, OKP), NOW)
    return made


def fault(found: TenantIdentity | AuthProblem) -> TokenFault:
    assert isinstance(found, AuthProblem)
    return found.fault


def identity(found: TenantIdentity | AuthProblem) -> TenantIdentity:
    assert isinstance(found, TenantIdentity), found
    return found


@pytest.mark.parametrize(("key", "alg"), [(RSA, "RS256"), (EC, "ES256"), (OKP, "EdDSA")])
def test_a_good_token_names_its_tenant(key: Any, alg: str) -> None:
    found = identity(verifier().identity_of(token(key, claims(tier="batch"), alg=alg), NOW))
    assert (found.tenant, found.tier, found.issuer) == ("acme", Tier.BATCH, ISSUER)
    assert found.expires_at_s == NOW + 3600 + 60


def test_a_key_id_is_stable_and_says_nothing_about_the_subject() -> None:
    tokens = verifier()
    first = identity(tokens.identity_of(token(EC, claims()), NOW)).key
    again = identity(tokens.identity_of(token(EC, claims(exp=NOW + 99)), NOW)).key
    other = identity(tokens.identity_of(token(EC, claims(sub="bob")), NOW)).key
    assert first == again != other
    assert first.startswith("jwt_")
    assert "alice" not in first


def test_an_unsigned_token_is_refused() -> None:
    body = part(claims())
    for alg in ("none", "None", "NONE", ""):
        unsigned = part({"alg": alg, "kid": "ec-1"}) + b"." + body
        assert fault(verifier().identity_of(unsigned + b"." + part(b"x"), NOW)) is TokenFault.ALGORITHM
        assert fault(verifier().identity_of(unsigned + b".", NOW)) is TokenFault.MALFORMED


@pytest.mark.parametrize("secret", [RSA.as_pem(private=False), RSA.as_der(private=False), b"rsa-1"])
def test_a_public_key_is_never_taken_for_a_shared_secret(secret: bytes) -> None:
    signed = part({"alg": "HS256", "kid": "rsa-1"}) + b"." + part(claims())
    forged = signed + b"." + part(hmac.digest(secret, signed, "sha256"))
    assert fault(verifier().identity_of(forged, NOW)) is TokenFault.ALGORITHM


def test_an_algorithm_that_the_operator_did_not_list_is_refused() -> None:
    assert fault(verifier().identity_of(token(RSA, alg="RS512"), NOW)) is TokenFault.ALGORITHM


def test_a_key_is_good_for_its_own_algorithms_only() -> None:
    mixed = token(EC, alg="ES256", kid="rsa-1")
    assert fault(verifier().identity_of(mixed, NOW)) is TokenFault.ALGORITHM


def test_a_token_does_not_bring_its_own_key() -> None:
    stranger = ECKey.generate_key("P-256", {"kid": "ec-1"})
    mine = stranger.as_dict(private=False)
    forged = token(stranger, jwk=mine, jku="https://evil.example/jwks.json", x5u="https://evil.example/")
    assert fault(verifier().identity_of(forged, NOW)) is TokenFault.SIGNATURE


def test_critical_extensions_are_refused() -> None:
    assert fault(verifier().identity_of(token(EC, crit=["b64"], b64=False), NOW)) is TokenFault.MALFORMED


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"iss": "https://login.example.com"}, TokenFault.ISSUER),
        ({"iss": None}, TokenFault.ISSUER),
        ({"iss": [ISSUER]}, TokenFault.ISSUER),
        ({"aud": "another"}, TokenFault.AUDIENCE),
        ({"aud": None}, TokenFault.AUDIENCE),
        ({"aud": ["x", {"a": 1}, 7]}, TokenFault.AUDIENCE),
        ({"aud": {"pilothouse": True}}, TokenFault.AUDIENCE),
        ({"exp": NOW - 60}, TokenFault.EXPIRED),
        ({"exp": None}, TokenFault.CLAIMS),
        ({"exp": True}, TokenFault.CLAIMS),
        ({"exp": "never"}, TokenFault.CLAIMS),
        ({"exp": 10**400}, TokenFault.CLAIMS),
        ({"nbf": NOW + 61}, TokenFault.NOT_YET),
        ({"nbf": "now"}, TokenFault.CLAIMS),
        ({"tenant": None}, TokenFault.CLAIMS),
        ({"tenant": ""}, TokenFault.CLAIMS),
        ({"tenant": "x" * 129}, TokenFault.CLAIMS),
        ({"tenant": ["acme"]}, TokenFault.CLAIMS),
        ({"tier": "root"}, TokenFault.CLAIMS),
        ({"tier": 1}, TokenFault.CLAIMS),
        ({"sub": 7}, TokenFault.CLAIMS),
    ],
)
def test_claims_that_do_not_pass(change: dict[str, Any], expected: TokenFault) -> None:
    assert fault(verifier().identity_of(token(EC, claims(**change)), NOW)) is expected


@pytest.mark.parametrize("change", [{"exp": NOW - 59}, {"nbf": NOW + 60}, {"aud": ["x", "other"]}, {"sub": None}])
def test_claims_that_pass_within_the_skew(change: dict[str, Any]) -> None:
    identity(verifier().identity_of(token(EC, claims(**change)), NOW))


def test_claims_may_be_nested_and_tenants_mapped() -> None:
    tokens = verifier(tenant_claim=("org", "id"), tenants={"o-17": "acme"}, tier_claim=None)
    found = identity(tokens.identity_of(token(EC, claims(org={"id": "o-17"}, tier="realtime")), NOW))
    assert (found.tenant, found.tier) == ("acme", None)
    assert fault(tokens.identity_of(token(EC, claims(org={"id": "acme"})), NOW)) is TokenFault.CLAIMS
    assert fault(tokens.identity_of(token(EC, claims(org="o-17")), NOW)) is TokenFault.CLAIMS


def test_a_tier_is_never_above_the_tenants() -> None:
    asked = identity(verifier().identity_of(token(EC, claims(tier="realtime")), NOW))
    assert asked.tier_within(Tier.BATCH) is Tier.BATCH
    assert asked.tier_within(Tier.REALTIME) is Tier.REALTIME
    low = identity(verifier().identity_of(token(EC, claims(tier="batch")), NOW))
    assert low.tier_within(Tier.REALTIME) is Tier.BATCH
    unsaid = identity(verifier().identity_of(token(EC, claims()), NOW))
    assert unsaid.tier_within(Tier.STANDARD) is Tier.STANDARD


def test_a_remembered_token_still_expires() -> None:
    tokens, good = verifier(), token(EC)
    identity(tokens.identity_of(good, NOW))
    identity(tokens.identity_of(good, NOW + 3659))
    assert fault(tokens.identity_of(good, NOW + 3660)) is TokenFault.EXPIRED
    assert fault(tokens.identity_of(good, NOW + 3660)) is TokenFault.EXPIRED


def test_a_withdrawn_key_voids_the_tokens_it_signed() -> None:
    tokens, by_ec, by_rsa = verifier(), token(EC), token(RSA, alg="RS256")
    identity(tokens.identity_of(by_ec, NOW))
    tokens.install(ISSUER, public_keys(RSA), NOW + 1)
    assert fault(tokens.identity_of(by_ec, NOW + 1)) is TokenFault.KEY
    identity(tokens.identity_of(by_rsa, NOW + 1))


def test_a_key_that_is_replaced_under_its_name_voids_them_too() -> None:
    tokens, old = verifier(), token(EC)
    identity(tokens.identity_of(old, NOW))
    tokens.install(ISSUER, public_keys(RSA, ECKey.generate_key("P-256", {"kid": "ec-1"}), OKP), NOW)
    assert fault(tokens.identity_of(old, NOW)) is TokenFault.SIGNATURE


def test_only_so_many_tokens_are_remembered() -> None:
    tokens = TokenVerifier([issuer_spec()], max_remembered=3)
    tokens.install(ISSUER, public_keys(EC), NOW)
    made = [token(EC, claims(sub=str(each))) for each in range(5)]
    for each in made:
        identity(tokens.identity_of(each, NOW))
    tokens.rings[ISSUER].install(public_keys(EC), NOW)  # the same keys: what is remembered stays
    assert len(tokens._remembered) == 3
    tokens.rings[ISSUER].install([], NOW)
    assert [isinstance(tokens.identity_of(each, NOW), TenantIdentity) for each in made] == [
        False,
        False,
        True,
        True,
        True,
    ]


def test_a_token_without_a_key_id_is_checked_by_the_only_key() -> None:
    tokens = TokenVerifier([issuer_spec()])
    tokens.install(ISSUER, public_keys(EC), NOW)
    identity(tokens.identity_of(token(EC, kid=None), NOW))
    assert fault(verifier().identity_of(token(EC, kid=None), NOW)) is TokenFault.KEY


def test_an_issuer_cannot_use_another_issuers_key() -> None:
    tokens = TokenVerifier([issuer_spec(), issuer_spec(issuer="https://b/")])
    tokens.install(ISSUER, public_keys(EC), NOW)
    tokens.install("https://b/", public_keys(RSA), NOW)
    assert fault(tokens.identity_of(token(RSA, alg="RS256"), NOW)) is TokenFault.KEY
    assert fault(tokens.identity_of(token(RSA, alg="RS256", kid="ec-1"), NOW)) is TokenFault.ALGORITHM
    assert identity(tokens.identity_of(token(RSA, claims(iss="https://b/"), alg="RS256"), NOW)).issuer == "https://b/"


def test_without_keys_a_token_is_not_judged() -> None:
    problem = TokenVerifier([issuer_spec()]).identity_of(token(EC), NOW)
    assert fault(problem) is TokenFault.KEYS_UNAVAILABLE
    assert PROBLEMS[TokenFault.KEYS_UNAVAILABLE].refusal.spec.status == 503


@pytest.mark.parametrize(
    "bearer",
    [
        b"",
        b"..",
        b"a.b.c",
        b"a.b",
        b"a.b.c.d",
        b"\xff.\xff.\xff",
        b"e30.e30.",
        b"W10.e30.AA",
        b"e30.e30.A",
        b"e30.e31.AA",
    ],
)
def test_what_is_no_token(bearer: bytes) -> None:
    assert fault(verifier().identity_of(bearer, NOW)) is TokenFault.MALFORMED


def test_long_and_deep_tokens_are_refused() -> None:
    deep = b"[" * 3000 + b"]" * 3000
    for body in (b'{"iss":' + deep + b"}", b'{"x":"' + b"x" * MAX_TOKEN_BYTES + b'"}'):
        bearer = part({"alg": "ES256", "kid": "ec-1"}) + b"." + part(body) + b"." + part(b"x")
        assert fault(verifier().identity_of(bearer, NOW)) is TokenFault.MALFORMED
    assert fault(verifier().identity_of(token(EC, kid="k" * 257), NOW)) is TokenFault.MALFORMED
    assert fault(verifier().identity_of(token(EC, kid=7), NOW)) is TokenFault.MALFORMED


def test_a_token_can_be_written_in_one_way_only() -> None:
    good = token(EC)
    head, body, signature = good.split(b".")
    last = bytes([signature[-1] + 1]) if signature[-1:] != b"z" else b"0"
    for other in (good + b"=", b".".join((head, body, signature[:-1] + last)), good.replace(b".", b"\n.", 1)):
        assert isinstance(verifier().identity_of(other, NOW), AuthProblem)


def test_the_fleets_own_keys_are_no_tokens() -> None:
    assert is_token(token(EC))
    for bearer in (b"ph_abc.def.ghi", b"ph_" + b"x" * 43, b"sk-abc", b"a.b"):
        assert not is_token(bearer)
