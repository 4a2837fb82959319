"""Which entities are acted on, and how, once all filters that apply are put together: the strictest wins."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from pilothouse.model.filters import Action, FilterSpec, PatternSpec, PhrasesSpec, Severity

SECRETS = (
    "aws_key",
    "credential_url",
    "github_token",
    "google_key",
    "jwt",
    "openai_key",
    "private_key",
    "slack_token",
    "stripe_key",
)
PII = (
    "crypto_address",
    "date_of_birth",
    "email",
    "iban",
    "ip_address",
    "mac_address",
    "national_id",
    "passport",
    "payment_card",
    "phone",
    "uk_ni",
    "uk_nhs",
    "us_itin",
    "us_ssn",
)
BUILT_IN = (*PII, *SECRETS)
"""The entities that need no definition."""

GROUPS: Mapping[str, tuple[str, ...]] = {"all": BUILT_IN, "pii": PII, "secrets": SECRETS}
"""Names that stand for several entities; `all` also stands for the operator's own."""

SEVERITY_ACTIONS: Mapping[Severity, Action] = {
    Severity.LOW: Action.MONITOR,
    Severity.MEDIUM: Action.MONITOR,
    Severity.HIGH: Action.BLOCK,
    Severity.CRITICAL: Action.BLOCK,
}
"""What is done with the phrases of a safety set that no action names."""


class FilterPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for in one direction, and what to do with it.

    `fail_open` only if every filter says so; `stall_s` the shortest; `hash_key` that of the first filter that has one.
    """

    actions: Mapping[str, Action] = {}
    phone_regions: tuple[str, ...] = ()
    id_countries: tuple[str, ...] = ()
    patterns: tuple[PatternSpec, ...] = ()
    phrases: tuple[PhrasesSpec, ...] = ()
    fail_open: bool = False
    stall_s: float = 2.0
    hash_key: str | None = None

    def only(self, *, monitored: bool) -> "FilterPlan":
        """The part that only counts, or the part that acts."""
        kept = {name: action for name, action in self.actions.items() if (action is Action.MONITOR) is monitored}
        return msgspec.structs.replace(
            self,
            actions=kept,
            patterns=tuple(each for each in self.patterns if each.name in kept),
            phrases=tuple(each for each in self.phrases if each.name in kept),
        )


def applying(specs: Iterable[FilterSpec], *, model: str, tenant: str) -> tuple[FilterSpec, ...]:
    """The filters that apply to a turn of `tenant` on `model`."""
    return tuple(
        spec
        for spec in specs
        if (spec.models is None or model in spec.models) and (spec.tenants is None or tenant in spec.tenants)
    )


def merged(specs: Sequence[FilterSpec], *, direction: str) -> FilterPlan | None:
    """All `specs` as one plan for `direction` (`input` or `output`), `None` if nothing is looked for."""
    actions: dict[str, Action] = {}
    for spec in specs:
        for entity, action in _expanded(spec, spec.input if direction == "input" else spec.output).items():
            before = actions.get(entity)
            if before is None or action.strictness > before.strictness:
                actions[entity] = action
    if not actions:
        return None
    return FilterPlan(
        actions=actions,
        phone_regions=_united(spec.phone_regions for spec in specs),
        id_countries=_united(spec.id_countries for spec in specs),
        patterns=tuple(each for spec in specs for each in spec.patterns if each.name in actions),
        phrases=tuple(each for spec in specs for each in spec.phrases if each.name in actions),
        fail_open=all(spec.fail_open for spec in specs),
        stall_s=min(spec.stall_s for spec in specs),
        hash_key=next((spec.hash_key for spec in specs if spec.hash_key is not None), None),
    )


def _expanded(spec: FilterSpec, declared: Mapping[str, Action]) -> dict[str, Action]:
    """Action by entity: a name of its own outranks its group, and a group outranks `all`."""
    if not declared:
        return {}
    own: tuple[PatternSpec | PhrasesSpec, ...] = (*spec.patterns, *spec.phrases)
    actions = {each.name: SEVERITY_ACTIONS[each.severity] for each in own if each.severity is not None}
    if "all" in declared:
        actions.update(
            dict.fromkeys((*BUILT_IN, *(each.name for each in own if each.severity is None)), declared["all"])
        )
    for group in ("pii", "secrets"):
        if group in declared:
            actions.update(dict.fromkeys(GROUPS[group], declared[group]))
    actions.update({name: action for name, action in declared.items() if name not in GROUPS})
    return actions


def _united(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each for entries in lists for each in entries))
