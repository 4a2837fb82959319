"""When an issuer's keys are fetched, and what unknown names of keys can do."""

from collections.abc import Iterable

from pilothouse.policy.tokens.identity import TokenFault
from pilothouse.policy.tokens.key_ring import COOLDOWN_S, MAX_AGE_S, MAX_MISSING, MISSING_S, REFRESH_S, RETRY_S, KeyRing


class Key:
    algorithms = frozenset({"ES256"})

    def __init__(self, key_id: str | None) -> None:
        self.key_id = key_id
        self.thumbprint = str(key_id)

    def verifies(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        raise AssertionError((algorithm, signed, signature))


A, B = Key("a"), Key("b")


def ring_of(keys: Iterable[Key], now_s: float = 0.0) -> KeyRing:
    ring = KeyRing()
    ring.install(keys, now_s)
    return ring


def test_keys_are_fetched_at_once_then_every_few_minutes_and_sooner_after_a_failure() -> None:
    ring = KeyRing()
    assert ring.due_in(0.0) == 0.0
    ring.failed(0.0)
    assert ring.due_in(1.0) == RETRY_S - 1.0
    ring.install([A], 20.0)
    assert ring.due_in(21.0) == REFRESH_S - 1.0


def test_a_new_key_is_fetched_when_a_token_names_it() -> None:
    ring = ring_of([A])
    calls: list[int] = []
    ring.on_wanted = lambda: calls.append(1)
    now_s = COOLDOWN_S
    assert ring.find("b", "ES256", now_s) is TokenFault.KEYS_UNAVAILABLE
    assert ring.due_in(now_s) == 0.0
    ring.install([A, B], now_s + 1)
    assert ring.find("b", "ES256", now_s + 1) is B
    assert calls == [1]


def test_a_name_that_does_not_exist_is_asked_for_once() -> None:
    ring = ring_of([A])
    calls: list[float] = []
    now_s = COOLDOWN_S
    ring.on_wanted = lambda: calls.append(now_s)
    ring.find("no", "ES256", now_s)
    ring.install([A], now_s)
    while now_s < COOLDOWN_S + MISSING_S - 1:
        assert ring.find("no", "ES256", now_s) is TokenFault.KEY
        now_s += 10.0
    assert calls == [COOLDOWN_S]


def test_a_flood_of_made_up_names_costs_one_fetch_in_each_cooldown_and_no_known_key() -> None:
    ring = ring_of([A])
    fetches = 0
    for at in range(6000):
        now_s = at / 10
        assert ring.find("a", "ES256", now_s) is A
        assert ring.find(f"made-up-{at}", "ES256", now_s) in (TokenFault.KEY, TokenFault.KEYS_UNAVAILABLE)
        if ring.due_in(now_s) == 0.0:
            fetches += 1
            ring.install([A], now_s)
    assert 600 / REFRESH_S <= fetches <= 600 / COOLDOWN_S + 1


def test_what_a_flood_leaves_behind_is_bounded() -> None:
    ring = ring_of([A])
    for at in range(3 * MAX_MISSING):
        ring.find(f"made-up-{at}", "ES256", COOLDOWN_S)
    ring.install([A], COOLDOWN_S)
    assert len(ring._asked) + len(ring._missing) <= MAX_MISSING


def test_without_an_answer_unknown_names_can_be_tried_again_and_known_keys_are_used_on() -> None:
    ring = ring_of([A])
    ring.find("b", "ES256", COOLDOWN_S)
    ring.failed(COOLDOWN_S)
    assert ring.find("b", "ES256", COOLDOWN_S + 1) is TokenFault.KEYS_UNAVAILABLE
    assert ring.find("a", "ES256", COOLDOWN_S + 1) is A
    assert ring.find("a", "ES256", MAX_AGE_S) is A
    assert ring.find("a", "ES256", MAX_AGE_S + 1) is TokenFault.KEYS_UNAVAILABLE


def test_a_gone_key_is_told() -> None:
    ring = ring_of([A, B])
    assert not ring.install([A, B], 1.0)
    assert ring.install([A], 2.0)
    assert not ring.install([A, B], 3.0)


def test_a_key_without_a_name_serves_tokens_without_one_if_it_is_the_only_key() -> None:
    unnamed = Key(None)
    assert ring_of([unnamed]).find(None, "ES256", 0.0) is unnamed
    assert ring_of([unnamed, A]).find(None, "ES256", 0.0) is TokenFault.KEY
