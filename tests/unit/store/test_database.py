import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from pilothouse.model.errors import PilothouseError
from pilothouse.store import database, migrations
from pilothouse.store.database import SCHEMA_REVISION, open_database, transaction
from pilothouse.store.tables import keys, metadata


def test_a_new_database_has_the_tables_is_private_and_in_wal_mode(tmp_path: Path) -> None:
    path = tmp_path / "new" / "state.db"
    engine = open_database(path)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() == SCHEMA_REVISION
        assert {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()} == {0o600}
    engine.dispose()


def test_the_steps_lead_to_the_tables_as_they_are_declared(tmp_path: Path) -> None:
    engine = open_database(tmp_path / "state.db")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_the_named_revision_is_the_last_step() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    assert ScriptDirectory.from_config(config).get_current_head() == SCHEMA_REVISION


def test_an_open_of_a_current_database_does_not_load_alembic(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    open_database(path).dispose()
    code = (
        "import sys, pathlib; from pilothouse.store.database import open_database; "
        "open_database(pathlib.Path(sys.argv[1])).dispose(); sys.exit('alembic' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=15)


OPEN = """
import pathlib, sys
from pilothouse.store.database import open_database
print("ready", flush=True); sys.stdin.read()
engine = open_database(pathlib.Path(sys.argv[2]))
with engine.connect() as connection:
    print(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar(), end="")
engine.dispose()
"""


def test_processes_that_open_a_new_database_together_migrate_it_once(
    tmp_path: Path, run_together: Callable[..., list[str]]
) -> None:
    assert set(run_together(OPEN, str(tmp_path / "state.db"))) == {SCHEMA_REVISION}


def test_a_migration_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.db"
    migrate = database._migrate

    def half_way(connection: sa.Connection, found: str | None, path: Path) -> None:
        migrate(connection, found, path)
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(database, "_migrate", half_way)
    with pytest.raises(PilothouseError, match="disk I/O error"):
        open_database(path)
    monkeypatch.undo()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    connection.close()
    open_database(path).dispose()


def test_a_database_of_a_later_release_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    engine = open_database(path)
    with transaction(engine) as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    engine.dispose()
    with pytest.raises(PilothouseError, match="schema 9999") as caught:
        open_database(path)
    assert caught.value.code == "state_unreadable"
    assert "later release" in caught.value.hint


def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"this is not a database, but long enough to be looked at" * 40)
    before = path.read_bytes()
    with pytest.raises(PilothouseError, match=r"state\.db: file is not a database") as caught:
        open_database(path)
    assert "move it away" in caught.value.hint
    assert path.read_bytes() == before


def test_a_directory_in_its_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "state.db").mkdir()
    with pytest.raises(PilothouseError, match=r"state\.db: Is a directory"):
        open_database(tmp_path / "state.db")


def test_what_happens_in_a_failed_transaction_is_undone(tmp_path: Path) -> None:
    engine = open_database(tmp_path / "state.db")

    def insert(times: int) -> None:
        with transaction(engine) as connection:
            for _ in range(times):
                connection.execute(keys.insert().values(id="key_1", tenant="t", name="n", digest="d", created_at=1))

    with pytest.raises(sa.exc.IntegrityError):
        insert(times=2)
    insert(times=1)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM keys").scalar() == 1
    engine.dispose()
