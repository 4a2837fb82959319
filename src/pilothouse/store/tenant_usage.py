"""A tenant's own usage, in the shape of OpenAI's `GET /v1/organization/usage/completions`.

The tenant is the `project_id`. A page has buckets of a minute, an hour or a day of UTC, and names the next one.
"""

import urllib.parse
from collections.abc import Iterable

import msgspec

from pilothouse.model.errors import Refusal
from pilothouse.model.ids import TenantId

PATH = "/v1/organization/usage/completions"
MAX_RESULTS = 10_000
"""The most results of a page: about 3 MB."""

NANO = 1_000_000_000
_WIDTHS_S = {"1m": 60, "1h": 3600, "1d": 86_400}
_COUNTS = {"1m": (60, 1440), "1h": (24, 168), "1d": (7, 31)}
"""Buckets in a page: unless asked for, and at most. OpenAI's own numbers."""
_GROUPS = {"project_id": "tenant", "api_key_id": "key", "model": "model"}
"""What can be grouped by: the columns of the ledger. Users and batches are not on record."""
_LISTS = frozenset({"group_by", "models", "api_key_ids", "project_ids"})
_SINGLE = frozenset({"start_time", "end_time", "bucket_width", "limit", "page"})
_MAX_FIELDS, _MAX_SECONDS = 200, 1 << 33
_PAGE = "page_"


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for: `count` buckets of `width_s` from `start_s` on, of all that end by `end_s`.

    Times in seconds since the epoch, at the edges of buckets. `groups` are columns of the ledger.
    """

    tenant: TenantId
    start_s: int
    end_s: int
    width_s: int
    count: int
    groups: tuple[str, ...] = ()
    models: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None

    @property
    def page_end_s(self) -> int:
        """Where this page ends."""
        return min(self.end_s, self.start_s + self.count * self.width_s)


class BucketSum(msgspec.Struct, frozen=True, kw_only=True):
    """Turns of one bucket (counted from the page's first) that belong to one group, added up."""

    bucket: int
    turns: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    nano_cost: int
    tenant: str | None = None
    key: str | None = None
    model: str | None = None


class UsageResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a group used in a bucket. `cost` is in the currency of the price list; OpenAI has it elsewhere."""

    object: str = "organization.usage.completions.result"
    input_tokens: int
    input_cached_tokens: int
    output_tokens: int
    output_reasoning_tokens: int
    num_model_requests: int
    cost: float
    project_id: str | None = None
    user_id: None = None
    api_key_id: str | None = None
    model: str | None = None
    batch: None = None


class UsageBucket(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket: from `start_time` on, until before `end_time`."""

    object: str = "bucket"
    start_time: int
    end_time: int
    results: tuple[UsageResult, ...]


class UsagePage(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an answer."""

    object: str = "page"
    data: tuple[UsageBucket, ...]
    has_more: bool
    next_page: str | None


def read_query(text: str, tenant: TenantId, now_s: int) -> UsageQuery | Refusal:
    """The query of a URL, for one tenant, or what is wrong with it.

    `start_time` is needed; without `end_time` it goes until now. Both are widened to the edges of buckets.
    """
    try:
        fields = urllib.parse.parse_qs(
            text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=_MAX_FIELDS, errors="strict"
        )
    except ValueError:
        return Refusal(code="invalid_value", message="The query of the URL cannot be read.")
    lists: dict[str, list[str]] = {}
    single: dict[str, str] = {}
    for name, values in fields.items():
        bare = name.removesuffix("[]")
        if bare in _LISTS:
            lists.setdefault(bare, []).extend(values)
        elif name in _SINGLE and len(values) == 1:
            single[name] = values[0]
        else:
            return _wrong(name, "is not a parameter of this call, or was given twice")
    width = single.get("bucket_width", "1d")
    if width not in _WIDTHS_S:
        return _wrong("bucket_width", "must be one of 1m, 1h and 1d")
    default, most = _COUNTS[width]
    count = _number(single.get("limit", str(default)), 1, most)
    if count is None:
        return _wrong("limit", f"must be a number from 1 to {most}")
    if "start_time" not in single:
        return Refusal(code="missing_required_parameter", message="start_time is needed.", param="start_time")
    width_s = _WIDTHS_S[width]
    start_s = _number(single["start_time"], 0, _MAX_SECONDS)
    end_s = _number(single.get("end_time", str(now_s)), 0, _MAX_SECONDS)
    if start_s is None or end_s is None:
        return _wrong("start_time" if start_s is None else "end_time", "must be a time in seconds since the epoch")
    start_s, end_s = start_s // width_s * width_s, -(-min(end_s, now_s + width_s) // width_s) * width_s
    if "page" in single:
        page_s = _number(single["page"].removeprefix(_PAGE), start_s, _MAX_SECONDS)
        if page_s is None or page_s % width_s or not single["page"].startswith(_PAGE):
            return _wrong("page", "must be the next_page of an earlier answer to the same question")
        start_s = page_s
    groups = dict.fromkeys(lists.get("group_by", ()))
    if not groups.keys() <= _GROUPS.keys():
        return _wrong("group_by", f"must be of {', '.join(_GROUPS)}")
    if tenant not in lists.get("project_ids", [tenant]):
        end_s = start_s  # another's usage is nobody's business, nor whether there is any
    return UsageQuery(
        tenant=tenant,
        start_s=start_s,
        end_s=max(start_s, end_s),
        width_s=width_s,
        count=count,
        groups=tuple(_GROUPS[name] for name in groups),
        models=tuple(lists["models"]) if "models" in lists else None,
        keys=tuple(lists["api_key_ids"]) if "api_key_ids" in lists else None,
    )


def page_of(query: UsageQuery, sums: Iterable[BucketSum]) -> UsagePage:
    """The answer to a query, from what the ledger has for it."""
    width_s, end_s = query.width_s, query.page_end_s
    results: list[list[UsageResult]] = [[] for _ in range(query.start_s, end_s, width_s)]
    for each in sums:
        results[each.bucket].append(
            UsageResult(
                input_tokens=each.input_tokens,
                input_cached_tokens=each.cached_tokens,
                output_tokens=each.output_tokens,
                output_reasoning_tokens=each.reasoning_tokens,
                num_model_requests=each.turns,
                cost=each.nano_cost / NANO,
                project_id=each.tenant,
                api_key_id=each.key,
                model=each.model,
            )
        )
    starts = range(query.start_s, end_s, width_s)
    has_more = end_s < query.end_s
    return UsagePage(
        data=tuple(
            UsageBucket(start_time=start_s, end_time=start_s + width_s, results=tuple(found))
            for start_s, found in zip(starts, results, strict=True)
        ),
        has_more=has_more,
        next_page=f"{_PAGE}{end_s}" if has_more else None,
    )


def _number(text: str, least: int, most: int) -> int | None:
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(most)):
        return None
    return number if least <= (number := int(text)) <= most else None


def _wrong(name: str, words: str) -> Refusal:
    return Refusal(code="invalid_value", message=f"{name} {words}.", param=name[:64])
