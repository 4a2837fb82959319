"""The controller's part in shared limits, as a process of its own: `python -m benchmarks.lease_keeper SOCKET`."""

import asyncio
import secrets
import sys
import time
from pathlib import Path

from pilothouse.controller.publisher import Publisher
from pilothouse.policy.limits.authority import LeaseAuthority
from pilothouse.policy.limits.lease import LeaseSettings


async def keep(path: Path) -> None:
    """Answer workers, for ever."""
    authority = LeaseAuthority(secrets.token_hex(8), time.monotonic_ns() // 1000, LeaseSettings().term // 1000)
    publisher = Publisher(
        path,
        on_suspicion=lambda message: None,
        on_leases=lambda batch: authority.handle(batch, time.monotonic_ns() // 1000),
    )
    await publisher.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(keep(Path(sys.argv[1])))
