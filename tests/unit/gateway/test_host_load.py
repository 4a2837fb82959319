"""Workers of one host see what the others have in flight."""

from pathlib import Path

from pilothouse.gateway.host_load import HostLoad
from pilothouse.telemetry import catalogue
from pilothouse.telemetry.board import BoardWriter, Gauge, board_path, clear_gauges


def tokens(board: BoardWriter, replica: str) -> Gauge:
    return board.gauge(catalogue.IN_FLIGHT_TOKENS.name, {"model": "m", "replica": replica})


def test_loads_of_the_others_are_added_up_and_ones_own_are_not(tmp_path: Path) -> None:
    boards = [BoardWriter(board_path(tmp_path, index), worker=index) for index in range(3)]
    for number, board in enumerate(boards):
        tokens(board, "a").set(10**number)
    load = HostLoad(tmp_path, 0)
    assert load.elsewhere() == {}
    load.look_around()
    assert load.elsewhere() == {"a": 110}
    assert not load.alone
    tokens(boards[1], "b").set(7)  # a replica that the board did not have before
    assert load.elsewhere() == {"a": 110, "b": 7}
    for board in boards:
        board.close()


def test_a_dead_worker_has_nothing_in_flight(tmp_path: Path) -> None:
    board = BoardWriter(board_path(tmp_path, 1), worker=1)
    tokens(board, "a").set(9)
    load = HostLoad(tmp_path, 0)
    load.look_around()
    board.close()  # as at its end; the supervisor does the same for one that was killed
    assert load.elsewhere() == {"a": 0}
    assert clear_gauges(board_path(tmp_path, 1))
    again = BoardWriter(board_path(tmp_path, 1), worker=1)
    tokens(again, "a").set(4)
    assert load.elsewhere() == {"a": 4}
    again.close()


def test_files_that_are_no_boards_are_passed_over(tmp_path: Path) -> None:
    board_path(tmp_path, 1).write_bytes(b"short")
    (tmp_path / "notes").write_text("worker-2")
    load = HostLoad(tmp_path, 0)
    load.look_around()
    assert load.alone
    board_path(tmp_path, 1).unlink()
    board = BoardWriter(board_path(tmp_path, 1), worker=1)
    tokens(board, "a").set(3)
    load.look_around()
    assert load.elsewhere() == {"a": 3}
    board.close()
    damaged = board_path(tmp_path, 1).read_bytes()
    board_path(tmp_path, 2).write_bytes(b"\0" * 8 + damaged[8:])
    load.look_around()
    assert load.elsewhere() == {"a": 0}
