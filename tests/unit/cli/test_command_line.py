import json
import os
import subprocess
import sys
from collections.abc import Mapping

import msgspec
import pytest

import pilothouse
from pilothouse.cli import main as command_line
from pilothouse.cli.exits import Exit
from pilothouse.model.errors import PilothouseError

PROGRAM = (sys.executable, "-P", "-c", "from pilothouse.cli.main import main; main()")


def run(*arguments: str, env: Mapping[str, str] | None = None) -> int:
    return command_line.run(arguments, env or {})


def fail() -> int:
    raise PilothouseError("port_in_use", "gateway.listen: 127.0.0.1:8080 is in use by nginx (process 7)")


def test_every_command_has_help_that_leads_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("up", "down", "status", "logs", "chat", "bench", "explain", "version", "config check", "config show"):
        assert run(*name.split(), "--help") == Exit.OK
        printed = capsys.readouterr().out
        example = printed.index(f"$ pilothouse {name}")
        boxes = [printed.index(box) for box in ("─ Parameters", "─ Arguments") if box in printed]
        assert not boxes or example < min(boxes), name


def test_the_help_of_all_has_examples_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == Exit.OK
    printed = capsys.readouterr().out
    assert "$ pilothouse up" in printed
    for code in Exit:
        assert f"{code.value} {code.word}" in printed


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("version", "--json") == Exit.OK
    found = json.loads(capsys.readouterr().out)
    assert found["pilothouse"] == pilothouse.__version__
    assert found["engines"]["fake"] == pilothouse.__version__
    assert run("version") == Exit.OK
    assert capsys.readouterr().out.startswith(f"pilothouse {pilothouse.__version__}\n")


@pytest.mark.parametrize("arguments", [["explan"], ["explain", "--loud"], ["bench", "--requests", "many"], ["logs"]])
def test_what_is_not_understood_is_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == Exit.USAGE
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert "Traceback" not in printed.err


@pytest.fixture
def failing_command(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("pilothouse.cli.main.version", fail)
    return "fail"


def test_an_expected_error_is_told_in_words(failing_command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(failing_command) == Exit.ERROR
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "error: gateway.listen: 127.0.0.1:8080 is in use by nginx (process 7)" in printed.err
    assert "hint: Stop that process" in printed.err
    assert "pilothouse explain port_in_use" in printed.err
    assert "Traceback" not in printed.err


def test_so_is_one_without_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("config", "check", "--set", "workers") == Exit.ERROR
    assert capsys.readouterr().err == (
        "error: --set workers: expected KEY=VALUE\nhint: for example --set gateway.workers=2\n"
    )


@pytest.mark.parametrize(
    ("arguments", "env"), [(["--debug"], {}), ([], {"PILOTHOUSE_DEBUG": "1"})], ids=["flag", "variable"]
)
def test_debug_shows_the_traceback(failing_command: str, arguments: list[str], env: dict[str, str]) -> None:
    with pytest.raises(PilothouseError):
        run(failing_command, *arguments, env=env)


def test_debug_0_is_off(failing_command: str) -> None:
    assert run(failing_command, env={"PILOTHOUSE_DEBUG": "0"}) == Exit.ERROR


def test_ctrl_c_has_an_exit_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pilothouse.cli.main.version", interrupted)
    assert run("interrupted") == Exit.INTERRUPTED


def test_a_reader_that_goes_away_is_no_defect() -> None:
    with subprocess.Popen(
        (*PROGRAM, "explain"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.close()
        assert program.stderr.read() == b""
    assert program.returncode == Exit.BROKEN_PIPE


def test_no_color_is_respected() -> None:
    told = subprocess.run(
        (*PROGRAM, "--help"), env={**os.environ, "NO_COLOR": "1", "FORCE_COLOR": "1"}, capture_output=True, check=True
    )
    assert b"\x1b[3" not in told.stdout


def test_the_fake_engine_gets_its_arguments_as_they_are() -> None:
    told = subprocess.run((*PROGRAM, "fake-engine", "--help"), capture_output=True, check=True)
    assert b"--served-model-name" in told.stdout


def test_light_commands_import_nothing_heavy() -> None:
    script = (
        "import sys; from pilothouse.cli.main import run; run(['explain', 'port_in_use'], {}); "
        "print([each for each in ('pydantic', 'sqlalchemy', 'httpx2', 'starlette', 'uvloop') if each in sys.modules])"
    )
    told = subprocess.run((sys.executable, "-P", "-c", script), capture_output=True, check=True, text=True)
    assert told.stdout.splitlines()[-1] == "[]"


def test_completion_covers_the_commands() -> None:
    script = command_line.build_app().generate_completion(shell="bash")
    for name in ("up", "down", "fake-engine", "config"):
        assert name in script


def test_json_output_is_json() -> None:
    from pilothouse.cli.output import json_text

    class Value(msgspec.Struct):
        name: str

    assert json.loads(json_text([Value(name="ä\x1b")])) == [{"name": "ä\x1b"}]
