"""What is found and what is found wrongly: on a corpus with ground truth, on others' test values, on clean text.

Presidio reads the same corpus, in an environment of its own. `PILOTHOUSE_FILTER_PRESIDIO` is how many documents of it:
it needs some milliseconds for each.
"""

import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.bars.report import Bar, main, tell
from benchmarks.filter_corpus import clean, presidio_side
from benchmarks.filter_corpus.documents import CHECKSUMMED, DOCUMENTS, Document, corpus
from benchmarks.filter_corpus.full_set import ID_COUNTRIES, REGIONS, full_set
from benchmarks.filter_corpus.public_values import FALSE, TRUE, stdnum_values
from benchmarks.packages import environment
from pilothouse.model.filters import Action
from pilothouse.policy.redaction.compiled import CompiledFilter, compile_filters
from pilothouse.policy.redaction.identity import NATIONAL
from pilothouse.policy.redaction.scoring import Score, Span, score

PRESIDIO_DOCUMENTS = int(os.environ.get("PILOTHOUSE_FILTER_PRESIDIO", str(DOCUMENTS)))
CHECKSUMMED_LIMIT, OTHER_LIMIT, FALSE_LIMIT = 0.99, 0.95, 1.0
_CLEAN_PIECE = 2000

Found = list[list[Span]]


def _spans(document: Document) -> tuple[Span, ...]:
    return tuple(Span(start, end, entity) for start, end, entity in document.spans)


def find(compiled: CompiledFilter, texts: Iterable[str]) -> Found:
    """What our filter finds in each text."""
    return [[Span(each.start, each.end, each.entity) for each in compiled.findings(text)] for text in texts]


def presidio_finds(asked: Sequence[tuple[str, str]]) -> tuple[Found, float]:
    """What Presidio finds in each (text, language), and the seconds it took."""
    python = environment("presidio-analyzer") / "python"
    script = Path(presidio_side.__file__)
    lines = "".join(json.dumps({"text": text, "language": language}) + "\n" for text, language in asked)
    ran = subprocess.run([python, "-P", script], input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    found = [_outermost([Span(*span) for span in answer["spans"]]) for answer in answers]
    return found, sum(answer["seconds"] for answer in answers)


def _outermost(spans: list[Span]) -> list[Span]:
    """Presidio reports overlapping findings; of those of one kind the longest counts."""
    kept: list[Span] = []
    for each in sorted(spans, key=lambda span: (span.start, -span.end)):
        if not any(k.start <= each.start and each.end <= k.end and k.entity == each.entity for k in kept):
            kept.append(each)
    return kept


def recalls(scores: dict[str, Score]) -> tuple[float, float]:
    """The recall of all (checksum-bearing, other) kinds together."""

    def of(kinds: set[str]) -> float:
        true = sum(scores[kind].true for kind in kinds)
        return sum(scores[kind].found for kind in kinds) / true if true else 1.0

    kinds = {kind for kind, each in scores.items() if each.true}
    return of(kinds & CHECKSUMMED), of(kinds - CHECKSUMMED)


def measure() -> list[Bar]:
    """The tables are in the details."""
    compiled = compile_filters([full_set(Action.REDACT, (*REGIONS, "PL"))], direction="output")
    return [*_on_corpus(compiled), *_on_public_values(compiled), *_on_clean_text(compiled)]


def _on_corpus(compiled: CompiledFilter) -> list[Bar]:
    documents = list(corpus())
    tell(f"{len(documents)} documents")
    ours = score(zip(map(_spans, documents), find(compiled, (each.text for each in documents)), strict=True))
    with_sums, others = recalls(ours)
    some = documents[:PRESIDIO_DOCUMENTS]
    tell(f"Presidio reads {len(some)} of them")
    theirs, took = presidio_finds([(each.text, each.locale[:2]) for each in some])
    their_scores = score(zip(map(_spans, some), theirs, strict=True))
    their_sums, their_others = recalls({kind: each for kind, each in their_scores.items() if kind in _theirs()})
    table = {kind: _row(each, their_scores.get(kind)) for kind, each in ours.items()}
    details: dict[str, object] = {
        "documents": len(documents), "by_entity": table, "presidio_documents": len(some),
        "presidio_recall_checksummed": round(their_sums, 4), "presidio_recall_others": round(their_others, 4),
        "presidio_ms_per_document": round(took / len(some) * 1e3, 2),
    }  # fmt: skip
    return [
        _recall_bar("Corpus: recall of kinds with a checksum", with_sums, CHECKSUMMED_LIMIT, details),
        _recall_bar("Corpus: recall of other kinds", others, OTHER_LIMIT, details),
    ]


def _theirs() -> set[str]:
    return set(presidio_side.KINDS.values())


def _row(ours: Score, theirs: Score | None) -> dict[str, float | int | None]:
    return {
        "true": ours.true,
        "recall": round(ours.recall, 4),
        "precision": round(ours.precision, 4),
        "presidio_recall": None if theirs is None else round(theirs.recall, 4),
        "presidio_precision": None if theirs is None else round(theirs.precision, 4),
    }


def _recall_bar(name: str, measured: float, limit: float, details: dict[str, object]) -> Bar:
    return Bar(
        name=name, limit=f">= {limit:.0%}", measured=f"{measured:.2%}", passed=measured >= limit, details=details
    )


def _on_public_values(compiled: CompiledFilter) -> list[Bar]:
    values = list(TRUE)
    for country in ID_COUNTRIES:
        for module, _, _, words in NATIONAL[country]:
            if isinstance(module, str):
                word = words.split("|")[0]
                values += [("national_id", f"{word} number ", value) for value in stdnum_values((module,))]
    missed: list[str] = []
    counted = {True: [0, 0], False: [0, 0]}
    for entity, before, value in values:
        text = f"{before}{value} ok"
        found = any(text[each.start : each.end] == value and each.entity == entity for each in compiled.findings(text))
        counted[entity in CHECKSUMMED][0] += 1
        counted[entity in CHECKSUMMED][1] += found
        if not found:
            missed.append(f"{entity}: {value}")
    wrong = [f"{kind}: {text}" for kind, text in FALSE if any(e.entity == kind for e in compiled.findings(text))]
    details: dict[str, object] = {"values": len(values), "missed": missed, "wrong": wrong, "negatives": len(FALSE)}
    return [
        _recall_bar("Public test values: recall of kinds with a checksum", counted[True][1] / counted[True][0],
                    CHECKSUMMED_LIMIT, details),
        _recall_bar("Public test values: recall of other kinds", counted[False][1] / counted[False][0],
                    OTHER_LIMIT, details),
        Bar(name="Public test values: found where the tests say there is none", limit="0",
            measured=f"{len(wrong)} of {len(FALSE)}", passed=not wrong, details=details),
    ]  # fmt: skip


def _on_clean_text(compiled: CompiledFilter) -> list[Bar]:
    bars = []
    for kind, text in (("prose", clean.prose()), ("log lines", clean.logs()), ("source code", clean.code())):
        findings = compiled.findings(text)
        ten_thousands = clean.words(text) / 1e4
        ours = len(findings) / ten_thousands
        pieces = [text[at : at + _CLEAN_PIECE] for at in range(0, min(len(text), 50 * _CLEAN_PIECE), _CLEAN_PIECE)]
        theirs, _ = presidio_finds([(piece, "en") for piece in pieces])
        their_words = sum(map(clean.words, pieces)) / 1e4
        details: dict[str, object] = {
            "words": clean.words(text),
            "found": sorted({f"{each.entity}: {text[each.start : each.end]}" for each in findings})[:20],
            "presidio_per_10000_words": round(sum(map(len, theirs)) / their_words, 2),
        }
        bars.append(
            Bar(name=f"False positives for 10,000 words of {kind}", limit=f"< {FALSE_LIMIT:g}",
                measured=f"{ours:.2f}", passed=ours < FALSE_LIMIT, details=details)
        )  # fmt: skip
    return bars


if __name__ == "__main__":
    main("filter", measure())
