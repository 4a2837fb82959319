"""Refusals, with bodies as vLLM sends them (vllm/entrypoints, 0.33)."""

from http import HTTPStatus
from typing import Any

import msgspec

UNAUTHORIZED = b'{"error":"Unauthorized"}'


class RequestRefusedError(Exception):
    """The engine says no to a request: an HTTP status, vLLM's error type, a message, the parameter at fault."""

    def __init__(self, status: int, message: str, *, kind: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind or HTTPStatus(status).phrase
        self.param = param

    def body(self, *, anthropic: bool = False) -> bytes:
        """The error object as JSON, in the dialect of the route."""
        return msgspec.json.encode(error_object(self, anthropic=anthropic))


def bad_request(message: str, param: str | None = None) -> RequestRefusedError:
    """A request that cannot be served as it is."""
    return RequestRefusedError(400, message, kind="BadRequestError", param=param)


def unknown_model(model: str) -> RequestRefusedError:
    """A model under another name than the served one."""
    return RequestRefusedError(404, f"The model `{model}` does not exist.", kind="NotFoundError", param="model")


def failure(status: int = 500, message: str = "EngineCore encountered an issue.") -> RequestRefusedError:
    """The engine broke."""
    return RequestRefusedError(status, message, kind="InternalServerError" if status == 500 else None)


def error_object(refusal: RequestRefusedError, *, anthropic: bool = False) -> dict[str, Any]:
    """The error object as a value."""
    if anthropic:
        kind = "not_found_error" if refusal.status == 404 else "invalid_request_error"
        if refusal.status >= 500:
            kind = "api_error"
        return {"type": "error", "error": {"type": kind, "message": refusal.message}}
    error = {"message": refusal.message, "type": refusal.kind, "param": refusal.param, "code": refusal.status}
    return {"error": error}
