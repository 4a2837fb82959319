import json
import shlex

from pilothouse.cli.welcome import welcome
from pilothouse.model.ids import ModelName
from pilothouse.model.requests import Route

CHAT = (Route.CHAT_COMPLETIONS,)
EMBED = (Route.EMBEDDINGS,)


def lines(*models: tuple[str, tuple[Route, ...]]) -> list[str]:
    named = [(ModelName(name), routes) for name, routes in models]
    return welcome("http://127.0.0.1:8080", "ph_key", named).splitlines()


def test_the_address_the_key_and_the_models_come_first() -> None:
    assert lines(("smollm2", CHAT), ("bge", EMBED))[:3] == [
        "gateway  http://127.0.0.1:8080/v1",
        "API key  ph_key",
        "models   smollm2, bge",
    ]


def test_the_curl_line_is_one_line_that_a_shell_takes_apart_as_meant() -> None:
    [line] = [each for each in lines(("it's", CHAT)) if each.startswith("curl ")]
    words = shlex.split(line)
    assert words[1] == "http://127.0.0.1:8080/v1/chat/completions"
    assert "authorization: Bearer ph_key" in words
    body = json.loads(words[words.index("-d") + 1])
    assert body["model"] == "it's"


def test_the_snippet_is_python() -> None:
    text = lines(('say "hi"', CHAT))
    source = "\n".join(text[text.index("from openai import OpenAI") :])
    compile(source, "snippet", "exec")
    assert r'model="say \"hi\""' in source


def test_examples_take_the_first_model_that_chats() -> None:
    assert '"model": "b"' in "\n".join(lines(("a", EMBED), ("b", CHAT)))


def test_without_a_model_that_chats_the_example_asks_for_the_list() -> None:
    text = lines(("bge", EMBED))
    assert text[-1] == "curl http://127.0.0.1:8080/v1/models -H 'authorization: Bearer ph_key'"
