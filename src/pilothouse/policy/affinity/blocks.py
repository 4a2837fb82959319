"""A prompt as a chain of hashes: equal up to block k means equal from the first byte up to there."""

import hashlib
import zlib
from collections.abc import Sequence

BLOCK_BYTES = 1024
"""About 256 tokens of English, SGLang's and llm-d's order of magnitude; smaller blocks cost more than they find."""

_SCOPE_BITS = 29
"""Above the 32 bits of the checksum; 61 in all, which CPython keeps in three digits of an integer."""


def scope_of(tenant: str) -> int:
    """What a tenant's hashes begin with. Nobody's prompt meets another's, even where the text is the same."""
    digest = hashlib.blake2b(tenant.encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> (64 - _SCOPE_BITS)) << 32


def chain(parts: Sequence[bytes], scope: int, block_bytes: int = BLOCK_BYTES) -> list[int]:
    """The hash of every prefix of `parts` that ends with a whole block, shortest first.

    `parts` are the raw JSON of what an engine's template puts first to last (tools, system, messages), as the client
    sent it; each part but the last also ends with a block of its rest, so that what follows starts on a boundary. The
    last part's rest is left out: it is the end of an array that grows in the next turn.

    CRC-32 costs 0.3 us for each KiB, the least of what the standard library has and the same in every process, which
    `hash()` is not. It is no secret and can be forged: who does so misleads the routing of one tenant, the forger's.
    """
    checksum = zlib.crc32
    value = scope >> 32
    hashes: list[int] = []
    append = hashes.append
    last = len(parts) - 1
    for number, part in enumerate(parts):
        size = len(part)
        whole = size - size % block_bytes
        for start in range(0, whole, block_bytes):
            value = checksum(part[start : start + block_bytes], value)
            append(scope | value)
        if number != last and whole != size:
            value = checksum(part[whole:], value)
            append(scope | value)
    return hashes
