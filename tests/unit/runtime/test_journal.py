import msgspec
import pytest

from pilothouse.model.effects import PlaceReplica, Probe, PublishState
from pilothouse.model.events import ProcessStarted, ReplicaRequested, Woke
from pilothouse.model.fleet import Endpoint, ReplicaState
from pilothouse.model.units import MonotonicNs, seconds
from pilothouse.runtime.journal import Journal, decode, encode

ENDPOINT = Endpoint(host="127.0.0.1", port=41873)


def at(s: float) -> MonotonicNs:
    return MonotonicNs(seconds(s))


def test_it_comes_back_from_json_lines_as_it_was() -> None:
    journal = Journal()
    journal.record("a", ReplicaRequested(at=at(1)), (PublishState(state=ReplicaState.PLACING), PlaceReplica()))
    journal.record("b", ProcessStarted(at=at(2), pid=7, endpoint=ENDPOINT), ())
    lines = encode(journal.entries)
    assert lines.count(b"\n") == 2
    assert decode(lines) == journal.entries
    assert decode(b"") == ()


def test_a_line_that_is_no_entry_is_refused() -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode(b'{"machine": "a", "event": {"type": "Unheard"}, "effects": []}\n')


def test_it_keeps_the_last_entries_and_counts_the_others() -> None:
    journal = Journal(capacity=3)
    for token in range(5):
        journal.record("a", Woke(at=at(token), token=token), ())
    assert [entry.event for entry in journal.entries] == [Woke(at=at(token), token=token) for token in (2, 3, 4)]
    assert journal.dropped == 2


def test_the_story_of_one_machine_is_readable() -> None:
    journal = Journal()
    journal.record("a", ReplicaRequested(at=at(1)), (PublishState(state=ReplicaState.PLACING), PlaceReplica()))
    journal.record("b", Woke(at=at(1), token=1), ())
    journal.record("a", ProcessStarted(at=at(1.5), pid=7, endpoint=ENDPOINT), (Probe(token=3),))
    journal.record("a", Woke(at=at(2), token=4), ())
    assert journal.story("a").splitlines() == [
        "1.000 s a: ReplicaRequested -> PublishState(state=Placing), PlaceReplica",
        (
            '1.500 s a: ProcessStarted(pid=7 endpoint={"host":"127.0.0.1","port":41873,"tls":false,"base_path":"",'
            '"authorization":null}) -> Probe(token=3)'
        ),
        "2.000 s a: Woke(token=4) -> nothing",
    ]
    assert journal.story("a", last=1).startswith("2.000 s")
