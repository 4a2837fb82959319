from pathlib import Path

import pytest

from pilothouse.config.secret_references import SecretMissingError, check_reference, resolve_secret

ENV_REFERENCE, FILE_REFERENCE = "${env:API_KEY}", "${file:key.txt}"


def test_a_variable(tmp_path: Path) -> None:
    assert resolve_secret(ENV_REFERENCE, tmp_path, {"API_KEY": "sk-1"}) == "sk-1"


@pytest.mark.parametrize("env", [{}, {"API_KEY": ""}])
def test_a_variable_that_is_not_set(tmp_path: Path, env: dict[str, str]) -> None:
    with pytest.raises(SecretMissingError, match="API_KEY is not set"):
        resolve_secret(ENV_REFERENCE, tmp_path, env)


@pytest.mark.parametrize("content", ["sk-1", "sk-1\n", "sk-1\r\n"])
def test_a_file_beside_the_fleet_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "key.txt").write_bytes(content.encode())
    assert resolve_secret(FILE_REFERENCE, tmp_path, {}) == "sk-1"


def test_an_absolute_file(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text("sk-1")
    assert resolve_secret(f"${{file:{tmp_path}/key.txt}}", Path("/elsewhere"), {}) == "sk-1"


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read"), (b"", "is empty"), (b"\n", "is empty"), (b"x" * 20_000, "too large")],
)
def test_a_file_without_a_secret(tmp_path: Path, content: bytes | None, words: str) -> None:
    if content is not None:
        (tmp_path / "key.txt").write_bytes(content)
    with pytest.raises(SecretMissingError, match=words):
        resolve_secret(FILE_REFERENCE, tmp_path, {})


@pytest.mark.parametrize("secret", ["hunter2 x", "hunter2\r\nx-evil: 1", "hunter2\xff", "hunter2\x00", "\thunter2"])
def test_what_cannot_go_into_a_header_is_refused_and_not_shown(tmp_path: Path, secret: str) -> None:
    (tmp_path / "key.txt").write_bytes(secret.encode("latin-1"))
    for reference in (ENV_REFERENCE, FILE_REFERENCE):
        with pytest.raises(SecretMissingError, match="cannot be a key") as caught:
            resolve_secret(reference, tmp_path, {"API_KEY": secret})
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("text", [ENV_REFERENCE, FILE_REFERENCE, "${file:/run/secrets/key}"])
def test_references(text: str) -> None:
    check_reference(text)


@pytest.mark.parametrize(
    "text",
    [
        "sk-hunter2",
        "",
        "${env:}",
        "${vault:hunter2}",
        "Bearer ${env:hunter2}",
        "${env:A}${env:B}",
        "${env:hunter2",
        "$hunter2",
    ],
)
def test_anything_else_is_a_secret_in_the_wrong_place(text: str) -> None:
    with pytest.raises(ValueError, match=r"write \$\{env:NAME\} or \$\{file:PATH\}") as caught:
        check_reference(text)
    assert "hunter2" not in str(caught.value)
