"""What tenants are ahead and behind in the fair queues, from one worker to the next.

A worker leaves its counters in a file once a second; whoever comes next begins with the latest that any worker of the
host has left. What is lost with a killed worker is at most a second of service.
"""

import contextlib
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pilothouse.gateway.model_queue import ModelQueue

KEEP_EVERY_S = 1.0

Counters = dict[str, dict[str, dict[str, float]]]
"""By model, tier and tenant."""

_SUFFIX = ".fair"
_decode = msgspec.json.Decoder(Counters).decode
_encode = msgspec.json.Encoder().encode

log = logging.getLogger("pilothouse.gateway")


class QueueHandover:
    """One worker's end, in a directory that the workers of the host share."""

    def __init__(self, directory: Path, worker: int) -> None:
        self._directory = directory
        self._path = directory / f"worker-{worker}{_SUFFIX}"
        self._kept_at = 0.0
        self._kept = b""

    def latest(self) -> Counters:
        """What the worker that was here last has left; nothing if there was none, or it is damaged."""
        files = []
        for path in self._directory.glob(f"*{_SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):
                files.append((path.stat().st_mtime, path))
        for _, path in sorted(files, reverse=True):
            try:
                return _decode(path.read_bytes())
            except (OSError, msgspec.MsgspecError) as error:
                log.warning("counters of the queue unreadable", extra={"path": str(path), "reason": str(error)})
        return {}

    def keep(self, queues: Mapping[str, ModelQueue]) -> None:
        """Leave the counters there, if it is time and they have changed."""
        now = time.monotonic()
        if not queues or now - self._kept_at < KEEP_EVERY_S:
            return
        self._kept_at = now
        content = _encode({name: queue.export() for name, queue in queues.items()})
        if content == self._kept:
            return
        aside = self._path.with_suffix(".new")
        try:
            aside.write_bytes(content)
            os.replace(aside, self._path)
        except OSError as error:
            log.warning("counters of the queue cannot be left", extra={"reason": str(error)})
        else:
            self._kept = content
