"""What a request owes: its place under the limits before it goes to an engine, and its row in the ledger at its end.

reserve > (ask the authority > reserve)    admitted, or refused with nothing taken
        > end                              once: the reservation is settled or released, the row is written
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from pilothouse.gateway.callers import UNPLANNED, Callers
from pilothouse.gateway.meters import Meters
from pilothouse.gateway.turn_log import TurnLog
from pilothouse.model.fleet import FleetSnapshot
from pilothouse.model.ids import DeploymentName, RequestId
from pilothouse.model.ledger import CountedBy, Outcome
from pilothouse.model.requests import Usage
from pilothouse.model.tenants import Price
from pilothouse.policy.limits.decision import LimitRefusal, Window, reset_text
from pilothouse.policy.limits.expected_output import ExpectedOutput
from pilothouse.policy.limits.lease_book import LeaseBook
from pilothouse.policy.limits.leased_plan import Ask, LeasedPlan
from pilothouse.policy.limits.reservation import Demand, Reservation
from pilothouse.policy.limits.token_estimate import TokenEstimator
from pilothouse.telemetry.board import Counter
from pilothouse.wire.http1 import Header
from pilothouse.wire.inference_body import InferenceBody

if TYPE_CHECKING:
    from pilothouse.gateway.callers import Caller

NO_PRICE = Price()

_HEADER_WINDOWS = (
    (Window.REQUESTS, b"requests"),
    (Window.TOTAL_TOKENS, b"tokens"),
    (Window.INPUT_TOKENS, b"input-tokens"),
    (Window.OUTPUT_TOKENS, b"output-tokens"),
)


class ModelCosts:
    """What is known and learned of what a model's requests cost. Kept for as long as the worker lives."""

    __slots__ = ("_counted", "_error", "_learned", "estimator", "price")

    def __init__(self, learned: Counter, error: Counter) -> None:
        self.estimator = TokenEstimator()
        self._counted = 0
        self._learned = learned
        self._error = error
        self.price = NO_PRICE

    def learn(self, text_bytes: int, input_tokens: int) -> None:
        """The engine has counted a request. After the first hundred one in eight teaches enough."""
        counted = self._counted = self._counted + 1
        if counted < 100 or counted % 8 == 0:
            self._learned.add(input_tokens)
            self._error.add(abs(self.estimator.estimate(text_bytes) - input_tokens))
            self.estimator.observe(text_bytes, input_tokens)


class Turns:
    """One worker's. `ask` calls back when the authority has been asked about shared limits."""

    def __init__(
        self,
        callers: Callers,
        meters: Meters,
        book: LeaseBook,
        ask: Callable[[Callable[[], None]], None],
        log: TurnLog | None,
    ) -> None:
        self._meters = meters
        self.book = book
        self.ask = ask
        self.log = log
        self.expected = ExpectedOutput()
        self._callers = callers
        self.known_costs: dict[str, ModelCosts] = {}
        self._generation: object = None

    def costs(self, model: str) -> ModelCosts:
        """Those of a model of the fleet."""
        found = self.known_costs.get(model)
        if found is None:
            found = self.known_costs[model] = ModelCosts(*self._meters.estimates(model))
        return found

    def use_prices(self, snapshot: FleetSnapshot) -> None:
        """Count by the prices of this snapshot from now on."""
        for model in snapshot.models:
            self.costs(model.name).price = model.price or NO_PRICE

    def plan(self, caller: "Caller", now: int) -> LeasedPlan | None:
        """The limits of a caller, `None` where there are none."""
        if caller.plan is not UNPLANNED:
            return caller.plan
        if self._callers.generation is not self._generation:
            self._generation = self._callers.generation
            self.book.follow(self._callers.organisations, self._callers.tenants, self._callers.keys, now)
        if caller.id in self._callers.keys:
            plan = self.book.plan(caller.id, now)
        else:
            plan = self.book.plan_of_tenant(caller.tenant_id, now)
        caller.plan = plan if plan is not None and plan.leases else None
        return caller.plan


class Turn:
    """One request's. `now` is monotonic, `wall` since the epoch, both in nanoseconds."""

    __slots__ = (
        "_body",
        "_costs",
        "_demand",
        "_reservation",
        "_turns",
        "_wall",
        "caller",
        "ended",
        "plan",
    )

    def __init__(self, turns: Turns, caller: "Caller", body: InferenceBody, now: int, wall: int) -> None:
        self._turns = turns
        self.caller = caller
        self._body = body
        self._wall = wall
        self._costs = turns.known_costs.get(body.model) or turns.costs(body.model)
        # The limits, `None` where there are none.
        self.plan = turns.plan(caller, now) if caller.plan is UNPLANNED else caller.plan
        self._demand: Demand | None = None
        self._reservation: Reservation | None = None
        self.ended = False

    @property
    def expected(self) -> tuple[int, int]:
        """Tokens that the request is thought to have, and to generate."""
        demand = self._demand or self._estimate(idle=False)
        return demand.input_tokens, demand.output_tokens

    def _estimate(self, *, idle: bool) -> Demand:
        body, costs = self._body, self._costs
        tokens = costs.estimator.estimate(len(body.data))
        limit = body.max_output_tokens or None
        output = self._turns.expected.expect(self.caller.tenant_id, body.model, limit, body.choices)
        price = costs.price
        cost = 0 if price is NO_PRICE else price.nano_cost(tokens, output)
        demand = self._demand = Demand(tokens, output, cost, idle)
        return demand

    def reserve(self, now: int, *, asked: bool = False, idle: bool = False) -> LimitRefusal | Ask | None:
        """Take what the request may use from every limit: `None` if it has been taken.

        `idle`: the model has room and nobody waits for it.
        """
        plan = self.plan
        if plan is None:
            return None
        demand = self._demand or self._estimate(idle=idle)
        verdict = plan.reserve(demand, now, self._wall, asked=asked)
        if isinstance(verdict, Reservation):
            self._reservation = verdict
            return None
        return verdict

    def limit_headers(self, now: int) -> tuple[Header, ...]:
        """The x-ratelimit headers: of each window that is limited, what it holds and what is left."""
        plan = self.plan
        headers: list[Header] = []
        for window, name in _HEADER_WINDOWS:
            status = None if plan is None else plan.status(window, now)
            if status is not None:
                headers += [
                    (b"x-ratelimit-limit-" + name, b"%d" % status.limit),
                    (b"x-ratelimit-remaining-" + name, b"%d" % status.remaining),
                    (b"x-ratelimit-reset-" + name, reset_text(status.reset_ms).encode()),
                ]
        return tuple(headers)

    def end(
        self,
        outcome: Outcome,
        now: int,
        wall: int,
        id_: RequestId,
        deployment: DeploymentName,
        usage: Usage | None,
        generated: int,
        first_content_at: int | None,
    ) -> None:
        """The first of these counts. Times are as of `Turn`, `first_content_at` since the epoch.

        `usage` is the engine's count; without one, `generated` content events are counted.

        To be called before the last event of an answer leaves: what the client has seen the end of is on record.
        """
        if self.ended:
            return
        self.ended = True
        counted_by = _BY_ENGINE
        turns, body, caller = self._turns, self._body, self.caller
        if outcome is _FAILED:
            usage = _NOTHING_USED
        elif usage is None:
            counted_by = _BY_GATEWAY
            usage = Usage(input_tokens=self._costs.estimator.estimate(len(body.data)), output_tokens=generated)
        else:
            self._costs.learn(len(body.data), usage.input_tokens)
        price = self._costs.price
        cost = 0 if price is NO_PRICE else price.nano_cost(usage.input_tokens, usage.output_tokens, usage.cached_tokens)
        if outcome is not _FAILED and self.plan is not None:
            cut_off = outcome is not _COMPLETED or usage.output_tokens >= (body.max_output_tokens or _NO_MAXIMUM)
            turns.expected.observe(caller.tenant_id, body.model, usage.output_tokens, body.choices, cut_off=cut_off)
        reservation = self._reservation
        if reservation is not None:
            if outcome is _FAILED:
                reservation.release(now)
            else:
                reservation.settle(now, usage.input_tokens, usage.output_tokens, cost)
        if turns.log is not None:
            turns.log.write(
                caller.row_names.get((body.model, deployment)) or caller.name_rows(body.model, deployment),
                (
                    id_,
                    self._wall,
                    wall,
                    outcome,
                    first_content_at,
                    usage.input_tokens,
                    usage.cached_tokens,
                    usage.output_tokens,
                    usage.reasoning_tokens,
                    cost,
                    counted_by,
                ),
            )

    def give_up(self, now: int) -> None:
        """It never got to an engine: everything is given back and nothing is on record."""
        if not self.ended:
            self.ended = True
            if self._reservation is not None:
                self._reservation.release(now)


# A module's name is looked up at once, an enumeration's member through its class.
_FAILED, _COMPLETED = Outcome.FAILED, Outcome.COMPLETED
_BY_ENGINE, _BY_GATEWAY = CountedBy.ENGINE, CountedBy.GATEWAY
_NOTHING_USED = Usage(input_tokens=0, output_tokens=0)
_NO_MAXIMUM = 1 << 62
