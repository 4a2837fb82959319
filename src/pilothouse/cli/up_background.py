"""`pilothouse up --detach`: the supervisor gets a session of its own, and this process waits until it is ready."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping

import msgspec

from pilothouse.cli.exits import Exit
from pilothouse.cli.output import say
from pilothouse.cli.readiness import wait_until_ready
from pilothouse.cli.start_display import start_display
from pilothouse.cli.starting import PreparedFleet
from pilothouse.store.private_files import replace_private


def run_in_background(fleet: PreparedFleet, env: Mapping[str, str]) -> int:
    """Start the supervisor and return when the fleet is ready.

    Raises:
        PilothouseError: it could not start; nothing of it is left.
        KeyboardInterrupt: the same.
    """
    supervisor = _start(fleet, env)
    try:
        with start_display() as show:
            asyncio.run(
                wait_until_ready(
                    fleet.paths, fleet.boot.spec.workers, started=lambda: supervisor.poll() is None, show=show
                )
            )
    except BaseException:
        say("stopping what was started")
        supervisor.send_signal(signal.SIGTERM)
        supervisor.wait()
        raise
    # From here on it is nobody's child to wait for.
    supervisor.returncode = 0
    print(fleet.welcome)
    say("\n`pilothouse status` shows the fleet, `pilothouse down` stops it")
    return Exit.OK


def _start(fleet: PreparedFleet, env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    boot_file = fleet.paths.boot_dir / "supervisor.json"
    replace_private(boot_file, msgspec.json.encode(fleet.boot))
    descriptors = (*fleet.boot.gateway_fds, fleet.boot.admin_fd, fleet.boot.lock_fd)
    # What is said before the log is set up, and a defect's traceback, go to the same log.
    log = os.open(fleet.paths.logs_dir / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            (sys.executable, "-P", "-m", "pilothouse.cli.supervisor_process", str(boot_file)),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=descriptors,
            start_new_session=True,
        )
    finally:
        for each in (*descriptors, log):
            os.close(each)
