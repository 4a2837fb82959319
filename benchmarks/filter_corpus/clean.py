"""Text without values: the prose of Python's own language reference, source code of its library, and log lines."""

import random
import re
import sysconfig
from pathlib import Path

SEED = 20261201
_REAL_VALUES = re.compile(r"[\w.+\-]+@[\w\-]+\.[\w.\-]+|\b\d{1,3}(?:\.\d{1,3}){3}\b")
"""Addresses of authors, and of hosts in examples: those are values, and rightly found."""
MODULES = (
    *("argparse", "ast", "bisect", "calendar", "csv", "dataclasses", "difflib", "enum", "fractions", "functools"),
    *("heapq", "inspect", "logging/__init__", "optparse", "pathlib", "pickle", "queue", "shutil", "statistics"),
    *("tarfile", "textwrap", "threading", "tokenize", "traceback", "typing", "unittest/mock", "zipfile"),
)


def prose() -> str:
    """Half a megabyte of English: the topics of Python's help."""
    from pydoc_data import topics

    return _REAL_VALUES.sub("", "\n\n".join(topics.topics[name] for name in sorted(topics.topics)))


def code() -> str:
    """A megabyte of source code."""
    library = Path(sysconfig.get_paths()["stdlib"])
    return _REAL_VALUES.sub("", "\n".join((library / f"{name}.py").read_text() for name in MODULES))


def logs(lines: int = 5000) -> str:
    """Lines as services write them, without addresses of anybody: times, sizes, versions, paths, hashes, counters."""
    draw = random.Random(SEED)
    levels, parts = ("INFO", "WARN", "DEBUG", "ERROR"), ("scheduler", "cache.evict", "http", "kv-transfer", "worker-3")
    written = []
    for number in range(lines):
        stamp = (
            f"2026-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}T{draw.randint(0, 23):02}:{draw.randint(0, 59):02}"
        )
        said = draw.choice(
            (
                f"request finished status=200 took={draw.random() * 900:.3f}ms bytes={draw.randint(100, 10**7)}",
                f"evicted {draw.randint(1, 4096)} blocks, {draw.randint(1, 10**6)} left, hit ratio {draw.random():.4f}",
                f"commit {draw.getrandbits(160):040x} on build {draw.randint(1, 20)}.{draw.randint(0, 40)}.{number}",
                f"GET /v1/models/{draw.getrandbits(32):08x} HTTP/1.1 epoch {1_700_000_000 + draw.randint(0, 10**8)}",
                f"trace {draw.getrandbits(128):032x} span {draw.getrandbits(64):016x} sampled=1",
                f"queue depth {draw.randint(0, 500)} of 512, oldest {draw.randint(1, 90000)} us, step {number}",
                f"loaded /opt/models/llama-3.1-8b/part-{draw.randint(1, 9)}-of-00009.bin in {draw.random() * 60:.2f} s",
                f"job {draw.randint(10**5, 10**7)} retry {draw.randint(1, 5)} at 12:30:45.{draw.randint(0, 999):03}",
            )
        )
        written.append(f"{stamp}:{draw.randint(0, 59):02}.{draw.randint(0, 999):03}Z {draw.choice(levels)} "
                       f"[{draw.choice(parts)}] {said}")  # fmt: skip
    return "\n".join(written)


def words(text: str) -> int:
    """How many words a text has."""
    return len(text.split())
