"""The `auth:` section: whose tokens are accepted."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pilothouse.config.fleet_file import LoadedFleet, changes, effective_yaml
from pilothouse.model.spec import TokenIssuerSpec

SMALL = """\
models: {m: "pypi:tiny==1.0/tiny/tiny.gguf"}
auth:
  jwt:
    issuers:
    - issuer: https://login.example.com/
      audience: pilothouse
      jwks_url: https://login.example.com/jwks.json
"""
WHOLE = """\
models: {m: "pypi:tiny==1.0/tiny/tiny.gguf"}
auth:
  jwt:
    issuers:
    - issuer: acme
      audience: [a, b]
      jwks_file: keys.json
      algorithms: [EdDSA]
      claims: {tenant: [org, id], tier: "https://acme.example/tier"}
      tenants: {o-17: acme}
      leeway_s: 5
"""


def test_an_issuer_in_three_lines(load_text: Callable[[str], LoadedFleet]) -> None:
    assert load_text(SMALL).spec.token_issuers == (
        TokenIssuerSpec(
            issuer="https://login.example.com/",
            audiences=("pilothouse",),
            algorithms=("RS256", "ES256"),
            tenant_claim=("tenant",),
            jwks_url="https://login.example.com/jwks.json",
        ),
    )


def test_everything_an_issuer_can_have(load_text: Callable[[str], LoadedFleet]) -> None:
    assert load_text(WHOLE).spec.token_issuers == (
        TokenIssuerSpec(
            issuer="acme",
            audiences=("a", "b"),
            algorithms=("EdDSA",),
            tenant_claim=("org", "id"),
            tier_claim=("https://acme.example/tier",),
            jwks_file=str(Path.cwd() / "keys.json"),
            tenants={"o-17": "acme"},
            leeway_s=5,
        ),
    )


@pytest.mark.parametrize("text", [SMALL, WHOLE])
def test_the_effective_form_says_the_same(text: str, load_text: Callable[[str], LoadedFleet]) -> None:
    loaded = load_text(text)
    assert load_text(effective_yaml(loaded)).spec == loaded.spec


def test_a_change_of_issuers_needs_a_restart(load_text: Callable[[str], LoadedFleet]) -> None:
    old, new = load_text(SMALL).spec, load_text(SMALL.replace("audience: pilothouse", "audience: fleet")).spec
    (line,) = changes(old, new)
    assert line.startswith("~ auth.jwt.issuers[https://login.example.com/] ")
    assert line.endswith("(takes effect with `pilothouse restart`)")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("https://login.example.com/jwks.json", "http://login.example.com/jwks.json", "must begin with https://"),
        ("https://login.example.com/jwks.json", "https://169.254.169.254/jwks", "metadata addresses are refused"),
        ("      jwks_url: https://login.example.com/jwks.json\n", "", "needs either jwks_url or jwks_file"),
        ("audience: pilothouse", "audience: pilothouse\n      algorithms: [HS256]", "algorithms"),
        ("audience: pilothouse", "audience: pilothouse\n      algorithms: [none]", "algorithms"),
        ("audience: pilothouse", "audience: []", "audience"),
    ],
)
def test_what_is_refused(old: str, new: str, words: str, refuse: Callable[[str], list[str]]) -> None:
    assert any(words in line for line in refuse(SMALL.replace(old, new)))


def test_an_issuer_is_named_once(refuse: Callable[[str], list[str]]) -> None:
    twice = SMALL + SMALL[SMALL.index("    - issuer") :]
    assert any("each issuer is named once" in line for line in refuse(twice))


def test_keys_on_this_host_may_be_had_by_http(load_text: Callable[[str], LoadedFleet]) -> None:
    text = SMALL.replace("https://login.example.com/jwks.json", "http://127.0.0.1:9999/jwks")
    assert load_text(text).spec.token_issuers[0].jwks_url == "http://127.0.0.1:9999/jwks"
