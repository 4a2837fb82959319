"""The generated reference of the admin API is what the application serves now."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_page_is_up_to_date() -> None:
    tool = "tools/generate_admin_reference.py"
    rendered = runpy.run_path(str(ROOT / tool))["render"]()

    assert (ROOT / "docs" / "reference" / "admin-api.md").read_text() == rendered, f"run {tool}"
