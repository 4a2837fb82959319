"""What clean text pays: how many events a piece of it waits, how much is held, and the first token."""

import re
from collections.abc import Sequence

from benchmarks.bars.report import Bar, main
from benchmarks.filter_corpus import clean
from benchmarks.filter_corpus.full_set import full_set
from pilothouse.model.filters import Action
from pilothouse.policy.redaction.compiled import CompiledFilter, compile_filters

CHARS = 400_000
"""Of each kind of text."""
HOLD_LIMIT = 40
DOCUMENT_CHARS = 2000
_TOKEN = re.compile(r" ?[A-Za-z]{1,9}| ?[0-9]{1,3}| ?[^\sA-Za-z0-9]{1,4}|\s+")
"""About what byte-pair tokenizers cut: a word with the space before it, long words in two, three digits at most."""


class Seen:
    """What was seen of the streams of one kind of text. Delays in events, holds in characters."""

    def __init__(self) -> None:
        self.delays: list[int] = []
        self.holds: list[int] = []
        self.first: list[int] = []


def watch(compiled: CompiledFilter, text: str, seen: Seen) -> None:
    """One stream: after how many events each piece was decided, and how much waits after each."""
    channel = compiled.channel(compiled.turn())
    ends: list[int] = []
    total = released = 0
    for number, piece in enumerate(_TOKEN.findall(text)):
        total += len(piece)
        ends.append(total)
        decided = channel.feed(piece)
        channel.edits.clear()
        seen.holds.append(total - decided)
        while released < len(ends) and ends[released] <= decided:
            seen.delays.append(number - released)
            if released == 0:
                seen.first.append(number)
            released += 1


def _quantile(values: Sequence[int], share: float) -> int:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def measure() -> list[Bar]:
    """Prose and code; of log lines only the figures."""
    compiled = compile_filters([full_set(Action.REDACT)], direction="output")
    kinds = {"prose": clean.prose(), "code": clean.code(), "log lines": clean.logs()}
    seen = {kind: Seen() for kind in kinds}
    for kind, text in kinds.items():
        for at in range(0, min(CHARS, len(text)), DOCUMENT_CHARS):
            # An answer begins with a word, not in the middle of one.
            start = text.find("\n", at) + 1
            watch(compiled, text[start : start + DOCUMENT_CHARS].lstrip(), seen[kind])
    delays = seen["prose"].delays + seen["code"].delays
    holds = seen["prose"].holds + seen["code"].holds
    first = seen["prose"].first + seen["code"].first
    details: dict[str, object] = {
        f"{kind}: median and p99 delay in events, p99 and largest hold in characters": [
            _quantile(each.delays, 0.5),
            _quantile(each.delays, 0.99),
            _quantile(each.holds, 0.99),
            max(each.holds),
        ]
        for kind, each in seen.items()
    }
    median, hold, late = _quantile(delays, 0.5), _quantile(holds, 0.99), _quantile(first, 0.5)
    late_share = sum(each > 1 for each in first) / len(first)
    return [
        Bar(name="Clean text: median delay", limit="<= 1 event", measured=f"{median}", passed=median <= 1,
            details=details),
        Bar(name="Clean text: p99 of what is held", limit=f"< {HOLD_LIMIT} characters", measured=f"{hold}",
            passed=hold < HOLD_LIMIT, details=details),
        Bar(name="Clean text: delay of the first token, median", limit="<= 1 event",
            measured=f"{late} ({late_share:.0%} of streams more, worst {max(first)})", passed=late <= 1,
            details=details),
    ]  # fmt: skip


if __name__ == "__main__":
    main("filter", measure())
