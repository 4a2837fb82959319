"""The positive values of the tests: `tests/support` is not on the path of the bars."""

import importlib.util
from pathlib import Path

_PATH = Path(__file__).resolve().parents[2] / "tests" / "support" / "filter_cases.py"
_spec = importlib.util.spec_from_file_location("filter_cases", _PATH)
assert _spec is not None
assert _spec.loader is not None
_cases = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_cases)

TRUE: tuple[tuple[str, str, str], ...] = _cases.TRUE
