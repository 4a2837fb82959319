"""What advisories allow a deployment to do: the words of findings, rules and waivers."""

import enum

import msgspec


class Severity(enum.StrEnum):
    """How bad an advisory is, by the levels of CVSS; a malicious release is worse than any flaw."""

    UNKNOWN = "unknown"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"
    MALICIOUS = "malicious"

    @property
    def rank(self) -> int:
        """For comparisons: a higher one is worse."""
        return _RANKS[self]


_RANKS = {each: rank for rank, each in enumerate(Severity)}


class Exposure(enum.StrEnum):
    """Who can send requests to a fleet."""

    LOCAL = "local"
    INTERNAL = "internal"
    PUBLIC = "public"


class FindingState(enum.StrEnum):
    """What an advisory means for one deployment.

    `AFFECTED_IF_FEATURE`: the version is in range, and the feature that the flaw needs is off.
    """

    AFFECTED = "affected"
    AFFECTED_IF_FEATURE = "affected-if-feature"
    UNKNOWN = "unknown"
    NOT_AFFECTED = "not-affected"


class Action(enum.StrEnum):
    """What a rule does about a finding.

    `DENY` takes only the feature away where the gateway can hold back the requests that use it.
    """

    ALLOW = "allow"
    WARN = "warn"
    DENY = "deny"


class Outcome(enum.StrEnum):
    """What a deployment may do, from good to bad."""

    NOT_APPLICABLE = "not-applicable"
    ALLOWED = "allowed"
    WARNED = "warned"
    ALLOWED_WITHOUT = "allowed-without"
    DENIED = "denied"

    @property
    def rank(self) -> int:
        """For comparisons: a higher one is worse."""
        return _OUTCOME_RANKS[self]


_OUTCOME_RANKS = {each: rank for rank, each in enumerate(Outcome)}


class AdvisoryRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to do about findings. The first rule that matches a finding decides.

    Attributes:
        name: What verdicts and waivers call it.
        action: What it does.
        states: The findings it is about.
        package: The engine or package, by any of its names; `None` for all.
        feature: A feature that the flaw needs; `None` for any or none.
        min_severity: Advisories of this level and above. One of unknown severity matches `UNKNOWN` alone.
        min_age_days: Only this many days after publication. An advisory without a date counts as old.
        exposures: The exposures it is for; empty for all.
    """

    name: str
    action: Action
    states: tuple[FindingState, ...] = (FindingState.AFFECTED,)
    package: str | None = None
    feature: str | None = None
    min_severity: Severity = Severity.UNKNOWN
    min_age_days: int = 0
    exposures: tuple[Exposure, ...] = ()


class Requirement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a package must be to serve at all, or to serve with a feature, whatever the advisories say.

    Attributes:
        name: What verdicts and waivers call it.
        package: The engine or package, by any of its names.
        reason: Why, for people.
        feature: The feature it is about; `None` for the package as a whole.
        at_least: From which version on it is met; `None`: by no version.
    """

    name: str
    package: str
    reason: str
    feature: str | None = None
    at_least: str | None = None


class PosturePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """All rules. `max_feed_age_days`: a feed that is older makes every verdict a warning at least."""

    rules: tuple[AdvisoryRule, ...]
    requirements: tuple[Requirement, ...] = ()
    max_feed_age_days: int = 30


class Waiver(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A recorded exception. It holds until the end of its day, in UTC.

    Attributes:
        covers: An advisory by any of its ids, or the name of a requirement.
        owner: Who answers for it.
        reason: Why it is acceptable.
        expires: Its last day, `YYYY-MM-DD`.
        deployments: The deployments it is for; empty for all.
    """

    covers: str
    owner: str
    reason: str
    expires: str
    deployments: tuple[str, ...] = ()


class PostureSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The `posture` section of a fleet file. Its rules go before those that come with the package.

    Attributes:
        exposure: Who can reach the fleet; `None`: follows from the gateway's address.
        max_feed_age_days: When a feed is stale; `None` for the default.
        osv_url: An OSV API to sync from.
        feed_directory: A directory of advisory files to sync from, absolute.
        allow_private_feed: The OSV API may be at a private address.
        rules: Rules before the default ones.
        requirements: Requirements beside the default ones; one of the same name replaces it.
        waivers: Exceptions.
        webhook: Where to say that the posture of a deployment has become worse.
        allow_private_webhook: It may be at a private address.
    """

    exposure: Exposure | None = None
    max_feed_age_days: int | None = None
    osv_url: str | None = None
    feed_directory: str | None = None
    allow_private_feed: bool = False
    rules: tuple[AdvisoryRule, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    webhook: str | None = None
    allow_private_webhook: bool = False
