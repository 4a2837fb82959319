"""A prompt as a chain of hashes: equal up to block k means equal from the first byte up to there."""

import hashlib
import zlib
from collections.abc import Sequence

FINE_BYTES = 1024
"""About 256 tokens of English, the order of SGLang's and llm-d's blocks: what tells short prompts apart."""

FINE_BLOCKS = 16
"""Fine blocks at the front of a prompt; behind them blocks are coarse."""

COARSE_BYTES = 4096
"""Far from the front a wrong guess is a small share of the prompt, and a hash for each KiB would double the cost."""

BYTES_PER_TOKEN = 4
"""English text under a byte-pair tokenizer; a factor of two weighs matches against loads a little differently."""

_SCOPE_BITS = 29
"""Above the 32 bits of the checksum; 61 in all, which CPython keeps in three digits of an integer."""


def scope_of(tenant: str) -> int:
    """What a tenant's hashes begin with. Nobody's prompt meets another's, even where the text is the same."""
    digest = hashlib.blake2b(tenant.encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> (64 - _SCOPE_BITS)) << 32


def chain(parts: Sequence[bytes], scope: int) -> list[int]:
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
        # Slices of a view are not copies: a quarter less for prompts that are not in the processor's cache.
        view = memoryview(part)
        size = len(part)
        start = 0
        while len(hashes) < FINE_BLOCKS and start + FINE_BYTES <= size:
            value = checksum(view[start : start + FINE_BYTES], value)
            append(scope | value)
            start += FINE_BYTES
        if len(hashes) >= FINE_BLOCKS:
            for end in range(start + COARSE_BYTES, size + 1, COARSE_BYTES):
                value = checksum(view[start:end], value)
                append(scope | value)
                start = end
        if number != last and start != size:
            value = checksum(view[start:], value)
            append(scope | value)
    return hashes


def tokens_in(blocks: int) -> int:
    """About how many tokens the first `blocks` blocks of a prompt are."""
    fine = min(blocks, FINE_BLOCKS)
    return (fine * FINE_BYTES + (blocks - fine) * COARSE_BYTES) // BYTES_PER_TOKEN
