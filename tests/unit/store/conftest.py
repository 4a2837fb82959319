import subprocess
import sys
from collections.abc import Callable

import pytest

RunTogether = Callable[..., list[str]]


@pytest.fixture
def run_together() -> RunTogether:
    """Run one program in several processes at once; what each wrote. `sys.argv[1]` tells them apart."""

    def run(code: str, *arguments: str, processes: int = 6) -> list[str]:
        # Each waits for its standard input to end, so that all begin together, their imports done.
        line = [sys.executable, "-c", code]
        started = [
            subprocess.Popen([*line, str(number), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for number in range(processes)
        ]
        for process in started:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None
        outputs = [process.communicate(timeout=15)[0] for process in started]
        assert [process.returncode for process in started] == [0] * processes
        return outputs

    return run
