"""`file:PATH`: weights that are already here."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from pilothouse.model.errors import PilothouseError
from pilothouse.placement.weights import checked
from pilothouse.placement.weights.progress import ProgressSink


async def find(
    source: str, sha256: str | None, *, cache_dir: Path, env: Mapping[str, str], progress: ProgressSink
) -> Path:
    """The file or directory itself. Raises PilothouseError weights_not_found or checksum_mismatch."""
    del env  # paths are absolute by now: a relative one was resolved against the fleet file
    path = Path(source).expanduser()
    if not path.exists():
        raise PilothouseError("weights_not_found", f"{path} does not exist")
    if path.is_dir():
        if sha256 is not None:
            message = f"{path} is a directory, and a sha256 is that of one file"
            raise PilothouseError("config_invalid", message, hint="Name the file, or take weights.sha256 away.")
        return path
    await asyncio.to_thread(checked.check, path, sha256, stamps=cache_dir / "checked", progress=progress)
    return path
