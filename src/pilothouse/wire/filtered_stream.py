"""A stream of an answer on its way through the filter: whole events in, those that may go out.

Events go on as they came, byte for byte, unless something in them was replaced. An event whose text is not decided
waits for the next one; a long one is divided.
"""

import functools
import json
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from pilothouse.model.errors import Refusal
from pilothouse.model.filters import Action
from pilothouse.policy.redaction.compiled import Channel, CompiledFilter
from pilothouse.policy.redaction.pump import Edit
from pilothouse.policy.redaction.turn import Turn
from pilothouse.wire import filter_ends, sse
from pilothouse.wire.filter_events import (
    Part,
    Reading,
    Search,
    read_event,
    rewritten,
    search_rest,
    search_strings,
    taken_apart,
    tells_tokens,
)

MAX_WAITING_WHOLE = 16
"""Characters up to which an event waits whole, so that its boundaries are kept; a longer one is divided."""
MAX_TEMPLATES = 16
"""Forms of events that are remembered: one for each choice, content and reasoning."""
_ALL = 1 << 62

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

Render = Callable[[str], bytes]
"""From another text to the event with it."""


_Piece = tuple[bytes, int, int, str, Render | None, int]
"""An event that waits: (the event, start and end of its text in its channel, the text, render, flags)."""

DIVISIBLE, KEPT = 1, 2
"""Flags: the event may be sent in two parts; it is sent even if nothing is left of its text."""


class _Lane:
    """What is told in order. One of its channels is open at a time."""

    __slots__ = ("channel", "key", "name", "queue", "render", "total")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.name: Hashable = None
        self.channel: Channel | None = None
        self.queue: deque[_Piece] = deque()
        self.render: Render | None = None
        self.total = 0


class _Template:
    """An event's form: what is before and behind its text. The next event nearly always has the same."""

    __slots__ = ("before", "behind", "lane", "name", "prefix", "render", "suffix")

    def __init__(self, prefix: bytes, suffix: bytes, lane: _Lane, name: Hashable) -> None:
        self.prefix = prefix
        self.before = len(prefix)
        self.behind = -len(suffix)
        self.suffix = suffix
        self.lane = lane
        self.name = name
        self.render: Render = lambda text: prefix + _source(text)[1:-1] + suffix


class FilteredStream:
    """The filter of one stream. Text of any dialect; server-sent events, or WebSocket frames with `framed=False`.

    Attributes:
        turn: Numbers of placeholders and counts, shared with the request of the turn.
        ended: The refusal that ended the stream: something is blocked, or a detector failed. What `feed` gave then ends
            with the dialect's error; the engine is to be aborted, and nothing more comes.
    """

    __slots__ = (
        "_compiled",
        "_framed",
        "_head",
        "_lanes",
        "_messages",
        "_out",
        "_request_id",
        "_templates",
        "ended",
        "turn",
    )

    def __init__(
        self, compiled: CompiledFilter, turn: Turn | None = None, *, request_id: str = "", framed: bool = True
    ) -> None:
        self._compiled = compiled
        self.turn = turn if turn is not None else compiled.turn()
        self._request_id = request_id
        self._framed = framed
        self._lanes: dict[Hashable, _Lane] = {}
        self._templates: list[_Template] = []
        self._out: list[bytes] = []
        self._head: dict[str, Any] = {}
        self._messages = False
        self.ended: Refusal | None = None

    @property
    def waiting(self) -> bool:
        """Whether something is held back."""
        for lane in self._lanes.values():  # noqa: SIM110 - asked after every read, and `any` costs twice as much
            if lane.queue:
                return True
        return False

    def discard(self) -> None:
        """Nothing more comes, and nothing that waits is wanted: let go of all now, not when garbage is collected."""
        self._lanes.clear()
        self._templates.clear()

    def fail(self, error: Exception) -> bytes:
        """The stream cannot be searched: end it, unless the filter is declared to fail open."""
        if self.ended is None:
            self._failed(b"", error)
        sent = b"".join(self._out)
        self._out.clear()
        return sent

    @property
    def counts(self) -> dict[tuple[str, Action], int]:
        """Matches by (entity, action)."""
        return self.turn.counts

    def feed(self, events: bytes) -> bytes:
        """Whole events, as `EventCutter` gives them; those that may be sent."""
        if self.ended is not None:
            return b""
        out = self._out
        for template in self._templates:
            if events.startswith(template.prefix) and events.endswith(template.suffix):
                raw = events[template.before : template.behind]
                # Without a quote in it, it is one event with one text.
                if b'"' not in raw and b"\\" not in raw:
                    lane = template.lane
                    channel = lane.channel
                    try:
                        if channel is not None and lane.name == template.name:
                            sent = self._feed_lane(lane, channel, events, raw.decode(), template.render)
                            if sent is not None:
                                return sent
                        else:
                            self._text(lane, template.name, events, raw.decode(), template.render)
                    except Exception as error:
                        self._failed(events, error)
                    break
        else:
            self._feed_each(events)
        if not out:
            return b""
        joined = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return joined

    def _feed_each(self, events: bytes) -> None:
        for event in sse.split(events):
            self._guarded(event)
            if self.ended is not None:
                break

    def feed_frame(self, frame: bytes) -> list[bytes]:
        """One WebSocket text frame; the frames that may be sent."""
        if self.ended is None:
            self._guarded(frame)
        sent = self._out[:]
        self._out.clear()
        return sent

    def stalled(self) -> bytes:
        """The engine has sent nothing for `CompiledFilter.stall_ns`: open matches are treated as found."""
        return b"".join(self.stalled_frames())

    def stalled_frames(self) -> list[bytes]:
        """The same for WebSocket frames."""
        for lane in list(self._lanes.values()):
            if self.ended is None and lane.channel is not None and lane.queue:
                self._attempt(lambda lane=lane: self._settle(lane))  # type: ignore[misc]
        sent = self._out[:]
        self._out.clear()
        return sent

    def close(self) -> bytes:
        """The stream has ended, properly or not: what waits is decided by what there is."""
        return b"".join(self.close_frames())

    def close_frames(self) -> list[bytes]:
        """The same for WebSocket frames."""
        if self.ended is None:
            self._attempt(self._close_all)
        sent = self._out[:]
        self._out.clear()
        return sent

    # One event.

    def _guarded(self, event: bytes) -> None:
        try:
            self._take(event)
        except Exception as error:
            self._failed(event, error)

    def _attempt(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:
            self._failed(b"", error)

    def _failed(self, event: bytes, error: Exception) -> None:
        """A detector failed: fail closed, unless the filter is declared to fail open."""
        if self._compiled.fail_open:
            for lane in self._lanes.values():
                self._out.extend(piece[0] for piece in lane.queue)
                lane.queue.clear()
                lane.channel = None
            if event:
                self._out.append(event)
            return
        self._end(Refusal(code="filter_failed", message=f"The output filter failed: {type(error).__name__}."))

    def _take(self, event: bytes) -> None:
        for template in self._templates:
            if event.startswith(template.prefix) and event.endswith(template.suffix):
                text = _string(event[template.before : template.behind])
                if text is not None:
                    self._text(template.lane, template.name, event, text, template.render)
                    return
        self._take_other(event)

    def _take_other(self, event: bytes) -> None:
        """An event that has no known form: decode it."""
        data = sse.data_of(event) if self._framed else event
        fields = _object(data)
        if fields is None:
            data = data.strip()
            if data == b"[DONE]":
                self._close_all()
            elif data:
                raise ValueError("an event is not a JSON object")
            if self.ended is None:
                self._out.append(event)
            return
        self._note(fields)
        reading = read_event(fields)
        if reading.closes_all:
            self._close_all()
        if reading.whole:
            for each in reading.closes:
                if self.ended is None:
                    self._close(self._lane(each))
            if self.ended is None:
                self._take_whole(event, fields, reading)
            return
        if "choices" in fields:
            searched = self._searched(functools.partial(search_rest, fields, reading))
            if searched is None:
                return
            if searched is not fields:
                fields, reading = searched, read_event(searched)
                event = self._event(fields, event)
        if len(reading.parts) > 1:
            for each_fields in taken_apart(fields, reading):
                if self.ended is None:
                    self._take_read(self._event(each_fields, event), each_fields, read_event(each_fields), kept=False)
        else:
            self._take_read(event, fields, reading, kept=True)

    def _take_read(self, event: bytes, fields: dict[str, Any], reading: Reading, *, kept: bool) -> None:
        if reading.parts:
            part = reading.parts[0]
            lane = self._lane(part.lane)
            keeps = bool(reading.closes or fields.get("usage"))
            flags = KEPT if keeps else 0 if tells_tokens(fields, part) else DIVISIBLE
            if kept and flags == DIVISIBLE and not part.json_source:
                self._learn(event, part, lane)
            render = self._renderer(event, fields, part)
            self._text(lane, part.channel, event, part.text, render, flags, json_source=part.json_source)
        elif reading.lane is not None and not reading.closes:
            self._in_order(self._lane(reading.lane), event)
        for each in reading.closes:
            if self.ended is None:
                self._close(self._lane(each))
        if not reading.parts and (reading.closes or reading.lane is None) and self.ended is None:
            self._out.append(event)

    def _take_whole(self, event: bytes, fields: dict[str, Any], reading: Reading) -> None:
        """An event that repeats or announces text: every string in it is a text of its own."""
        searched = self._searched(functools.partial(search_strings, fields))
        if searched is None:
            return
        if searched is not fields:
            event = self._event(searched, event)
        if reading.lane is not None:
            self._in_order(self._lane(reading.lane), event)
        else:
            self._out.append(event)

    def _searched(self, run: Callable[[Search], Any]) -> dict[str, Any] | None:
        """The fields as `run` makes them with each text searched on its own; `None` if one of them ends the stream."""
        blocked: list[str] = []

        def search(text: str, json_source: bool) -> str:
            found, entity = self._compiled.whole(text, self.turn, json_source=json_source)
            if entity is not None:
                blocked.append(entity)
            return found

        searched: dict[str, Any] = run(search)
        if blocked:
            self._end(blocked_refusal(blocked[0]))
            return None
        return searched

    def _in_order(self, lane: _Lane, event: bytes) -> None:
        """An event without text: behind what waits in its lane."""
        if lane.queue:
            lane.queue.append((event, lane.total, lane.total, "", None, KEPT))
        else:
            self._out.append(event)

    # Text.

    def _text(
        self,
        lane: _Lane,
        name: Hashable,
        event: bytes,
        text: str,
        render: Render,
        flags: int = DIVISIBLE,
        *,
        json_source: bool = False,
    ) -> None:
        """Text of a lane: `event` has it, and `render` makes the event with another."""
        channel = lane.channel
        if channel is None or lane.name != name:
            channel = self._channel(lane, name, json_source=json_source)
            if self.ended is not None:
                return
        sent = self._feed_lane(lane, channel, event, text, render, flags)
        if sent is not None:
            self._out.append(sent)

    def _feed_lane(
        self, lane: _Lane, channel: Channel, event: bytes, text: str, render: Render, flags: int = DIVISIBLE
    ) -> bytes | None:
        """Text of the open channel of a lane. What may go is returned if it is one event, else it is in `_out`."""
        start = lane.total
        lane.total = end = start + len(text)
        lane.render = render
        decided = channel.feed(text)
        queue = lane.queue
        if channel.edits or channel.state.blocked is not None:
            queue.append((event, start, end, text, render, flags))
            self._release_edited(lane, channel, decided)
            return None
        sent: bytes | None = None
        if queue:
            if queue[0][2] <= decided:
                sent = queue.popleft()[0]
            if queue or (sent is not None and end <= decided):
                # More than one: in order, by the list.
                if sent is not None:
                    self._out.append(sent)
                    sent = None
                while queue and queue[0][2] <= decided:
                    self._out.append(queue.popleft()[0])
                if end <= decided:
                    self._out.append(event)
                    return None
        elif end <= decided:
            return event
        queue.append((event, start, end, text, render, flags))
        waiting = len(queue[0][3])
        if waiting > MAX_WAITING_WHOLE or (len(text) > MAX_WAITING_WHOLE and end - decided < len(text)):
            if sent is not None:
                self._out.append(sent)
                sent = None
            self._divide(queue, [], decided)
        return sent

    def _divide(self, queue: deque[_Piece], edits: list[Edit], decided: int) -> None:
        """Send the decided part of a long event, with its edits made; the rest waits."""
        _, start, end, text, render, flags = queue[0]
        if render is None or decided <= start or not flags & DIVISIBLE:
            return
        before = _edited(text[: decided - start], start, edits)
        rest = text[decided - start :]
        queue[0] = (render(rest), decided, end, rest, render, flags)
        if before:
            self._out.append(render(before))

    def _release_edited(self, lane: _Lane, channel: Channel, decided: int, *, final: bool = False) -> None:
        """Send what is decided, with its edits made."""
        queue, edits = lane.queue, channel.edits
        while queue and queue[0][2] <= decided:
            event, start, end, text, render, flags = queue.popleft()
            if render is None or not edits or edits[0][0] >= end:
                self._out.append(event)
                continue
            left = _edited(text, start, edits)
            if left or flags & KEPT:
                self._out.append(render(left))
        if channel.state.blocked is not None:
            if queue:
                self._divide(queue, edits, decided)
            self._end(blocked_refusal(channel.state.blocked))
        elif final and edits and lane.render is not None:
            # What was put behind the last character.
            self._out.append(lane.render("".join(replacement for _, _, replacement in edits)))
            edits.clear()
        elif queue and len(queue[0][3]) > MAX_WAITING_WHOLE and (not edits or edits[-1][1] <= decided):
            self._divide(queue, edits, decided)

    # Lanes.

    def _lane(self, key: Hashable) -> _Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        return lane

    def _channel(self, lane: _Lane, name: Hashable, *, json_source: bool) -> Channel:
        """Open a channel. The one that was open has come to its end, for now at least."""
        if lane.channel is not None and lane.queue:
            self._settle(lane)
        if self.ended is None:
            self._close(lane)
        lane.channel = channel = self._compiled.channel(self.turn, json_source=json_source)
        lane.name = name
        lane.total = 0
        return channel

    def _settle(self, lane: _Lane) -> None:
        assert lane.channel is not None
        decided = lane.channel.stalled()
        self._release_edited(lane, lane.channel, decided)

    def _close(self, lane: _Lane) -> None:
        """The text of a lane has ended."""
        channel = lane.channel
        if channel is None:
            return
        decided = channel.close()
        self._release_edited(lane, channel, decided if channel.state.blocked is not None else _ALL, final=True)
        lane.channel = None
        lane.name = None

    def _close_all(self) -> None:
        for lane in list(self._lanes.values()):
            if self.ended is None:
                self._close(lane)

    # Events as bytes.

    def _event(self, fields: dict[str, Any], like: bytes) -> bytes:
        data = _source(fields)
        return sse.event(data, _name(like)) if self._framed else data

    def _renderer(self, event: bytes, fields: dict[str, Any], part: Part) -> Render:
        return lambda text: self._event(rewritten(fields, part, text), event)

    def _learn(self, event: bytes, part: Part, lane: _Lane) -> None:
        """Remember the form of an event that has one text and nothing else of its own."""
        if self._framed and not event.endswith(b"\n\n"):
            return
        for escaped in (_source(part.text), json.dumps(part.text).encode()):
            key = b'"%b":' % str(part.place[1]).encode()
            for between in (b"", b" "):
                if event.count(key + between + escaped) == 1:
                    start = event.index(key + between + escaped) + len(key + between) + 1
                    end = start + len(escaped) - 2
                    template = _Template(event[:start], event[end:], lane, part.channel)
                    self._templates.insert(0, template)
                    del self._templates[MAX_TEMPLATES:]
                    return

    def _note(self, fields: dict[str, Any]) -> None:
        """Keep what the last event of a stream that is ended needs."""
        if "choices" in fields and not self._head:
            self._head = {key: fields[key] for key in ("id", "object", "created", "model") if key in fields}
        elif fields.get("type") == "response.created" and isinstance(fields.get("response"), dict):
            self._head = fields["response"]
        elif fields.get("type") == "message_start":
            self._messages = True

    def _end(self, refusal: Refusal) -> None:
        """End the stream: nothing that waits is sent."""
        self.ended = refusal
        for event in filter_ends.endings(
            self._head, list(self._lanes), refusal, messages=self._messages, request_id=self._request_id
        ):
            data, name = event
            self._out.append(sse.event(data, name) if self._framed else data)
        self._lanes.clear()
        self._templates.clear()


def blocked_refusal(entity: str) -> Refusal:
    """What is told when `entity` is blocked. Never the value."""
    return Refusal(code="content_filter", message=f"Stopped by the content filter: {entity}.")


def _edited(text: str, at: int, edits: list[Edit]) -> str:
    """A text that begins at `at` of its channel with its edits made. They are taken out; what reaches beyond stays."""
    parts: list[str] = []
    begin, end = at, at + len(text)
    while edits and edits[0][0] < end:
        start, stop, replacement = edits.pop(0)
        parts += (text[at - begin : max(start, at) - begin], replacement)
        at = max(at, min(stop, end))
        if stop > end:
            edits.insert(0, (end, stop, ""))
            break
    parts.append(text[at - begin :])
    return "".join(parts)


def _string(raw: bytes) -> str | None:
    """What stands between the quotes of a JSON string, `None` if it is not one string."""
    try:
        text = _decode(b'"%b"' % raw)
    except msgspec.DecodeError:
        return None
    return text if isinstance(text, str) else None


def _source(value: object) -> bytes:
    """The value as JSON. Halves of surrogate pairs have no UTF-8; they are written as escapes."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _object(data: bytes) -> dict[str, Any] | None:
    """A JSON object; `None` if it is something else. Halves of surrogate pairs, which engines cut apart, are let in."""
    try:
        value = _decode(data)
    except (msgspec.DecodeError, RecursionError):
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _name(event: bytes) -> bytes | None:
    """The name of an event, if it has one."""
    for line in event.split(b"\n"):
        if line.startswith(b"event:"):
            return line[6:].strip()
    return None
