import pytest

from pilothouse.policy.advisories.versions import FIRST, Grammar, parse_version

ORDERED = ["0.8.5.dev1", "0.8.5a1", "0.8.5b1", "0.8.5rc1", "v0.8.5rc2", "0.8.5", "0.8.5.post1", "0.8.6", "0.10", "1!0"]


def test_pep_440_order() -> None:
    keys = [parse_version(each, Grammar.PEP440) for each in ORDERED]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
    assert all(key > FIRST for key in keys)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1.3.0rc24", "v1.3rc24"),
        ("0.32.0+cpu", "0.32.0"),
        ("1.0-1", "1.0.post1"),
        ("1.0.preview2", "1.0rc2"),
        ("1.0c1", "1.0rc1"),
        ("1.0alpha", "1.0a0"),
        (" 1.0 ", "1.0"),
    ],
)
def test_pep_440_spellings_of_one_version(one: str, other: str) -> None:
    assert parse_version(one, Grammar.PEP440) == parse_version(other, Grammar.PEP440)


@pytest.mark.parametrize("text", ["b11434", "11434", "11434.0.0"])
def test_builds(text: str) -> None:
    assert parse_version(text, Grammar.BUILD) == (11434,)


@pytest.mark.parametrize(
    ("text", "grammar"),
    [
        ("", Grammar.PEP440), ("nightly", Grammar.PEP440), ("1.0-", Grammar.PEP440), ("1..0", Grammar.PEP440),
        ("1.0+", Grammar.PEP440), ("٣.1", Grammar.PEP440), ("1" * 129, Grammar.PEP440), ("1.0\n2", Grammar.PEP440),
        ("", Grammar.BUILD), ("b", Grammar.BUILD), ("b1.2", Grammar.BUILD), ("c11434", Grammar.BUILD),
    ],
)  # fmt: skip
def test_what_is_no_version(text: str, grammar: Grammar) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_version(text, grammar)
