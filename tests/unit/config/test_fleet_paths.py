import os
import socket
import stat
from pathlib import Path

import pytest

from pilothouse.config.paths import FleetPaths, fleet_paths
from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import FleetName

DEFAULT = FleetName("default")


def test_the_base_directories_are_those_of_the_environment() -> None:
    env = {
        "HOME": "/home/o",
        "XDG_STATE_HOME": "/s",
        "XDG_RUNTIME_DIR": "/r",
        "XDG_CACHE_HOME": "/c",
        "XDG_CONFIG_HOME": "/k",
    }
    paths = fleet_paths(DEFAULT, env)
    assert paths.database == Path("/s/pilothouse/default/state.db")
    assert paths.supervisor_record == Path("/s/pilothouse/default/supervisor.json")
    assert paths.control_socket == Path("/r/pilothouse/default/control.sock")
    assert paths.weights_dir == Path("/c/pilothouse/weights")
    assert paths.credentials == Path("/k/pilothouse/credentials")


def test_without_base_directories_all_is_under_home() -> None:
    paths = fleet_paths(DEFAULT, {"HOME": "/home/o"})
    assert paths.state_dir == Path("/home/o/.local/state/pilothouse/default")
    assert paths.lock == paths.state_dir / "run" / "lock"
    assert paths.cache_dir == Path("/home/o/.cache/pilothouse")
    assert paths.config_dir == Path("/home/o/.config/pilothouse")


def test_relative_base_directories_are_ignored() -> None:
    env = {"HOME": "/home/o", "XDG_STATE_HOME": "state", "XDG_RUNTIME_DIR": "run"}
    assert fleet_paths(DEFAULT, env) == fleet_paths(DEFAULT, {"HOME": "/home/o"})


def test_without_home_it_is_that_of_the_user() -> None:
    assert fleet_paths(DEFAULT, {}).state_dir.is_absolute()


@pytest.mark.parametrize("length", [60, 90, 200])
def test_a_socket_can_be_bound_whatever_the_length_of_the_home(tmp_path: Path, length: int) -> None:
    state = tmp_path / ("s" * max(1, length - len(str(tmp_path))))
    paths = fleet_paths(DEFAULT, {"HOME": "/home/o", "XDG_STATE_HOME": str(state), "TMPDIR": str(tmp_path)})
    assert len(os.fsencode(paths.control_socket)) <= 107
    paths.create()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(paths.control_socket))
    paths.control_socket.unlink()


def test_two_fleets_with_long_paths_have_each_their_own_runtime_directory(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path / ("s" * 120))}
    assert fleet_paths(FleetName("a"), env).runtime_dir != fleet_paths(FleetName("b"), env).runtime_dir


def test_a_long_temporary_directory_is_not_used() -> None:
    env = {"XDG_STATE_HOME": "/" + "s" * 120, "TMPDIR": "/" + "t" * 120}
    assert fleet_paths(DEFAULT, env).runtime_dir.is_relative_to("/tmp")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "a\0b"])
def test_a_name_that_leaves_its_directory_is_refused(name: str) -> None:
    with pytest.raises(PilothouseError, match="cannot be the name of a fleet"):
        fleet_paths(FleetName(name), {})


def _paths(home: Path) -> FleetPaths:
    return FleetPaths(
        state_dir=home / "state" / "f", runtime_dir=home / "run" / "f", cache_dir=home / "c", config_dir=home / "k"
    )


def test_create_makes_all_directories_for_the_user_alone(tmp_path: Path) -> None:
    paths = _paths(tmp_path)
    paths.create()
    paths.create()
    made = [each for each in tmp_path.rglob("*") if each.is_dir()]
    assert {paths.logs_dir, paths.replicas_dir, paths.boot_dir, paths.board_dir, paths.weights_dir} <= set(made)
    assert {stat.S_IMODE(each.stat().st_mode) for each in made} == {0o700}


def test_create_closes_an_open_directory(tmp_path: Path) -> None:
    paths = _paths(tmp_path)
    paths.state_dir.mkdir(parents=True)
    paths.state_dir.chmod(0o755)
    paths.create()
    assert stat.S_IMODE(paths.state_dir.stat().st_mode) == 0o700


def test_create_refuses_a_parent_in_which_others_may_swap_directories(tmp_path: Path) -> None:
    paths = _paths(tmp_path)
    paths.runtime_dir.parent.mkdir(parents=True)
    paths.runtime_dir.parent.chmod(0o777)
    with pytest.raises(PilothouseError, match="others may write to it") as caught:
        paths.create()
    assert caught.value.code == "state_unreadable"


def test_create_says_which_directory_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(PilothouseError, match="state") as caught:
        _paths(tmp_path).create()
    assert caught.value.code == "state_unreadable"
