"""`pilothouse fake-engine`: the scriptable engine of `pilothouse.testing`, from the command line."""

import os
import sys
from typing import Annotated

from cyclopts import Parameter


def fake_engine(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Run a fake engine: a real process that speaks the OpenAI API, with latencies and faults on demand.

    $ pilothouse fake-engine --port 9000
    $ pilothouse fake-engine --help

    Args:
        arguments: Passed on as they are; `--help` lists them.
    """
    # In the place of this process: its signals, exit code and standard streams are the engine's own.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "pilothouse.testing.fake_engine", *arguments])
