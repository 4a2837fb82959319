"""Filters compiled for one direction: what a gateway keeps for each set of filters, and all streams share."""

from collections.abc import Callable, Sequence

from pilothouse.model.filters import FilterSpec
from pilothouse.model.units import seconds
from pilothouse.policy.redaction.engine import Engine, ExtraMissingError, best_engine
from pilothouse.policy.redaction.matcher import Matcher
from pilothouse.policy.redaction.normal_form import prepare_normal_form
from pilothouse.policy.redaction.plan import FilterPlan, merged
from pilothouse.policy.redaction.pump import Edit, Finding, JsonPump, TextPump
from pilothouse.policy.redaction.turn import Turn


class CompiledFilter:
    """What to look for in one direction.

    Attributes:
        enforcing: The detectors whose matches are changed or end the turn, if there are any.
        monitoring: Those whose matches are only counted; they delay nothing.
        fail_open: Whether text goes on unfiltered when a detector fails.
        stall_ns: Nanoseconds without news after which `stalled` is to be called.
    """

    __slots__ = ("_hash_key", "enforcing", "fail_open", "monitoring", "stall_ns")

    def __init__(self, plan: FilterPlan | None, engine: Engine) -> None:
        """Compile. A third of a second of CPU for all built-in detectors; the interpreter is free meanwhile.

        Raises:
            ValueError: an operator's expression cannot be used.
            ExtraMissingError: a library that a detector asks is not installed.
        """
        self.enforcing: Matcher | None = None
        self.monitoring: Matcher | None = None
        self.fail_open = plan.fail_open if plan else False
        self.stall_ns = seconds(plan.stall_s if plan else 0.0)
        self._hash_key = plan.hash_key if plan else None
        if plan is None:
            return
        prepare_normal_form()
        acting, counting = plan.only(monitored=False), plan.only(monitored=True)
        try:
            self.enforcing = Matcher(acting, engine) if acting.actions else None
            self.monitoring = Matcher(counting, engine) if counting.actions else None
        except ImportError as error:
            raise ExtraMissingError(f"{error.name} is not installed: pip install 'pilothouse[filters]'") from error

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return self.enforcing is None and self.monitoring is None

    def turn(self) -> Turn:
        """A new turn."""
        return Turn(self._hash_key)

    def channel(self, turn: Turn, *, json_source: bool = False) -> "Channel":
        """A new text of `turn`; `json_source` for tool-call arguments."""
        return Channel(self, turn, json_source=json_source)

    def findings(self, text: str) -> list[Finding]:
        """What is in a whole text, in order. After something that is blocked nothing more is looked for."""
        found: list[Finding] = []
        for matcher in (self.enforcing, self.monitoring):
            if matcher is not None:
                pump = TextPump(matcher, self.turn())
                pump.findings = found
                pump.feed(text)
                pump.close()
        return sorted(found, key=lambda each: each.start)

    def whole(self, text: str, turn: Turn, *, json_source: bool = False) -> tuple[str, str | None]:
        """A whole text with its matches replaced, and the entity that blocks it, if one does."""
        channel = self.channel(turn, json_source=json_source)
        channel.feed(text)
        if channel.state.blocked is None:
            channel.close()
        return apply(text, channel.edits), channel.state.blocked


def compile_filters(specs: Sequence[FilterSpec], *, direction: str, engine: str | None = None) -> CompiledFilter:
    """All `specs` together, for `direction` (`input` or `output`).

    Raises:
        ValueError: an operator's expression cannot be used.
        ExtraMissingError: the extra `filters` is not installed.
    """
    return CompiledFilter(merged(specs, direction=direction), best_engine(engine))


class _Clear:
    """Of a channel where nothing is enforced."""

    __slots__ = ()
    blocked: str | None = None


_CLEAR = _Clear()


class Channel:
    """One text on its way through the filters.

    Attributes:
        feed: Takes more text, says up to where all of it is decided.
        edits: What has to be replaced; the caller takes them out.
        state: Its `blocked` is the entity that ends the turn, once one was found. (A property would cost more.)
    """

    __slots__ = ("_source", "edits", "feed", "state")

    def __init__(self, compiled: CompiledFilter, turn: Turn, *, json_source: bool) -> None:
        kind = JsonPump if json_source else TextPump
        pump = kind(compiled.enforcing, turn) if compiled.enforcing is not None else None
        self.state: TextPump | _Clear = pump if pump is not None else _CLEAR
        self.edits: list[Edit] = pump.edits if pump is not None else []
        if compiled.monitoring is None and pump is not None:
            self._source: TextPump | _Watched = pump
        else:
            monitor = kind(compiled.monitoring, turn) if compiled.monitoring is not None else None
            self._source = _Watched(monitor, pump)
        # Not a method of our own: that would be a cycle, which lives until garbage is collected.
        self.feed: Callable[[str], int] = self._source.feed

    def close(self) -> int:
        """The text has ended; say up to where all of it is decided: its end, unless it is blocked."""
        return self._source.close()

    def stalled(self) -> int:
        """Nothing has come for long: what is open is treated as found."""
        return self._source.stalled()


class _Watched:
    """A pump that only counts, beside one that acts, as far as there are such."""

    __slots__ = ("_monitor", "_pump", "_total")

    def __init__(self, monitor: TextPump | None, pump: TextPump | None) -> None:
        self._monitor = monitor
        self._pump = pump
        self._total = 0

    def feed(self, text: str) -> int:
        """See `Channel`."""
        if self._monitor is not None:
            self._monitor.feed(text)
            self._monitor.edits.clear()
        if self._pump is not None:
            return self._pump.feed(text)
        self._total += len(text)
        return self._total

    def close(self) -> int:
        """See `Channel`."""
        if self._monitor is not None:
            self._monitor.close()
            self._monitor.edits.clear()
        return self._pump.close() if self._pump is not None else self._total

    def stalled(self) -> int:
        """See `Channel`."""
        return self._pump.stalled() if self._pump is not None else self._total


def apply(text: str, edits: Sequence[Edit]) -> str:
    """The text with its edits made."""
    if not edits:
        return text
    parts: list[str] = []
    at = 0
    for start, end, replacement in edits:
        parts += (text[at:start], replacement)
        at = end
    return "".join((*parts, text[at:]))
