"""The admin API: a small Starlette application over the operations of a fleet.

It is slow traffic, so a framework serves it; nothing of the data plane goes through here.
"""

from collections.abc import Collection
from typing import TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pilothouse.console import readiness
from pilothouse.console.errors import JSON, error_response
from pilothouse.console.guard import Guard
from pilothouse.console.openapi import openapi_document
from pilothouse.console.operations import FleetOperations
from pilothouse.model.errors import PilothouseError

_Body = TypeVar("_Body")

MAX_BODY_BYTES = 64 * 1024  # no body of this API has more than a few fields


class ReloadRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a reload: an empty object."""


def build_app(operations: FleetOperations, *, token: str, allowed_hosts: Collection[str] = ("localhost",)) -> Starlette:
    """The application.

    `token` is the fleet's admin token. `allowed_hosts` are the names, without port, that it may be called by; an
    address always may.
    """
    document = msgspec.json.encode(openapi_document())

    async def livez(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        found = readiness.checks(operations.status())
        ready = all(check.ok for check in found)
        if ready and "verbose" not in request.query_params:
            return PlainTextResponse("ok\n")
        return PlainTextResponse(readiness.render(found), status_code=200 if ready else 503)

    async def metrics(request: Request) -> Response:
        exposition = operations.metrics_text(request.headers.get("accept", ""))
        return Response(exposition.body, headers={"content-type": exposition.content_type})

    async def fleet(request: Request) -> Response:
        return _json(operations.status())

    async def reload(request: Request) -> Response:
        await _decoded(request, ReloadRequest)
        return _json(await operations.reload())

    async def openapi(request: Request) -> Response:
        return Response(document, media_type=JSON)

    routes = [
        Route("/livez", livez, methods=["GET"]),
        Route("/readyz", readyz, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
        Route("/openapi.json", openapi, methods=["GET"]),
        Route("/v1/fleet", fleet, methods=["GET"]),
        Route("/v1/fleet/reload", reload, methods=["POST"]),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, token=token, allowed_hosts=allowed_hosts)],
        exception_handlers={HTTPException: _not_routed, PilothouseError: _failed},
    )
    app.router.redirect_slashes = False
    return app


def _json(value: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(value), media_type=JSON)


async def _decoded(request: Request, shape: type[_Body]) -> _Body:
    """The request's body as `shape`. Raises PilothouseError for what is not declared as JSON, too large or not it."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != JSON:
        raise PilothouseError("unsupported_media_type", f"The body has to be {JSON}.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise PilothouseError(
                "body_too_large", f"The body has more than {MAX_BODY_BYTES} bytes.", hint="Send a smaller body."
            )
    try:
        return msgspec.json.decode(body or b"{}", type=shape)
    except msgspec.ValidationError as error:
        raise PilothouseError("invalid_value", f"The body does not fit: {error}") from error
    except msgspec.DecodeError as error:
        raise PilothouseError("invalid_json", f"The body is not JSON: {error}") from error


def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, PilothouseError)
    return error_response(error)


def _not_routed(request: Request, error: Exception) -> Response:
    """Starlette's own refusals: no such path, no such method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        refusal = PilothouseError("method_not_allowed", f"{request.url.path} does not take {request.method}.")
        return error_response(refusal, dict(error.headers or {}))
    return error_response(
        PilothouseError(
            "unknown_url",
            f"There is nothing at {request.url.path}.",
            hint="docs/reference/admin-api.md and /openapi.json list what there is.",
        )
    )
