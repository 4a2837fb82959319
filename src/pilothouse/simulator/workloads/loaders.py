"""Traces in their published forms, as turns in the order of arrival, from 0.

Every loader reads a file that may be gzipped, and raises OSError for one that cannot be read and TraceInvalid for one
that is not of its form, with the number of the line.
"""

import csv
import gzip
import io
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import msgspec

from pilothouse.model.units import MILLISECOND, SECOND
from pilothouse.simulator.chance import Chance
from pilothouse.simulator.turn import Turn

MOONCAKE_UNIT_TOKENS = 512
BAILIAN_UNIT_TOKENS = 16
AGENTIC_UNIT_TOKENS = 64
_QUANTUM_NS = 3 * SECOND
"""The conversation trace's timestamps are quantised to about 3 s, steps of 2,997 to 3,003 ms."""


class TraceInvalid(Exception):  # noqa: N818 - it says what is wrong with a file, not with the program
    """A line of a trace is not of the form that its format publishes."""


def mooncake(path: Path, *, seed: int = 0, spread_ns: int = _QUANTUM_NS) -> list[Turn]:
    """Mooncake (FAST'25): JSON lines of timestamp (ms), input_length, output_length, hash_ids of 512-token blocks.

    Arrivals are spread uniformly inside their quantum of `spread_ns` (0 leaves them alone): else every policy sees ten
    requests at once every three seconds. A prompt's last block is usually partial, and engines cache full ones only.
    """
    chance = Chance(seed, "mooncake")
    turns = []
    for number, row in enumerate(_json_lines(path)):
        with _line(path, number + 1):
            length = row["input_length"]
            at = row["timestamp"] * MILLISECOND + (chance.below(spread_ns) if spread_ns else 0)
            units = tuple(row["hash_ids"][: length // MOONCAKE_UNIT_TOKENS])
            turns.append(Turn(str(number), at, length, row["output_length"], units=units))
    return _sorted(turns)


def azure(path: Path) -> list[Turn]:
    """Azure LLM inference traces: CSV of TIMESTAMP, ContextTokens, GeneratedTokens."""

    def turn(number: int, row: dict[str, str]) -> Turn:
        return Turn(
            str(number), _instant(row["TIMESTAMP"]), int(row["ContextTokens"]), max(int(row["GeneratedTokens"]), 1)
        )

    return _from_csv(path, turn)


def vtc(path: Path) -> list[Turn]:
    """The arena trace of VTC (OSDI'24): CSV of req_time_s, client, prompt_len, output_len. Clients are tenants."""

    def turn(number: int, row: dict[str, str]) -> Turn:
        at = round(float(row["req_time_s"]) * SECOND)
        return Turn(str(number), at, int(row["prompt_len"]), int(row["output_len"]), tenant=row["client"])

    return _from_csv(path, turn, keep_origin=True)


def burstgpt(path: Path) -> list[Turn]:
    """BurstGPT: CSV of Timestamp (s), Model, Request tokens, Response tokens, Total tokens, Log Type.

    Rows without an answer are failures of the recorded service and left out. Models are tenants, since the trace has
    no users; a Session ID, where there is one, is kept.
    """

    def turn(number: int, row: dict[str, str]) -> Turn | None:
        output = int(row["Response tokens"])
        if output < 1:
            return None
        at = round(float(row["Timestamp"]) * SECOND)
        prompt = max(int(row["Request tokens"]), 1)
        return Turn(str(number), at, prompt, output, tenant=row["Model"], session=row.get("Session ID") or "")

    return _from_csv(path, turn)


def bailian(path: Path) -> list[Turn]:
    """Qwen-Bailian: JSON lines of chat_id, parent_chat_id, timestamp (s), lengths, type, turn, 16-token hash_ids."""
    turns = []
    for number, row in enumerate(_json_lines(path)):
        with _line(path, number + 1):
            length = row["input_length"]
            parent = row["parent_chat_id"]
            turns.append(
                Turn(
                    str(row["chat_id"]),
                    round(row["timestamp"] * SECOND),
                    length,
                    max(row["output_length"], 1),
                    tenant=str(row["type"]),
                    session=str(row["chat_id"] if parent in (-1, None) else parent),
                    units=tuple(row["hash_ids"][: length // BAILIAN_UNIT_TOKENS]),
                )
            )
    return _sorted(turns)


def agentic(path: Path, *, shared_prefix_tokens: int = 15_000) -> list[Turn]:
    """Sessions of a coding agent: JSON lines of trace, t (s), in, out, think (s), and 64-token hash_ids.

    Hash ids are local to a session, so nothing would be shared between sessions; the first `shared_prefix_tokens` of
    every prompt (tools and the system's words, 15,000 in the median) are taken to be the same for all.
    """
    shared = shared_prefix_tokens // AGENTIC_UNIT_TOKENS
    sessions: dict[str, int] = {}
    turns = []
    for number, row in enumerate(_json_lines(path)):
        with _line(path, number + 1):
            session = str(row["trace"])
            base = (sessions.setdefault(session, len(sessions)) + 1) << 32
            length = row["in"]
            units = tuple(
                index if index < shared else base + local
                for index, local in enumerate(row["hash_ids"][: length // AGENTIC_UNIT_TOKENS])
            )
            at = round(row["t"] * SECOND)
            turns.append(Turn(str(number), at, length, max(row["out"], 1), session=session, units=units))
    return _sorted(turns)


def engine_log(path: Path) -> list[Turn]:
    """A recorded engine run: JSON lines of request_id, input_toks, output_toks, queued_ts (s, monotonic)."""
    turns = []
    for number, row in enumerate(_json_lines(path)):
        with _line(path, number + 1):
            at = round(row["queued_ts"] * SECOND)
            turns.append(Turn(row["request_id"], at, row["input_toks"], row["output_toks"]))
    return _sorted(turns)


def ledger(path: Path) -> list[Turn]:
    """Our own ledger, exported as JSON lines: id, tenant, at_ns, input_tokens, output_tokens, session."""
    turns = []
    for number, row in enumerate(_json_lines(path)):
        with _line(path, number + 1):
            turns.append(
                Turn(
                    str(row["id"]),
                    row["at_ns"],
                    max(row["input_tokens"], 1),
                    max(row["output_tokens"], 1),
                    tenant=row.get("tenant") or "",
                    session=row.get("session") or "",
                )
            )
    return _sorted(turns)


LOADERS: dict[str, tuple[Callable[[Path], list[Turn]], int | None]] = {
    "mooncake": (mooncake, MOONCAKE_UNIT_TOKENS),
    "azure": (azure, None),
    "vtc": (vtc, None),
    "burstgpt": (burstgpt, None),
    "bailian": (bailian, BAILIAN_UNIT_TOKENS),
    "agentic": (agentic, AGENTIC_UNIT_TOKENS),
    "engine-log": (engine_log, None),
    "ledger": (ledger, None),
}
"""By format: the loader, and the tokens of its prefix units if it has any."""


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return io.TextIOWrapper(gzip.open(path), encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    decoder = msgspec.json.Decoder(dict[str, Any])
    with _open(path) as file:
        for number, line in enumerate(file):
            with _line(path, number + 1):
                yield decoder.decode(line)


def _from_csv(
    path: Path, turn: Callable[[int, dict[str, str]], Turn | None], *, keep_origin: bool = False
) -> list[Turn]:
    turns = []
    with _open(path) as file:
        for number, row in enumerate(csv.DictReader(file)):
            with _line(path, number + 2):
                made = turn(number, row)
            if made is not None:
                turns.append(made)
    return _sorted(turns, keep_origin=keep_origin)


class _line:  # noqa: N801 - reads as a statement
    """Say which line an error is in."""

    def __init__(self, path: Path, number: int) -> None:
        self._where = f"{path}, line {number}"

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyError):
            raise TraceInvalid(f"{self._where}: it has no {error.args[0]}") from error
        if isinstance(error, TypeError | ValueError):
            raise TraceInvalid(f"{self._where}: {error}") from error


def _instant(text: str) -> int:
    """Nanoseconds of a date and time with up to nine decimals; `strptime` takes only six."""
    whole, _, decimals = text.partition(".")
    seconds = round(datetime.strptime(whole, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp())
    return seconds * SECOND + int(f"{decimals:0<9}"[:9])


def _sorted(turns: list[Turn], *, keep_origin: bool = False) -> list[Turn]:
    """By arrival, the first one at 0 unless the trace has an origin of its own."""
    turns.sort(key=lambda turn: turn.arrival_ns)
    if turns and not keep_origin:
        origin = turns[0].arrival_ns
        for turn in turns:
            turn.arrival_ns -= origin
    return turns
