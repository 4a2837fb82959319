"""Scripts: how they are read, and which request gets which."""

import pytest

from pilothouse.testing.fake_engine.scripts import NORMAL, Script, ScriptBook, ScriptOrder, parse_script


def test_orders_are_served_first_come_first_served_and_by_path() -> None:
    otherwise = Script(status=500)
    book = ScriptBook(otherwise)
    first, second, health = Script(status=501), Script(status=502), Script(status=503)
    book.add(ScriptOrder(script=first, times=2))
    book.add(ScriptOrder(script=second))
    book.add(ScriptOrder(script=health, path="/health"))
    assert len(book) == 4

    assert book.take("/v1/models", generates=False) is NORMAL
    assert book.take("/health", generates=False) is health
    assert [book.take("/v1/completions", generates=True) for _ in range(4)] == [first, first, second, otherwise]
    assert book.take("/health", generates=False) is NORMAL


def test_an_order_for_a_path_is_not_for_others() -> None:
    book = ScriptBook()
    book.add(ScriptOrder(script=Script(status=503), path="/v1/embeddings"))
    assert book.take("/v1/completions", generates=True) is NORMAL
    assert len(book) == 1
    book.clear()
    assert len(book) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a script"),
        ('{"stall": 3}', "unknown field `stall`"),
        ('{"status": "503"}', "Expected `int \\| null`"),
        ('{"status": 100}', "`status` must be between 200 and 599"),
        ('{"split": [3, 0]}', "`split` sizes must be at least 1"),
        ('{"close_after": -1}', "`close_after` must not be negative"),
        ('{"headers": {"x": "a\\r\\nb"}}', "`headers` must be single lines"),
        ('{"line_ending": "cr"}', "Invalid enum value"),
    ],
)
def test_a_wrong_script_is_refused_with_its_fault(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_script(text)


def test_a_script_goes_through_json() -> None:
    script = parse_script('{"stall_after": 3, "split": [1, 5], "usage": "null"}')
    assert script == Script(stall_after=3, split=(1, 5), usage="null")
