"""One request on its way through a simulated fleet."""

from pilothouse.model.units import SECOND

NEVER = -1
"""The instant of what has not happened."""


class Turn:
    """One request-response exchange: what it asks for, where it is, and when it got there.

    Lengths are tokens, instants are nanoseconds of virtual time. `units` are the hashes of the prompt's full prefix
    units, each of which stands for itself and everything before it. It is mutable because an engine touches it often.
    """

    __slots__ = (
        "arrival_ns",
        "attempts",
        "cached_tokens",
        "computed",
        "fault",
        "finish_step",
        "finished_ns",
        "first_ns",
        "key",
        "output",
        "own_blocks",
        "phase",
        "preemptions",
        "produced",
        "prompt",
        "queued_ns",
        "replica",
        "scheduled_ns",
        "session",
        "shared",
        "tenant",
        "then",
        "units",
    )

    def __init__(
        self,
        key: str,
        arrival_ns: int,
        prompt: int,
        output: int,
        *,
        tenant: str = "",
        session: str = "",
        units: tuple[int, ...] = (),
    ) -> None:
        if prompt < 1 or output < 1:
            raise ValueError(f"turn {key}: a prompt and an output have at least one token")
        self.key = key
        self.arrival_ns = arrival_ns
        self.prompt = prompt
        self.output = output
        self.tenant = tenant
        self.session = session
        self.units = units
        self.then: tuple[Turn, int] | None = None
        """The session's next turn, and for how many nanoseconds its user thinks before it."""
        self.replica = NEVER
        self.attempts = 0
        self.fault = ""
        """Why it was not served; empty as long as nothing is wrong."""
        self.queued_ns = self.scheduled_ns = self.first_ns = self.finished_ns = NEVER
        self.cached_tokens = self.preemptions = 0
        self.restart()

    def restart(self) -> None:
        """Forget what an engine had done for it."""
        self.computed = self.produced = 0
        self.own_blocks = 0
        self.shared: tuple[int, ...] = ()
        self.phase = 0
        self.finish_step = NEVER

    @property
    def served(self) -> bool:
        """Whether it got its whole answer."""
        return self.finished_ns != NEVER and not self.fault

    @property
    def ttft_s(self) -> float:
        """Seconds from arrival to the first token."""
        return (self.first_ns - self.arrival_ns) / SECOND

    @property
    def latency_s(self) -> float:
        """Seconds from arrival to the last token."""
        return (self.finished_ns - self.arrival_ns) / SECOND

    @property
    def tpot_s(self) -> float:
        """Mean seconds between output tokens; 0 for an answer of one token."""
        return (self.finished_ns - self.first_ns) / SECOND / (self.output - 1) if self.output > 1 else 0.0
