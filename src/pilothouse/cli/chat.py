"""`pilothouse chat`: a conversation in the terminal, or one answer in a pipe."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pilothouse.cli.exits import Exit
from pilothouse.cli.output import CommandError, print_error, printable, say
from pilothouse.model.errors import PilothouseError

if TYPE_CHECKING:
    from pilothouse.cli.chat_session import ChatSession


def chat(
    prompt: str | None = None,
    /,
    *,
    model: str | None = None,
    system: str | None = None,
    url: str | None = None,
    fleet: Annotated[str | None, Parameter(env_var="PILOTHOUSE_FLEET")] = None,
) -> int:
    """Talk to a model of the running fleet.

    $ pilothouse chat
    $ pilothouse chat "What is a pilothouse?"
    $ git diff | pilothouse chat --system "Summarise this change in one line."
    $ pilothouse chat --model smollm2 --url http://10.0.0.7:8080/v1

    In a terminal, Ctrl-C ends the current answer and Ctrl-D the conversation. With a prompt, or with standard input
    from a pipe, it prints one answer and ends; a pipe's text comes after the prompt.

    The key is PILOTHOUSE_API_KEY, else the one that `up` put into the credentials file.

    Args:
        prompt: Ask this and end.
        model: The model's public name; the first one that the fleet has if left out.
        system: What the model is told before the conversation.
        url: Another data plane than the running fleet's. The stored key is sent there only with --fleet.
        fleet: The fleet, if several are running.
    """
    from pilothouse.cli.chat_session import ChatSession
    from pilothouse.cli.locate import data_plane

    question = _question(prompt)
    with ChatSession(data_plane(url, fleet, os.environ), model=model, system=system) as session:
        if question is not None:
            _print_answer(session, question)
            return Exit.OK
        return _converse(session)


def _question(prompt: str | None) -> str | None:
    """What to ask in one shot; `None` for a conversation."""
    if sys.stdin is not None and sys.stdin.isatty():
        return prompt
    piped = sys.stdin.read().strip() if sys.stdin is not None else ""
    question = "\n\n".join(part for part in (prompt, piped) if part)
    if not question:
        raise CommandError("there is nothing to ask", hint="give a prompt, or text on standard input")
    return question


def _converse(session: "ChatSession") -> int:
    import readline  # noqa: F401 - gives input() a history and line editing

    say(f"{session.model}: Ctrl-C ends an answer, Ctrl-D the conversation")
    while True:
        try:
            question = input("> ").strip()
        except EOFError:
            say("")
            return Exit.OK
        except KeyboardInterrupt:
            say("")
            continue
        if not question:
            continue
        try:
            _print_answer(session, question)
        except KeyboardInterrupt:
            say("\n(ended)")
        except (PilothouseError, CommandError) as error:
            print_error(error)


def _print_answer(session: "ChatSession", question: str) -> None:
    clean = printable if sys.stdout.isatty() else str
    answer = session.ask(question)
    try:
        for piece in answer:
            print(clean(piece), end="", flush=True)
    finally:
        answer.close()
    print()
