import os
import subprocess
import sys
from pathlib import Path

import msgspec

from pilothouse.placement.processes import end_groups, identify, open_pidfd, start_ticks


def test_a_process_is_told_from_a_later_one_of_its_number() -> None:
    own = identify(os.getpid())
    assert own is not None
    assert own == identify(os.getpid())
    pidfd = open_pidfd(own)
    assert pidfd is not None
    os.close(pidfd)
    assert open_pidfd(msgspec.structs.replace(own, start_ticks=own.start_ticks - 1)) is None


def test_a_name_with_brackets_and_spaces_does_not_shift_the_fields() -> None:
    code = "open('/proc/self/comm', 'w').write('a) R (b'); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as child:
        before = start_ticks(child.pid)
        while Path(f"/proc/{child.pid}/comm").read_text() != "a) R (b\n":
            pass
        found = identify(child.pid)
        assert found is not None
        assert found.start_ticks == before
        child.communicate(b"\n")


def test_a_process_that_waits_to_be_reaped_is_gone_but_its_start_is_known() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert identify(child.pid) is None
    assert start_ticks(child.pid) > 0
    child.wait()


def test_a_number_that_nobody_has_is_nobody() -> None:
    assert identify(2**22 + 1) is None


def test_ending_waits_until_all_are_gone() -> None:
    children = [subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(3)]
    leaders = [identify(child.pid) for child in children]
    end_groups([leader for leader in leaders if leader is not None], grace_s=10)
    assert [child.poll() for child in children] == [-15, -15, -15]
