"""The `posture:` section of a fleet file: what advisories allow to serve, beside the rules that are built in."""

import datetime as dt
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from pilothouse.config.addresses import check_upstream_url
from pilothouse.config.section import Section
from pilothouse.model.posture import Action, Exposure, Severity

ShortText = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f]+$")]
Days = Annotated[int, Field(ge=0, le=36_500)]

_ACTIONS = Literal[tuple(map(str, Action))]  # type: ignore[valid-type]
_EXPOSURES = Literal[tuple(map(str, Exposure))]  # type: ignore[valid-type]
_SEVERITIES = Literal[tuple(map(str, Severity))]  # type: ignore[valid-type]
_STATES = Literal["affected", "affected-if-feature", "unknown"]


def _date(text: str) -> str:
    try:
        if len(text) == len("2026-12-31"):
            dt.date.fromisoformat(text)
            return text
    except ValueError:
        pass
    raise PydanticCustomError("rule", "must be a day, as in '2026-12-31'")


def _url(text: str) -> str:
    try:
        check_upstream_url(text)
    except ValueError as error:
        raise PydanticCustomError("rule", "{words}", {"words": str(error)}) from error
    return text


DateText = Annotated[str, AfterValidator(_date), WithJsonSchema({"type": "string", "format": "date"})]
FeedUrlText = Annotated[str, AfterValidator(_url), WithJsonSchema({"type": "string", "pattern": "^https?://"})]


class AdvisoryRuleSection(Section):
    """What to do about some findings. The first rule that matches a finding decides, the fleet's own before ours."""

    name: ShortText = Field(description="What verdicts call it.")
    action: _ACTIONS = Field(  # type: ignore[valid-type]
        description="`allow`, `warn` or `deny`; `deny` takes only a feature away where the gateway can hold back the "
        "requests that use it."
    )
    states: list[_STATES] = Field(default=["affected"], min_length=1, description="The findings it is about.")
    package: ShortText | None = Field(default=None, description="The engine or package. Left out: all.")
    feature: ShortText | None = Field(
        default=None, description="A feature that the flaw needs; `pilothouse advisories features` lists them."
    )
    min_severity: _SEVERITIES = Field(  # type: ignore[valid-type]
        default="unknown", description="Advisories of this level and above; `unknown` is the lowest."
    )
    min_age_days: Days = Field(
        default=0, description="Only this many days after publication; one without a date counts as old."
    )
    exposures: list[_EXPOSURES] = Field(default=[], description="Only for these exposures. Left out: all.")  # type: ignore[valid-type]


class RequirementSection(Section):
    """What an engine must be to serve, or to serve with a feature. One of the name of ours replaces it."""

    name: ShortText = Field(description="What verdicts and waivers call it.")
    package: ShortText = Field(description="The engine or package.")
    reason: ShortText = Field(description="Why, for people.")
    feature: ShortText | None = Field(default=None, description="The feature it is about. Left out: the whole engine.")
    at_least: ShortText | None = Field(default=None, description="From which version on. Left out: never.")


class WaiverSection(Section):
    """A recorded exception, with an end."""

    covers: ShortText = Field(description="An advisory, by any of its ids, or the name of a requirement.")
    owner: ShortText = Field(description="Who answers for it.")
    reason: ShortText = Field(description="Why it is acceptable.")
    expires: DateText = Field(description="Its last day, in UTC; in quotes.", examples=["2026-12-31"])
    deployments: list[ShortText] = Field(default=[], description="For these deployments. Left out: for all.")


class FeedsSection(Section):
    """Where advisories come from, beside those that are built in."""

    osv: FeedUrlText | None = Field(
        default=None,
        description="The base URL of an OSV API, which `pilothouse advisories sync` asks.",
        examples=["https://api.osv.dev"],
    )
    directory: Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]+$")] | None = Field(
        default=None, description="A directory of advisory files, relative to the fleet file; it is watched."
    )
    allow_private: bool = Field(default=False, description="The OSV API is at a private address: a mirror of yours.")


class WebhookSection(Section):
    """Who hears that the posture of a deployment has become worse."""

    url: FeedUrlText = Field(
        description="It gets a POST with one JSON object.", examples=["https://hooks.example.com/pilothouse"]
    )
    allow_private: bool = Field(default=False, description="The URL leads to a private address of yours.")


class PostureSection(Section):
    """What advisories allow to serve."""

    exposure: _EXPOSURES | None = Field(  # type: ignore[valid-type]
        default=None,
        description="Who can send requests: `local`, `internal` or `public`. Left out: `local` where the gateway "
        "listens on loopback, else `public`.",
    )
    max_feed_age_days: Days | None = Field(default=None, description="From which age on a feed is stale.")
    sources: FeedsSection = Field(default=FeedsSection(), description="Where advisories come from.")
    rules: list[AdvisoryRuleSection] = Field(default=[], description="Rules before ours.")
    requirements: list[RequirementSection] = Field(default=[], description="Requirements beside ours.")
    waivers: list[WaiverSection] = Field(default=[], description="Exceptions.")
    webhook: WebhookSection | None = Field(
        default=None, description="Called when the posture of a deployment becomes worse."
    )
