"""`hf:ORG/REPO@REVISION[/PATH]`: weights from the Hugging Face hub, by its own library and its own settings.

HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE, HF_ENDPOINT and HF_TOKEN mean what they mean everywhere else.
"""

import asyncio
import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pilothouse.model.errors import PilothouseError
from pilothouse.placement.weights import checked
from pilothouse.placement.weights.progress import ProgressSink

_SOURCE = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)@(?P<revision>[\w.-]+)(?:/(?P<path>.+))?")


async def fetch(
    source: str, sha256: str | None, *, cache_dir: Path, env: Mapping[str, str], progress: ProgressSink
) -> Path:
    """The file, or the whole repository's directory when no path is given, in the hub's own cache.

    Raises:
        PilothouseError: config_invalid, extra_not_installed, weights_fetch_failed, weights_not_found,
            checksum_mismatch.
    """
    del env  # the library reads the process's own environment
    match = _SOURCE.fullmatch(source)
    if match is None:
        message = f"hf:{source} is not of the form hf:ORG/REPO@REVISION or hf:ORG/REPO@REVISION/PATH"
        raise PilothouseError("config_invalid", message)
    if sha256 is not None and match["path"] is None:
        message = f"hf:{source} is a whole repository, and a sha256 is that of one file"
        raise PilothouseError("config_invalid", message, hint="Name the file, or pin the revision by its commit.")
    progress.update("download", 0, None)
    found = await asyncio.to_thread(_download, match["repo"], match["revision"], match["path"])
    if found.is_file():
        await asyncio.to_thread(checked.check, found, sha256, stamps=cache_dir / "checked", progress=progress)
    return found


def _download(repo: str, revision: str, path: str | None) -> Path:
    try:
        hub: Any = importlib.import_module("huggingface_hub")
        errors: Any = importlib.import_module("huggingface_hub.errors")
    except ImportError as error:
        message = "weights from hf: need the package huggingface_hub"
        hint = "Install it: `pip install 'pilothouse[huggingface]'`."
        raise PilothouseError("extra_not_installed", message, hint=hint) from error
    where = f"hf:{repo}@{revision}" + (f"/{path}" if path else "")
    try:
        if path is None:
            return Path(hub.snapshot_download(repo, revision=revision))
        return Path(hub.hf_hub_download(repo, path, revision=revision))
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise PilothouseError("weights_not_found", f"{where}: no such repository or revision, or no access") from error
    except errors.LocalEntryNotFoundError as error:
        message = f"{where} is not in the local cache, and the hub was not reached"
        raise PilothouseError("weights_fetch_failed", message) from error
    except errors.EntryNotFoundError as error:
        raise PilothouseError("weights_not_found", f"{where}: there is no such file in the repository") from error
    except (errors.HfHubHTTPError, OSError, ValueError) as error:
        raise PilothouseError("weights_fetch_failed", f"{where}: {error}") from error
