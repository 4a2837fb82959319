"""What became of the turns of a run: columns, since a run has millions of them."""

from array import array

from pilothouse.simulator.turn import NEVER, Turn

COLUMNS = (
    "arrival_ns",
    "queued_ns",
    "scheduled_ns",
    "first_ns",
    "finished_ns",
    "prompt",
    "output",
    "cached_tokens",
    "preemptions",
    "replica",
    "attempts",
)
"""Attributes of a turn that are kept, each as 64-bit integers; -1 for an instant that never came."""


class Records:
    """The columns of `COLUMNS`, and tenant and fault by index into their names, in the order of the turns' ends."""

    def __init__(self) -> None:
        self.columns = {name: array("q") for name in COLUMNS}
        self.tenant = array("q")
        self.fault = array("q")
        self.tenants: list[str] = []
        self.faults: list[str] = [""]
        self._tenant_index: dict[str, int] = {}
        self._fault_index = {"": 0}
        columns = self.columns
        self._appends = tuple(columns[name].append for name in COLUMNS)

    def __len__(self) -> int:
        return len(self.tenant)

    def add(self, turn: Turn) -> None:
        """Keep what is known of a turn that is over."""
        arrival, queued, scheduled, first, finished, prompt, output, cached, preempted, replica, tries = self._appends
        arrival(turn.arrival_ns)
        queued(turn.queued_ns)
        scheduled(turn.scheduled_ns)
        first(turn.first_ns)
        finished(turn.finished_ns)
        prompt(turn.prompt)
        output(turn.output)
        cached(turn.cached_tokens)
        preempted(turn.preemptions)
        replica(turn.replica)
        tries(turn.attempts)
        self.tenant.append(_index(turn.tenant, self.tenants, self._tenant_index))
        self.fault.append(_index(turn.fault, self.faults, self._fault_index) if turn.fault else 0)

    def served(self) -> list[int]:
        """The rows of turns that got their whole answer."""
        finished, fault = self.columns["finished_ns"], self.fault
        return [row for row in range(len(self)) if finished[row] != NEVER and not fault[row]]


def _index(name: str, names: list[str], known: dict[str, int]) -> int:
    found = known.get(name)
    if found is None:
        found = known[name] = len(names)
        names.append(name)
    return found
