"""Ranges in comparators, as GitHub and many CVE records write them: `>= 0.6.5, < 0.8.5`."""

import re

from pilothouse.policy.advisories.records import OsvAffected, OsvEvent, OsvPackage, OsvRange

_PART = re.compile(r"(?P<sign><=|>=|==|=|<|>)?\s*(?P<version>\S+)")
_ALL = frozenset({"0", "*", "n/a", "unspecified", "all", "all versions"})


def affected_of(package: OsvPackage, texts: list[str], *, is_complete: bool, fixed: str | None = None) -> OsvAffected:
    """What ranges in comparators say of a package.

    A text that is no comparator stays in the record as a bound, so that the evaluation finds it unreadable: a source
    that was not understood must never look like one that said nothing.

    Args:
        package: The package.
        texts: The ranges; a single version is one without a sign.
        is_complete: What is not listed is not affected.
        fixed: The fixed version, where the source gives it beside the range.
    """
    ranges, versions = [], []
    for text in texts:
        parts = [_PART.fullmatch(part.strip()) for part in re.split(r"[,|]", text) if part.strip()]
        if text.strip().lower() in _ALL:
            ranges.append(_range("0", None, None))
        elif not parts or None in parts:
            ranges.append(_range(text, None, None))
        else:
            bounds = [(part["sign"] or "=", part["version"]) for part in parts if part is not None]
            lone = [version for sign, version in bounds if sign in {"=", "=="}]
            if lone:
                versions += lone
            else:
                ranges.append(_compared(bounds, fixed))
    specific = {} if is_complete or ranges else {"default_status": "unknown"}
    return OsvAffected(package=package, ranges=tuple(ranges), versions=tuple(versions), database_specific=specific)


def _compared(bounds: list[tuple[str, str]], fixed: str | None) -> OsvRange:
    # A strict lower bound is taken as one that includes its version: wider, never narrower.
    introduced = next((version for sign, version in bounds if sign in {">=", ">"}), "0")
    below = next((version for sign, version in bounds if sign == "<"), fixed)
    last = next((version for sign, version in bounds if sign == "<="), None)
    return _range(introduced, below, None if below is not None else last)


def _range(introduced: str, fixed: str | None, last_affected: str | None) -> OsvRange:
    events = [OsvEvent(introduced=introduced)]
    if fixed is not None:
        events.append(OsvEvent(fixed=fixed))
    elif last_affected is not None:
        events.append(OsvEvent(last_affected=last_affected))
    return OsvRange(type="ECOSYSTEM", events=tuple(events))
