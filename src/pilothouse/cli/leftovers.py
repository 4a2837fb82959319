"""What a killed supervisor leaves behind, and how it is ended: by record, never by name."""

import os
import signal
import time
from collections.abc import Iterable

from pilothouse.cli.fleet_record import SupervisorRecord, is_alive
from pilothouse.config.paths import FleetPaths
from pilothouse.placement.local import end_recorded_processes
from pilothouse.placement.processes import ProcessIdentity, end_groups, open_pidfd

_POLL_S = 0.05
_REPLICA_GRACE_S = 5.0
_CHILD_GRACE_S = 2.0


def wait_gone(processes: Iterable[ProcessIdentity], timeout_s: float) -> bool:
    """Wait until all of them have ended; false when the time is over."""
    left = list(processes)
    end = time.monotonic() + timeout_s
    while left := [each for each in left if is_alive(each)]:
        if time.monotonic() > end:
            return False
        time.sleep(_POLL_S)
    return True


def send_signal(process: ProcessIdentity, number: signal.Signals) -> None:
    """Send a signal to this very process, and to no later one of its number; nothing happens if it has ended."""
    pidfd = open_pidfd(process)
    if pidfd is None:
        return
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(pidfd)


def living_children(record: SupervisorRecord) -> list[ProcessIdentity]:
    """The worker and controller processes of the record that still run."""
    processes = (child.process for child in record.children)
    return [each for each in processes if each is not None and is_alive(each)]


def end_children(record: SupervisorRecord) -> list[str]:
    """End the workers and the controller of a supervisor that is gone; the names of those that still ran."""
    names = [child.name for child in record.children if is_alive(child.process)]
    end_groups(living_children(record), _CHILD_GRACE_S)
    return names


def end_leftovers(paths: FleetPaths, record: SupervisorRecord | None) -> list[str]:
    """End everything of the fleet that still runs although its supervisor does not; the names of what was ended."""
    children = [] if record is None else end_children(record)
    # The replicas last: a controller that still ran would start them again.
    return children + end_recorded_processes(paths, _REPLICA_GRACE_S)
