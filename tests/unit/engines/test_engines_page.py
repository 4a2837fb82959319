import re
from pathlib import Path

from pilothouse.engines.llamacpp_arguments import ARGUMENTS
from pilothouse.engines.registry import names

PAGE = (Path(__file__).parents[3] / "docs" / "concepts" / "engines.md").read_text()


def test_the_page_lists_every_argument_of_llamacpp_and_no_other() -> None:
    section = PAGE.partition("All arguments that can be set:")[2].partition("Addresses, keys")[0]
    assert sorted(re.findall(r"`([a-z0-9-]+)`", section)) == sorted(ARGUMENTS)


def test_the_page_has_every_engine() -> None:
    rows = re.findall(r"^\| `([a-z]+)` \|", PAGE.partition("## What a driver tells")[0], re.MULTILINE)
    assert sorted(rows) == sorted(names())
