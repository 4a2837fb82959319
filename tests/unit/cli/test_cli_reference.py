"""The generated reference of the command line is what the commands say now."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_page_is_up_to_date() -> None:
    tool = "tools/generate_cli_reference.py"
    rendered = runpy.run_path(str(ROOT / tool))["render"]()

    assert (ROOT / "docs" / "reference" / "cli.md").read_text() == rendered, f"run {tool}"
