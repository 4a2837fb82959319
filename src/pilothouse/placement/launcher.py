"""The step between a fork and an engine: `python -I -S launcher.py PROGRAM [ARGUMENT...]`.

File descriptor 3 is the replica's record, locked by the controller that started this; the lock goes with the
descriptor and stays with the engine for its life. This process writes its own identity into the record before it
becomes the engine, so that there is no moment at which an engine runs and nobody could find it. It imports nothing
but the standard library, to be there within milliseconds.
"""

import json
import os
import sys

RECORD_FD = 3
EXIT_CANNOT_RUN = 127  # as a shell's for a command that is not found


def main(argv: list[str]) -> None:
    """Write pid and start time into the record, then become the program."""
    # Listening sockets and pipes of the controller must not live on in an engine.
    os.closerange(RECORD_FD + 1, os.sysconf("SC_OPEN_MAX"))
    with open("/proc/self/stat", "rb") as stat:
        start_ticks = int(stat.read().rpartition(b")")[2].split()[19])
    record = json.loads(os.pread(RECORD_FD, os.fstat(RECORD_FD).st_size, 0))
    record.update(pid=os.getpid(), start_ticks=start_ticks)
    content = json.dumps(record).encode()
    os.pwrite(RECORD_FD, content, 0)
    os.ftruncate(RECORD_FD, len(content))
    try:
        os.execv(argv[1], argv[1:])
    except OSError as error:
        print(f"cannot run {argv[1]}: {error.strerror}", file=sys.stderr, flush=True)  # noqa: T201
        os._exit(EXIT_CANNOT_RUN)


if __name__ == "__main__":
    main(sys.argv)
