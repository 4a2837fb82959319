"""`pilothouse filter`: what is shown of a text and of a corpus."""

import io
import json
from pathlib import Path

import pytest

from pilothouse.cli import main
from pilothouse.cli.exits import Exit

FLEET = """models: {tiny: "pypi:tiny==1.0/tiny/tiny.gguf"}
filters:
  pii: {output: {email: redact, staff: mask}, input: {email: block}, patterns: {staff: "EMP-[0-9]{6}"}}
  other: {models: [else], output: {phone: block}}
"""


def run(*arguments: str) -> int:
    return main.run(["filter", *arguments], {})


def test_a_text_as_it_would_be_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Hi.\nI am jane@example.com")))
    assert run("test", "-") == Exit.OK
    printed = capsys.readouterr()
    assert printed.out == "Hi.\nI am [EMAIL_1]"
    assert printed.err == "line 2: email, 16 characters: redact\n"


def test_under_the_filters_of_a_fleet_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet, text = tmp_path / "fleet.yaml", tmp_path / "text.txt"
    fleet.write_text(FLEET)
    text.write_text("EMP-123456 is jane@example.com, +1 415 555 2671")
    assert run("test", str(text), "--fleet-file", str(fleet), "--json") == Exit.OK
    assert json.loads(capsys.readouterr().out) == {
        "text": "***-**3456 is [EMAIL_1], +1 415 555 2671",
        "blocked": None,
        "findings": [
            {"start": 0, "end": 10, "entity": "staff", "action": "mask"},
            {"start": 14, "end": 30, "entity": "email", "action": "redact"},
        ],
    }
    assert run("test", str(text), "--fleet-file", str(fleet), "--direction", "input") == Exit.OK
    printed = capsys.readouterr()
    assert "blocked: email" in printed.err


def test_precision_and_recall_of_a_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(
        '{"text": "I am a@b.io, 10.0.0.1", "spans": [[5, 11, "email"]]}\n\n'
        '{"text": "John Doe", "spans": [[0, 8, "passport"]]}\n'
    )
    assert run("eval", str(corpus), "--json") == Exit.OK
    assert json.loads(capsys.readouterr().out) == {
        "documents": 2,
        "entities": {
            "email": {"true": 1, "found": 1, "false": 0, "recall": 1.0, "precision": 1.0, "covered": 1.0},
            "ip_address": {"true": 0, "found": 0, "false": 1, "recall": 1.0, "precision": 0.0, "covered": 1.0},
            "passport": {"true": 1, "found": 0, "false": 0, "recall": 0.0, "precision": 1.0, "covered": 0.0},
        },
    }
    assert run("eval", str(corpus)) == Exit.OK
    assert "100.00%" in capsys.readouterr().out


def test_a_corpus_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"text": "fine"}\n{"txt": 1}\n')
    assert run("eval", str(corpus)) == Exit.ERROR
    assert "corpus.jsonl:2 is not a document" in capsys.readouterr().err.replace("\n", "")


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "hyperscan", None)
    monkeypatch.setitem(__import__("sys").modules, "re2", None)
    text = tmp_path / "text.txt"
    text.write_text("x")
    assert run("test", str(text)) == Exit.ERROR
    assert "pip install 'pilothouse[filters]'" in capsys.readouterr().err
