"""Ten minutes of mixed load with random kills, stalls, disconnects and reloads; `make soak` runs two hours of it."""

from benchmarks import soak
from benchmarks.bars.report import Bar, main

MINUTES = 10.0


def measure() -> list[Bar]:
    """What is left at the end."""
    return soak.measure(MINUTES)


if __name__ == "__main__":
    main("data_plane", measure())
