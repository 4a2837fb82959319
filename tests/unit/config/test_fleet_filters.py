"""`filters:` of a fleet file: what it means, and what is refused with its line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pilothouse.config.changes import changes
from pilothouse.config.effective import effective_yaml
from pilothouse.config.loaded import LoadedFleet
from pilothouse.model.filters import Action, FilterSpec, PatternSpec, PhrasesSpec, Severity

Load = Callable[..., LoadedFleet]
Refuse = Callable[..., list[str]]

MODELS = "models: {tiny: 'pypi:tiny==1.0/tiny/tiny.gguf'}\n"
GOOD = (
    MODELS
    + """filters:
  pii:
    models: [tiny]
    tenants: [acme]
    input: {secrets: block}
    output: {all: redact, phone: hash, staff: mask}
    phone_regions: [US]
    id_countries: [ES]
    patterns:
      staff: "EMP-[0-9]{6}"
      order: {pattern: "ord-[0-9]+", ignore_case: true, max_chars: 30}
    phrases:
      codename: {entries: [blue falcon]}
      names: names.txt
    safety:
      harm: {severity: high, phrases: {entries: [bad thing]}, patterns: ["bad +word"]}
    on_error: open
    stall_s: 1.5
    hash_key: "${env:KEY}"
"""
)


def test_a_filter_as_it_is_meant(load_text: Load) -> None:
    Path("names.txt").write_text("# people\nJane Doe\n\nJohn Roe\n")
    spec = load_text(GOOD, env={"KEY": "hunter2"}).spec

    assert spec.filters == (
        FilterSpec(
            name="pii",
            models=("tiny",),
            tenants=("acme",),
            input={"secrets": Action.BLOCK},
            output={"all": Action.REDACT, "phone": Action.HASH, "staff": Action.MASK},
            phone_regions=("US",),
            id_countries=("ES",),
            patterns=(
                PatternSpec(name="staff", pattern="EMP-[0-9]{6}"),
                PatternSpec(name="order", pattern="ord-[0-9]+", ignore_case=True, max_chars=30),
                PatternSpec(name="harm", pattern="bad +word", severity=Severity.HIGH),
            ),
            phrases=(
                PhrasesSpec(name="codename", phrases=("blue falcon",)),
                PhrasesSpec(name="names", phrases=("Jane Doe", "John Roe")),
                PhrasesSpec(name="harm", phrases=("bad thing",), severity=Severity.HIGH),
            ),
            fail_open=True,
            stall_s=1.5,
            hash_key="hunter2",
        ),
    )
    assert "hunter2" not in repr(spec)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("output: {emial: block}", "fleet.yaml:4: filters.f.output.emial: unknown entity (did you mean 'email'?)"),
        ("output: {email: hash}", "fleet.yaml:4: filters.f.output.email: hash needs a key: set hash_key"),
        ("output: {email: erase}", "fleet.yaml:4: filters.f.output.email: "),
        ("id_countries: [XX]", "fleet.yaml:4: filters.f.id_countries[0]: no identity number is known; there are AT,"),
        ("patterns: {x: '(a'}", "fleet.yaml:4: filters.f.patterns.x: the pattern is refused: not a regular expression"),
        (
            "patterns: {x: 'a*'}",
            "fleet.yaml:4: filters.f.patterns.x: the pattern is refused: it matches the empty text",
        ),
        (
            "patterns: {x: '(a+)+\\1'}",
            "fleet.yaml:4: filters.f.patterns.x: the pattern is refused: references to groups",
        ),
        ("patterns: {x: '(?=a)b'}", "fleet.yaml:4: filters.f.patterns.x: the pattern is refused: look-ahead"),
        ("patterns: {x: '^a'}", "fleet.yaml:4: filters.f.patterns.x: the pattern is refused: ^, $"),
        ("patterns: {x: '.*a'}", "fleet.yaml:4: filters.f.patterns.x: the pattern is refused: it begins with any text"),
        ("patterns: {x: 'a{5000}'}", "fleet.yaml:4: filters.f.patterns.x: the pattern is refused: a repeat of more"),
        ("patterns: {email: 'a'}", "fleet.yaml:4: filters.f.patterns.email: is the name of a built-in entity"),
        ("phrases: {x: nothere.txt}", "fleet.yaml:4: filters.f.phrases.x: "),
        ("phrases: {x: bad.txt}", "bad.txt:2: filters.f.phrases.x: a phrase has between 1 and 32 words"),
        ("outputs: {}", "fleet.yaml:4: filters.f.outputs: unknown key (did you mean 'output'?)"),
        ("hash_key: secret", "fleet.yaml:4: filters.f.hash_key: a secret does not belong in the file"),
    ],
)
def test_mistakes_are_told_with_their_line(refuse: Refuse, line: str, said: str) -> None:
    Path("bad.txt").write_text("fine\n" + "word " * 40)
    lines = refuse(f"{MODELS}filters:\n  f:\n    {line}\n")

    assert any(said in each for each in lines), lines


def test_a_filter_s_key_that_is_not_there(refuse: Refuse) -> None:
    refuse(f"{MODELS}filters: {{f: {{hash_key: '${{env:NONE}}'}}}}\n", "secret_not_found")


def test_the_effective_form_gives_the_same_filters(load_text: Load) -> None:
    Path("names.txt").write_text("Jane Doe\n")
    loaded = load_text(GOOD, env={"KEY": "hunter2"})
    shown = effective_yaml(loaded)

    assert "hunter2" not in shown
    assert load_text(shown, env={"KEY": "hunter2"}).spec.filters == loaded.spec.filters


def test_a_changed_filter_is_told_without_its_key(load_text: Load) -> None:
    Path("names.txt").write_text("Jane Doe\n")
    old = load_text(GOOD, env={"KEY": "hunter2"}).spec
    new = load_text(GOOD, env={"KEY": "hunter3"}).spec

    assert changes(old, new) == ("~ filters.pii changed",)
    assert changes(old, old) == ()
