"""Which session a request belongs to, and where the session is at home."""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import msgspec

from pilothouse.policy.affinity.homes import home

SESSION_HEADERS = ("x-session-id", "x-claude-code-session-id")
SESSION_FIELDS = ("previous_response_id", "prompt_cache_key", "conversation")
"""Looked at in this order, headers first; then `user` with the first message."""

MOST_MOVED = 100_000
"""Sessions remembered away from home: 20 MB at most. The one idle longest is forgotten, and goes home."""

_EMPTY = frozenset({b"", b"null", b'""', b"{}"})


class SessionKey(msgspec.Struct, frozen=True, kw_only=True):
    """A session: 64 bits that stand for (tenant, value), and where the value came from."""

    digest: int
    source: str


def find_session(
    tenant: str, headers: Mapping[str, bytes], fields: Mapping[str, bytes], first_message: bytes | None
) -> SessionKey | None:
    """The session of a request, scoped by tenant; `None` if it names none.

    `headers` are by lower-case name, `fields` the body's top-level fields as raw JSON, and `first_message` the raw JSON
    of the first message, which with `user` makes a key of last resort.
    """
    for name in SESSION_HEADERS:
        if value := headers.get(name):
            return _key(tenant, name, value)
    for name in SESSION_FIELDS:
        value = bytes(fields.get(name, b""))
        if value not in _EMPTY:
            return _key(tenant, name, value)
    user = bytes(fields.get("user", b""))
    if user not in _EMPTY and first_message:
        return _key(tenant, "user", user + b"\0" + first_message)
    return None


def _key(tenant: str, source: str, value: bytes) -> SessionKey:
    text = b"\0".join((tenant.encode(), source.encode(), value))
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return SessionKey(digest=int.from_bytes(digest, "big"), source=source)


class SessionHomes:
    """Where sessions live: by rendezvous hashing, and for those that moved by a bounded table.

    Only moves have to be told to other workers; one that has not heard of a move finds the old home,
    never a third place.
    """

    __slots__ = ("_most", "_moved")

    def __init__(self, most: int = MOST_MOVED) -> None:
        self._most = most
        self._moved: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        """Sessions away from home."""
        return len(self._moved)

    def find(self, session: int, replicas: Sequence[int]) -> int:
        """The index of the session's replica among the digests `replicas`.

        A session whose replica is not among them is at its home by hash.
        """
        moved = self._moved.get(session)
        if moved is not None and moved in replicas:
            self._moved.move_to_end(session)
            return replicas.index(moved)
        return home(session, replicas)

    def move(self, session: int, replica: int) -> None:
        """The session lives at the replica with this digest from now on."""
        self._moved[session] = replica
        self._moved.move_to_end(session)
        if len(self._moved) > self._most:
            self._moved.popitem(last=False)
