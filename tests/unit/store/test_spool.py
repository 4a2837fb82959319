import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import DeploymentName, KeyId, ModelName, OrganisationId, RequestId, TenantId
from pilothouse.model.ledger import LedgerRow, Outcome
from pilothouse.model.units import WallNs
from pilothouse.store.ledger import Ledger
from pilothouse.store.ledger_filling import fill_ledger
from pilothouse.store.spool import Segment, SpoolReader, SpoolWriter


def turn(number: int) -> LedgerRow:
    return LedgerRow(
        id=RequestId(f"req_{number:024x}"),
        organisation=OrganisationId("o"),
        tenant=TenantId("t"),
        key=KeyId("key_1"),
        model=ModelName("m"),
        deployment=DeploymentName("d"),
        started_at=WallNs(5),
        ended_at=WallNs(9),
        outcome=Outcome.COMPLETED,
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def only_segment(directory: Path) -> Segment:
    [segment] = SpoolReader(directory).segments()
    return segment


def test_what_was_appended_is_read_by_another_process(directory: Path) -> None:
    writer = SpoolWriter(directory, "w")
    writer.append(turn(1))
    segment = only_segment(directory)
    assert segment.read(10) == [turn(1)]
    writer.append(turn(2))
    writer.append(turn(3))
    assert segment.read(1) == [turn(2)]
    assert segment.read(10) == [turn(3)]
    assert segment.read(10) == []
    assert not segment.is_abandoned()
    writer.close()
    assert segment.is_abandoned()


def test_files_are_private(directory: Path) -> None:
    SpoolWriter(directory, "w").close()
    assert (only_segment(directory).path.stat().st_mode & 0o777, directory.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_full_segment_is_followed_by_another(directory: Path) -> None:
    writer = SpoolWriter(directory, "w", max_segment_bytes=300)
    for number in range(10):
        writer.append(turn(number))
    writer.sync()
    segments = list(SpoolReader(directory).segments())
    assert len(segments) > 2
    assert [row for segment in segments for row in segment.read(100)] == [turn(number) for number in range(10)]
    assert [segment.is_abandoned() for segment in segments] == [True] * (len(segments) - 1) + [False]
    writer.close()


def test_a_tail_torn_at_any_byte_loses_the_torn_row_alone(directory: Path) -> None:
    writer = SpoolWriter(directory, "w")
    for number in range(3):
        writer.append(turn(number))
    writer.close()
    path = only_segment(directory).path
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        segment = Segment(path)
        assert segment.read(10) == [turn(number) for number in range(cut * 3 // len(whole))]
        assert not segment.is_damaged


def test_a_row_that_is_half_written_is_read_once_it_is_whole(directory: Path) -> None:
    writer = SpoolWriter(directory, "w")
    writer.append(turn(1))
    writer.close()
    path = only_segment(directory).path
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    segment = Segment(path)
    assert segment.read(10) == []
    path.write_bytes(whole)
    assert segment.read(10) == [turn(1)]


@pytest.mark.parametrize("at", [0, 4, 20])
def test_damage_is_noticed_and_kept_for_a_person(directory: Path, tmp_path: Path, at: int) -> None:
    writer = SpoolWriter(directory, "w")
    writer.append(turn(1))
    writer.append(turn(2))
    writer.close()
    path = only_segment(directory).path
    content = bytearray(path.read_bytes())
    size = len(content) // 2
    content[size + at] ^= 0xFF
    if at == 0:
        content[size + 2] ^= 0xFF  # a length beyond all reason
    path.write_bytes(content)
    with Ledger(tmp_path / "state.db") as ledger:
        assert fill_ledger(SpoolReader(directory), ledger) == 1
    assert [each.name for each in directory.iterdir()] == [path.with_suffix(".damaged").name]


def test_the_ledger_is_filled_and_the_files_go(directory: Path, tmp_path: Path) -> None:
    spool = SpoolReader(directory)
    with Ledger(tmp_path / "state.db") as ledger:
        writer = SpoolWriter(directory, "w")
        for number in range(3):
            writer.append(turn(number))
        assert fill_ledger(spool, ledger) == 3
        writer.append(turn(3))
        assert fill_ledger(spool, ledger) == 1
        assert fill_ledger(spool, ledger) == 0
        assert len(list(directory.iterdir())) == 1
        # A controller that comes anew reads all of it again, and inserts nothing twice.
        assert fill_ledger(SpoolReader(directory), ledger) == 0
        writer.close()
        assert fill_ledger(spool, ledger) == 0
        assert list(directory.iterdir()) == []


def test_rows_wait_for_a_database_that_is_away(directory: Path, tmp_path: Path) -> None:
    spool = SpoolReader(directory)
    writer = SpoolWriter(directory, "w")
    writer.append(turn(1))

    class Away(Ledger):
        def __init__(self) -> None:
            pass

        def insert(self, rows: object) -> int:
            raise PilothouseError("state_unreadable", "away")

    with pytest.raises(PilothouseError):
        fill_ledger(spool, Away())
    with Ledger(tmp_path / "state.db") as ledger:
        assert fill_ledger(spool, ledger) == 1
    writer.close()


def test_what_a_killed_worker_appended_is_not_lost(directory: Path, tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_spool import SpoolWriter, turn
writer = SpoolWriter(Path(sys.argv[1]), "w")
number = 0
while True:
    writer.append(turn(number))
    print(number, flush=True)
    number += 1
"""
    process = subprocess.Popen([sys.executable, "-c", code, str(directory)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    seen = [process.stdout.readline() for _ in range(200)]
    process.send_signal(signal.SIGKILL)
    seen += process.stdout.readlines()
    process.wait(timeout=5)
    process.stdout.close()
    told = [int(line) for line in seen if line.endswith("\n")]
    with Ledger(tmp_path / "state.db") as ledger:
        inserted = fill_ledger(SpoolReader(directory), ledger)
    assert len(told) <= inserted <= len(told) + 1
    assert list(directory.iterdir()) == []


def test_a_full_disk_is_said_and_leaves_no_torn_row(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SpoolWriter(directory, "w", max_segment_bytes=120)
    writer.append(turn(1))

    def full(file: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        for _ in range(2):
            with pytest.raises(PilothouseError, match="space"):
                writer.append(turn(2))
    writer.append(turn(3))
    rows = [row for segment in SpoolReader(directory).segments() for row in segment.read(10)]
    assert rows == [turn(1), turn(3)]
    writer.close()
