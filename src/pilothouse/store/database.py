"""Opening the fleet's database, with the schema of this release: a private SQLite file, or PostgreSQL by its URL.

Several processes open it at once (the controllers, commands): whoever comes first brings the schema up to date, in one
transaction that the others wait for.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa

from pilothouse.model.errors import PilothouseError
from pilothouse.store.private_files import unreadable_state

SCHEMA_REVISION = "0002"
"""The last step in `migrations/versions/`, so that an open need not load Alembic to know that there is none to take."""

_BUSY_TIMEOUT_MS = 10_000  # longer than the longest transaction here, a migration
_RETRY_S = 0.01
_MIGRATIONS = Path(__file__).parent / "migrations"


DatabasePlace = Path | str
"""The file of a SQLite database, or the URL of a PostgreSQL one (`postgresql://user:password@host/name`)."""

_WRITE_LOCK = 0x70696C6F74  # "pilot": the advisory lock of PostgreSQL that writers of this program share


def open_database(place: DatabasePlace) -> sa.Engine:
    """An engine on the database, made and migrated where that is due. The caller disposes of it.

    Raises:
        PilothouseError: state_unreadable when it cannot be used, or was made by a later release;
            extra_not_installed when the driver of PostgreSQL is missing.
    """
    with database_errors(place):
        engine = _open_file(place) if isinstance(place, Path) else _open_server(place)
        try:
            _bring_up_to_date(engine, place)
        except BaseException:
            engine.dispose()
            raise
        return engine


def shown(place: DatabasePlace) -> str:
    """The database's name for messages, without a password."""
    return str(place) if isinstance(place, Path) else sa.make_url(place).render_as_string(hide_password=True)


@contextlib.contextmanager
def transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that has the write lock from its start, so that what it reads stays true until it ends."""
    with engine.connect() as connection:
        is_file = connection.dialect.name == "sqlite"
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_file else "BEGIN")
        try:
            if not is_file:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITE_LOCK})")
            yield connection
        except BaseException:
            connection.exec_driver_sql("ROLLBACK")
            raise
        connection.exec_driver_sql("COMMIT")


def _open_file(path: Path) -> sa.Engine:
    with unreadable_state(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Made here rather than by SQLite, for the mode; SQLite gives its side files the same one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
    engine = sa.create_engine(f"sqlite:///{path}", isolation_level="AUTOCOMMIT")
    sa.event.listen(engine, "connect", _prepare_connection)
    return engine


def _open_server(url: str) -> sa.Engine:
    try:
        return sa.create_engine(
            sa.make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT", pool_pre_ping=True
        )
    except ImportError as error:
        raise PilothouseError(
            "extra_not_installed", "PostgreSQL needs its driver.", hint="pip install 'pilothouse[postgresql]'"
        ) from error


@contextlib.contextmanager
def database_errors(place: DatabasePlace) -> Iterator[None]:
    """Turn what the database says into a message about it.

    Raises:
        PilothouseError: state_unreadable.
    """
    try:
        yield
    except (sa.exc.SQLAlchemyError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        raise PilothouseError(
            "state_unreadable", f"{shown(place)}: {cause}", hint=_advice(place, str(cause))
        ) from error


def _advice(place: DatabasePlace, message: str) -> str:
    if not isinstance(place, Path):
        return "Check that the server runs, and the user's rights on the database."
    if "locked" in message:
        return "Another process has been writing for long; stop it, or try again."
    if "not a database" in message or "malformed" in message:
        return f"Restore {place.name} from a backup, or move it away: a new one is then made, without any key."
    return f"Check the owner, the mode and the free space of {place.parent}."


def _prepare_connection(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
    _use_write_ahead_log(connection)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """SQLite does not wait by itself for another process that is at this very step with a new file."""
    give_up = time.monotonic() + _BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(_RETRY_S)
        else:
            return


def _bring_up_to_date(engine: sa.Engine, place: DatabasePlace) -> None:
    with engine.connect() as connection:
        if _revision(connection) == SCHEMA_REVISION:
            return
    with transaction(engine) as connection:
        # Another process may have done it while this one waited for the lock.
        found = _revision(connection)
        if found != SCHEMA_REVISION:
            _migrate(connection, found, place)


def _revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()


def _migrate(connection: sa.Connection, found: str | None, place: DatabasePlace) -> None:
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
            f"{shown(place)} has schema {found}, which this release does not know",
            hint="It was written by a later release of Pilothouse: use that one, or another state directory.",
        )
    command.upgrade(config, "head")
