"""What the fake model will say, decided before it begins."""

from array import array

import msgspec

from pilothouse.testing.fake_engine.dialects.base import Answer, TextRequest
from pilothouse.testing.fake_engine.errors import bad_request
from pilothouse.testing.fake_engine.options import EngineOptions
from pilothouse.testing.fake_engine.scripts import Script
from pilothouse.testing.fake_engine.tokens import BYTES_PER_TOKEN, TextSource, split_text, tokenize, tokenize_pieces


class PlannedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one choice, the text that each adds, and how it ends. A token can add no text."""

    tokens: "array[int]"
    pieces: tuple[str, ...]
    answer: Answer


def plan_answer(
    source: TextSource,
    options: EngineOptions,
    request: TextRequest,
    script: Script,
    prompt: "array[int]",
    choice: int,
) -> PlannedAnswer:
    """Decide choice number `choice` for a prompt. Raises RequestRefusedError when the prompt leaves no room for it.

    The request's limit is the length; without one it is drawn between the options' bounds by prompt and seed.
    """
    room = _room(options, request, prompt)
    allowed = min(room, request.max_tokens or room)
    seed = options.seed + request.seed + choice
    if script.text is not None:
        pieces = split_text(script.text)
        tokens = tokenize_pieces(pieces)
        wanted = len(pieces)
    else:
        wanted = _wanted(source, options, request, script, prompt, seed, allowed)
        text = source.text(prompt, seed, min(wanted, allowed))
        pieces = tuple(text[at : at + BYTES_PER_TOKEN] for at in range(0, len(text), BYTES_PER_TOKEN))
        tokens = tokenize(text)
    reason = "stop" if wanted < allowed or (script.text is not None and wanted == allowed) else "length"
    plan = PlannedAnswer(
        tokens=tokens[:allowed],
        pieces=pieces[:allowed],
        answer=Answer(text="".join(pieces[:allowed]), finish_reason=reason),
    )
    plan = _cut_at_stop(plan, request.stop)
    if script.finish_reason is not None:
        answer = msgspec.structs.replace(plan.answer, finish_reason=script.finish_reason)
        plan = msgspec.structs.replace(plan, answer=answer)
    return plan


def _room(options: EngineOptions, request: TextRequest, prompt: "array[int]") -> int:
    room = options.context_tokens - len(prompt)
    limit = options.context_tokens
    if room < 1:
        raise bad_request(
            f"This model's maximum context length is {limit} tokens. However, your request has {len(prompt)} input "
            "tokens. Please reduce the length of the input messages."
        )
    if request.max_tokens is not None and request.max_tokens > room:
        raise bad_request(
            f"'max_tokens' or 'max_completion_tokens' is too large: {request.max_tokens}. This model's maximum context "
            f"length is {limit} tokens and your request has {len(prompt)} input tokens ({request.max_tokens} > "
            f"{limit} - {len(prompt)}).",
            "max_tokens",
        )
    return room


def _wanted(
    source: TextSource,
    options: EngineOptions,
    request: TextRequest,
    script: Script,
    prompt: "array[int]",
    seed: int,
    allowed: int,
) -> int:
    if script.output_tokens is not None:
        return script.output_tokens
    if request.max_tokens is not None:
        return allowed
    spread = options.output_tokens_max - options.output_tokens_min + 1
    return options.output_tokens_min + source.draw(prompt, ~seed) % spread


def _cut_at_stop(plan: PlannedAnswer, stop: tuple[str, ...]) -> PlannedAnswer:
    """End at the first stop string. The tokens that hold it are generated, its text is not shown."""
    text = plan.answer.text
    found = [(at, string) for string in stop if (at := text.find(string)) >= 0]
    if not found:
        return plan
    at, string = min(found)
    pieces: list[str] = []
    seen = 0
    for piece in plan.pieces:
        if seen >= at + len(string):
            break
        pieces.append(piece[: max(0, at - seen)])
        seen += len(piece)
    return PlannedAnswer(
        tokens=plan.tokens[: len(pieces)],
        pieces=tuple(pieces),
        answer=Answer(text=text[:at], finish_reason="stop", stop=string),
    )
