"""What `up` prints when the fleet is ready: an address, a key, and two ways to use them that work as pasted."""

import json
import shlex
from collections.abc import Sequence

from pilothouse.model.ids import ModelName
from pilothouse.model.requests import Route

_QUESTION = "Say hello in five words."


def welcome(url: str, key: str, models: Sequence[tuple[ModelName, tuple[Route, ...]]]) -> str:
    """The text for a data plane at `url` (without `/v1`) and the models there are, with the routes each serves."""
    names = ", ".join(name for name, _ in models)
    name = next((name for name, routes in models if Route.CHAT_COMPLETIONS in routes), None)
    lines = [f"gateway  {url}/v1", f"API key  {key}", f"models   {names}"]
    if name is None:
        lines += ["", f"curl {url}/v1/models -H {shlex.quote(f'authorization: Bearer {key}')}"]
    else:
        lines += ["", _curl(url, key, name), "", _python(url, key, name)]
    return "\n".join(lines)


def _curl(url: str, key: str, model: ModelName) -> str:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": _QUESTION}]})
    return (
        f"curl {url}/v1/chat/completions -H {shlex.quote(f'authorization: Bearer {key}')} "
        f"-H 'content-type: application/json' -d {shlex.quote(body)}"
    )


def _python(url: str, key: str, model: ModelName) -> str:
    return "\n".join(
        (
            "from openai import OpenAI",
            f"client = OpenAI(base_url={json.dumps(f'{url}/v1')}, api_key={json.dumps(key)})",
            f'messages = [{{"role": "user", "content": {json.dumps(_QUESTION)}}}]',
            f"answer = client.chat.completions.create(model={json.dumps(model)}, messages=messages)",
            "print(answer.choices[0].message.content)",
        )
    )
