"""The part of the OpenAPI document that describes organisations, tenants, keys, usage and the audit log."""

from collections.abc import Mapping
from typing import Any

from pilothouse.console import tenant_bodies as bodies
from pilothouse.console.errors import JSON
from pilothouse.console.tenant_routes import MAX_AUDIT_ENTRIES
from pilothouse.model.ledger import UsageBy
from pilothouse.model.tenant_records import KeyRecord, NewKey, OrganisationRecord, TenantRecord

TENANT_SHAPES: tuple[type, ...] = (
    OrganisationRecord,
    TenantRecord,
    KeyRecord,
    NewKey,
    bodies.Organisations,
    bodies.Tenants,
    bodies.Keys,
    bodies.AuditLog,
    bodies.Usage,
    bodies.NewOrganisation,
    bodies.ChangedOrganisation,
    bodies.NewTenant,
    bodies.ChangedTenant,
    bodies.NewKeyRequest,
    bodies.ChangedKey,
    bodies.Rotation,
    bodies.Nothing,
)
"""Every shape of a body, in the order of their schemas."""

_Schemas = Mapping[type, dict[str, Any]]


def tenant_paths(schemas: _Schemas) -> dict[str, dict[str, Any]]:
    """The paths. `schemas` has a reference for each of `TENANT_SHAPES`."""
    day = {"type": "string", "format": "date"}
    return {
        "/v1/organisations": {
            "get": _get(schemas, "listOrganisations", "All organisations.", bodies.Organisations),
            "post": _post(
                schemas,
                "createOrganisation",
                "Make an organisation.",
                bodies.NewOrganisation,
                OrganisationRecord,
                new=True,
            ),
        },
        "/v1/organisations/{id}": {
            "get": _get(schemas, "getOrganisation", "One organisation.", OrganisationRecord, named=True),
            "post": _post(
                schemas,
                "updateOrganisation",
                "Set some fields of an organisation.",
                bodies.ChangedOrganisation,
                OrganisationRecord,
                named=True,
            ),
        },
        "/v1/tenants": {
            "get": _get(
                schemas,
                "listTenants",
                "All tenants, or an organisation's.",
                bodies.Tenants,
                [_query("organisation", "Only its tenants.")],
            ),
            "post": _post(
                schemas,
                "createTenant",
                "Make one, and its organisation.",
                bodies.NewTenant,
                TenantRecord,
                new=True,
            ),
        },
        "/v1/tenants/{id}": {
            "get": _get(schemas, "getTenant", "One tenant.", TenantRecord, named=True),
            "post": _post(
                schemas, "updateTenant", "Set some fields of a tenant.", bodies.ChangedTenant, TenantRecord, named=True
            ),
        },
        "/v1/tenants/{id}/revoke": {
            "post": _post(
                schemas, "revokeTenant", "Accept no key of it any more.", bodies.Nothing, TenantRecord, named=True
            )
        },
        "/v1/keys": {
            "get": _get(
                schemas, "listKeys", "All keys, or a tenant's.", bodies.Keys, [_query("tenant", "Only its keys.")]
            ),
            "post": _post(
                schemas,
                "createKey",
                "Make a key. The answer has its secret, which is not shown again.",
                bodies.NewKeyRequest,
                NewKey,
                needs="The tenant does not exist.",
            ),
        },
        "/v1/keys/{id}": {
            "get": _get(schemas, "getKey", "One key.", KeyRecord, named=True),
            "post": _post(schemas, "updateKey", "Set some fields.", bodies.ChangedKey, KeyRecord, named=True),
        },
        "/v1/keys/{id}/revoke": {
            "post": _post(schemas, "revokeKey", "Accept it no more.", bodies.Nothing, KeyRecord, named=True)
        },
        "/v1/keys/{id}/rotate": {
            "post": _post(
                schemas,
                "rotateKey",
                "Make a key with the same rights; the old one expires after a time.",
                bodies.Rotation,
                NewKey,
                named=True,
            )
        },
        "/v1/usage": {
            "get": _get(
                schemas,
                "getUsage",
                "Turns added up.",
                bodies.Usage,
                [
                    _query(
                        "by",
                        "What to add up by, separated by commas.",
                        {"type": "array", "items": {"enum": list(UsageBy)}},
                    )
                    | {"style": "form", "explode": False},
                    _query("first_day", "Turns of this day of UTC and later.", day),
                    _query("last_day", "Turns of this day of UTC and earlier.", day),
                    _query("tenant", "Only its turns."),
                ],
            )
        },
        "/v1/audit": {
            "get": _get(
                schemas,
                "getAuditLog",
                "The newest changes, or those before an entry.",
                bodies.AuditLog,
                [
                    _query(
                        "before",
                        "Entries older than the one of this id.",
                        {"type": "integer", "minimum": 1, "maximum": (1 << 63) - 1},
                    ),
                    _query(
                        "limit", "How many at most.", {"type": "integer", "minimum": 1, "maximum": MAX_AUDIT_ENTRIES}
                    ),
                ],
            )
        },
    }


def _get(
    schemas: _Schemas,
    name: str,
    summary: str,
    answer: type,
    parameters: list[dict[str, Any]] | None = None,
    *,
    named: bool = False,
) -> dict[str, Any]:
    operation = _operation(name, summary, schemas[answer], named=named)
    operation["parameters"] += parameters or []
    operation["responses"]["400"] = {"description": "A parameter is wrong, or not known."}
    operation["responses"]["409"] = {"description": "The database cannot be used."}
    return operation


def _post(
    schemas: _Schemas,
    name: str,
    summary: str,
    body: type,
    answer: type,
    *,
    named: bool = False,
    new: bool = False,
    needs: str | None = None,
) -> dict[str, Any]:
    operation = _operation(name, summary, schemas[answer], named=named)
    operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schemas[body]}}}
    taken = "The id is taken, or the database cannot be used." if new else "The database cannot be used."
    refusals = {
        "400": "The body does not fit.",
        "409": taken,
        "413": "The body is too large.",
        "415": "The content-type is not application/json.",
    }
    if needs is not None:
        refusals["404"] = needs
    operation["responses"] |= {status: {"description": description} for status, description in refusals.items()}
    return operation


def _operation(name: str, summary: str, schema: dict[str, Any], *, named: bool) -> dict[str, Any]:
    responses: dict[str, Any] = {"200": {"description": "It.", "content": {JSON: {"schema": schema}}}}
    parameters = []
    if named:
        responses["404"] = {"description": "There is none of that id."}
        parameters = [
            {"name": "id", "in": "path", "required": True, "description": "The id.", "schema": {"type": "string"}}
        ]
    return {"operationId": name, "summary": summary, "parameters": parameters, "responses": responses}


def _query(name: str, description: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema or {"type": "string"}}
