"""Ranges in comparators, as GitHub and many CVE records write them (`>= 0.6.5, < 0.8.5`), and in common words.

NVIDIA writes `All versions prior to 0.18.2` and `0.0 to v1.3.0 rc14`, in CVE records and in CSAF alike.
"""

import re

from pilothouse.policy.advisories.records import OsvAffected, OsvEvent, OsvPackage, OsvRange

_PART = re.compile(r"(?P<sign><=|>=|==|=|<|>)?\s*(?P<version>\S+)")
_SPACED = re.compile(r"(?<=\d)\s+(?=(?:rc|alpha|beta|post|dev)[-_.]?\d)", re.IGNORECASE)
_VERSION = r"(?P<{}>[A-Za-z]?\d\S*)"
_PHRASES = tuple(
    (re.compile(pattern, re.IGNORECASE), meant)
    for pattern, meant in (
        (rf"(?:(?:all )?versions )?(?:prior to|up to) and including {_VERSION.format('one')}", "<= {one}"),
        (rf"(?:(?:all )?versions )?through {_VERSION.format('one')}", "<= {one}"),
        (rf"{_VERSION.format('one')} (?:and|or) (?:earlier|older|prior)", "<= {one}"),
        (rf"(?:(?:all )?versions )?(?:prior to|before) {_VERSION.format('one')}", "< {one}"),
        (rf"{_VERSION.format('one')} (?:and|or) (?:later|newer|above)", ">= {one}"),
        (rf"(?:versions )?{_VERSION.format('one')}(?: to| -| through) {_VERSION.format('two')}", ">= {one}, <= {two}"),
    )
)
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
    if fixed is not None:
        # Beside a range a fix is one version, perhaps with words or a sign for those after it.
        named = _PART.fullmatch(_in_signs(fixed))
        fixed = fixed if named is None else named["version"]
    ranges, versions = [], []
    for text in map(_in_signs, texts):
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


def _in_signs(text: str) -> str:
    """A phrase as comparators; anything else as it is."""
    text = _SPACED.sub("", " ".join(text.split()))
    for phrase, meant in _PHRASES:
        found = phrase.fullmatch(text)
        if found is not None:
            return meant.format(**found.groupdict())
    return text


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
