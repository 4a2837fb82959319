import os
from pathlib import Path

import pytest

from pilothouse.cli.fleet_record import SupervisorRecord, write_record
from pilothouse.cli.locate import chosen_fleet, data_plane, require_running
from pilothouse.cli.output import CommandError
from pilothouse.config.paths import fleet_paths
from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import FleetName
from pilothouse.model.spec import ListenAddress
from pilothouse.placement.processes import ProcessIdentity, identify
from pilothouse.store.credentials import store_key


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


def start(name: str, env: dict[str, str], *, alive: bool = True) -> None:
    """Leave the traces of a fleet, whose supervisor is this process or none."""
    paths = fleet_paths(FleetName(name), env)
    paths.create()
    me = identify(os.getpid())
    assert me is not None
    dead = ProcessIdentity(pid=me.pid, start_ticks=0, boot_id=me.boot_id)
    record = SupervisorRecord(
        fleet=FleetName(name),
        version="0.1.0",
        process=me if alive else dead,
        gateway=ListenAddress(host="0.0.0.0", port=8080),
        admin=ListenAddress(host="127.0.0.1", port=8081),
        fleet_file=None,
        drain_timeout_s=1.0,
    )
    write_record(paths.supervisor_record, record)


def chosen(env: dict[str, str], name: str | None = None) -> str:
    return chosen_fleet(name, env).state_dir.name


def test_where_nothing_ever_ran_the_default_is_meant(env: dict[str, str]) -> None:
    assert chosen(env) == "default"
    with pytest.raises(PilothouseError) as refused:
        require_running(chosen_fleet(None, env))
    assert refused.value.code == "fleet_not_running"


def test_the_one_that_runs_is_meant(env: dict[str, str]) -> None:
    start("default", env, alive=False)
    start("staging", env)
    assert chosen(env) == "staging"
    assert chosen(env, "default") == "default"


def test_where_none_runs_the_only_one_is_meant(env: dict[str, str]) -> None:
    start("staging", env, alive=False)
    assert chosen(env) == "staging"
    start("production", env, alive=False)
    assert chosen(env) == "default"


def test_of_two_that_run_one_has_to_be_named(env: dict[str, str]) -> None:
    start("one", env)
    start("two", env)
    with pytest.raises(CommandError, match="one, two"):
        chosen(env)
    assert chosen(env, "two") == "two"


def test_the_running_fleet_is_called_with_its_stored_key(env: dict[str, str]) -> None:
    start("staging", env)
    store_key(chosen_fleet(None, env).credentials, FleetName("staging"), "ph_stored")
    target = data_plane(None, None, env)
    assert (target.url, target.api_key) == ("http://127.0.0.1:8080", "ph_stored")
    assert target.headers == {"authorization": "Bearer ph_stored"}
    assert data_plane(None, None, {**env, "PILOTHOUSE_API_KEY": "ph_given"}).api_key == "ph_given"


def test_another_address_gets_the_stored_key_only_with_the_fleet_s_name(env: dict[str, str]) -> None:
    store_key(chosen_fleet(None, env).credentials, FleetName("default"), "ph_stored")
    url = "http://10.0.0.7:8080/v1/"
    assert data_plane(url, None, env).api_key is None
    assert data_plane(url, None, env).headers == {}
    assert data_plane(url, None, {**env, "PILOTHOUSE_API_KEY": "ph_given"}).api_key == "ph_given"
    named = data_plane(url, "default", env)
    assert (named.url, named.api_key) == ("http://10.0.0.7:8080", "ph_stored")
