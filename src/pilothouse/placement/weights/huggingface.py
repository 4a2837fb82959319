"""`hf:ORG/REPO@REVISION[/PATH]`: weights from a Hugging Face hub, by its own library, settings and cache."""

import hashlib
import importlib.util
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pilothouse.config.sources import HubSource
from pilothouse.model.errors import PilothouseError
from pilothouse.placement.weights import cache, checked, commands
from pilothouse.placement.weights.hub_messages import HubFailed, HubFound, HubMessage, HubProgress
from pilothouse.placement.weights.progress import ProgressSink, in_thread

_PLACES = ("HOME", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_ENDPOINT")
"""The variables that say which hub and which cache: with others, what was found is somewhere else."""
_LAST_LINES = 8


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    path: str


async def fetch(
    source: HubSource, sha256: str | None, *, cache_dir: Path, env: Mapping[str, str], progress: ProgressSink
) -> Path:
    """The file, or the repository's directory when no path is given, in the hub's own cache.

    What was once found is found again without asking the hub, so a tag or branch stays at the commit it was then; for
    a pinned deployment the revision is a commit.

    Raises:
        PilothouseError: extra_not_installed, weights_not_found, weights_fetch_failed, checksum_mismatch,
            not_enough_disk, or config_invalid for the sum of a whole repository.
    """
    name = f"hf:{source.repository}@{source.revision}{f'/{source.path}' if source.path else ''}"
    if sha256 is not None and source.path is None:
        message = f"{name} is a whole repository, and a sha256 is that of one file"
        raise PilothouseError("config_invalid", message, hint="Name the file, or pin a commit as the revision.")
    key = hashlib.sha256("\0".join([name, *(env.get(each, "") for each in _PLACES)]).encode()).hexdigest()[:32]
    note = cache_dir / "hub" / f"{key}.json"
    found = _noted(note)
    if found is None:
        async with cache.alone(cache_dir, f"hub-{key}"):
            found = _noted(note) or await _download(name, source, env, progress)
            with checked.whole_file(note) as file:
                file.write(msgspec.json.encode(_Place(source=name, path=str(found))))
    if sha256 is not None:
        path, stamps = found, cache.stamps(cache_dir)
        await in_thread(lambda sink: checked.check(path, sha256, stamps=stamps, progress=sink), progress)
    return found


def _noted(note: Path) -> Path | None:
    """Where it was found before, if it is still there, wholly."""
    try:
        path = Path(msgspec.json.decode(note.read_bytes(), type=_Place).path)
    except (OSError, msgspec.MsgspecError):
        return None
    if path.is_dir():
        files = list(path.rglob("*"))
        return path if files and all(each.exists() for each in files) else None
    return path if path.exists() else None


async def _download(name: str, source: HubSource, env: Mapping[str, str], progress: ProgressSink) -> Path:
    if importlib.util.find_spec("huggingface_hub") is None:
        raise PilothouseError(
            "extra_not_installed",
            f"{name} needs the package huggingface_hub",
            hint="Install it: `pip install 'pilothouse[huggingface]'`.",
        )
    progress.update("download", 0, None)
    argv = [sys.executable, "-P", "-m", "pilothouse.placement.weights.hub_download"]
    argv += [source.repository, source.revision, *([source.path] if source.path else [])]
    said: deque[str] = deque(maxlen=_LAST_LINES)
    outcome: HubFound | HubFailed | None = None
    async with commands.run(argv, env) as command:
        async for line in command.lines():
            try:
                message = msgspec.json.decode(line, type=HubMessage)
            except msgspec.DecodeError:
                said.append(line)
                continue
            if isinstance(message, HubProgress):
                progress.update("download", message.done, message.total)
            else:
                outcome = message
    if isinstance(outcome, HubFound):
        return Path(outcome.path)
    if isinstance(outcome, HubFailed):
        raise PilothouseError(outcome.code, f"{name}: {outcome.message}")
    text = "".join(f"\n    {line}" for line in said)
    raise PilothouseError("weights_fetch_failed", f"{name}: the hub's library ended with {command.status}:{text}")
