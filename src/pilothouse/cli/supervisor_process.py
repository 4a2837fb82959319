"""The supervisor of `pilothouse up --detach`: `python -P -m pilothouse.cli.supervisor_process BOOT.json`.

It was started with the descriptors that the boot file names, in a session of its own.
"""

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from pilothouse.cli.fleet_supervisor import supervise
from pilothouse.cli.worker_processes import SupervisorBoot
from pilothouse.config.paths import fleet_paths
from pilothouse.telemetry import logs


def main() -> None:
    """Run the fleet until it is stopped."""
    boot = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=SupervisorBoot)
    paths = fleet_paths(boot.fleet, os.environ)
    logs.configure("supervisor", path=paths.logs_dir / "supervisor.log")
    asyncio.run(supervise(boot, paths, os.environ))


if __name__ == "__main__":
    main()
