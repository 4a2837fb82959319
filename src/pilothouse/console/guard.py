"""What stands before every route of the admin listener: who may call, from where, and what no answer lacks.

The listener is on loopback, and so is every web page that the operator opens: the Host header is checked against
DNS rebinding, calls that another site's page makes are refused, and nothing but health and metrics is told without
the fleet's admin token.
"""

import hmac
import ipaddress
import logging
import re
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pilothouse.console.errors import error_response
from pilothouse.model.errors import PilothouseError

OPEN_PATHS = frozenset({"/livez", "/readyz", "/metrics"})

_HOST = re.compile(r"(\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:]+))(:[0-9]*)?")

_log = logging.getLogger("pilothouse.console")


class Guard:
    """ASGI middleware. A host name must be in `allowed_hosts`; an address always may, for no DNS can rebind it."""

    def __init__(self, app: ASGIApp, *, token: str, allowed_hosts: Collection[str]) -> None:
        self._app = app
        self._token = token.encode()
        self._allowed_hosts = frozenset(host.lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refusal, or let the application answer."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})  # browsers open them across origins, and no route speaks it
            return
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_hardened(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers["cache-control"] = "no-store"
                headers["x-content-type-options"] = "nosniff"
            await send(message)

        try:
            self._check(scope["path"], Headers(scope=scope))
            await self._app(scope, receive, send_hardened)
        except PilothouseError as refusal:
            await error_response(refusal)(scope, receive, send_hardened)
        except Exception:
            _log.exception("admin request failed", extra={"method": scope["method"], "path": scope["path"]})
            if started:
                raise
            failure = PilothouseError("internal_error", "The request could not be carried out; the log says why.")
            await error_response(failure)(scope, receive, send_hardened)

    def _check(self, path: str, headers: Headers) -> None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            raise PilothouseError("host_not_allowed", "The Host header is not an address of this listener.")
        if not _is_same_origin(headers, hosts[0]):
            raise PilothouseError("origin_not_allowed", "Calls from another site's page are refused.")
        if path not in OPEN_PATHS:
            self._check_token(headers.getlist("authorization"))

    def _is_own(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match["name"] or match["v6"]
        if name.lower() in self._allowed_hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _check_token(self, values: list[str]) -> None:
        scheme, _, sent = values[0].partition(" ") if len(values) == 1 else ("", "", "")
        if scheme.lower() != "bearer":
            raise PilothouseError("admin_token_required", "No admin token was sent.")
        if not hmac.compare_digest(sent.strip().encode("latin-1"), self._token):
            raise PilothouseError("admin_token_required", "The token sent is not this fleet's admin token.")


def _is_same_origin(headers: Headers, host: str) -> bool:
    """Whether no browser says that the call comes from elsewhere. Programs send neither header."""
    origins = headers.getlist("origin")
    if any(origin not in (f"http://{host}", f"https://{host}") for origin in origins):
        return False
    return headers.get("sec-fetch-site", "none") in ("none", "same-origin")
