"""The generated references of errors and metrics are what the tables say now."""

import runpy
from pathlib import Path

import pytest

from pilothouse.model.errors import ERRORS

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("name", "page"), [("error", "errors.md"), ("metrics", "metrics.md")])
def test_the_page_is_up_to_date(name: str, page: str) -> None:
    tool = f"tools/generate_{name}_reference.py"
    rendered = runpy.run_path(str(ROOT / tool))["render"]()

    assert (ROOT / "docs" / "reference" / page).read_text() == rendered, f"run {tool}"


def test_every_error_has_the_section_that_its_anchor_points_to() -> None:
    for code, spec in ERRORS.items():
        page, _, anchor = spec.anchor.partition("#")
        assert anchor == code
        assert f"\n### {anchor}\n" in (ROOT / page).read_text()
