"""Clients, engines and time in any order, byte by byte: every exchange has one owner and one end, and nothing leaks."""

from collections.abc import Callable
from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pilothouse.gateway.exchange import Exchange
from pilothouse.gateway.exchange_record import Phase
from pilothouse.model.filters import Action, FilterSpec
from pilothouse.model.units import SECOND, DurationNs
from pilothouse.telemetry import catalogue
from plane_world import Client, Engine, PlaneWorld

JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
USAGE = b'"usage":{"prompt_tokens":3,"completion_tokens":2}'
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"out of memory","code":503}}\n\n'


def chunks(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def sized(head: bytes, body: bytes) -> bytes:
    return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


def answer(tag: bytes, padding: int = 0) -> bytes:
    return b'{"id":"%b",%b,"padding":"%b"}' % (tag, USAGE, b"x" * padding)


def event(tag: bytes) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % tag


ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
TOKEN = b" eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0"
LAST = b'data: {"choices":[],%b}\n\n' % USAGE

ANSWERS: dict[str, Callable[[bytes], bytes]] = {
    "json": lambda tag: sized(JSON, answer(tag)),
    "large json": lambda tag: sized(JSON, answer(tag, 900)),
    "json in chunks": lambda tag: JSON + CHUNKED + chunks(answer(tag)),
    "large json in chunks": lambda tag: JSON + CHUNKED + chunks(answer(tag, 900), b" "),
    "json until close": lambda tag: JSON + b"Connection: close\r\n\r\n" + answer(tag),
    "an error": lambda tag: sized(b"HTTP/1.1 500 Oh\r\nContent-Type: application/json\r\n", answer(tag)),
    "nothing": lambda tag: b"HTTP/1.1 204 No Content\r\n\r\n",
    "a hint, then json": lambda tag: b"HTTP/1.1 103 Early Hints\r\n\r\n" + sized(JSON, answer(tag)),
    "events": lambda tag: EVENTS + CHUNKED + chunks(ROLE, event(tag), event(tag), LAST, DONE),
    "events in one chunk": lambda tag: EVENTS + CHUNKED + chunks(ROLE + event(tag) + LAST + DONE),
    "events until close": lambda tag: EVENTS + b"Connection: close\r\n\r\n" + ROLE + event(tag) + LAST + DONE,
    "events with an address in two": lambda tag: (
        EVENTS + CHUNKED + chunks(ROLE, event(tag), event(b" jo@b"), event(b".io it"), LAST, DONE)
    ),
    "events with a token": lambda tag: (
        EVENTS + CHUNKED + chunks(ROLE, event(tag), event(TOKEN), event(b"x"), LAST, DONE)
    ),
    "no events": lambda tag: EVENTS + CHUNKED + chunks(),
    "an error before content": lambda tag: EVENTS + CHUNKED + chunks(ROLE, ERROR, DONE),
    "an error after content": lambda tag: EVENTS + CHUNKED + chunks(ROLE, event(tag), ERROR, DONE),
    "a bad chunk after content": lambda tag: EVENTS + CHUNKED + chunks(event(tag), event(tag))[:-5] + b"nonsense\r\n",
    "two lengths": lambda tag: sized(JSON + b"Content-Length: 1\r\n", answer(tag)),
    "no http": lambda tag: b"SSH-2.0-OpenSSH_9.2\r\n",
    "too much": lambda tag: sized(JSON, answer(tag)) + sized(JSON, answer(b"question-unasked")),
}
TIMES = [DurationNs(seconds * SECOND) for seconds in (1, 5, 20, 80, 700)]
COUNTS = st.sampled_from([100_000, 100_000, 1, 20, 150, 300, 400])
"""Bytes of a read: all there are, or some."""

MAX_WAITING = 8
"""Questions of one client without an answer: far fewer than what is refused as no ordinary pipelining."""

UNTIL_CLOSE = ("json until close", "events until close")


class AnyOrder(RuleBasedStateMachine):
    """What clients, engines, the event loop and the clock do."""

    filters: tuple[FilterSpec, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.world = PlaneWorld(max_collected_bytes=600, filters=self.filters)

    @initialize(streams=st.lists(st.booleans(), min_size=1, max_size=3))
    def first_clients(self, streams: list[bool]) -> None:
        for stream in streams:
            self.world.connect_client()
            self.world.clients[-1].ask(stream=stream)
            self.world.clients[-1].send(100_000)
        for connecting in self.world.waiting:
            self.world.connected(connecting)

    def teardown(self) -> None:
        """Whatever went before: in the end all is answered, and when everyone has gone nothing is left."""
        try:
            self.all_do_what_they_should()
            self.everything_holds()
            self.everyone_goes()
        finally:
            self.world.close()

    def all_do_what_they_should(self) -> None:
        """When all carry on, every question that is still waited for gets its answer."""
        world = self.world
        for _ in range(200):
            before = world.state()
            world.turn_loop()
            for client in list(world.clients):
                if client.transport.slow:
                    client.transport.catch_up()
                if client.transport.eof_sent and client.transport.open:
                    client.transport.end()
                if client.can_send:
                    client.send(100_000)
            for connecting in world.waiting:
                world.connected(connecting)
            for engine in self.asked():
                engine.answer(ANSWERS["events"](engine.question))
            for engine in self.answering():
                engine.send(100_000)
            if world.state() == before:
                break
        for client in world.clients:
            assert client.exchange is None, "an exchange that does not end"
            assert not client.unsent, "a client that is not read from"
            assert len(client.answered) == len(client.asked), "a question without an answer"

    def everyone_goes(self) -> None:
        world = self.world
        for client in world.clients:
            client.transport.end(ConnectionResetError())
        world.turn_loop()
        self.everything_holds()
        assert not world.clients
        assert not world.waiting
        for replica in world.plane.table.replicas.values():
            replica.retire()
        world.turn_loop()
        assert not world.engines, "no connection to an engine is left"
        for gauge in (
            catalogue.CONNECTIONS,
            catalogue.UPSTREAM_CONNECTIONS,
            catalogue.IN_FLIGHT_REQUESTS,
            catalogue.IN_FLIGHT_TOKENS,
        ):
            assert world.count(gauge) == 0, gauge.name
        no_exchange = world.count(catalogue.REQUESTS, "request_timeout", "no_ready_replica")
        assert world.count(catalogue.REQUESTS) - no_exchange == world.plane.retry_budget.requests, "each counts once"

    def there(self) -> list[Client]:
        return [each for each in self.world.clients if each.transport.open]

    def patient(self) -> list[Client]:
        return [each for each in self.there() if len(each.asked) - len(each.answered) < MAX_WAITING]

    def asked(self) -> list[Engine]:
        return [each for each in self.world.engines if each.question and each.transport.open]

    def answering(self) -> list[Engine]:
        return [each for each in self.world.engines if each.can_send]

    def linked(self) -> list[Engine]:
        return [each for each in self.world.engines if each.transport.open]

    @rule(data=st.data(), steps=st.integers(1, 10))
    def it_goes_on(self, data: st.DataObject, steps: int) -> None:
        """Someone who can do something does it, and someone else, and someone else."""
        for _ in range(steps):
            world = self.world
            able: list[Callable[[], None]] = [
                *(partial(self.client_sends, client, data) for client in world.clients if client.can_send),
                *(partial(world.connected, connecting) for connecting in world.waiting),
                *(partial(self.engine_answers, engine, data) for engine in self.asked()),
                *(partial(self.engine_sends, engine, data) for engine in self.answering()),
                *(partial(self.client_asks, client, data) for client in self.patient()),
                *([world.connect_client] if len(world.clients) < 4 else []),
            ]
            if not able:
                return
            able[data.draw(st.integers(0, len(able) - 1), "who")]()
            self.everything_holds()

    def client_asks(self, client: Client, data: st.DataObject) -> None:
        for stream in data.draw(st.lists(st.booleans(), min_size=1, max_size=3), "streams"):
            client.ask(stream=stream)
        if client.can_send:
            self.client_sends(client, data)

    def client_sends(self, client: Client, data: st.DataObject) -> None:
        client.send(data.draw(COUNTS, "bytes"))

    def engine_answers(self, engine: Engine, data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from(sorted(ANSWERS)), "answer")
        engine.answer(ANSWERS[kind](engine.question), then_close=kind in UNTIL_CLOSE)
        self.engine_sends(engine, data)

    def engine_sends(self, engine: Engine, data: st.DataObject) -> None:
        engine.send(data.draw(COUNTS, "bytes"))

    @rule(data=st.data(), reset=st.booleans())
    def something_happens(self, data: st.DataObject, reset: bool) -> None:
        """Someone goes, or is slow, or refuses; or time passes; or the fleet changes."""
        error = ConnectionResetError() if reset else None
        clients = [each.transport for each in self.there()]
        kinds: list[list[Callable[[], None]]] = [
            [partial(self.world.pass_time, duration) for duration in TIMES],
            [partial(self.world.set_replicas, count) for count in range(4)],
            [partial(client.end, error) for client in clients],
            [partial(engine.transport.end, error) for engine in self.linked()],
            [partial(self.world.refused, connecting) for connecting in self.world.waiting],
            [client.catch_up if client.slow else client.become_slow for client in clients],
        ]
        events = data.draw(st.sampled_from([each for each in kinds if each]), "kind")
        events[data.draw(st.integers(0, len(events) - 1), "what")]()

    @rule()
    def the_loop_turns(self) -> None:
        self.world.turn_loop()

    # What holds at any time.

    def live(self) -> list[Exchange]:
        return [each.exchange for each in self.world.clients if each.exchange is not None]

    @invariant()
    def everything_holds(self) -> None:
        assert self.world.defects == []
        self.what_is_in_flight_is_what_lives()
        self.what_lives_has_one_way_to_an_engine()
        self.a_connection_to_an_engine_is_owned_or_idle()
        self.an_engine_is_read_as_fast_as_its_client_reads()
        self.a_client_that_does_not_read_is_not_read()

    def what_is_in_flight_is_what_lives(self) -> None:
        for replica in self.world.replicas:
            here = [each for each in self.live() if each._replica is replica]
            assert replica.in_flight_requests == len(here)
            assert replica.in_flight_tokens == sum(each._weight for each in here)
            assert not replica.retired or not replica._idle

    def what_lives_has_one_way_to_an_engine(self) -> None:
        for exchange in self.live():
            assert exchange._phase is not Phase.ENDED
            assert exchange._replica is not None
            assert (exchange._pending is None) is not (exchange._connection is None)
            if exchange._connection is not None:
                assert exchange._connection.owner is exchange
                assert exchange._connection.replica is exchange._replica

    def a_connection_to_an_engine_is_owned_or_idle(self) -> None:
        owned = [each._connection for each in self.live()]
        for engine in self.linked():
            idle = engine.connection.replica._idle
            assert idle.count(engine.connection) + owned.count(engine.connection) == 1
        living = [each.connection for each in self.world.engines]
        assert all(each in living for replica in self.world.replicas for each in replica._idle)

    def an_engine_is_read_as_fast_as_its_client_reads(self) -> None:
        for exchange in self.live():
            if exchange._phase in (Phase.STREAMING, Phase.PASSING) and exchange._connection is not None:
                engine = next(each for each in self.world.engines if each.connection is exchange._connection)
                assert engine.transport.closing or engine.transport.reads is exchange._client.writable

    def a_client_that_does_not_read_is_not_read(self) -> None:
        for client in self.there():
            if client.transport.slow and client.exchange is None and not client.transport.eof_sent:
                assert not client.transport.reads


TestExchange = AnyOrder.TestCase
TestExchange.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)


class FilteredInAnyOrder(AnyOrder):
    """The same with filters: what they hold, and the streams they end, change nothing of what holds."""

    filters = (
        FilterSpec(name="x", input={"email": Action.REDACT}, output={"pii": Action.REDACT, "jwt": Action.BLOCK}),
    )


TestFilteredInAnyOrder = FilteredInAnyOrder.TestCase
TestFilteredInAnyOrder.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
