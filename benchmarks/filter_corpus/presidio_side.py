"""Runs in Presidio's own environment: texts as JSON lines on standard input, findings on standard output.

A model of spaCy comes from a hub, not from the package index. Presidio gets a blank one: its patterns, checksums,
phone numbers and context words work, recognition of names does not. Names are not part of the comparison.
"""

import json
import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LANGUAGES = ("en", "de", "fr", "es", "it", "nl", "pt", "pl")
KINDS = {
    "EMAIL_ADDRESS": "email", "PHONE_NUMBER": "phone", "CREDIT_CARD": "payment_card", "IBAN_CODE": "iban",
    "IP_ADDRESS": "ip_address", "MAC_ADDRESS": "mac_address", "CRYPTO": "crypto_address", "US_SSN": "us_ssn",
    "US_ITIN": "us_itin", "UK_NHS": "uk_nhs", "UK_NINO": "uk_ni", "US_PASSPORT": "passport", "UK_PASSPORT": "passport",
    "IN_PASSPORT": "passport", "IT_PASSPORT": "passport", "ES_PASSPORT": "passport", "DE_PASSPORT": "passport",
    "FR_PASSPORT": "passport", "ES_NIF": "national_id", "ES_NIE": "national_id", "IT_FISCAL_CODE": "national_id",
    "PL_PESEL": "national_id", "FI_PERSONAL_IDENTITY_CODE": "national_id", "IN_AADHAAR": "national_id",
    "IN_PAN": "national_id", "DE_TAX_ID": "national_id", "BR_CPF": "national_id", "FR_NIR": "national_id",
    "NL_BSN": "national_id",
}  # fmt: skip


def engine() -> Any:
    """An analyzer for all the languages, with everything that is on by default for them."""
    import spacy
    from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
    from presidio_analyzer.nlp_engine import NlpEngineProvider

    directory = Path(tempfile.mkdtemp())
    models = []
    for language in LANGUAGES:
        spacy.blank(language).to_disk(directory / language)
        models.append({"lang_code": language, "model_name": str(directory / language)})
    nlp = NlpEngineProvider(nlp_configuration={"nlp_engine_name": "spacy", "models": models}).create_engine()
    registry = RecognizerRegistry(supported_languages=list(LANGUAGES))
    registry.load_predefined_recognizers(languages=list(LANGUAGES), nlp_engine=nlp)
    return AnalyzerEngine(registry=registry, nlp_engine=nlp, supported_languages=list(LANGUAGES))


def main() -> None:
    """Each line: {"text", "language"}. Each line out: {"spans", "seconds"}."""
    logging.disable(logging.CRITICAL)
    analyzer = engine()
    for line in sys.stdin:
        asked = json.loads(line)
        began = time.process_time()
        found = analyzer.analyze(text=asked["text"], language=asked["language"])
        took = time.process_time() - began
        spans = [[each.start, each.end, KINDS[each.entity_type]] for each in found if each.entity_type in KINDS]
        print(json.dumps({"spans": spans, "seconds": took}), flush=True)


if __name__ == "__main__":
    main()
