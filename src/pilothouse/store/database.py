"""Opening the fleet's SQLite database: private, in WAL mode, with the schema of this release.

Several processes open it at once (the controller, commands): whoever comes first brings the schema up to date, in one
transaction that the others wait for.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa

from pilothouse.model.errors import PilothouseError
from pilothouse.store.private_files import unreadable_state

SCHEMA_REVISION = "0001"
"""The last step in `migrations/versions/`, so that an open need not load Alembic to know that there is none to take."""

_BUSY_TIMEOUT_MS = 10_000  # longer than the longest transaction here, a migration
_MIGRATIONS = Path(__file__).parent / "migrations"


def open_database(path: Path) -> sa.Engine:
    """An engine on the database, created and migrated where that is due. The caller disposes of it.

    Raises:
        PilothouseError: state_unreadable when the file cannot be used, or was made by a later release.
    """
    with database_errors(path):
        with unreadable_state(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Made here rather than by SQLite, for the mode; SQLite gives its side files the same one.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            path.chmod(0o600)
        engine = sa.create_engine(f"sqlite:///{path}", isolation_level="AUTOCOMMIT")
        sa.event.listen(engine, "connect", _prepare_connection)
        try:
            _bring_up_to_date(engine, path)
        except BaseException:
            engine.dispose()
            raise
        return engine


@contextlib.contextmanager
def transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that has the write lock from its start, so that what it reads stays true until it ends."""
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.exec_driver_sql("ROLLBACK")
            raise
        connection.exec_driver_sql("COMMIT")


@contextlib.contextmanager
def database_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite says into a message about the file.

    Raises:
        PilothouseError: state_unreadable.
    """
    try:
        yield
    except (sa.exc.DBAPIError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        raise PilothouseError("state_unreadable", f"{path}: {cause}", hint=_advice(path, str(cause))) from error


def _advice(path: Path, message: str) -> str:
    if "locked" in message:
        return "Another process has been writing for long; stop it, or try again."
    if "not a database" in message or "malformed" in message:
        return f"Restore {path.name} from a backup, or move it away: a new one is then made, without any key."
    return f"Check the owner, the mode and the free space of {path.parent}."


def _prepare_connection(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _bring_up_to_date(engine: sa.Engine, path: Path) -> None:
    with engine.connect() as connection:
        if _revision(connection) == SCHEMA_REVISION:
            return
    with transaction(engine) as connection:
        # Another process may have done it while this one waited for the lock.
        found = _revision(connection)
        if found != SCHEMA_REVISION:
            _migrate(connection, found, path)


def _revision(connection: sa.Connection) -> str | None:
    has_table = connection.exec_driver_sql("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").first()
    if has_table is None:
        return None
    return connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()


def _migrate(connection: sa.Connection, found: str | None, path: Path) -> None:
    # Loading Alembic takes a tenth of a second, which only the first open of a new schema has to pay.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise PilothouseError(
            "state_unreadable",
            f"{path} has schema {found}, which this release does not know",
            hint="It was written by a later release of Pilothouse: use that one, or another state directory.",
        )
    command.upgrade(config, "head")
