"""Detectors of payment cards, IBAN and crypto addresses: all with a checksum."""

import re

from pilothouse.policy.redaction.checksums import base58check, bech32, eip55, luhn, mod97
from pilothouse.policy.redaction.detector import Candidate, Detector

_NETWORKS = (
    # First digits and lengths, ISO/IEC 7812 and the networks' own published ranges.
    (re.compile("4"), (13, 16, 19)),
    (re.compile("5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720"), (16,)),
    (re.compile("3[47]"), (15,)),
    (re.compile("30[0-5]|3095|36|3[89]"), (14, 16, 19)),
    (re.compile("6011|64[4-9]|65|60|8[12]|508|353|356"), (16, 19)),
    (re.compile("35(?:2[89]|[3-8])"), (16, 19)),
    (re.compile("62|81"), (16, 17, 18, 19)),
    # Maestro also has shorter ones, which are no longer issued.
    (re.compile("1"), (15,)),  # UATP
    (re.compile("501[89]|50[2-6]|5[6-8]|63|67"), (16, 18, 19)),
)
_GROUPS = re.compile(r"\d+|\d{4}(?:[ \-]?\d{4})*(?:[ \-]?\d{1,4})?|\d{4}[ \-]\d{6}[ \-]\d{4,5}")
_FOUR_BEFORE = re.compile(r"\d{4}[ \-]\Z")
_IBAN_LENGTHS = {
    # SWIFT's IBAN registry.
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BI": 27, "BR": 29,
    "BY": 28, "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DJ": 27, "DK": 18, "DO": 28, "EE": 20, "EG": 29,
    "ES": 24, "FI": 18, "FK": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28,
    "HN": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20,
    "LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19,
    "MN": 20, "MR": 27, "MT": 31, "MU": 30, "NI": 28, "NL": 18, "NO": 15, "OM": 23, "PK": 24, "PL": 28, "PS": 29,
    "PT": 25, "QA": 29, "RO": 24, "RS": 22, "RU": 33, "SA": 24, "SC": 31, "SD": 18, "SE": 24, "SI": 19, "SK": 24,
    "SM": 27, "SO": 23, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20,
    "YE": 30,
}  # fmt: skip


def _card(candidate: Candidate) -> int:
    """The longest beginning that a network could have issued, in the groups that cards are printed in."""
    raw = candidate.raw
    ends = [index + 1 for index, character in enumerate(raw) if character.isdigit()]
    digits = "".join(character for character in raw if character.isdigit())
    if len(set(digits)) < 2 or _FOUR_BEFORE.search(candidate.text, max(0, candidate.start - 5), candidate.start):
        return 0  # the same digit throughout, or the middle of a longer number
    lengths = {length for first, allowed in _NETWORKS if first.match(digits) for length in allowed}
    for length in sorted(lengths, reverse=True):
        if length > len(digits):
            continue
        end = ends[length - 1]
        inside_group = end < len(raw) and raw[end].isdigit()
        if not inside_group and luhn(digits[:length]) and _GROUPS.fullmatch(raw[:end]):
            return end
    return 0


def _iban(candidate: Candidate) -> int:
    """The length of its country, and the checksum."""
    raw = candidate.raw
    length = _IBAN_LENGTHS.get(raw[:2].upper())
    if length is None:
        return 0
    seen = 0
    for index, character in enumerate(raw):
        seen += character.isalnum()
        if seen == length:
            following = raw[index + 1 : index + 2]
            text = "".join(each for each in raw[: index + 1] if each.isalnum()).upper()
            return index + 1 if not following.isalnum() and mod97(text) else 0
    return 0


def _bitcoin(candidate: Candidate) -> int:
    payload = base58check(candidate.raw)
    return len(candidate.raw) if payload is not None and len(payload) == 21 else 0


def _bech32(candidate: Candidate) -> int:
    return len(candidate.raw) if bech32(candidate.raw) else 0


def _ethereum(candidate: Candidate) -> int:
    return len(candidate.raw) if eip55(candidate.raw) else 0


FINANCIAL: tuple[Detector, ...] = (
    Detector(
        entity="payment_card",
        group="pii",
        triggers=(r"(?:[0-9][ \-]?){11}[0-9]",),
        pattern=re.compile(r"(?<![0-9A-Za-z.])(?<!\d[\-+])(?=(\d(?:[ \-]?\d){11,18}))"),
        max_chars=40,
        shapes=frozenset({"chain"}),
        check=_card,
        priority=9,
        open=re.compile(r"(?<![0-9A-Za-z.])[2-6]\d(?:[ \-]?\d){7,}[ \-]?\Z"),
    ),
    Detector(
        entity="iban",
        group="pii",
        triggers=(r"[A-Za-z]{2}[0-9]{2}[ \-]?[A-Za-z0-9]{4}[ \-]?[A-Za-z0-9]{4}",),
        pattern=re.compile(
            r"(?<![0-9A-Za-z])(?=([A-Z]{2}\d{2}(?:[ \-]?[A-Z0-9]){11,30}|[a-z]{2}\d{2}[a-z0-9]{11,30}))"
        ),
        max_chars=66,
        shapes=frozenset({"chain"}),
        check=_iban,
        priority=9,
        open=re.compile(r"(?<![0-9A-Za-z])[A-Z]{2}\d{2}[ \-]?[A-Z0-9]{4}(?:[ \-]?[A-Z0-9])*[ \-]?\Z"),
    ),
    Detector(
        entity="crypto_address",
        group="pii",
        triggers=("[13LDT][1-9A-HJ-NP-Za-km-z]{25}",),
        pattern=re.compile("(?<![0-9A-Za-z])([13LMDT][1-9A-HJ-NP-Za-km-z]{25,34})(?![0-9A-Za-z])"),
        max_chars=36,
        shapes=frozenset({"run"}),
        check=_bitcoin,
        priority=9,
    ),
    Detector(
        entity="crypto_address",
        group="pii",
        triggers=("(?:bc|tb|ltc)1[02-9ac-hj-np-z]{20}", "(?:BC|TB|LTC)1[02-9AC-HJ-NP-Z]{20}"),
        pattern=re.compile("(?<![0-9A-Za-z])((?i:bc|tb|ltc)1[02-9A-Za-z]{25,86})(?![0-9A-Za-z])"),
        max_chars=90,
        shapes=frozenset({"run"}),
        check=_bech32,
        priority=9,
    ),
    Detector(
        entity="crypto_address",
        group="pii",
        triggers=("0x[0-9A-Fa-f]{40}",),
        pattern=re.compile("(?<![0-9A-Za-z])(0x[0-9A-Fa-f]{40})(?![0-9A-Za-z])"),
        max_chars=43,
        shapes=frozenset({"run"}),
        check=_ethereum,
        priority=9,
    ),
)
