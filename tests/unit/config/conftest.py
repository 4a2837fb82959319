"""A way to load a text as a fleet file."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pilothouse.config.fleet_file import load
from pilothouse.config.loaded import LoadedFleet
from pilothouse.model.errors import PilothouseError

Load = Callable[..., LoadedFleet]
Refuse = Callable[..., list[str]]

SOURCE = "pypi:tiny==1.0/tiny/tiny.gguf"


@pytest.fixture
def load_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load a text, in a directory that is also the working directory."""
    monkeypatch.chdir(tmp_path)

    def load_it(
        text: str | bytes, *, overrides: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None
    ) -> LoadedFleet:
        content = text.encode() if isinstance(text, str) else text
        Path("fleet.yaml").write_bytes(content)
        return load(Path("fleet.yaml"), overrides=overrides, env=env or {})

    return load_it


@pytest.fixture
def refuse(load_text: Load) -> Refuse:
    """The lines of the config_invalid that a text must give."""

    def refuse_it(text: str | bytes, code: str = "config_invalid", **options: Mapping[str, str]) -> list[str]:
        with pytest.raises(PilothouseError) as caught:
            load_text(text, **options)
        assert caught.value.code == code
        return caught.value.message.splitlines()

    return refuse_it
