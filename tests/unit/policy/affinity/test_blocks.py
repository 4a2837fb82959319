"""Chained hashes of a prompt's bytes."""

from pilothouse.policy.affinity.blocks import COARSE_BYTES, FINE_BLOCKS, FINE_BYTES, chain, scope_of, tokens_in

SCOPE = scope_of("acme")


def text(size: int, seed: int = 1) -> bytes:
    return bytes((seed * index * index + index) % 251 for index in range(size))


def test_a_prompt_that_grows_keeps_its_hashes() -> None:
    prompt = text(40_000)
    for size in (0, 1_000, 5_000, 20_000, 39_999):
        shorter = chain((prompt[:size],), SCOPE)
        assert chain((prompt,), SCOPE)[: len(shorter)] == shorter


def test_one_byte_changes_all_hashes_behind_it_and_none_before() -> None:
    prompt = text(8 * FINE_BYTES)
    other = bytearray(prompt)
    other[3 * FINE_BYTES + 7] ^= 1
    before, after = chain((prompt,), SCOPE), chain((bytes(other),), SCOPE)
    assert before[:3] == after[:3]
    assert not set(before[3:]) & set(after[3:])


def test_blocks_are_fine_at_the_front_and_coarse_behind() -> None:
    size = FINE_BLOCKS * FINE_BYTES + 3 * COARSE_BYTES
    assert len(chain((text(size),), SCOPE)) == FINE_BLOCKS + 3
    assert len(chain((text(size - 1),), SCOPE)) == FINE_BLOCKS + 2
    assert len(chain((text(FINE_BYTES - 1),), SCOPE)) == 0
    assert chain((), SCOPE) == []


def test_a_part_ends_with_a_block_of_its_rest_unless_it_is_the_last() -> None:
    tools, messages = text(1_500, 3), text(2_500, 5)
    blocks = chain((tools, messages), SCOPE)
    assert len(blocks) == 2 + 2
    assert blocks[:2] == chain((tools, b""), SCOPE)
    assert blocks != chain((tools + messages,), SCOPE)


def test_a_tenant_never_meets_anothers_prompt() -> None:
    prompt = (text(20_000),)
    assert not set(chain(prompt, scope_of("acme"))) & set(chain(prompt, scope_of("other")))


def test_hashes_are_the_same_in_every_process() -> None:
    assert chain((text(2 * FINE_BYTES),), scope_of("acme")) == [433694625915886440, 433694625147506646]


def test_blocks_stand_for_tokens() -> None:
    assert tokens_in(0) == 0
    assert tokens_in(4) == 1_024
    assert tokens_in(FINE_BLOCKS + 2) == 4_096 + 2_048
