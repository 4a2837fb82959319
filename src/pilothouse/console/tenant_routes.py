"""The routes of organisations, tenants, keys, usage and the audit log.

Changes are POST with JSON, as everywhere on the admin listener. The database is asked in a thread: a slow one delays
nobody else.
"""

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pilothouse.console import tenant_bodies as bodies
from pilothouse.console.bodies import decoded, json_response
from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import KeyId, OrganisationId, TenantId
from pilothouse.model.ledger import UsageBy
from pilothouse.model.units import seconds
from pilothouse.store.ledger import Ledger
from pilothouse.store.tenants import TenantStore

MAX_AUDIT_ENTRIES = 1000

ACTOR = "admin token"
"""There is one admin credential, so this is who makes every change."""

_Answer = TypeVar("_Answer", bound=msgspec.Struct)


class TenantAdministration:
    """What the routes work on. `changed` is called after every change, for the workers to hear of it."""

    def __init__(self, store: TenantStore, ledger: Ledger, changed: Callable[[], Awaitable[None]]) -> None:
        self.store = store
        self.ledger = ledger
        self.changed = changed

    async def ask(self, question: Callable[[], _Answer]) -> Response:
        """Answer with what the database says."""
        return json_response(await asyncio.to_thread(question))

    async def change(self, change: Callable[[], _Answer]) -> Response:
        """Answer with what the database has now."""
        answer = await asyncio.to_thread(change)
        await self.changed()
        return json_response(answer)


def tenant_routes(admin: TenantAdministration) -> list[Route]:
    """All of them."""
    return [*_organisations(admin), *_tenants(admin), *_keys(admin), *_records(admin)]


def _organisations(admin: TenantAdministration) -> list[Route]:
    store = admin.store

    async def listed(request: Request) -> Response:
        _only(request)
        return await admin.ask(lambda: bodies.Organisations(organisations=store.organisations()))

    async def create(request: Request) -> Response:
        body = await decoded(request, bodies.NewOrganisation)
        return await admin.change(lambda: store.create_organisation(body.record(), ACTOR))

    async def show(request: Request) -> Response:
        _only(request)
        return await admin.ask(lambda: store.organisation(OrganisationId(request.path_params["id"])))

    async def update(request: Request) -> Response:
        change = bodies.changes(await decoded(request, bodies.ChangedOrganisation))
        id_ = OrganisationId(request.path_params["id"])
        return await admin.change(lambda: store.update_organisation(id_, change, ACTOR))

    return [*_both("/v1/organisations", listed, create), *_both("/v1/organisations/{id}", show, update)]


def _tenants(admin: TenantAdministration) -> list[Route]:
    store = admin.store

    async def listed(request: Request) -> Response:
        _only(request, "organisation")
        organisation = request.query_params.get("organisation")
        chosen = None if organisation is None else OrganisationId(organisation)
        return await admin.ask(lambda: bodies.Tenants(tenants=store.tenants(chosen)))

    async def create(request: Request) -> Response:
        body = await decoded(request, bodies.NewTenant)
        return await admin.change(lambda: store.create_tenant(body.record(), ACTOR))

    async def show(request: Request) -> Response:
        _only(request)
        return await admin.ask(lambda: store.tenant(TenantId(request.path_params["id"])))

    async def update(request: Request) -> Response:
        change = bodies.changes(await decoded(request, bodies.ChangedTenant))
        return await admin.change(lambda: store.update_tenant(TenantId(request.path_params["id"]), change, ACTOR))

    async def revoke(request: Request) -> Response:
        await decoded(request, bodies.Nothing)
        return await admin.change(lambda: store.revoke_tenant(TenantId(request.path_params["id"]), ACTOR))

    return [
        *_both("/v1/tenants", listed, create),
        *_both("/v1/tenants/{id}", show, update),
        Route("/v1/tenants/{id}/revoke", revoke, methods=["POST"]),
    ]


def _keys(admin: TenantAdministration) -> list[Route]:
    store = admin.store

    async def listed(request: Request) -> Response:
        _only(request, "tenant")
        tenant = request.query_params.get("tenant")
        return await admin.ask(lambda: bodies.Keys(keys=store.keys(None if tenant is None else TenantId(tenant))))

    async def create(request: Request) -> Response:
        body = await decoded(request, bodies.NewKeyRequest)
        return await admin.change(lambda: store.create_key(body.record(), ACTOR))

    async def show(request: Request) -> Response:
        _only(request)
        return await admin.ask(lambda: store.key(KeyId(request.path_params["id"])))

    async def update(request: Request) -> Response:
        change = bodies.changes(await decoded(request, bodies.ChangedKey))
        return await admin.change(lambda: store.update_key(KeyId(request.path_params["id"]), change, ACTOR))

    async def revoke(request: Request) -> Response:
        await decoded(request, bodies.Nothing)
        return await admin.change(lambda: store.revoke_key(KeyId(request.path_params["id"]), ACTOR))

    async def rotate(request: Request) -> Response:
        grace = seconds((await decoded(request, bodies.Rotation)).grace_s)
        return await admin.change(lambda: store.rotate_key(KeyId(request.path_params["id"]), grace, ACTOR))

    return [
        *_both("/v1/keys", listed, create),
        *_both("/v1/keys/{id}", show, update),
        Route("/v1/keys/{id}/revoke", revoke, methods=["POST"]),
        Route("/v1/keys/{id}/rotate", rotate, methods=["POST"]),
    ]


def _records(admin: TenantAdministration) -> list[Route]:
    async def usage(request: Request) -> Response:
        _only(request, "by", "first_day", "last_day", "tenant")
        by = [_choice(name) for name in request.query_params.get("by", "").split(",") if name]
        first, last = _day(request, "first_day"), _day(request, "last_day")
        tenant = request.query_params.get("tenant")
        return await admin.ask(
            lambda: bodies.Usage(
                usage=admin.ledger.usage(list(dict.fromkeys(by)), first_day=first, last_day=last, tenant=tenant)
            )
        )

    async def audit(request: Request) -> Response:
        _only(request, "before", "limit")
        before = _number(request, "before", None, (1 << 63) - 1)
        limit = _number(request, "limit", 100, MAX_AUDIT_ENTRIES)
        assert limit is not None
        return await admin.ask(lambda: bodies.AuditLog(entries=admin.store.audit(before=before, limit=limit)))

    return [Route("/v1/usage", usage, methods=["GET"]), Route("/v1/audit", audit, methods=["GET"])]


_Handler = Callable[[Request], Awaitable[Response]]


def _both(path: str, get: _Handler, post: _Handler) -> list[Route]:
    """One route for both methods, so that others are told of both."""

    async def either(request: Request) -> Response:
        return await (post if request.method == "POST" else get)(request)

    return [Route(path, either, methods=["GET", "POST"])]


def _only(request: Request, *names: str) -> None:
    """Refuse parameters that nobody reads: a misspelled one would be answered with more than was asked for."""
    for name in request.query_params:
        if name not in names:
            raise PilothouseError("invalid_value", f"{name!r} is not a parameter of this call.")


def _choice(name: str) -> UsageBy:
    try:
        return UsageBy(name)
    except ValueError as error:
        known = ", ".join(UsageBy)
        raise PilothouseError("invalid_value", f"by: {name!r} is none of {known}.") from error


def _day(request: Request, name: str) -> dt.date | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        day = dt.date.fromisoformat(text)
    except ValueError as error:
        raise PilothouseError("invalid_value", f"{name}: {text!r} is not a day as YYYY-MM-DD.") from error
    if len(text) != 10:
        raise PilothouseError("invalid_value", f"{name}: {text!r} is not a day as YYYY-MM-DD.")
    return day


def _number(request: Request, name: str, default: int | None, most: int) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:20]) <= most or len(text) > 20:
        raise PilothouseError("invalid_value", f"{name}: {text!r} is not a number from 1 to {most}.")
    return int(text)
