"""Property tests run hundreds of examples: they get more time than others, and still an end."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two minutes each, for those in this folder."""
    for item in items:
        if "tests/property/" in item.path.as_posix():
            item.add_marker(pytest.mark.timeout(120))
