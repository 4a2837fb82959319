"""Detectors of addresses: email, URLs with credentials, IP, MAC and phone numbers."""

import functools
import ipaddress
import re
from typing import Any

from pilothouse.policy.redaction.detector import MARKER_CHARS, Candidate, Detector

_LOCAL = r"(?<![A-Za-z0-9._%+'\-])(?:[A-Za-z0-9_%+](?:[A-Za-z0-9._%+'\-]{0,62}[A-Za-z0-9_%+\-])?)"
_DOMAIN = r"[A-Za-z0-9](?:[A-Za-z0-9\-]{0,61}[A-Za-z0-9])?"
_AUTHORITY = r"[^\s/?#@\"<>\\]"
_SCHEME = r"(?<![A-Za-z0-9+.\-])[A-Za-z][A-Za-z0-9+.\-]{0,20}://"
_SEPARATOR = r"(?:[ .\-/]|\)[ \-]?| \(| - )?"
_DATE = re.compile(r"(?:19|20)\d\d[-/. ](?:0?[1-9]|1[0-2])[-/. ]\d|\d{1,2}[-/.]\d{1,2}[-/.](?:19|20)\d\d(?!\d)")
_DECIMAL = re.compile(r"\d{1,3}\.\d{5,}")
_PHONE_WORDS = re.compile(
    r"(?i:\b(?:phone|tel|telephone|mobile|cell|call|fax|whatsapp|sms|text me|dial|ring|number is|tél|telefon|teléfono"
    r"|telefono|handy|portable|gsm)\b)"
)

_SHORT_DIGITS = 9
"""Full national numbers without a trunk prefix have nine digits or more (ES, PL: 9; US, IN: 10)."""


def _email(candidate: Candidate) -> int:
    """A top-level domain of letters, no two dots in a row."""
    raw = candidate.raw
    return 0 if ".." in raw or raw.startswith("'") else len(raw)


def _ipv4(candidate: Candidate) -> int:
    raw = candidate.raw
    return len(raw) if all(int(part) <= 255 and (part == "0" or part[0] != "0") for part in raw.split(".")) else 0


def _ipv6(candidate: Candidate) -> int:
    """What RFC 4291 reads as an address. `::` alone, and words with two colons, are none."""
    raw = candidate.raw.rstrip(".")
    if raw.endswith(":") and not raw.endswith("::"):
        raw = raw[:-1]
    if sum(map(str.isdigit, raw)) == 0 or len(raw) < 4:
        return 0
    try:
        ipaddress.IPv6Address(raw)
    except ValueError:
        return 0
    return len(raw)


def _mac(candidate: Candidate) -> int:
    return len(candidate.raw) if len(set(re.findall("[:.-]", candidate.raw))) == 1 else 0


def phone(regions: tuple[str, ...]) -> Detector:
    """Phone numbers: with `+` those of all countries, in national form those of `regions` (ISO 3166)."""
    import phonenumbers

    parse: Any = functools.partial(phonenumbers.parse)

    def valid(text: str, region: str | None) -> bool:
        try:
            return bool(phonenumbers.is_valid_number(parse(text, region)))
        except phonenumbers.NumberParseException:
            return False

    def check(candidate: Candidate) -> int:
        raw = candidate.raw
        international = raw.startswith(("+", "00"))
        if _DATE.match(raw) or (not international and (_DATE.search(raw) or _DECIMAL.fullmatch(raw))):
            return 0
        # Digits alone could be anything; a number that is meant to be dialled is written in groups, or called one.
        # A short one in groups is a ticket or a part number, unless it has the prefix of a trunk or an area.
        short = raw[0] not in "0(" and sum(map(str.isdigit, raw)) < _SHORT_DIGITS
        if not international and (raw.isdigit() or short) and not candidate.follows(_PHONE_WORDS):
            return 0
        text = "+" + raw[2:] if raw.startswith("00") else raw
        for end in _ends(text):
            if (international and valid(text[:end], None)) or any(valid(text[:end], each) for each in regions):
                return end + len(raw) - len(text)
        return 0

    return Detector(
        entity="phone",
        group="pii",
        triggers=(r"(?:[0-9][ .\-/()]{0,3}){6}[0-9]",),
        pattern=re.compile(rf"(?<![0-9A-Za-z+.\-/(])(?:(?<!\d )|(?=\+))(?=(\+?\(?\d(?:{_SEPARATOR}\d){{6,17}}))"),
        max_chars=68,
        shapes=frozenset({"chain"}),
        check=check,
        priority=4,
        open=re.compile(rf"(?<![0-9A-Za-z+])\+?\(?\d(?:{_SEPARATOR}\d){{5,}}[ ().\-/]{{0,3}}\Z"),
    )


def _ends(raw: str) -> list[int]:
    """Where a number may end: behind a group of digits, the longest first."""
    ends = [match.end() for match in re.finditer(r"\d+", raw)]
    return ends[::-1][:6]


CONTACT: tuple[Detector, ...] = (
    Detector(
        entity="email",
        group="pii",
        triggers=(r"[A-Za-z0-9_%+\-]@[A-Za-z0-9]",),
        pattern=re.compile(rf"({_LOCAL}@(?:{_DOMAIN}\.){{1,8}}[A-Za-z][A-Za-z\-]{{0,22}}[A-Za-z])(?![A-Za-z0-9])"),
        max_chars=MARKER_CHARS,
        sign_chars=65,
        shapes=frozenset({"run"}),
        check=_email,
        priority=7,
        # A domain longer than any (RFC 1035: 253 characters) is not let go: it began as an address.
        marker=re.compile(rf"{_LOCAL}@[A-Za-z0-9.\-]{{254}}"),
        rest=re.compile(r"[A-Za-z0-9.\-]*+"),
        open=re.compile(rf"{_LOCAL}@[A-Za-z0-9.\-]*\Z"),
    ),
    Detector(
        entity="credential_url",
        group="secrets",
        triggers=("://[^ /?#]*@", "://[^ /?#]{256}"),
        pattern=re.compile(rf"({_SCHEME}{_AUTHORITY}{{0,120}}:{_AUTHORITY}{{1,120}}@[A-Za-z0-9.\-\[\]:]{{1,255}})"),
        max_chars=MARKER_CHARS,
        sign_chars=24,
        shapes=frozenset({"url", "run"}),
        priority=8,
        marker=re.compile(rf"{_SCHEME}(?:{_AUTHORITY}{{0,120}}:{_AUTHORITY}{{1,120}}@|{_AUTHORITY}{{256}})"),
        rest=re.compile(r"[A-Za-z0-9.\-\[\]:]*+"),
        open=re.compile(rf"{_SCHEME}{_AUTHORITY}*:{_AUTHORITY}*\Z"),
    ),
    Detector(
        entity="ip_address",
        group="pii",
        triggers=(r"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]",),
        pattern=re.compile(r"(?<![0-9A-Za-z.])(?<!\d-)(\d{1,3}(?:\.\d{1,3}){3})(?![0-9A-Za-z]|\.\d)"),
        max_chars=16,
        shapes=frozenset({"run"}),
        check=_ipv4,
        priority=5,
    ),
    Detector(
        entity="ip_address",
        group="pii",
        triggers=(r"[0-9A-Fa-f]:[0-9A-Fa-f]{0,4}:", r"::[0-9A-Fa-f]"),
        pattern=re.compile(r"(?<![0-9A-Za-z:.])((?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f.]{0,15})(?![0-9A-Za-z:])"),
        max_chars=52,
        shapes=frozenset({"run"}),
        check=_ipv6,
        priority=5,
    ),
    Detector(
        entity="mac_address",
        group="pii",
        triggers=(r"[0-9A-Fa-f]{2}[:\-][0-9A-Fa-f]{2}[:\-][0-9A-Fa-f]{2}", r"[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\."),
        pattern=re.compile(
            r"(?<![0-9A-Za-z:\-])([0-9A-Fa-f]{2}(?:[:\-][0-9A-Fa-f]{2}){5}|[0-9A-Fa-f]{4}(?:\.[0-9A-Fa-f]{4}){2})"
            r"(?![0-9A-Za-z]|[:\-][0-9A-Za-z])"
        ),
        max_chars=18,
        shapes=frozenset({"run"}),
        check=_mac,
        priority=6,
    ),
)
