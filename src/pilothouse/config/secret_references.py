"""Secrets by reference: `${env:NAME}` or `${file:PATH}`, never the secret itself."""

import re
from collections.abc import Mapping
from pathlib import Path

_REFERENCE = re.compile(r"\$\{(?P<kind>env|file):(?P<target>[^{}\x00]+)\}")
PATTERN = r"^\$\{(env|file):[^{}]+\}$"
"""For the JSON Schema."""
LOOKS_LIKE_REFERENCE = re.compile(r"\$\{(env|file):")
_MAX_SECRET_BYTES = 16 * 1024  # what fits into a header; more is the wrong file
_VISIBLE = re.compile(r"[\x21-\x7e]+")


class SecretMissingError(Exception):
    """The reference leads to nothing. The message never has any of a secret."""


def check_reference(text: str) -> None:
    """See that a text is one whole reference.

    Raises:
        ValueError: it is not; the message does not repeat it.
    """
    if not _REFERENCE.fullmatch(text):
        raise ValueError(
            "a secret does not belong in the file: write ${env:NAME} or ${file:PATH}, and nothing around it"
        )


def resolve_secret(reference: str, directory: Path, env: Mapping[str, str]) -> str:
    """The secret itself. Relative paths are in `directory`; a newline at a file's end is not part of the secret.

    Raises:
        SecretMissingError: the variable is not set, the file cannot be read, or what is there cannot be a key.
    """
    matched = _REFERENCE.fullmatch(reference)
    if matched is None:
        raise SecretMissingError("this is not a reference to a secret")
    kind, target = matched["kind"], matched["target"]
    secret = _from_variable(target, env) if kind == "env" else _from_file(directory / target)
    if not _VISIBLE.fullmatch(secret):
        raise SecretMissingError(
            f"what {reference} holds cannot be a key: it has spaces or other than visible ASCII in it"
        )
    return secret


def _from_variable(name: str, env: Mapping[str, str]) -> str:
    value = env.get(name, "")
    if not value:
        raise SecretMissingError(f"the environment variable {name} is not set")
    return value


def _from_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise SecretMissingError(f"{path} cannot be read: {error.strerror}") from error
    text = content.decode("ascii", "replace").rstrip("\r\n")
    if not text or len(content) > _MAX_SECRET_BYTES:
        raise SecretMissingError(f"{path} is {'too large for a key' if text else 'empty'}")
    return text
