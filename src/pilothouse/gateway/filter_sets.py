"""The fleet's filters as this worker keeps them: compiled once for each set of filters that can apply to a turn."""

import logging
from collections.abc import Iterable, Sequence

import msgspec

from pilothouse.model.errors import Refusal
from pilothouse.model.filters import FilterSpec
from pilothouse.model.fleet import FleetSnapshot
from pilothouse.policy.redaction.compiled import CompiledFilter
from pilothouse.policy.redaction.engine import best_engine
from pilothouse.policy.redaction.plan import FilterPlan, applying, merged

_encode = msgspec.json.Encoder(order="deterministic").encode

log = logging.getLogger("pilothouse.gateway")


class TurnFilters:
    """What applies to the turns of one tenant on one model.

    Attributes:
        input, output: The filters of requests and of answers, `None` where nothing is looked for.
        refusal: Why turns are refused: a filter that is declared to fail closed cannot be used.
    """

    __slots__ = ("input", "output", "refusal")

    def __init__(
        self, input_: CompiledFilter | None, output: CompiledFilter | None, refusal: Refusal | None = None
    ) -> None:
        self.input = input_
        self.output = output
        self.refusal = refusal


class ModelFilters:
    """Those of one model, by tenant; `others` are for the tenants that no filter names."""

    __slots__ = ("_by_tenant", "_others")

    def __init__(self, by_tenant: dict[str, TurnFilters | None], others: TurnFilters | None) -> None:
        self._by_tenant = by_tenant
        self._others = others

    def of(self, tenant: str) -> TurnFilters | None:
        """What applies to the turns of a tenant, `None` if nothing does."""
        return self._by_tenant.get(tenant, self._others)


class FilterSets:
    """All of a snapshot's filters. What an earlier one has compiled, and is the same, is taken over.

    Making one takes a third of a second of CPU for each new set of entities, which is no work for an event loop.
    """

    def __init__(self, snapshot: FleetSnapshot, before: "FilterSets | None" = None) -> None:
        self._known = before.compiled if before is not None else {}
        self.specs = snapshot.filters
        self.compiled: dict[bytes, CompiledFilter] = {}
        self.names = tuple(model.name for model in snapshot.models)
        self._models = {str(name): self._of_model(name) for name in self.names} if self.specs else {}

    def serves(self, snapshot: FleetSnapshot) -> bool:
        """Whether these are the filters of `snapshot`."""
        if not self.specs:
            return not snapshot.filters
        return self.specs == snapshot.filters and self.names == tuple(model.name for model in snapshot.models)

    def of_model(self, model: str) -> ModelFilters | None:
        """The filters of a model, `None` if none applies to it."""
        return self._models.get(model)

    def _of_model(self, model: str) -> ModelFilters | None:
        tenants = {tenant for spec in self.specs for tenant in spec.tenants or ()}
        by_tenant = {tenant: self._of_turn(applying(self.specs, model=model, tenant=tenant)) for tenant in tenants}
        others = self._of_turn([spec for spec in applying(self.specs, model=model, tenant="") if spec.tenants is None])
        return ModelFilters(by_tenant, others) if others or any(by_tenant.values()) else None

    def _of_turn(self, specs: Sequence[FilterSpec]) -> TurnFilters | None:
        try:
            input_, output = (self._compiled(merged(specs, direction=each)) for each in ("input", "output"))
        except Exception as error:  # whatever it is, other turns and other news must go on
            log.error("filters cannot be used", extra={"filters": _names(specs), "reason": str(error)})
            if all(spec.fail_open for spec in specs):
                return None
            return TurnFilters(None, None, Refusal(code="filter_failed", message="The content filter cannot be used."))
        return TurnFilters(input_, output) if input_ or output else None

    def _compiled(self, plan: FilterPlan | None) -> CompiledFilter | None:
        if plan is None:
            return None
        key = _encode(plan)
        if key not in self.compiled:
            self.compiled[key] = self._known.get(key) or CompiledFilter(plan, best_engine())
        return self.compiled[key]


def _names(specs: Iterable[FilterSpec]) -> list[str]:
    return [spec.name for spec in specs]
