"""The admin API: a small Starlette application over the operations of a fleet.

It is slow traffic, so a framework serves it; nothing of the data plane goes through here.
"""

from collections.abc import Collection

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pilothouse.console import readiness
from pilothouse.console.bodies import decoded, json_response
from pilothouse.console.errors import JSON, error_response
from pilothouse.console.guard import Guard
from pilothouse.console.openapi import openapi_document
from pilothouse.console.operations import FleetOperations
from pilothouse.console.tenant_routes import TenantAdministration, tenant_routes
from pilothouse.model.errors import PilothouseError


class ReloadRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a reload: an empty object."""


def build_app(
    operations: FleetOperations,
    *,
    token: str,
    allowed_hosts: Collection[str] = ("localhost",),
    tenants: TenantAdministration | None = None,
) -> Starlette:
    """The application.

    `token` is the fleet's admin token. `allowed_hosts` are the names, without port, that it may be called by; an
    address always may. Without `tenants` there are no routes for them.
    """
    document = msgspec.json.encode(openapi_document(with_tenants=tenants is not None))

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
        return json_response(operations.status())

    async def reload(request: Request) -> Response:
        await decoded(request, ReloadRequest)
        return json_response(await operations.reload())

    async def openapi(request: Request) -> Response:
        return Response(document, media_type=JSON)

    routes = [
        Route("/livez", livez, methods=["GET"]),
        Route("/readyz", readyz, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
        Route("/openapi.json", openapi, methods=["GET"]),
        Route("/v1/fleet", fleet, methods=["GET"]),
        Route("/v1/fleet/reload", reload, methods=["POST"]),
        *(tenant_routes(tenants) if tenants is not None else ()),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, token=token, allowed_hosts=allowed_hosts)],
        exception_handlers={HTTPException: _not_routed, PilothouseError: _failed},
    )
    app.router.redirect_slashes = False
    return app


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
