"""Fetch from a Hugging Face hub: `python -P -m pilothouse.placement.weights.hub_download REPO REVISION [PATH]`.

A process of its own, so that the library reads the environment it is given (HF_HOME, HF_HUB_OFFLINE, HF_TOKEN,
HF_ENDPOINT and its other variables), can be stopped at any moment, and takes no memory when the work is done. It says
what `hub_messages.py` has.
"""

import difflib
import errno
import importlib
import sys
from typing import Any

import msgspec

from pilothouse.placement.weights.hub_messages import HubFailed, HubFound, HubMessage, HubProgress

_NAMED_FILES = 10


def main(repository: str, revision: str, path: str | None = None) -> int:
    """Fetch and say how it went; the exit code says it too."""
    outcome = _fetch(repository, revision, path)
    _say(outcome)
    return 0 if isinstance(outcome, HubFound) else 1


def _fetch(repository: str, revision: str, path: str | None) -> HubFound | HubFailed:
    import huggingface_hub as hub
    from huggingface_hub import errors

    bars = _reporting_bars()
    try:
        if path is None:
            return HubFound(path=hub.snapshot_download(repository, revision=revision, tqdm_class=bars))
        return HubFound(path=hub.hf_hub_download(repository, path, revision=revision, tqdm_class=bars))
    except errors.GatedRepoError:
        message = "its owner lets in only those who have asked: do so on the hub, and set HF_TOKEN"
        return HubFailed(code="weights_not_found", message=message)
    except errors.RepositoryNotFoundError:
        message = f"there is no repository {repository}, or HF_TOKEN may not see it"
        return HubFailed(code="weights_not_found", message=message)
    except errors.RevisionNotFoundError:
        return HubFailed(code="weights_not_found", message=f"the repository has no revision {revision}")
    except errors.LocalEntryNotFoundError as error:
        return HubFailed(code="weights_fetch_failed", message=f"not in the hub's cache, and not fetched: {error}")
    except errors.EntryNotFoundError:
        message = f"the repository has no file {path}{_existing(repository, revision, path or '')}"
        return HubFailed(code="weights_not_found", message=message)
    except OSError as error:
        no_space = error.errno in {errno.ENOSPC, errno.EDQUOT}
        return HubFailed(code="not_enough_disk" if no_space else "weights_fetch_failed", message=str(error))
    except (ValueError, RuntimeError) as error:
        return HubFailed(code="weights_fetch_failed", message=str(error))


def _existing(repository: str, revision: str, path: str) -> str:
    """What was perhaps meant, and what there is."""
    import huggingface_hub as hub

    try:
        files = hub.HfApi().list_repo_files(repository, revision=revision)
    except (OSError, ValueError):
        return ""
    near = difflib.get_close_matches(path, files, n=1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    return f"{meant}; it has {', '.join(files[:_NAMED_FILES])}{' and more' if len(files) > _NAMED_FILES else ''}"


def _reporting_bars() -> Any:
    """A class of progress bars that draw nothing and say how many bytes have come."""
    tqdm: Any = importlib.import_module("tqdm").tqdm

    def begin(bar: Any, *args: Any, **options: Any) -> None:
        options.pop("name", None)  # the hub's own bars have names
        tqdm.__init__(bar, *args, **{**options, "disable": False, "leave": False})

    def display(bar: Any, *_: Any, **__: Any) -> bool:
        # A repository has a second bar that counts files.
        if bar.unit == "B" and bar.n:
            _say(HubProgress(done=int(bar.n), total=int(bar.total) if bar.total else None))
        return True

    return type("ReportingBar", (tqdm,), {"__init__": begin, "display": display})


def _say(message: HubMessage) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
