"""Errors as the admin API sends them: `{"error": {"code", "message", "hint", "docs"}}`."""

import msgspec
from starlette.responses import Response

from pilothouse.model.errors import Category, PilothouseError

JSON = "application/json"

# For errors that the table gives no status, since the command line is where they are usually shown.
_STATUS_BY_CATEGORY = {Category.CONFIG: 422, Category.HOST: 409}


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    """`code` is in the error table; `hint` says what to do; `docs` is where it is described."""

    code: str
    message: str
    hint: str
    docs: str


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every answer that is not a success."""

    error: ErrorDetail


def status_of(error: PilothouseError) -> int:
    """The HTTP status of an error."""
    return error.spec.status or _STATUS_BY_CATEGORY.get(error.spec.category, 500)


def error_response(error: PilothouseError, headers: dict[str, str] | None = None) -> Response:
    """The answer to a request that failed with `error`."""
    detail = ErrorDetail(code=error.code, message=error.message, hint=error.hint, docs=error.spec.anchor)
    all_headers = dict(headers or {})
    status = status_of(error)
    if status == 401:
        all_headers["www-authenticate"] = "Bearer"
    if error.spec.retry_after_s is not None:
        all_headers["retry-after"] = str(error.spec.retry_after_s)
    return Response(
        msgspec.json.encode(ErrorBody(error=detail)), status_code=status, headers=all_headers, media_type=JSON
    )
