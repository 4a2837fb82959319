"""Versions as keys that compare: PEP 440, and llama.cpp's build numbers.

PEP 440: https://packaging.python.org/specifications/version-specifiers/. Local parts (`+cpu`) are left out, since a
repackaged build has the flaws of the release it was built from.
"""

import enum
import re
from typing import TypeAlias

VersionKey: TypeAlias = tuple[object, ...]
"""Comparable with the keys of one grammar."""

FIRST: VersionKey = ()
"""Before every version: what `0` means in an `introduced` event."""

_LONGEST = 128
_PEP440 = re.compile(
    r"""v?(?:(?P<epoch>\d{1,9})!)?(?P<release>\d{1,18}(?:\.\d{1,18}){0,15})
    (?:[-_.]?(?P<pre>a|b|c|rc|alpha|beta|pre|preview)[-_.]?(?P<pre_number>\d{0,18}))?
    (?P<post>-(?P<post_implicit>\d{1,18})|[-_.]?(?:post|rev|r)[-_.]?(?P<post_number>\d{0,18}))?
    (?P<dev>[-_.]?dev[-_.]?(?P<dev_number>\d{0,18}))?
    (?:\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?""",
    re.VERBOSE | re.ASCII | re.IGNORECASE,
)
_BUILD = re.compile(r"b?(?P<build>\d{1,9})(?:\.0){0,2}", re.ASCII)
_PRE = {"a": "a", "alpha": "a", "b": "b", "beta": "b", "c": "rc", "rc": "rc", "pre": "rc", "preview": "rc"}
# Beside a letter of a pre-release: "" sorts before them, "~" after.
_BEFORE_PRE, _AFTER_PRE = "", "~"


class Grammar(enum.StrEnum):
    """How a package writes its versions."""

    PEP440 = "pep440"
    BUILD = "build"


def parse_version(text: str, grammar: Grammar) -> VersionKey:
    """The key of a version.

    Raises:
        ValueError: it is not one of that grammar.
    """
    stripped = text.strip()
    if len(stripped) > _LONGEST:
        raise ValueError(f"a version of {len(stripped)} characters")
    if grammar is Grammar.BUILD:
        found = _BUILD.fullmatch(stripped)
        if found is None:
            raise ValueError(f"not a build number: {text!r}")
        return (int(found["build"]),)
    found = _PEP440.fullmatch(stripped)
    if found is None:
        raise ValueError(f"not a version by PEP 440: {text!r}")
    return _pep440_key(found)


def _pep440_key(found: re.Match[str]) -> VersionKey:
    """(epoch, release without closing zeros, pre, post, dev), each part such that plain tuples sort as PEP 440 says."""
    release = tuple(int(part) for part in found["release"].split("."))
    while len(release) > 1 and release[-1] == 0:
        release = release[:-1]
    has_dev, has_post = found["dev"] is not None, found["post"] is not None
    if found["pre"]:
        pre = (_PRE[found["pre"].lower()], int(found["pre_number"] or 0))
    else:
        # A development release of a final one comes before its pre-releases.
        pre = (_BEFORE_PRE if has_dev and not has_post else _AFTER_PRE, 0)
    post = int(found["post_implicit"] or found["post_number"] or 0) if has_post else -1
    dev = (0, int(found["dev_number"] or 0)) if has_dev else (1, 0)
    return (int(found["epoch"] or 0), release, pre, post, dev)
