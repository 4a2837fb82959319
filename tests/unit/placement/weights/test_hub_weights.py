import asyncio
import hashlib
import importlib.util
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pilothouse.model.errors import PilothouseError
from pilothouse.model.spec import WeightsSpec
from pilothouse.placement.weights import resolve

COMMIT = "c" * 40


class LoopbackHub:
    """A Hugging Face hub of one repository: as much of its API as the library needs.

    Serves `files` at COMMIT and at `main`. `requests` has each method, path and authorization.
    """

    def __init__(self, repository: str, files: Mapping[str, bytes], token: str | None = None) -> None:
        self.requests: list[tuple[str, str, str | None]] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                authorization = self.headers.get("authorization")
                hub.requests.append((self.command, self.path, authorization))
                path = self.path.partition("?")[0]
                if token is not None and authorization != f"Bearer {token}":
                    self._send(401, b"", {"x-error-code": "RepoNotFound"})
                elif path.startswith(f"/api/models/{repository}/"):
                    self._api(path.removeprefix(f"/api/models/{repository}/"))
                elif path.startswith(f"/{repository}/resolve/"):
                    self._file(*path.removeprefix(f"/{repository}/resolve/").split("/", 1))
                else:
                    self._send(404, b"", {"x-error-code": "RepoNotFound"})

            def _api(self, rest: str) -> None:
                kind, _, revision = rest.partition("/")
                if revision not in {COMMIT, "main"}:
                    self._send(404, b"", {"x-error-code": "RevisionNotFound"})
                elif kind == "tree":
                    listed = [
                        {"type": "file", "path": name, "size": len(content), "oid": _etag(content)}
                        for name, content in files.items()
                    ]
                    self._send(200, json.dumps(listed).encode(), {"content-type": "application/json"})
                else:
                    about = {"id": repository, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
                    self._send(200, json.dumps(about).encode(), {"content-type": "application/json"})

            def _file(self, revision: str, name: str) -> None:
                if revision not in {COMMIT, "main"}:
                    self._send(404, b"", {"x-error-code": "RevisionNotFound"})
                elif name not in files:
                    self._send(404, b"", {"x-error-code": "EntryNotFound", "x-repo-commit": COMMIT})
                else:
                    content = files[name]
                    self._send(200, content, {"x-repo-commit": COMMIT, "etag": f'"{_etag(content)}"'})

            def _send(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
                self.send_response(status)
                for header, value in headers.items():
                    self.send_header(header, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _etag(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


FILES = {"tiny.gguf": b"GGUF" * 100_000, "sub/config.json": b"{}"}
SUM = hashlib.sha256(FILES["tiny.gguf"]).hexdigest()


class Watch:
    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int | None]] = []

    def update(self, phase: str, done: int, total: int | None) -> None:
        self.seen.append((phase, done, total))


@pytest.fixture
def start_hub() -> Iterator[Callable[[str | None], LoopbackHub]]:
    hubs: list[LoopbackHub] = []

    def start(token: str | None) -> LoopbackHub:
        hubs.append(LoopbackHub("acme/tiny", FILES, token))
        return hubs[-1]

    yield start
    for hub in hubs:
        hub.close()


@pytest.fixture
def hub(start_hub: Callable[[str | None], LoopbackHub]) -> LoopbackHub:
    return start_hub(None)


def environment(home: Path, hub: LoopbackHub) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "HF_HOME": str(home / "hf"),
        "HF_ENDPOINT": hub.url,
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }


def find(
    source: str, cache: Path, env: Mapping[str, str], sha256: str | None = None, watch: Watch | None = None
) -> Path:
    spec = WeightsSpec(source=source, sha256=sha256)
    return asyncio.run(resolve(spec, cache_dir=cache, env=env, progress=watch))


def failure(source: str, cache: Path, env: Mapping[str, str], sha256: str | None = None) -> PilothouseError:
    with pytest.raises(PilothouseError) as caught:
        find(source, cache, env, sha256)
    return caught.value


def test_a_file_comes_into_the_hubs_own_cache_and_is_not_asked_for_again(hub: LoopbackHub, tmp_path: Path) -> None:
    env = environment(tmp_path, hub)
    watch, again = Watch(), Watch()
    path = find("hf:acme/tiny@main/tiny.gguf", tmp_path / "cache", env, SUM, watch)
    assert path.read_bytes() == FILES["tiny.gguf"]
    assert path.is_relative_to(tmp_path / "hf" / "hub" / "models--acme--tiny" / "snapshots" / COMMIT)
    assert ("download", len(FILES["tiny.gguf"]), len(FILES["tiny.gguf"])) in watch.seen
    hub.requests.clear()
    assert find("hf:acme/tiny@main/tiny.gguf", tmp_path / "cache", env, SUM, again) == path
    assert hub.requests == []
    assert again.seen == []


def test_a_whole_repository_is_a_directory(hub: LoopbackHub, tmp_path: Path) -> None:
    env = environment(tmp_path, hub)
    path = find(f"hf:acme/tiny@{COMMIT}", tmp_path / "cache", env)
    assert {name: (path / name).read_bytes() for name in FILES} == FILES
    hub.requests.clear()
    assert find(f"hf:acme/tiny@{COMMIT}", tmp_path / "cache", env) == path
    assert hub.requests == []


def test_what_was_removed_from_the_hubs_cache_is_fetched_again(hub: LoopbackHub, tmp_path: Path) -> None:
    env = environment(tmp_path, hub)
    path = find("hf:acme/tiny@main", tmp_path / "cache", env)
    (path / "tiny.gguf").resolve().unlink()
    again = find("hf:acme/tiny@main", tmp_path / "cache", env)
    assert (again / "tiny.gguf").read_bytes() == FILES["tiny.gguf"]


def test_another_home_is_another_cache(hub: LoopbackHub, tmp_path: Path) -> None:
    env = environment(tmp_path, hub)
    first = find("hf:acme/tiny@main/tiny.gguf", tmp_path / "cache", env)
    other = find("hf:acme/tiny@main/tiny.gguf", tmp_path / "cache", env | {"HF_HOME": str(tmp_path / "other")})
    assert first != other
    assert other.is_relative_to(tmp_path / "other")


def test_the_token_of_the_environment_is_sent(start_hub: Callable[[str | None], LoopbackHub], tmp_path: Path) -> None:
    hub = start_hub("hf_secret")
    env = environment(tmp_path, hub)
    error = failure("hf:acme/tiny@main/tiny.gguf", tmp_path / "cache", env)
    assert error.code == "weights_not_found"
    assert "HF_TOKEN" in error.message
    path = find("hf:acme/tiny@main/tiny.gguf", tmp_path / "cache", env | {"HF_TOKEN": "hf_secret"})
    assert path.read_bytes() == FILES["tiny.gguf"]


def test_offline_only_the_cache_is_looked_at(hub: LoopbackHub, tmp_path: Path) -> None:
    env = environment(tmp_path, hub)
    path = find("hf:acme/tiny@main/tiny.gguf", tmp_path / "cache", env)
    hub.requests.clear()
    offline = env | {"HF_HUB_OFFLINE": "1"}
    # Another cache of ours has no note of it, and so the library is asked.
    assert find("hf:acme/tiny@main/tiny.gguf", tmp_path / "second", offline) == path
    assert failure("hf:acme/tiny@main/other.gguf", tmp_path / "cache", offline).code == "weights_fetch_failed"
    assert hub.requests == []


def test_what_the_hub_does_not_have_is_told(hub: LoopbackHub, tmp_path: Path) -> None:
    env = environment(tmp_path, hub)
    missing_file = failure("hf:acme/tiny@main/tiny.guf", tmp_path / "cache", env)
    assert missing_file.code == "weights_not_found"
    assert "did you mean 'tiny.gguf'?" in missing_file.message
    assert "sub/config.json" in missing_file.message
    missing_revision = failure("hf:acme/tiny@v9", tmp_path / "cache", env)
    assert (missing_revision.code, "revision v9" in missing_revision.message) == ("weights_not_found", True)
    missing_repository = failure("hf:acme/none@main", tmp_path / "cache", env)
    assert (missing_repository.code, "acme/none" in missing_repository.message) == ("weights_not_found", True)


def test_sums_are_checked(hub: LoopbackHub, tmp_path: Path) -> None:
    env = environment(tmp_path, hub)
    error = failure("hf:acme/tiny@main/tiny.gguf", tmp_path / "cache", env, "2" * 64)
    assert error.code == "checksum_mismatch"
    assert SUM in error.message
    assert failure("hf:acme/tiny@main", tmp_path / "cache", env, SUM).code == "config_invalid"


def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    error = failure("hf:acme/tiny@main/tiny.gguf", tmp_path, {})
    assert error.code == "extra_not_installed"
    assert "pilothouse[huggingface]" in error.hint
