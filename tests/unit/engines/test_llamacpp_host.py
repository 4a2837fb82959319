import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from pilothouse.engines.llamacpp_host import EXIT_NOT_INSTALLED, EXIT_USAGE, HostOptions


def run_host(options: str, *, key: str | None = "k-1", path: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"]}
    if key is not None:
        env["PILOTHOUSE_REPLICA_KEY"] = key
    if path is not None:
        env["PYTHONPATH"] = str(path)
    line = [sys.executable, "-P", "-m", "pilothouse.engines.llamacpp_host", options]
    return subprocess.run(line, env=env, capture_output=True, text=True, timeout=15, check=False)


def options_for(model: Path) -> str:
    options = HostOptions(model=str(model), alias="m", host="127.0.0.1", port=0, arguments={"threads": 1})
    return msgspec.json.encode(options).decode()


def test_options_that_are_not_understood_end_it_with_one_line() -> None:
    ended = run_host('{"model": 1}')
    assert ended.returncode == EXIT_USAGE
    assert ended.stderr.startswith("llamacpp_host: the options are not understood: ")
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("key", [None, ""])
def test_without_a_key_it_does_not_serve(tmp_path: Path, key: str | None) -> None:
    ended = run_host(options_for(tmp_path / "m.gguf"), key=key)
    assert ended.returncode == EXIT_USAGE
    assert "PILOTHOUSE_REPLICA_KEY is not set" in ended.stderr


def test_a_package_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    (tmp_path / "xllamacpp.py").write_text("raise ImportError('libfoo.so.1 is missing')\n")
    ended = run_host(options_for(tmp_path / "m.gguf"), path=tmp_path)
    assert ended.returncode == EXIT_NOT_INSTALLED
    assert "the xllamacpp package cannot be used: libfoo.so.1 is missing" in ended.stderr


@pytest.mark.engine
def test_weights_that_cannot_be_loaded_end_it_without_a_traceback(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"not a model")
    ended = run_host(options_for(model))
    assert ended.returncode == 1
    assert "llamacpp_host: the server did not start, the lines above say why" in ended.stderr
    assert "Traceback" not in ended.stderr
