"""Which session a request belongs to, and where it lives."""

from pilothouse.policy.affinity.homes import digest_of, home
from pilothouse.policy.affinity.sessions import SessionHomes, SessionKey, find_session

REPLICAS = [digest_of(f"replica-{number}") for number in range(4)]


def find(headers: dict[str, bytes], fields: dict[str, bytes], tenant: str = "acme") -> SessionKey | None:
    return find_session(tenant, headers, fields, b'{"role":"user","content":"hello"}')


def source(headers: dict[str, bytes], fields: dict[str, bytes]) -> str | None:
    found = find(headers, fields)
    return None if found is None else found.source


def test_the_first_name_in_order_counts() -> None:
    headers = {"x-session-id": b"a", "x-claude-code-session-id": b"b"}
    fields = {"user": b'"u"', "conversation": b'"c"', "prompt_cache_key": b'"k"', "previous_response_id": b'"r"'}
    order = []
    while (name := source(headers, fields)) is not None:
        order.append(name)
        (headers if name in headers else fields).pop(name)
    assert order == [
        "x-session-id",
        "x-claude-code-session-id",
        "previous_response_id",
        "prompt_cache_key",
        "conversation",
        "user",
    ]


def test_empty_values_name_no_session() -> None:
    assert source({"x-session-id": b""}, {"conversation": b"null", "prompt_cache_key": b'""', "user": b"null"}) is None
    assert find_session("acme", {}, {"user": b'"u"'}, None) is None


def test_a_session_belongs_to_its_tenant() -> None:
    """smg #2211: a key that is not scoped lets one tenant aim at another's replica."""
    assert find({"x-session-id": b"1"}, {}, "acme") != find({"x-session-id": b"1"}, {}, "other")
    assert find({"x-session-id": b"1"}, {}, "acme") == find({"x-session-id": b"1"}, {}, "acme")


def test_a_user_has_many_conversations() -> None:
    fields = {"user": b'"u"'}
    assert find_session("acme", {}, fields, b"hello") != find_session("acme", {}, fields, b"good morning")


def test_a_session_is_at_home_until_it_moves() -> None:
    homes = SessionHomes()
    at = homes.find(77, REPLICAS)
    assert at == home(77, REPLICAS)
    other = (at + 1) % 4
    homes.move(77, REPLICAS[other])
    assert homes.find(77, REPLICAS) == other
    assert len(homes) == 1


def test_a_session_whose_replica_is_gone_goes_home() -> None:
    homes = SessionHomes()
    homes.move(77, digest_of("gone"))
    assert homes.find(77, REPLICAS) == home(77, REPLICAS)


def test_moves_are_bounded_and_the_idlest_is_forgotten() -> None:
    homes = SessionHomes(most=2)
    for session in (1, 2):
        homes.move(session, REPLICAS[(home(session, REPLICAS) + 1) % 4])
    homes.find(1, REPLICAS)
    homes.move(3, REPLICAS[0])
    assert len(homes) == 2
    assert homes.find(1, REPLICAS) != home(1, REPLICAS)
    assert homes.find(2, REPLICAS) == home(2, REPLICAS)
