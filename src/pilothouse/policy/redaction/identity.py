"""Detectors of numbers that states give to people, and of dates of birth.

A number without a checksum, or with a weak one, needs its usual separators or a word that says what it is.
"""

import importlib
import re
from collections.abc import Callable

from pilothouse.policy.redaction.checksums import luhn
from pilothouse.policy.redaction.detector import Candidate, Detector

_SSN_WORDS = re.compile(r"(?i:\b(?:ssn|itin|social security|tax(?:payer)? ?id|soc sec)\b)")
_NHS_WORDS = re.compile(r"(?i:\b(?:nhs|patient)\b)")
_PASSPORT_WORDS = re.compile(
    r"(?i:passport|passeport|pasaporte|passaporto|reisepass|paspoort|passaporte|paszport|pass ?nummer|travel document)"
)
_BIRTH_WORDS = re.compile(
    r"(?i:\bborn\b|\bd\.?o\.?b\b|birth ?-?_?(?:date|day)|date of birth|\bgeb(?:\.|oren)|geburtsdatum|né(?:e)? le"
    r"|date de naissance|fecha de nacimiento|nacid[oa]|nato il|nata il|data di nascita|geboortedatum|nascimento"
    r"|data urodzenia|födelsedatum)"
)
_MONTHS = (
    "Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    "|Nov(?:ember)?|Dec(?:ember)?"
)
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_NUMBER = frozenset({"chain"})


def _digits(raw: str) -> str:
    return "".join(character for character in raw if character.isdigit())


def _ssn(candidate: Candidate) -> int:
    """The Social Security Administration never gave 000, 666 or 9xx, nor group 00 or serial 0000."""
    raw = candidate.raw
    if raw.isdigit() and not candidate.follows(_SSN_WORDS):
        return 0
    digits = _digits(raw)
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    wrong = area in ("000", "666") or area[0] == "9" or group == "00" or serial == "0000" or digits == "078051120"
    return 0 if wrong or len(set(digits)) == 1 else len(raw)


def _itin(candidate: Candidate) -> int:
    """9xx, and a group from 50 to 65, 70 to 88, 90 to 92 or 94 to 99 (IRS)."""
    raw = candidate.raw
    if raw.isdigit() and not candidate.follows(_SSN_WORDS):
        return 0
    digits = _digits(raw)
    group = int(digits[3:5])
    fits = 50 <= group <= 65 or 70 <= group <= 88 or 90 <= group <= 92 or 94 <= group <= 99
    return len(raw) if digits[0] == "9" and fits else 0


def _nhs(candidate: Candidate) -> int:
    """Modulus 11 (NHS data dictionary)."""
    raw = candidate.raw
    # With dashes it is how phone numbers are written, and one in eleven of those would pass.
    if " " not in raw and not candidate.follows(_NHS_WORDS):
        return 0
    digits = [int(each) for each in _digits(raw)]
    check = -sum(digit * weight for digit, weight in zip(digits, range(10, 1, -1), strict=False)) % 11
    return len(raw) if check == digits[9] and len(set(digits)) > 1 else 0


def _national_insurance(candidate: Candidate) -> int:
    """Prefixes that HMRC does not use: D F I Q U V first, also O second, and BG GB KN NK NT TN ZZ."""
    prefix = candidate.raw[:2].upper()
    wrong = prefix[0] in "DFIQUV" or prefix[1] in "DFIQUVO" or prefix in ("BG", "GB", "KN", "NK", "NT", "TN", "ZZ")
    return 0 if wrong else len(candidate.raw)


def _passport(candidate: Candidate) -> int:
    return len(candidate.raw) if candidate.follows(_PASSPORT_WORDS) else 0


def _date_of_birth(candidate: Candidate) -> int:
    """Close behind a word that says so: what else a text says of a birth seldom fits between."""
    window = candidate.text[max(0, candidate.start - 40) : candidate.start]
    return len(candidate.raw) if _BIRTH_WORDS.search(window) else 0


IDENTITY: tuple[Detector, ...] = (
    Detector(
        entity="us_ssn",
        group="pii",
        triggers=(r"[0-9]{3}[ .\-]?[0-9]{2}[ .\-]?[0-9]{4}",),
        pattern=re.compile(r"(?<![0-9A-Za-z.])(?<!\d[ \-])(\d{3}([ .\-]?)\d{2}\2\d{4})(?![0-9A-Za-z]|[.\-]\d)"),
        max_chars=12,
        shapes=_NUMBER,
        check=_ssn,
        priority=6,
        open=re.compile(r"(?<![0-9A-Za-z.])\d{3}-\d{2}-\d*\Z"),
    ),
    Detector(
        entity="us_itin",
        group="pii",
        triggers=(r"9[0-9]{2}[ \-]?[0-9]{2}[ \-]?[0-9]{4}",),
        pattern=re.compile(r"(?<![0-9A-Za-z.])(?<!\d[ \-])(9\d{2}([ \-]?)\d{2}\2\d{4})(?![0-9A-Za-z]|-\d)"),
        max_chars=12,
        shapes=_NUMBER,
        check=_itin,
        priority=6,
    ),
    Detector(
        entity="uk_nhs",
        group="pii",
        triggers=(r"[0-9]{3}[ \-]?[0-9]{3}[ \-]?[0-9]{4}",),
        pattern=re.compile(r"(?<![0-9A-Za-z.+])(?<!\d[ \-])(\d{3}([ \-]?)\d{3}\2\d{4})(?![0-9A-Za-z]|[ \-]\d)"),
        max_chars=13,
        shapes=_NUMBER,
        check=_nhs,
        priority=7,
    ),
    Detector(
        entity="uk_ni",
        group="pii",
        triggers=(r"[A-Za-z]{2} ?[0-9]{2} ?[0-9]{2} ?[0-9]{2} ?[A-Da-d]",),
        pattern=re.compile(r"(?<![0-9A-Za-z])([A-Z]{2} ?\d{2} ?\d{2} ?\d{2} ?[A-D]|[a-z]{2}\d{6}[a-d])(?![0-9A-Za-z])"),
        max_chars=14,
        shapes=_NUMBER,
        check=_national_insurance,
        priority=6,
    ),
    Detector(
        entity="passport",
        group="pii",
        triggers=("[0-9]{5}",),
        words=("(?i)pass?a?e?port|reisepass|paspoort|paszport|pass ?nummer|travel document",),
        pattern=re.compile(
            r"(?<![0-9A-Za-z.\-])([A-Z]{0,2}\d{6,9}|[A-Z]\d[A-Z0-9]{6,7}|\d{2}[A-Z]{2}\d{5})(?![0-9A-Za-z]|-\d)"
        ),
        max_chars=12,
        shapes=frozenset({"run"}),
        check=_passport,
        priority=8,
    ),
    Detector(
        entity="date_of_birth",
        group="pii",
        triggers=(
            r"[0-9][\-/. ][0-9]{1,2}[\-/. ][0-9]{2}",
            rf"[0-9](?:st|nd|rd|th)?[ \-](?:of )?(?:{_MONTHS})",
            rf"(?:{_MONTHS})\.? [0-9]",
        ),
        words=(
            r"(?i)\b(?:born|d\.?o\.?b|geb[.o])",
            "(?i)birth|geburtsdatum|nacim|nascim|nacid|nat[oa] il|nascita|naissance|geboorte|urodz|delsedatum",
            r"(?i)\bn..?.? le\b",
        ),
        pattern=re.compile(
            r"(?<![0-9A-Za-z])("
            r"(?:19|20)\d\d[\-/.](?:0?[1-9]|1[0-2])[\-/.](?:3[01]|[12]\d|0?[1-9])"
            r"|(?:3[01]|[12]\d|0?[1-9])[\-/. ](?:3[01]|[12]\d|0?[1-9])[\-/. ](?:(?:19|20)\d\d|\d\d)"
            rf"|(?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?[ \-](?:of )?(?:{_MONTHS})\.?,?[ \-](?:19|20)\d\d"
            rf"|(?:{_MONTHS})\.? (?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?,? (?:19|20)\d\d"
            r")(?![0-9A-Za-z])"
        ),
        max_chars=32,
        shapes=frozenset({"chain", "date"}),
        check=_date_of_birth,
        priority=5,
    ),
)


def _swedish(raw: str) -> bool:
    """Luhn over the last ten digits."""
    digits = _digits(raw)[-10:]
    return _is_day(digits[4:6], digits[2:4]) and luhn(digits)


def _belgian(raw: str) -> bool:
    """97 less the remainder of nine digits; from 2000 on, with a 2 before them."""
    digits = _digits(raw)
    number, check = int(digits[:9]), int(digits[9:])
    return check in (97 - number % 97, 97 - (2_000_000_000 + number) % 97)


def _finnish(raw: str) -> bool:
    """The remainder modulo 31 of the nine digits names the last character; numbers from 900 on are temporary."""
    number = raw[:6] + raw[7:10]
    fits = "0123456789ABCDEFHJKLMNPRSTUVWXY"[int(number) % 31] == raw[10]
    return fits and _is_day(raw[:2], raw[2:4]) and number[6:] > "001"


def _korean(raw: str) -> bool:
    """Weights 2 to 9, then 2 to 5, modulo 11."""
    digits = [int(each) for each in _digits(raw)]
    total = sum(digit * weight for digit, weight in zip(digits, (*range(2, 10), *range(2, 6)), strict=False))
    return (11 - total % 11) % 10 == digits[12] and _is_day(raw[4:6], raw[2:4])


def _short_spanish(raw: str) -> bool:
    """An old number without its leading zero; the letter is the remainder modulo 23."""
    return "TRWAGMYFPDXBNJZSQVHLCKE"[int(raw[:7]) % 23] == raw[-1]


def _danish(raw: str) -> bool:
    """The checksum was given up in 2007; a date is left."""
    return _is_day(raw[:2], raw[2:4])


def _norwegian(raw: str) -> bool:
    """Two check digits, modulo 11."""
    digits = [int(each) for each in _digits(raw)]
    return all(
        sum(digit * weight for digit, weight in zip(digits, weights, strict=False)) % 11 == 0
        for weights in ((3, 7, 6, 1, 8, 9, 4, 5, 2, 1), (5, 4, 3, 2, 7, 6, 5, 4, 3, 2, 1))
    )


def _south_african(raw: str) -> bool:
    return _is_day(raw[4:6], raw[2:4]) and luhn(raw)


def _is_day(day: str, month: str) -> bool:
    """Whether it may be a day of a month; some countries add 60 to the day of people who only visit."""
    return 1 <= int(month) <= 12 and 1 <= int(day) % 60 <= _DAYS[int(month) - 1]


_Rule = tuple[str | Callable[[str], bool], str, bool, str]
"""A python-stdnum module, or a check of our own where that one asks for today's date; the written form; whether bare
digits need a word; and the words."""

_ID = r"\b(?:id|identity|identification|national|citizen|number|no|nr|tax|fiscal|insurance|social|personal|code)"
NATIONAL: dict[str, tuple[_Rule, ...]] = {
    "AT": (("at.vnr", r"\d{4} ?\d{6}", True, "svnr|sozialversicherung|versicherung"),),
    "AU": (("au.tfn", r"\d{3} ?\d{3} ?\d{2,3}", True, "tfn|tax file"),),
    "BE": ((_belgian, r"\d{2}\.?\d{2}\.?\d{2}-?\d{3}\.?\d{2}", True, "rijksregister|registre national|niss|insz"),),
    "BG": (("bg.egn", r"\d{10}", True, "egn|егн"),),
    "BR": (("br.cpf", r"\d{3}\.?\d{3}\.?\d{3}-?\d{2}", True, "cpf"),),
    "CA": (("ca.sin", r"\d{3}[ \-]?\d{3}[ \-]?\d{3}", True, "sin|nas|social insurance"),),
    "CH": (("ch.ssn", r"756\.?\d{4}\.?\d{4}\.?\d{2}", False, "ahv|avs"),),
    "CL": (("cl.rut", r"\d{1,2}\.?\d{3}\.?\d{3}-[\dkK]", False, "rut|run"),),
    "CN": (("cn.ric", r"\d{17}[\dXx]", False, "id"),),
    "CZ": (("cz.rc", r"\d{6}/\d{3,4}", False, "rodné"),),
    "DE": (("de.idnr", r"\d{2} ?\d{3} ?\d{3} ?\d{3}", True, "steuer|idnr|tin"),),
    "DK": ((_danish, r"\d{6}-?\d{4}", True, "cpr"),),
    "EE": (("ee.ik", r"[1-6]\d{10}", True, "isikukood"),),
    "ES": (
        ("es.dni", r"\d{8}-?[A-Z]", False, "dni"),
        (_short_spanish, r"\d{7}-?[A-Z]", False, "dni"),
        ("es.nie", r"(?:[XYZ]-?\d{7}-?[A-Z]|[xyz]-?\d{7}-?[a-z])", False, "nie"),
    ),
    "FI": ((_finnish, r"\d{6}[+\-ABCDEFYXWVU]\d{3}[0-9A-Z]", False, "hetu"),),
    "FR": (("fr.nir", r"[12] ?\d{2} ?\d{2} ?\d[0-9AB] ?\d{3} ?\d{3} ?\d{2}", False, "nir|sécu"),),
    "GR": (("gr.amka", r"\d{11}", True, "amka|αμκα"),),
    "HR": (("hr.oib", r"\d{11}", True, "oib"),),
    "IE": (("ie.pps", r"\d{7}[A-W][A-IW]?", False, "pps"),),
    "IL": (("il.idnr", r"\d{9}", True, "teudat"),),
    "IN": (
        ("in_.aadhaar", r"\d{4}[ \-]?\d{4}[ \-]?\d{4}", True, "aadhaar|aadhar|uid"),
        ("in_.pan", r"[A-Z]{5}\d{4}[A-Z]", False, "pan"),
    ),
    "IT": (("it.codicefiscale", r"[A-Z]{6}\d{2}[A-EHLMPRST]\d{2}[A-Z]\d{3}[A-Z]", False, "codice"),),
    "KR": ((_korean, r"\d{6}-\d{7}", False, "rrn"),),
    "LT": (("lt.asmens", r"[1-6]\d{10}", True, "asmens"),),
    "LV": (("lv.pvn", r"\d{6}-?\d{5}", True, "personas"),),
    "MX": (("mx.curp", r"[A-Z]{4}\d{6}[HMX][A-Z]{5}[0-9A-Z]\d", False, "curp"),),
    "NL": (("nl.bsn", r"\d{4}\.?\d{2}\.?\d{3}", True, "bsn|burgerservice|sofi"),),
    "NO": ((_norwegian, r"\d{6} ?\d{5}", True, "fødsels|personnummer|fnr"),),
    "PL": (("pl.pesel", r"\d{11}", True, "pesel"),),
    "PT": (("pt.nif", r"[1235689]\d{8}", True, "nif|contribuinte"),),
    "RO": (("ro.cnp", r"[1-9]\d{12}", True, "cnp|cod numeric"),),
    "SE": ((_swedish, r"(?:\d{2})?\d{6}[\-+]\d{4}", False, "personnummer"),),
    "TH": (("th.pin", r"\d-?\d{4}-?\d{5}-?\d{2}-?\d", True, "id"),),
    "TR": (("tr.tckimlik", r"[1-9]\d{10}", True, "kimlik|tc"),),
    "ZA": ((_south_african, r"\d{13}", True, "id"),),
}
"""By country (ISO 3166): the numbers that can be checked."""


def national_ids(countries: tuple[str, ...]) -> tuple[Detector, ...]:
    """The identity numbers of `countries`."""
    return tuple(_national(country, rule) for country in countries for rule in NATIONAL[country])


def _national(country: str, rule: _Rule) -> Detector:
    module, form, needs_word, words = rule
    valid = importlib.import_module(f"stdnum.{module}").is_valid if isinstance(module, str) else module
    said = re.compile(f"(?i:{words}|{_ID}\\b)")

    def check(candidate: Candidate) -> int:
        raw = candidate.raw
        if not valid(raw) or len(set(raw)) == 1:
            return 0
        return 0 if needs_word and raw.isdigit() and not candidate.follows(said) else len(raw)

    return Detector(
        entity="national_id",
        group="pii",
        triggers=(form.replace("(?:\\d{2})?", "").replace("\\d", "[0-9]"),),
        pattern=re.compile(rf"(?<![0-9A-Za-z.+\-])({form})(?![0-9A-Za-z]|[.\-]\d)"),
        max_chars=24,
        shapes=_NUMBER,
        check=check,
        priority=7 if needs_word else 8,
    )
