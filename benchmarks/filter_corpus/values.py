"""Makers of values that are true by the rules of who issues them. Checks come from python-stdnum and phonenumbers, not
from the detectors that are measured."""

import base64
import hashlib
import json
import random
import string
from collections.abc import Callable
from typing import Any

import phonenumbers
from stdnum import iban, luhn, verhoeff
from stdnum.br import cpf
from stdnum.es import dni, nie
from stdnum.fr import nir
from stdnum.gb import nhs
from stdnum.iso7064 import mod_97_10
from stdnum.it import codicefiscale
from stdnum.nl import bsn
from stdnum.pl import pesel

Draw = random.Random
_FIRST = ("jane", "tom", "maria", "lukas", "sofie", "ravi", "yuki", "pedro", "anna", "luc", "chiara", "omar")
_LAST = ("doe", "smith", "rossi", "meyer", "dubois", "garcia", "patel", "tanaka", "silva", "devries", "nowak")
_HOSTS = ("example.com", "mail.example.org", "example.co.uk", "firma-example.de", "exemple.fr", "example.com.br")
_BANKS = {
    "DE": (8, 10, 0), "FR": (0, 0, 0), "ES": (8, 12, 0), "NL": (0, 10, 4), "GB": (6, 8, 4), "BE": (12, 0, 0),
    "AT": (5, 11, 0), "PT": (8, 13, 0), "CH": (5, 12, 0), "PL": (8, 16, 0),
}  # fmt: skip


def digits(draw: Draw, count: int, first: str = string.digits) -> str:
    """So many, the first one of `first`."""
    return draw.choice(first) + "".join(draw.choice(string.digits) for _ in range(count - 1))


def email(draw: Draw) -> str:
    """An address."""
    name = draw.choice(("{f}.{l}", "{f}_{l}{n}", "{f}+{l}", "{l}{n}", "{f}-{l}", "{f}")).format(
        f=draw.choice(_FIRST), l=draw.choice(_LAST), n=draw.randint(1, 999)
    )
    text = f"{name}@{draw.choice(_HOSTS)}"
    return text.upper() if draw.random() < 0.05 else text


def phone(region: str) -> Callable[[Draw], str]:
    """A valid number of a country, as people write it there or with its country code."""

    def make(draw: Draw) -> str:
        example = phonenumbers.example_number_for_type(
            region, draw.choice((phonenumbers.PhoneNumberType.MOBILE, phonenumbers.PhoneNumberType.FIXED_LINE))
        )
        assert example is not None
        while True:
            national = str(phonenumbers.national_significant_number(example))
            changed = national[:4] + digits(draw, len(national) - 4)
            number: Any = phonenumbers.parse(changed, region)
            if phonenumbers.is_valid_number(number):
                break
        form = draw.choice(
            (
                phonenumbers.PhoneNumberFormat.INTERNATIONAL,
                phonenumbers.PhoneNumberFormat.NATIONAL,
                phonenumbers.PhoneNumberFormat.E164,
            )
        )
        return str(phonenumbers.format_number(number, form))

    return make


def card(draw: Draw) -> str:
    """A number of one of the networks, in groups or not."""
    prefix, length = draw.choice(
        (
            ("4", 16),
            ("51", 16),
            ("55", 16),
            ("2221", 16),
            ("34", 15),
            ("37", 15),
            ("6011", 16),
            ("3530", 16),
            ("36", 14),
        )
    )
    body = prefix + digits(draw, length - len(prefix) - 1)
    number = body + luhn.calc_check_digit(body)
    glue = draw.choice(("", " ", "-"))
    if length == 16:
        return glue.join(number[at : at + 4] for at in range(0, 16, 4))
    return glue.join((number[:4], number[4:10], number[10:])) if length in (14, 15) else number


def account(country: str) -> Callable[[Draw], str]:
    """An IBAN, in groups of four or not."""

    def make(draw: Draw) -> str:
        before, after, letters = _BANKS[country]
        bank = "".join(draw.choice(string.ascii_uppercase) for _ in range(letters))
        body = bank + "".join(draw.choice(string.digits) for _ in range(before + after))
        if country == "FR":
            body = digits(draw, 10) + "".join(draw.choice(string.digits) for _ in range(11)) + digits(draw, 2)
        check = mod_97_10.calc_check_digits(body + country)
        number = f"{country}{check}{body}"
        assert iban.is_valid(number, check_country=False)
        return " ".join(number[at : at + 4] for at in range(0, len(number), 4)) if draw.random() < 0.5 else number

    return make


def ssn(draw: Draw) -> str:
    """A US social security number, with its dashes."""
    area = draw.choice([each for each in range(1, 900) if each != 666])
    return f"{area:03}-{draw.randint(1, 99):02}-{draw.randint(1, 9999):04}"


def itin(draw: Draw) -> str:
    """A US taxpayer number, with its dashes."""
    return (
        f"9{draw.randint(0, 99):02}-{draw.choice((*range(50, 66), *range(70, 89), *range(94, 100)))}-{digits(draw, 4)}"
    )


def nhs_number(draw: Draw) -> str:
    """A British one, in its three groups."""
    while True:
        number = digits(draw, 10, "4679")
        if nhs.is_valid(number):
            return f"{number[:3]} {number[3:6]} {number[6:]}"


def national_insurance(draw: Draw) -> str:
    """A British one, in groups or not."""
    prefix = draw.choice(("AB", "CE", "HJ", "JK", "LM", "PR", "SC", "TW", "YZ"))
    number = digits(draw, 6)
    glue = draw.choice(("", " "))
    return glue.join((prefix, number[:2], number[2:4], number[4:], draw.choice("ABCD")))


def passport(draw: Draw) -> str:
    """Of one of the usual forms; the words before it tell."""
    return draw.choice((digits(draw, 9), draw.choice("CFGHJK") + digits(draw, 8), draw.choice("ABX") + digits(draw, 7)))


def birth_date(draw: Draw) -> str:
    """A date, as the locale's sentence around it says what it is."""
    day, month, year = draw.randint(1, 28), draw.randint(1, 12), draw.randint(1935, 2012)
    return draw.choice((f"{year}-{month:02}-{day:02}", f"{day:02}.{month:02}.{year}", f"{day:02}/{month:02}/{year}"))


def ip_address(draw: Draw) -> str:
    """Version 4 or 6."""
    if draw.random() < 0.6:
        return ".".join(str(draw.randint(1, 254)) for _ in range(4))
    groups = [f"{draw.getrandbits(16):x}" for _ in range(8)]
    return ":".join(("2001", "db8", *groups[2:])) if draw.random() < 0.5 else f"fe80::{groups[0]}:{groups[1]}:1"


def mac_address(draw: Draw) -> str:
    """With colons or dashes."""
    return draw.choice(":-").join(f"{draw.getrandbits(8):02x}" for _ in range(6))


def bitcoin(draw: Draw) -> str:
    """A pay-to-public-key-hash address."""
    payload = b"\0" + draw.randbytes(20)
    payload += hashlib.sha256(hashlib.sha256(payload).digest()).digest()[:4]
    alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    number, text = int.from_bytes(payload), ""
    while number:
        number, rest = divmod(number, 58)
        text = alphabet[rest] + text
    return "1" * (len(payload) - len(payload.lstrip(b"\0"))) + text


def _from(alphabet: str, count: int) -> Callable[[Draw], str]:
    return lambda draw: "".join(draw.choice(alphabet) for _ in range(count))


_ALNUM = string.ascii_letters + string.digits
_UPPER = string.ascii_uppercase + string.digits


def jwt(draw: Draw) -> str:
    """Header, payload, signature."""

    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    payload = json.dumps({"sub": digits(draw, 10), "iat": draw.randint(10**9, 2 * 10**9)}).encode()
    header = json.dumps({"alg": "HS256", "typ": "JWT"}).encode()
    return f"{part(header)}.{part(payload)}.{part(draw.randbytes(32))}"


def password_url(draw: Draw) -> str:
    """A database's URL."""
    word = _from(_ALNUM, 12)(draw)
    return f"postgres://{draw.choice(_FIRST)}:{word}@db{draw.randint(1, 9)}.example.com:5432"


SECRETS: dict[str, tuple[Callable[[Draw], str], ...]] = {
    "aws_key": (lambda draw: "AKIA" + _from(_UPPER, 16)(draw),),
    "github_token": (lambda draw: "ghp_" + _from(_ALNUM, 36)(draw),),
    "slack_token": (lambda draw: f"xoxb-{digits(draw, 12)}-{_from(_ALNUM, 24)(draw)}",),
    "google_key": (lambda draw: "AIza" + _from(_ALNUM + "-_", 35)(draw),),
    "stripe_key": (lambda draw: "sk_live_" + _from(_ALNUM, 24)(draw),),
    "openai_key": (lambda draw: "sk-proj-7" + _from(_ALNUM, 47)(draw),),
    "jwt": (jwt,),
    "credential_url": (password_url,),
}


def cpf_number(draw: Draw) -> str:
    """Brazil's, with its dots."""
    body = digits(draw, 9)
    return str(cpf.format(body + str(cpf._calc_check_digits(body))))


def dni_number(draw: Draw) -> str:
    """Spain's, of citizens or of foreigners."""
    if draw.random() < 0.3:
        body = draw.choice("XYZ") + digits(draw, 7)
        return body + str(nie.calc_check_digit(body))
    body = digits(draw, 8)
    return body + str(dni.calc_check_digit(body))


def fiscal_code(draw: Draw) -> str:
    """Italy's."""
    letters = _from("BCDFGLMNPRSTVZ", 6)(draw)
    body = f"{letters}{draw.randint(30, 99)}{draw.choice('ABCDEHLMPRST')}{draw.randint(1, 28):02}H501"
    return body + str(codicefiscale.calc_check_digit(body))


def nir_number(draw: Draw) -> str:
    """France's."""
    born = f"{draw.choice('12')}{draw.randint(30, 99)}{draw.randint(1, 12):02}"
    body = f"{born}{draw.randint(1, 95):02}{digits(draw, 6, '123')}"
    return body + str(nir.calc_check_digits(body))


def bsn_number(draw: Draw) -> str:
    """The Netherlands'."""
    while True:
        number = digits(draw, 9, "123456789")
        if bsn.is_valid(number):
            return number


def pesel_number(draw: Draw) -> str:
    """Poland's."""
    body = f"{draw.randint(30, 99)}{draw.randint(1, 12):02}{draw.randint(1, 28):02}{digits(draw, 4)}"
    return body + str(pesel.calc_check_digit(body))


def aadhaar_number(draw: Draw) -> str:
    """India's, in its groups."""
    while True:
        body = digits(draw, 11, "23456789")
        number = body + verhoeff.calc_check_digit(body)
        if number != number[::-1]:
            return f"{number[:4]} {number[4:8]} {number[8:]}"


def steuer_id(draw: Draw) -> str:
    """Germany's tax number: by trial, since the rule on repeated digits leaves few."""
    from stdnum.de import idnr

    while True:
        body = digits(draw, 10, "123456789")
        for check in string.digits:
            if idnr.is_valid(body + check):
                return body + check
