import pytest

from pilothouse.cli.exits import Exit
from pilothouse.cli.explain import explain, near_codes, text_of
from pilothouse.model.errors import ERRORS


def test_a_code_is_explained_with_cause_and_fix(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain("no_ready_replica") == Exit.OK
    printed = capsys.readouterr()
    row = ERRORS["no_ready_replica"]
    for part in (row.title, row.cause, row.fix, "503", "after about 2 s", row.anchor):
        assert part in printed.out
    assert printed.err == ""


@pytest.mark.parametrize("code", ERRORS)
def test_every_row_has_a_text(code: str) -> None:
    assert text_of(ERRORS[code]).startswith(f"{code}: ")


def test_without_a_code_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain() == Exit.OK
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(ERRORS)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("prot_in_use", "port_in_use"),
        ("Port-In-Use", "port_in_use"),
        ("model not found", "model_not_found"),
        ("checksum", "checksum_mismatch"),
    ],
)
def test_near_codes_come_first(typed: str, meant: str) -> None:
    assert near_codes(typed)[0] == meant


def test_an_unknown_code_fails_and_names_near_ones_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain("prot_in_use") == Exit.ERROR
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "did you mean port_in_use?" in printed.err


def test_nonsense_is_pointed_to_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain("zzz") == Exit.ERROR
    assert "lists all codes" in capsys.readouterr().err
