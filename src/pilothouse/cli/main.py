"""The command line: which commands there are, and how their failures end.

What a command raises as `PilothouseError` or `CommandError` is expected, and shown in words. Anything else is a defect
and keeps its traceback.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence

from cyclopts import App, CycloptsError, Parameter

import pilothouse
from pilothouse.cli.advisory_commands import ADVISORY_COMMANDS
from pilothouse.cli.bench import bench
from pilothouse.cli.chat import chat
from pilothouse.cli.config_commands import check, import_litellm, reload, schema, show
from pilothouse.cli.down import down
from pilothouse.cli.exits import Exit
from pilothouse.cli.explain import explain
from pilothouse.cli.fake_engine import fake_engine
from pilothouse.cli.filter_commands import FILTER_COMMANDS
from pilothouse.cli.logs import logs
from pilothouse.cli.output import CommandError, print_error
from pilothouse.cli.restart import restart
from pilothouse.cli.simulate import simulate
from pilothouse.cli.simulate_calibrate import calibrate
from pilothouse.cli.status import status
from pilothouse.cli.tenant_commands import KEY_COMMANDS, TENANT_COMMANDS, usage
from pilothouse.cli.top import top
from pilothouse.cli.up import up
from pilothouse.cli.version import version
from pilothouse.model.errors import PilothouseError

_HELP = """An inference fleet in one command: a gateway with one OpenAI-compatible address, and the engines behind it.

$ pilothouse up                        start the built-in fleet, or ./fleet.yaml
$ pilothouse up fleet.yaml --detach    start another one, in the background
$ pilothouse chat                      talk to it
$ pilothouse status                    what each replica is doing
$ pilothouse top                       the same and its traffic, live
$ pilothouse logs -f smollm2-llamacpp-0
$ pilothouse bench --concurrency 8     load it and measure
$ pilothouse down                      drain and stop it

Every command has --help, and takes --debug (or PILOTHOUSE_DEBUG=1) to show the traceback of an error."""

_EPILOGUE = "Exit codes: " + ", ".join(f"{code.value} {code.word}" for code in Exit) + "."

IMPORTERS: dict[str, Callable[..., int]] = {"litellm": import_litellm}
"""Whose configuration can be brought over."""

_TENANTS_HELP = "Make, change and take away tenants. The gateway does not enforce their limits yet."
_ADVISORIES_HELP = "What is known of the engines' flaws, and what that allows a fleet to do."
_KEYS_HELP = "Make, change and take away keys. The gateway checks the secret, and no limits, models or networks yet."

DEBUG_FLAG = "--debug"
DEBUG_VARIABLE = "PILOTHOUSE_DEBUG"


def build_app() -> App:
    """The command line as cyclopts has it; also what the reference page and shell completion are made from."""
    app = App(
        name="pilothouse",
        help=_HELP,
        help_format="plaintext",
        help_epilogue=_EPILOGUE,
        version=pilothouse.__version__,
        default_parameter=Parameter(negative=(), show_default=False),
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for command in (up, down, restart, status, top, logs, chat, bench, explain, version):
        app.command(command)
    app.command(usage)
    app.command(_config_app(app))
    app.command(_simulate_app(app))
    app.command(_group(app, "tenants", _TENANTS_HELP, TENANT_COMMANDS))
    app.command(_group(app, "advisories", _ADVISORIES_HELP, ADVISORY_COMMANDS))
    app.command(_group(app, "keys", _KEYS_HELP, KEY_COMMANDS))
    app.command(_group(app, "filter", "See what filters find, and how well.", FILTER_COMMANDS))
    app.command(fake_engine, help_flags=[], version_flags=[])
    app.register_install_completion_command(help="Install completion for bash, zsh or fish, and exit.")
    return app


def _config_app(parent: App) -> App:
    config = App(
        name="config",
        help="Check, show and reload the fleet file.",
        help_format="plaintext",
        default_parameter=parent.default_parameter,
    )
    for command in (check, schema, show, reload):
        config.command(command)
    config.command(_group(parent, "import", "Turn another gateway's configuration into a fleet file.", IMPORTERS))
    return config


def _simulate_app(parent: App) -> App:
    simulation = App(name="simulate", help_format="plaintext", default_parameter=parent.default_parameter)
    simulation.default(simulate)
    simulation.command(calibrate)
    return simulation


def _group(parent: App, name: str, help_text: str, commands: Mapping[str, Callable[..., int]]) -> App:
    group = App(name=name, help=help_text, help_format="plaintext", default_parameter=parent.default_parameter)
    for verb, command in commands.items():
        group.command(command, name=verb)
    return group


def run(arguments: Sequence[str], env: Mapping[str, str]) -> int:
    """Run one command line and give its exit code."""
    debug, tokens = _take_debug(arguments, env)
    try:
        result = build_app()(tokens, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except CycloptsError as error:
        print(f"error: {error}", file=sys.stderr)
        print("hint: `pilothouse --help` lists the commands, `pilothouse COMMAND --help` the options", file=sys.stderr)
        return Exit.USAGE
    except (PilothouseError, CommandError) as error:
        if debug:
            raise
        print_error(error)
        return Exit.ERROR
    except KeyboardInterrupt:
        if debug:
            raise
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes stdout once more at exit; it must not find the broken pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.BROKEN_PIPE
    return result if isinstance(result, int) else Exit.OK


def _take_debug(arguments: Sequence[str], env: Mapping[str, str]) -> tuple[bool, list[str]]:
    """Whether tracebacks are wanted, and the arguments without the flag that says so.

    `fake-engine` gets its arguments as they are: they are another program's.
    """
    asked = env.get(DEBUG_VARIABLE, "") not in ("", "0")
    if arguments and arguments[0] == "fake-engine":
        return asked, list(arguments)
    return asked or DEBUG_FLAG in arguments, [each for each in arguments if each != DEBUG_FLAG]


def main() -> None:
    """The `pilothouse` command."""
    raise SystemExit(run(sys.argv[1:], os.environ))


if __name__ == "__main__":
    main()
