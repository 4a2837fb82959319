"""One request for text from admission to its one end."""

import asyncio
from collections.abc import Callable

import msgspec

from pilothouse.model.requests import Usage
from pilothouse.testing.fake_engine.answers import PlannedAnswer
from pilothouse.testing.fake_engine.dialects.base import Answer, TextRequest, Writer
from pilothouse.testing.fake_engine.engine_loop import Engine
from pilothouse.testing.fake_engine.errors import error_object, failure
from pilothouse.testing.fake_engine.http_server import Exchange
from pilothouse.testing.fake_engine.scheduler import Sequence
from pilothouse.testing.fake_engine.scripts import Script

_SSE = "text/event-stream; charset=utf-8"
_MALFORMED_CHUNK = b"not a size\r\n\r\n"


class _Choice:
    """One answer on its way."""

    __slots__ = ("index", "plan", "sent", "sequence")

    def __init__(self, index: int, plan: PlannedAnswer, sequence: Sequence) -> None:
        self.index = index
        self.plan = plan
        self.sequence = sequence
        self.sent = 0

    def answer_so_far(self, reason: str) -> Answer:
        return Answer(text="".join(self.plan.pieces[: self.sent]), finish_reason=reason)


class Turn:
    """Submits a request's sequences and writes what comes of them, well or as the script says."""

    def __init__(
        self,
        exchange: Exchange,
        request: TextRequest,
        plans: list[PlannedAnswer],
        writer: Writer,
        script: Script,
        engine: Engine,
        *,
        anthropic: bool,
        ended: Callable[["Turn"], None],
    ) -> None:
        self._exchange = exchange
        self._request = request
        self._writer = writer
        self._script = script
        self._engine = engine
        self._anthropic = anthropic
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._ends_before_the_first_token = script.error_after == 0 or script.close_after == 0
        held = script.delay_s > 0 or self._ends_before_the_first_token
        self._choices: dict[Sequence, _Choice] = {}
        for index, plan in enumerate(plans):
            sequence = Sequence(
                request.prompts[index // request.n],
                plan.tokens,
                listener=self,
                finish_reason=plan.answer.finish_reason,
                hold_at=0 if held else script.stall_after,
                salt=request.salt,
            )
            self._choices[sequence] = _Choice(index, plan, sequence)
        self._unfinished = len(plans)
        self._tokens = 0
        self._events = 0
        self._opened = False
        self._over = False
        self._timers: list[asyncio.TimerHandle] = []
        self._watches_tokens = any(
            value is not None for value in (script.error_after, script.close_after, script.malformed_chunk_after)
        )

    def start(self) -> None:
        """Send the sequences to the engine; a stream's head goes out at once, as vLLM's does."""
        self._exchange.on_disconnect = self._client_gone
        delayed = self._script.delay_s > 0
        if delayed:
            self._later(self._script.delay_s, self._delay_is_over)
        else:
            self._exchange.cork()
            self._begin_answer()
        for sequence in self._choices:
            if not sequence.finished:  # an instant engine may have been told to break off by now
                self._engine.submit(sequence)
        if not delayed:
            self._act_before_the_first_token()
            self._exchange.uncork()

    def tokens_ready(self, sequence: Sequence) -> None:
        """The engine has got further with one of the sequences."""
        if self._over:
            return
        choice = self._choices[sequence]
        if not self._request.stream and not self._watches_tokens:
            choice.sent = sequence.generated
        elif not self._relay(choice):
            return
        if sequence.finished:
            self._unfinished -= 1
            if self._unfinished == 0:
                self._complete([choice.plan.answer for choice in self._choices.values()])
        elif sequence.generated == sequence.hold_at and self._script.stall_s is not None:
            self._later(self._script.stall_s, lambda: self._engine.release(sequence))

    def cut_short(self, reason: str = "abort") -> None:
        """End now, with what there is and this reason, as vLLM does when it shuts down."""
        if self._over:
            return
        if self._request.stream and self._script.delay_s and not self._opened:
            self._exchange.start_stream(_SSE, self._script.headers.items())
        answers: list[Answer] = []
        for choice in self._choices.values():
            if self._engine.abort(choice.sequence, reason):
                answer = choice.answer_so_far(reason)
                if self._request.stream:
                    self._write([*self._opening(), *self._writer.token(choice.index, "", answer)])
            else:
                answer = choice.plan.answer
            answers.append(answer)
        self._complete(answers)

    def _delay_is_over(self) -> None:
        self._begin_answer()
        if not self._ends_before_the_first_token:
            for sequence in self._choices:
                self._engine.release(sequence, self._script.stall_after)
        self._act_before_the_first_token()

    def _begin_answer(self) -> None:
        if self._request.stream:
            self._exchange.start_stream(_SSE, self._script.headers.items())
            if self._script.malformed_chunk_after == 0:
                self._exchange.write_framed(_MALFORMED_CHUNK)

    def _act_before_the_first_token(self) -> None:
        if self._ends_before_the_first_token:
            self._act_on_position()
        elif self._script.stall_after == 0 and self._script.stall_s is not None:
            self._later(self._script.stall_s, self._stall_is_over)

    def _stall_is_over(self) -> None:
        for sequence in self._choices:
            self._engine.release(sequence)

    def _relay(self, choice: _Choice) -> bool:
        """Write what is new of a choice. False when a script has ended the turn over it."""
        sequence, plan = choice.sequence, choice.plan
        last = len(plan.pieces) if sequence.finished else -1
        events = self._opening() if choice.sent < sequence.generated or sequence.finished else []
        while choice.sent < sequence.generated:
            text = plan.pieces[choice.sent]
            choice.sent += 1
            answer = plan.answer if choice.sent == last else None
            if text or answer is not None:
                events += self._writer.token(choice.index, text, answer)
            self._tokens += 1
            if self._watches_tokens:
                self._write(events)
                events = []
                if not self._act_on_position():
                    return False
        if last == 0:
            events += self._writer.token(choice.index, "", plan.answer)
        self._write(events)
        return True

    def _opening(self) -> list[bytes]:
        if self._opened:
            return []
        self._opened = True
        return self._writer.opening(self._usage())

    def _act_on_position(self) -> bool:
        """Do what the script says for this many tokens. False when that ends the turn."""
        script = self._script
        if script.malformed_chunk_after == self._tokens and self._request.stream:
            self._exchange.write_framed(_MALFORMED_CHUNK)
        if script.error_after == self._tokens:
            self._fail()
        elif script.close_after == self._tokens:
            self._exchange.cut(reset=script.reset)
        return not self._over

    def _fail(self) -> None:
        self._stop("error")
        error = self._script.error or error_object(failure(), anthropic=self._anthropic)
        if not self._request.stream:
            self._exchange.respond(500, msgspec.json.encode(error))
            return
        self._write(self._writer.error(error))
        self._end_stream()

    def _complete(self, answers: list[Answer]) -> None:
        self._stop("abort")
        usage, report = self._usage(), self._script.usage
        if self._request.stream:
            self._write([*self._opening(), *self._writer.closing(usage, answers, report)])
            self._end_stream()
        else:
            body = msgspec.json.encode(self._writer.whole(usage, answers, report))
            self._exchange.respond(200, body, headers=self._script.headers.items())

    def _end_stream(self) -> None:
        if not self._script.omit_done:
            self._write(self._writer.done())
        self._exchange.end()

    def _write(self, events: list[bytes]) -> None:
        if not events or not self._request.stream:
            return
        if self._script.comment_every or self._script.line_ending != "lf":
            events = [self._dress(event) for event in events]
        self._exchange.write_framed(b"".join(map(self._exchange.frame, events)))

    def _dress(self, event: bytes) -> bytes:
        every = self._script.comment_every
        if every and self._events % every == 0:
            event = b": keep-alive\n\n" + event
        self._events += 1
        return event.replace(b"\n", b"\r\n") if self._script.line_ending == "crlf" else event

    def _usage(self) -> Usage:
        sequences = list(self._choices)
        firsts = sequences[:: self._request.n]
        return Usage(
            input_tokens=sum(sequence.prompt_tokens for sequence in firsts),
            output_tokens=sum(sequence.generated for sequence in sequences),
            cached_tokens=sum(sequence.cached_tokens or 0 for sequence in firsts),
        )

    def _client_gone(self) -> None:
        if not self._over:
            self._stop("abort")

    def _stop(self, reason: str) -> None:
        self._over = True
        for timer in self._timers:
            timer.cancel()
        for sequence in self._choices:
            self._engine.abort(sequence, reason)
        self._ended(self)

    def _later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._timers.append(self._loop.call_later(delay_s, callback))
