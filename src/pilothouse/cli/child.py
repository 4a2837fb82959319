"""A child process of the supervisor: started in a group of its own, watched by a pidfd, started again when it dies."""

import asyncio
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from pilothouse.cli.fleet_record import ChildRecord
from pilothouse.placement.processes import ProcessIdentity, boot_id, start_ticks

STABLE_AFTER_S = 30.0  # one that lived this long died of something new: it is started again at once
_BACKOFF_FIRST_S = 0.5
_BACKOFF_CAP_S = 30.0

_LOG = logging.getLogger(__name__)


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How to run a child, in the directory `cwd`. `inherits`: descriptors it gets.

    Children with a lower `stop_stage` are stopped first.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    log_path: Path
    cwd: Path
    inherits: tuple[int, ...] = ()
    stop_stage: int = 0
    stop_grace_s: float = 10.0


def restart_delay(early_deaths: int) -> float:
    """Seconds to wait before a restart, by the deaths in a row that came before `STABLE_AFTER_S`.

    The first one waits for nothing, so that a killed worker serves again at once.
    """
    if early_deaths <= 1:
        return 0.0
    return min(_BACKOFF_FIRST_S * 2.0 ** (early_deaths - 2), _BACKOFF_CAP_S)


class Child:
    """Keeps one process running until told to stop. Used from one event loop.

    `on_death` is called with the name after each death, `on_change` after that and after each start.
    """

    def __init__(self, spec: ChildSpec, *, on_death: Callable[[str], None], on_change: Callable[[], None]) -> None:
        self.spec = spec
        self._on_death = on_death
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._gone = asyncio.Event()
        self._gone.set()
        self._process: subprocess.Popen[bytes] | None = None
        self._identity: ProcessIdentity | None = None
        self._pidfd = -1
        self._started = 0.0
        self._early_deaths = 0
        self._restarts = 0
        self._stopping = False
        self._restart: asyncio.TimerHandle | None = None

    @property
    def record(self) -> ChildRecord:
        """What is known of it now."""
        return ChildRecord(name=self.spec.name, process=self._identity, restarts=self._restarts)

    def start(self) -> None:
        """Run it. Its output goes to its log file.

        Raises:
            OSError: the log cannot be opened, or the system starts no process.
        """
        log = _open_log(self.spec.log_path)
        try:
            self._process = subprocess.Popen(
                self.spec.argv,
                env=dict(self.spec.env),
                cwd=self.spec.cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=self.spec.inherits,
                process_group=0,  # a terminal's Ctrl-C is for the supervisor, which stops its children in order
            )
        finally:
            os.close(log)
        pid = self._process.pid
        self._identity = ProcessIdentity(pid=pid, start_ticks=start_ticks(pid), boot_id=boot_id())
        self._pidfd = os.pidfd_open(pid)
        self._loop.add_reader(self._pidfd, self._exited)
        self._started = self._loop.time()
        self._gone.clear()
        self._on_change()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone; without one, nothing."""
        if self._process is not None:
            self._process.send_signal(number)

    def start_no_more(self) -> None:
        """Leave it dead when it dies, and if it is dead now."""
        self._stopping = True
        if self._restart is not None:
            self._restart.cancel()

    async def stop(self, hurry: asyncio.Event) -> bool:
        """Ask it to end, and kill it when its grace is over or `hurry` is set. True if it had not to be killed."""
        self.start_no_more()
        self.signal(signal.SIGTERM)
        await _either(self._gone, hurry, timeout_s=self.spec.stop_grace_s)
        if self._gone.is_set():
            return True
        self.signal(signal.SIGKILL)
        await self._gone.wait()
        return False

    def _exited(self) -> None:
        assert self._process is not None
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        status = self._process.wait()
        self._process, self._identity = None, None
        self._gone.set()
        how = f"was ended by signal {-status}" if status < 0 else f"ended with exit code {status}"
        self._on_death(self.spec.name)
        if self._stopping:
            _LOG.info("%s %s", self.spec.name, how)
        else:
            if self._loop.time() - self._started >= STABLE_AFTER_S:
                self._early_deaths = 0
            self._start_again(how)
        self._on_change()

    def _start_again(self, why: str) -> None:
        self._early_deaths += 1
        self._restarts += 1
        delay = restart_delay(self._early_deaths)
        when = f"in {delay:g} s" if delay else "now"
        _LOG.warning("%s %s; it is started again %s", self.spec.name, why, when)
        self._restart = self._loop.call_later(delay, self._try_start)

    def _try_start(self) -> None:
        try:
            self.start()
        except OSError as error:  # no memory, no process ids, a full disk: may pass
            self._start_again(f"could not be started: {error.strerror}")


async def _either(one: asyncio.Event, other: asyncio.Event, *, timeout_s: float) -> None:
    """Wait for the first of two events, or for the time-out."""
    loop = asyncio.get_running_loop()
    waits = [loop.create_task(each.wait()) for each in (one, other)]
    await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    for each in waits:
        each.cancel()
    await asyncio.gather(*waits, return_exceptions=True)


def _open_log(path: Path) -> int:
    """The log to append to, for the owner only. It is cut short by `log_rotation`, which relies on O_APPEND."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
