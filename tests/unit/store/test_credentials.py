import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import FleetName
from pilothouse.store.credentials import operator_key, store_key, stored_key

DEFAULT, OTHER = FleetName("default"), FleetName("other")


def test_each_fleet_has_its_own_key(tmp_path: Path) -> None:
    path = tmp_path / "pilothouse" / "credentials"
    assert stored_key(path, DEFAULT) is None
    store_key(path, DEFAULT, "ph_1")
    store_key(path, OTHER, "ph_2")
    store_key(path, DEFAULT, "ph_3")
    assert (stored_key(path, DEFAULT), stored_key(path, OTHER)) == ("ph_3", "ph_2")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    store_key(path, DEFAULT, "ph_1")
    assert operator_key(path, DEFAULT, {"PILOTHOUSE_API_KEY": "ph_env"}) == "ph_env"
    assert operator_key(path, DEFAULT, {"PILOTHOUSE_API_KEY": ""}) == "ph_1"
    assert operator_key(path, OTHER, {}) is None


def test_what_others_have_added_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text(json.dumps({"comment": "mine", "fleets": {"x": {"api_key": "ph_x", "note": 1}}}))
    store_key(path, DEFAULT, "ph_1")
    assert json.loads(path.read_text()) == {
        "comment": "mine",
        "fleets": {"x": {"api_key": "ph_x", "note": 1}, "default": {"api_key": "ph_1"}},
    }


@pytest.mark.parametrize(
    "content",
    ["", "{}", '{"fleets": []}', '{"fleets": {"default": "ph_1"}}', '{"fleets": {"default": {"api_key": 1}}}'],
)
def test_an_entry_of_another_shape_is_no_key(tmp_path: Path, content: str) -> None:
    path = tmp_path / "credentials"
    path.write_text(content)
    assert stored_key(path, DEFAULT) is None
    store_key(path, DEFAULT, "ph_1")
    assert stored_key(path, DEFAULT) == "ph_1"


@pytest.mark.parametrize("content", ["[default]\nkey=1\n", "[]", '{"fleets": '])
def test_a_file_that_is_something_else_is_not_overwritten(tmp_path: Path, content: str) -> None:
    path = tmp_path / "credentials"
    path.write_text(content)
    with pytest.raises(PilothouseError, match="is not a credentials file") as caught:
        store_key(path, DEFAULT, "ph_1")
    assert caught.value.code == "state_unreadable"
    assert path.read_text() == content


STORE = """
import pathlib, sys
from pilothouse.store.credentials import store_key
print("ready", flush=True); sys.stdin.read()
store_key(pathlib.Path(sys.argv[2]), "fleet-" + sys.argv[1], "ph_" + sys.argv[1])
"""


def test_fleets_that_start_together_all_keep_their_keys(tmp_path: Path, run_together: Callable[..., list[str]]) -> None:
    path = tmp_path / "credentials"
    run_together(STORE, str(path), processes=6)
    assert [stored_key(path, FleetName(f"fleet-{number}")) for number in range(6)] == [
        f"ph_{number}" for number in range(6)
    ]
