"""A corpus with ground truth: documents in ten locales, from a seed. The same seed gives the same documents.

A document is a few sentences of its locale. Some of them hold a value, others a number that only looks like one.
"""

import random
from collections.abc import Callable, Iterator

import msgspec

from benchmarks.filter_corpus import values
from benchmarks.filter_corpus.clean import SEED
from benchmarks.filter_corpus.values import Draw

DOCUMENTS = 10_000

Maker = Callable[[Draw], str]

CHECKSUMMED = frozenset({"crypto_address", "iban", "national_id", "payment_card", "uk_nhs"})


class Document(msgspec.Struct, frozen=True):
    """A text, and where what is in it: [start, end, entity] in characters."""

    text: str
    spans: list[tuple[int, int, str]]
    locale: str


class Locale(msgspec.Struct, frozen=True, kw_only=True):
    """What is said in a locale. `{v}` is the value, `{n}` a number that is none."""

    region: str
    bank: str
    clean: tuple[str, ...]
    contact: tuple[str, ...]
    call: tuple[str, ...]
    pay: tuple[str, ...]
    card: tuple[str, ...]
    born: tuple[str, ...]
    passport: tuple[str, ...]
    identity: tuple[tuple[str, str, Maker], ...]
    """(entity, sentence, maker)."""


_ENGLISH = (
    "Thanks for getting back to me so quickly.", "The meeting was moved to Thursday at 10:30.",
    "Version 2.14.3 fixes the crash; see ticket {n}.", "We shipped 1,250 units for $19,999.00 in Q3 2024.",
    "Please restart the service and try again in 15 minutes.", "The parcel {n} left the depot on 12 May 2024.",
    "Room 4.07 seats 24 people; bring the blue folder.", "Python 3.11 is about 25% faster than 3.10.",
    "It rained for 40 days, and the river rose by 3.5 metres.",
)  # fmt: skip
_CALL_EN = ("Call me on {v} after six.", "Phone: {v}", "You can reach the office at {v}.", "My number is {v}, text me.")
_MAIL_EN = ("Write to {v} about it.", "My address is {v}.", "cc {v} please", "Contact: {v}, any time.")
_PAY_EN = ("Send the money to {v} by Friday.", "IBAN: {v}")
_CARD_EN = ("Charge it to card {v}.", "The card number is {v}, please.", "card={v}")
_BORN_EN = ("She was born on {v}.", "Date of birth: {v}", "DOB {v}")
_PASSPORT_EN = ("Her passport number is {v}.", "Passport: {v}")

LOCALES: dict[str, Locale] = {
    "en_US": Locale(
        region="US", bank="GB", clean=_ENGLISH, contact=_MAIL_EN, call=_CALL_EN, pay=_PAY_EN, card=_CARD_EN,
        born=_BORN_EN, passport=_PASSPORT_EN,
        identity=(("us_ssn", "My SSN is {v}.", values.ssn), ("us_itin", "The ITIN on file is {v}.", values.itin),
                  ("us_ssn", "Applicant {v}, two dependants.", values.ssn)),
    ),
    "en_GB": Locale(
        region="GB", bank="GB", clean=_ENGLISH, contact=_MAIL_EN, call=_CALL_EN, pay=_PAY_EN, card=_CARD_EN,
        born=_BORN_EN, passport=_PASSPORT_EN,
        identity=(("uk_nhs", "NHS number {v}.", values.nhs_number),
                  ("uk_nhs", "The patient, {v}, is well.", values.nhs_number),
                  ("uk_ni", "National Insurance: {v}", values.national_insurance)),
    ),
    "de_DE": Locale(
        region="DE", bank="DE",
        clean=("Vielen Dank für Ihre schnelle Antwort.", "Das Paket {n} ist am 12. Mai 2024 angekommen.",
               "Die Rechnung beträgt 1.250,00 Euro.", "Wir treffen uns um 14:30 Uhr in Raum 4.07.",
               "Version 2.14.3 behebt den Fehler {n}.", "Der Zug kommt um 9:05 Uhr auf Gleis 12 an."),
        contact=("Schreiben Sie an {v}.", "E-Mail: {v}"), call=("Rufen Sie mich unter {v} an.", "Telefon: {v}"),
        pay=("Bitte auf das Konto {v} überweisen.", "IBAN {v}"), card=("Die Kreditkarte hat die Nummer {v}.",),
        born=("Er wurde geboren am {v}.", "Geburtsdatum: {v}"), passport=("Reisepass: {v}",),
        identity=(("national_id", "Die Steuer-ID lautet {v}.", values.steuer_id),),
    ),
    "fr_FR": Locale(
        region="FR", bank="FR",
        clean=("Merci beaucoup pour votre réponse rapide.", "Le colis {n} est parti le 12 mai 2024.",
               "La facture s'élève à 1 250,00 euros.", "La réunion est à 14h30 en salle 4.07.",
               "La version 2.14.3 corrige le bogue {n}.", "Il a plu pendant 40 jours."),
        contact=("Écrivez à {v}.", "Courriel : {v}"), call=("Appelez-moi au {v}.", "Tél : {v}"),
        pay=("Virez la somme sur {v}.", "IBAN {v}"), card=("Le numéro de la carte est {v}.",),
        born=("Elle est née le {v}.", "Date de naissance : {v}"), passport=("Passeport : {v}",),
        identity=(("national_id", "Numéro de sécu : {v}", values.nir_number),),
    ),
    "es_ES": Locale(
        region="ES", bank="ES",
        clean=("Muchas gracias por su rápida respuesta.", "El paquete {n} salió el 12 de mayo de 2024.",
               "La factura es de 1.250,00 euros.", "La reunión es a las 14:30 en la sala 4.07.",
               "La versión 2.14.3 corrige el error {n}.", "Llovió durante 40 días."),
        contact=("Escriba a {v}.", "Correo: {v}"), call=("Llámeme al {v}.", "Teléfono: {v}"),
        pay=("Ingrese el dinero en {v}.", "IBAN {v}"), card=("El número de la tarjeta es {v}.",),
        born=("Fecha de nacimiento: {v}", "Es nacida el {v}."), passport=("Pasaporte: {v}",),
        identity=(("national_id", "Mi DNI es {v}.", values.dni_number),),
    ),
    "it_IT": Locale(
        region="IT", bank="AT",
        clean=("Grazie mille per la risposta veloce.", "Il pacco {n} è partito il 12 maggio 2024.",
               "La fattura è di 1.250,00 euro.", "La riunione è alle 14:30 nella sala 4.07.",
               "La versione 2.14.3 corregge l'errore {n}.", "Ha piovuto per 40 giorni."),
        contact=("Scriva a {v}.", "Email: {v}"), call=("Mi chiami al {v}.", "Telefono: {v}"),
        pay=("Faccia il bonifico su {v}.", "IBAN {v}"), card=("Il numero della carta è {v}.",),
        born=("Data di nascita: {v}", "È nato il {v}."), passport=("Passaporto: {v}",),
        identity=(("national_id", "Codice fiscale {v}.", values.fiscal_code),),
    ),
    "nl_NL": Locale(
        region="NL", bank="NL",
        clean=("Hartelijk dank voor uw snelle antwoord.", "Het pakket {n} is op 12 mei 2024 vertrokken.",
               "De rekening is 1.250,00 euro.", "De vergadering is om 14:30 in zaal 4.07.",
               "Versie 2.14.3 lost fout {n} op.", "Het regende 40 dagen lang."),
        contact=("Schrijf naar {v}.", "E-mail: {v}"), call=("Bel me op {v}.", "Telefoon: {v}"),
        pay=("Maak het over naar {v}.", "IBAN {v}"), card=("Het nummer van de kaart is {v}.",),
        born=("Geboortedatum: {v}",), passport=("Paspoort: {v}",),
        identity=(("national_id", "Mijn BSN is {v}.", values.bsn_number),),
    ),
    "pt_BR": Locale(
        region="BR", bank="PT",
        clean=("Muito obrigado pela resposta rápida.", "O pacote {n} saiu em 12 de maio de 2024.",
               "A fatura é de R$ 1.250,00.", "A reunião é às 14:30 na sala 4.07.",
               "A versão 2.14.3 corrige o erro {n}.", "Choveu durante 40 dias."),
        contact=("Escreva para {v}.", "E-mail: {v}"), call=("Ligue para {v}.", "Telefone: {v}"),
        pay=("Transfira para {v}.", "IBAN {v}"), card=("O número do cartão é {v}.",),
        born=("Data de nascimento: {v}",), passport=("Passaporte: {v}",),
        identity=(("national_id", "Meu CPF é {v}.", values.cpf_number),),
    ),
    "en_IN": Locale(
        region="IN", bank="CH", clean=_ENGLISH, contact=_MAIL_EN, call=_CALL_EN, pay=_PAY_EN, card=_CARD_EN,
        born=_BORN_EN, passport=_PASSPORT_EN,
        identity=(("national_id", "Aadhaar number: {v}", values.aadhaar_number),),
    ),
    "pl_PL": Locale(
        region="PL", bank="PL",
        clean=("Dziękuję za szybką odpowiedź.", "Paczka {n} wyszła 12 maja 2024.", "Faktura na 1.250,00 zł.",
               "Spotkanie jest o 14:30 w sali 4.07.", "Wersja 2.14.3 naprawia błąd {n}.", "Padało przez 40 dni."),
        contact=("Proszę pisać na {v}.", "E-mail: {v}"), call=("Proszę dzwonić: {v}.", "Telefon: {v}"),
        pay=("Proszę przelać na {v}.", "IBAN {v}"), card=("Numer karty: {v}.",),
        born=("Data urodzenia: {v}",), passport=("Paszport: {v}",),
        identity=(("national_id", "PESEL: {v}", values.pesel_number),),
    ),
}  # fmt: skip

_TECHNICAL: tuple[tuple[str, str, Maker], ...] = (
    ("ip_address", "Connection from {v} refused.", values.ip_address),
    ("ip_address", "host={v} up", values.ip_address),
    ("mac_address", "Interface {v} is down.", values.mac_address),
    ("crypto_address", "Send it to wallet {v}.", values.bitcoin),
    *(
        (entity, "export KEY={v} # do not share", maker)
        for entity, makers in values.SECRETS.items()
        for maker in makers
    ),
    *((entity, "The key {v} stopped working.", maker) for entity, makers in values.SECRETS.items() for maker in makers),
)


def corpus(count: int = DOCUMENTS, seed: int = SEED) -> Iterator[Document]:
    """The documents."""
    draw = random.Random(seed)
    names = sorted(LOCALES)
    for number in range(count):
        name = names[number % len(names)]
        yield _document(draw, LOCALES[name], name)


def _document(draw: Draw, locale: Locale, name: str) -> Document:
    sentences: list[tuple[str, str, str]] = [
        (draw.choice(locale.clean).replace("{n}", _number(draw)), "", "") for _ in range(draw.randint(2, 4))
    ]
    for _ in range(draw.choice((0, 1, 1, 2, 3))):
        entity, sentence, maker = draw.choice(_offers(locale))
        sentences.append((sentence, entity, maker(draw)))
    draw.shuffle(sentences)
    text, spans = "", []
    for sentence, entity, value in sentences:
        if entity:
            start = len(text) + sentence.index("{v}")
            spans.append((start, start + len(value), entity))
            sentence = sentence.replace("{v}", value)
        text += sentence + draw.choice((" ", "\n", " "))
    return Document(text, spans, name)


def _offers(locale: Locale) -> list[tuple[str, str, Maker]]:
    phone, account = values.phone(locale.region), values.account(locale.bank)
    return [
        *(("email", each, values.email) for each in locale.contact),
        *(("phone", each, phone) for each in locale.call),
        *(("iban", each, account) for each in locale.pay),
        *(("payment_card", each, values.card) for each in locale.card),
        *(("date_of_birth", each, values.birth_date) for each in locale.born),
        *(("passport", each, values.passport) for each in locale.passport),
        *locale.identity,
        *locale.identity,
        *_TECHNICAL[::3],
        *_TECHNICAL[1::5],
    ]


def _number(draw: Draw) -> str:
    """What only looks like a value: numbers of orders and tickets."""
    return draw.choice(
        (f"#{draw.randint(1000, 99999)}", f"A-{draw.randint(100, 999)}-{draw.randint(10, 99)}",
         f"{draw.randint(10**7, 10**8 - 1)}", f"PKG{draw.randint(10**5, 10**6)}", f"2024/{draw.randint(100, 999)}")
    )  # fmt: skip
