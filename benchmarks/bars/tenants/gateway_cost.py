"""What tenants cost the gateway: CPU beside Envoy's, memory, and the start of a worker, with 100,000 keys loaded.

The key of the load has limits at two levels and a budget, kept by another process as a controller would; the model has
a price and a queue; every turn goes into the ledger's spool.
"""

import tempfile
import time
from pathlib import Path

import httpx2

from benchmarks import gateway_worker, load, ratios
from benchmarks.bars.report import Bar, main, tell
from benchmarks.fleets import free_port, wait_for
from benchmarks.load import stopping
from benchmarks.peers import TENANTS

CPU_LIMIT, MEMORY_LIMIT_MB, START_LIMIT_S = 0.85, 150.0, 2.0


def measure() -> list[Bar]:
    """The bars."""
    costs = ratios.measure({"json": load.body()}, ours=TENANTS)
    bare, _ = _start(gateway_worker.start)
    loaded, took = _start(gateway_worker.start_with_tenants)
    return [
        ratios.bar("CPU per JSON request with tenants / Envoy's", CPU_LIMIT, costs["json"], ours=TENANTS),
        Bar(
            name="memory of 10,000 tenants and 100,000 keys in a worker",
            limit=f"<= {MEMORY_LIMIT_MB:g} MB",
            measured=f"{loaded - bare:.0f} MB ({bare:.0f} to {loaded:.0f})",
            passed=loaded - bare <= MEMORY_LIMIT_MB,
        ),
        Bar(
            name="start of a worker with them, to its first answer",
            limit=f"< {START_LIMIT_S:g} s",
            measured=f"{took:.2f} s",
            passed=took < START_LIMIT_S,
        ),
    ]


def _start(start: gateway_worker.Start) -> tuple[float, float]:
    """Resident MB of a worker that has answered once, and the seconds until it has."""
    with tempfile.TemporaryDirectory(prefix="pilothouse-bench-") as scratch:
        directory, port = Path(scratch), free_port()
        gateway_worker.write_files([free_port()], directory)
        began = time.monotonic()
        processes = start(port, [free_port()], directory)
        with stopping(*processes):
            wait_for(lambda: _answers(port), "the worker answers", every_s=0.01)
            took = time.monotonic() - began
            resident = load.resident_bytes(processes[0].pid) / 2**20
    tell(f"{start.__name__}: {resident:.0f} MB, {took:.2f} s")
    return resident, took


def _answers(port: int) -> bool:
    try:
        headers = {"authorization": f"Bearer {gateway_worker.KEY}"}
        return httpx2.get(f"http://127.0.0.1:{port}/v1/models", headers=headers, timeout=5).status_code == 200
    except httpx2.HTTPError:
        return False


if __name__ == "__main__":
    main("tenants", measure())
