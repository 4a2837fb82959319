"""The admin API in OpenAPI 3.1: served at /openapi.json, and the source of docs/reference/admin-api.md."""

from typing import Any

import msgspec

import pilothouse
from pilothouse.console.errors import JSON, ErrorBody
from pilothouse.console.guard import OPEN_PATHS
from pilothouse.console.tenant_openapi import TENANT_SHAPES, tenant_paths
from pilothouse.model.status import FleetStatus, ReloadResult

_TEXT = {"text/plain": {"schema": {"type": "string"}}}


def openapi_document(*, with_tenants: bool = True) -> dict[str, Any]:
    """The whole document, ready to be encoded as JSON; without the routes of tenants where there are none."""
    (status, reload_result, error, *tenant_schemas), schemas = msgspec.json.schema_components(
        (FleetStatus, ReloadResult, ErrorBody, *(TENANT_SHAPES if with_tenants else ())),
        ref_template="#/components/schemas/{name}",
    )
    paths = {
        "/livez": {"get": _operation("getLivez", "Whether the process answers. Checks nothing else.", {"200": _ok()})},
        "/readyz": {"get": _readyz()},
        "/metrics": {
            "get": _operation(
                "getMetrics",
                "All metrics, as Prometheus text, or as OpenMetrics if the accept header asks for it.",
                {
                    "200": {
                        "description": "The metrics.",
                        "content": _TEXT | {"application/openmetrics-text": _TEXT["text/plain"]},
                    }
                },
            )
        },
        "/openapi.json": {"get": _operation("getOpenApi", "This document.", {"200": _json("It.", {"type": "object"})})},
        "/v1/fleet": {"get": _operation("getFleet", "The fleet as it is now.", {"200": _json("Its status.", status)})},
        "/v1/fleet/reload": {"post": _reload(reload_result)},
    }
    if with_tenants:
        paths |= tenant_paths(dict(zip(TENANT_SHAPES, tenant_schemas, strict=True)))
    for path, operations in paths.items():
        for operation in operations.values():
            _add_refusals(operation, error, is_open=path in OPEN_PATHS)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pilothouse admin API",
            "version": pilothouse.__version__,
            "description": "The controller's listener: health, metrics, and the state of the fleet and changes to it.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "adminToken": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "What the file admin_token in the fleet's state directory holds.",
                }
            },
        },
        "security": [{"adminToken": []}],
    }


def _readyz() -> dict[str, Any]:
    operation = _operation(
        "getReadyz",
        "Whether the fleet can serve: a worker is connected, and each model has a replica that is Ready.",
        {"200": _ok(), "503": {"description": "It cannot; the body lists the checks.", "content": _TEXT}},
    )
    operation["parameters"] = [
        {
            "name": "verbose",
            "in": "query",
            "allowEmptyValue": True,
            "description": "List the checks also when all of them hold.",
            "schema": {"type": "string"},
        }
    ]
    return operation


def _reload(result: dict[str, Any]) -> dict[str, Any]:
    operation = _operation(
        "reloadFleet",
        "Read the fleet file again and change the fleet accordingly. A bad file changes nothing.",
        {"200": _json("What changed, one line for each.", result)},
    )
    operation["requestBody"] = {
        "required": False,
        "content": {JSON: {"schema": {"type": "object", "additionalProperties": False}}},
    }
    refusals = {
        "400": "The body is not JSON, or not an empty object.",
        "409": "The host does not allow what the fleet file asks for.",
        "413": "The body is too large.",
        "415": "The content-type is not application/json.",
        "422": "The fleet file has errors; the message has every one, with file and line.",
    }
    operation["responses"] |= {status: {"description": description} for status, description in refusals.items()}
    return operation


def _operation(name: str, summary: str, responses: dict[str, Any]) -> dict[str, Any]:
    return {"operationId": name, "summary": summary, "responses": responses}


def _ok() -> dict[str, Any]:
    return {"description": "Yes.", "content": _TEXT}


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {JSON: {"schema": schema}}}


def _add_refusals(operation: dict[str, Any], error: dict[str, Any], *, is_open: bool) -> None:
    """What any call may be answered, and the error object for every refusal."""
    responses = operation["responses"]
    if is_open:
        operation["security"] = []
    else:
        responses["401"] = {"description": "The admin token is missing or wrong."}
    responses["403"] = {"description": "The Host header or the origin is not this listener's."}
    responses["500"] = {"description": "The controller failed; its log says why."}
    for response in responses.values():
        response.setdefault("content", {JSON: {"schema": error}})
    operation["responses"] = dict(sorted(responses.items()))
