from typing import Any

import pytest

from pilothouse.config.yaml_tree import MAX_BYTES, MAX_DEPTH, MAX_NODES, parse_yaml


def value_of(text: str) -> Any:
    tree = parse_yaml(text.encode())
    assert tree.problems == ()
    return tree.value


def problems_of(text: str | bytes) -> list[tuple[int | None, str]]:
    tree = parse_yaml(text.encode() if isinstance(text, str) else text)
    return [(problem.line, problem.message) for problem in tree.problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"), ("no", "no"), ("yes", "yes"), ("off", "off"), ("true", True), ("False", False),
        ("null", None), ("~", None), ("''", ""), ('"null"', "null"), ("'7'", "7"),
        ("7", 7), ("-7", -7), ("007", 7), ("0x1F", 31), ("0o17", 15), ("1_000", "1_000"),
        ("9223372036854775807", 2**63 - 1),
        ("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5), ("1.", 1.0), ("1.2.3", "1.2.3"),
        ("2026-01-01", "2026-01-01"), ("12:30:45", "12:30:45"), ("127.0.0.1:8080", "127.0.0.1:8080"), ("=", "="),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    found = value_of(f"key: {text}")["key"]
    assert found == value
    assert type(found) is type(value)


def test_a_yaml_1_1_directive_changes_nothing() -> None:
    assert value_of("%YAML 1.1\n---\na: on\nb: 010\n") == {"a": "on", "b": 10}


def test_lines_are_those_of_keys_and_items() -> None:
    tree = parse_yaml(b"# head\na:\n  b: 1\n  c:\n    - x\n    - d: {e: 2}\n")
    assert tree.lines == {
        ("a",): 2,
        ("a", "b"): 3,
        ("a", "c"): 4,
        ("a", "c", 0): 5,
        ("a", "c", 1): 6,
        ("a", "c", 1, "d"): 6,
        ("a", "c", 1, "d", "e"): 6,
    }
    assert tree.scalars == {("a", "b"), ("a", "c", 0), ("a", "c", 1, "d", "e")}


def test_aliases_stand_for_their_anchors() -> None:
    assert value_of("a: &x {k: 1}\nb: *x\nc: [&y 2, *y]\n? &z d\n: *z\n") == {
        "a": {"k": 1},
        "b": {"k": 1},
        "c": [2, 2],
        "d": "d",
    }


def test_all_mistakes_are_told_with_their_lines() -> None:
    text = "a: 1\nb: !!int 2\na: 3\n7: x\nc: .inf\nd: 99999999999999999999\n<<: {e: 1}\nf: !custom {g: 1}\n"
    assert problems_of(text) == [
        (2, "tags are not supported"),
        (3, "the key is repeated; it is first on line 1"),
        (4, "the key 7 must be a text: put it in quotes"),
        (5, "must be a finite number"),
        (6, "the number does not fit 64 bits; put it in quotes if it is a text"),
        (7, "merge keys are not supported"),
        (8, "tags are not supported"),
    ]


def test_characters_that_json_escapes_in_two_halves_are_whole() -> None:
    text = r"""{"\ud83d\ude00": ["\ud83d\ude00", "\U0001F600", "\x41\u00e9"]}"""
    assert value_of(text) == {"\U0001f600": ["\U0001f600", "\U0001f600", "A\u00e9"]}
    assert problems_of(r'a: "\ud83d"') == [(1, "the text holds half of a character")]
    assert problems_of(r'"\udc00": 1') == [(1, "the text holds half of a character")]


def test_what_an_alias_stands_for_is_on_its_line() -> None:
    tree = parse_yaml(b"a: &x {k: [1]}\nb: *x\n")
    assert (tree.lines["a", "k", 0], tree.lines[("b",)], tree.lines["b", "k", 0]) == (1, 2, 2)
    assert tree.scalars == {("a", "k", 0), ("b", "k", 0)}


def test_the_first_of_a_repeated_key_stays() -> None:
    assert parse_yaml(b"a: 1\na: 2\n").value == {"a": 1}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "empty"),
        ("# only a comment\n", 1, "empty"),
        ("a: 1\n\tb: 2\n", 2, "a tab: YAML is indented with spaces"),
        ("a: 1\nb: 'x\n", 2, "not YAML"),
        ("a: [1\nb: 2\n", 2, "not YAML"),
        ("a: 1\n---\nb: 2\n", 2, "one document"),
        ("a: *nothing\n", 1, "the alias *nothing stands for nothing"),
        ("a: &x [*x]\n", 1, "the alias *x stands for nothing"),
        ("[a]: 1\n", 1, "a key must be a text"),
        ("{a: 1}: 1\n", 1, "a key must be a text"),
        ("a: 1\nb: \x07\n", 2, "a character that YAML does not allow"),
        ("listen: [::1]:8080\n", 1, "put an address in brackets into quotes"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(text: str, line: int, words: str) -> None:
    ((found_line, message),) = problems_of(text)
    assert found_line == line
    assert words in message


def test_text_that_is_not_utf_8_is_told() -> None:
    assert problems_of(b"a: 1\nb: \xff\n") == [(2, "the file is not UTF-8 text")]
    assert parse_yaml("\ufeffa: 1".encode()).value == {"a": 1}


def test_what_is_too_large_is_told() -> None:
    assert "larger than" in problems_of(b"#" * (MAX_BYTES + 1))[0][1]
    assert "deep" in problems_of("[" * (MAX_DEPTH + 1))[0][1]
    assert "deep" in problems_of("- " * 100_000)[0][1]
    assert "more than" in problems_of("[" + "1, " * MAX_NODES + "]")[0][1]


def test_aliases_cannot_stand_for_a_billion() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
    assert "aliases counted in full" in problems_of(bomb)[0][1]
