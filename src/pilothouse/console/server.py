"""How the admin application is served: uvicorn on a socket that somebody else bound, without its own ideas."""

import contextlib
import socket
from collections.abc import Generator

import uvicorn
from starlette.types import ASGIApp

KEEP_ALIVE_S = 5  # uvicorn's default: scrapers come every 15 s or more
MAX_CONNECTIONS = 256  # far above a console, a scraper and a few commands; beyond it uvicorn answers 503
SHUTDOWN_S = 3  # a reload may be under way; the controller has replicas to stop after this


class AdminServer(uvicorn.Server):
    """A uvicorn server that leaves signals alone: the process that runs it has its own way to end.

    `await serve_on(sock)` until `should_exit` is set to True.
    """

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=MAX_CONNECTIONS,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=SHUTDOWN_S,
            )
        )

    async def serve_on(self, sock: socket.socket) -> None:
        """Serve on a bound socket until `should_exit`, then finish what is running. The socket is closed then."""
        await self.serve(sockets=[sock])

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture none."""
        yield
