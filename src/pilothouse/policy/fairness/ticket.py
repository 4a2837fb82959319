"""One request in the queue before a deployment."""

import enum

from pilothouse.model.tenants import Tier


class TicketState(enum.Enum):
    """Where a request is."""

    NEW = "New"
    WAITING = "Waiting"
    RUNNING = "Running"
    FINISHED = "Finished"
    DROPPED = "Dropped"
    CANCELLED = "Cancelled"


class Ticket:
    """One request in the queue.

    `input_tokens` and `output_tokens` are estimates; `uncached_tokens` those of the input that no cache is thought to
    hold. `deadline`: when the first byte must have been sent (`None`: never). `least_service_ns`: what the engine
    needs until then even without a queue.
    """

    __slots__ = (
        "charged_output",
        "deadline",
        "enqueued_at",
        "first_byte_sent",
        "input_tokens",
        "kv_share",
        "least_service_ns",
        "output_tokens",
        "preemptions",
        "started_at",
        "state",
        "tenant",
        "tier",
        "tokens",
        "uncached_tokens",
        "weight",
    )

    def __init__(
        self,
        tenant: str,
        tier: Tier,
        input_tokens: int,
        output_tokens: int,
        *,
        uncached_tokens: int | None = None,
        weight: float = 1.0,
        kv_share: float = 1.0,
        deadline: int | None = None,
        least_service_ns: int = 0,
    ) -> None:
        self.tenant = tenant
        self.tier = tier
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.tokens = input_tokens + output_tokens
        self.uncached_tokens = input_tokens if uncached_tokens is None else uncached_tokens
        self.weight = weight
        self.kv_share = kv_share
        self.deadline = deadline
        self.least_service_ns = least_service_ns
        self.state = TicketState.NEW
        self.enqueued_at = 0
        self.started_at = 0
        self.charged_output = 0
        self.first_byte_sent = False
        self.preemptions = 0
