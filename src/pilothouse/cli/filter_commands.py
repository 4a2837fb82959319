"""`pilothouse filter ...`: what filters find in a text, and how well they do on a corpus."""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from pilothouse.cli.exits import Exit
from pilothouse.cli.output import CommandError, data_console, json_text, printable, say

if TYPE_CHECKING:
    from pilothouse.model.filters import FilterSpec
    from pilothouse.policy.redaction.compiled import CompiledFilter
    from pilothouse.policy.redaction.scoring import Document, Score

_STDIN = "-"
_File = Annotated[str, Parameter(allow_leading_hyphen=True)]
_Regions = Annotated[tuple[str, ...], Parameter(consume_multiple=False)]


def try_filters(
    file: _File,
    /,
    *,
    fleet_file: Path | None = None,
    model: str = "",
    tenant: str = "",
    direction: Literal["input", "output"] = "output",
    country: _Regions = (),
    json: bool = False,
) -> int:
    """Show what the filters would find in a text, and what they would send instead.

    $ pilothouse filter test answer.txt
    $ echo "I am jane@example.com" | pilothouse filter test -
    $ pilothouse filter test answer.txt --fleet-file fleet.yaml --model smollm2 --direction input --json

    Standard output has the text as it would be sent; with --json, also where what was found.

    Args:
        file: The text's file, or - for standard input.
        fleet_file: Take the filters of this fleet file. Left out: all built-in entities, redacted.
        model: The model of the turn, for filters of some models.
        tenant: The tenant of the turn, for filters of some tenants.
        direction: Whether it is a request (input) or an answer (output).
        country: Without a fleet file: an ISO 3166 country whose phone and identity numbers are known; may be repeated.
        json: Everything as JSON: `text`, `blocked`, `findings`.
    """
    text = _read(file)
    compiled = _compiled(fleet_file, model, tenant, direction, country)
    findings = compiled.findings(text)
    sent, blocked = compiled.whole(text, compiled.turn())
    if json:
        print(json_text({"text": sent, "blocked": blocked, "findings": findings}))
        return Exit.OK
    sys.stdout.write(printable(sent))
    for each in findings:
        line = text.count("\n", 0, each.start) + 1
        say(f"line {line}: {each.entity}, {each.end - each.start} characters: {each.action.value}")
    if blocked is not None:
        say(f"blocked: {blocked}")
    elif not findings:
        say("nothing was found")
    return Exit.OK


def evaluate(
    corpus: _File,
    /,
    *,
    fleet_file: Path | None = None,
    model: str = "",
    tenant: str = "",
    direction: Literal["input", "output"] = "output",
    country: _Regions = (),
    json: bool = False,
) -> int:
    """Measure the filters' precision and recall on a corpus.

    $ pilothouse filter eval corpus.jsonl --country US --country GB
    $ pilothouse filter eval corpus.jsonl --fleet-file fleet.yaml --json

    Each line of the corpus is a JSON object: `text`, and `spans`, a list of [start, end, entity] in characters. Actions
    make no difference: everything that the filters look for counts.

    Args:
        corpus: The corpus' file, or - for standard input.
        fleet_file: Take the filters of this fleet file. Left out: all built-in entities.
        model: The model, for filters of some models.
        tenant: The tenant, for filters of some tenants.
        direction: Whether the filters of requests (input) or answers (output) are measured.
        country: Without a fleet file: an ISO 3166 country whose phone and identity numbers are known; may be repeated.
        json: The scores as JSON, by entity.
    """
    from pilothouse.policy.redaction.scoring import Span, score

    compiled = _compiled(fleet_file, model, tenant, direction, country, only_find=True)
    documents = list(_documents(corpus))
    found = [
        [Span(each.start, each.end, each.entity) for each in compiled.findings(document.text)] for document in documents
    ]
    scores = score(zip((document.spans for document in documents), found, strict=True))
    if json:
        print(json_text({"documents": len(documents), "entities": {name: _row(each) for name, each in scores.items()}}))
        return Exit.OK
    _show(scores)
    say(f"documents {len(documents)}")
    return Exit.OK


def _row(score: "Score") -> dict[str, Any]:
    return {
        "true": score.true,
        "found": score.found,
        "false": score.findings - score.right,
        "recall": round(score.recall, 4),
        "precision": round(score.precision, 4),
        "covered": round(score.coverage, 4),
    }


def _show(scores: dict[str, "Score"]) -> None:
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for name in ("entity", "true", "found", "false", "recall", "precision", "covered"):
        table.add_column(name, justify="left" if name == "entity" else "right")
    for entity, score in scores.items():
        row = _row(score)
        ratios = (f"{row[name]:.2%}" for name in ("recall", "precision", "covered"))
        table.add_row(printable(entity), str(row["true"]), str(row["found"]), str(row["false"]), *ratios)
    data_console().print(table)


def _read(file: str) -> str:
    try:
        content = sys.stdin.buffer.read() if file == _STDIN else Path(file).read_bytes()
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}") from error
    return content.decode("utf-8", "replace")


def _documents(corpus: str) -> Iterator["Document"]:
    import msgspec

    from pilothouse.policy.redaction.scoring import Document, Span

    decoder = msgspec.json.Decoder(dict[str, Any])
    for number, line in enumerate(_read(corpus).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            fields = decoder.decode(line)
            spans = tuple(Span(int(start), int(end), str(entity)) for start, end, entity in fields.get("spans", ()))
            yield Document(text=msgspec.convert(fields["text"], str), spans=spans)
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
            hint = 'for example {"text": "I am a@b.io", "spans": [[5, 11, "email"]]}'
            raise CommandError(f"{corpus}:{number} is not a document: {error}", hint=hint) from error


def _compiled(
    fleet_file: Path | None,
    model: str,
    tenant: str,
    direction: str,
    countries: Sequence[str],
    *,
    only_find: bool = False,
) -> "CompiledFilter":
    """The filters that apply; with `only_find` under an action that lets the search go on."""
    import msgspec

    from pilothouse.model.errors import PilothouseError
    from pilothouse.model.filters import Action
    from pilothouse.policy.redaction.compiled import compile_filters
    from pilothouse.policy.redaction.engine import ExtraMissingError
    from pilothouse.policy.redaction.plan import applying, merged

    if fleet_file is None:
        specs: tuple[FilterSpec, ...] = (_built_in(countries),)
    else:
        from pilothouse.cli.fleet_loading import load_checked

        specs = applying(load_checked(fleet_file, {}, os.environ).spec.filters, model=model, tenant=tenant)
    if only_find and (plan := merged(specs, direction=direction)) is not None:
        actions = dict.fromkeys(plan.actions, Action.REDACT)
        specs = tuple(msgspec.structs.replace(spec, input=actions, output=actions) for spec in specs)
    try:
        return compile_filters(specs, direction=direction)
    except ExtraMissingError as error:
        raise PilothouseError("extra_not_installed", str(error)) from error


def _built_in(countries: Sequence[str]) -> "FilterSpec":
    from pilothouse.model.filters import Action, FilterSpec
    from pilothouse.policy.redaction.identity import NATIONAL

    every = {"all": Action.REDACT}
    with_ids = tuple(country for country in countries if country in NATIONAL)
    return FilterSpec(name="built-in", input=every, output=every, phone_regions=tuple(countries), id_countries=with_ids)


FILTER_COMMANDS = {"test": try_filters, "eval": evaluate}
