"""Bodies of the admin API: decoded with a bound, and encoded."""

from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pilothouse.console.errors import JSON
from pilothouse.model.errors import PilothouseError

MAX_BODY_BYTES = 64 * 1024  # no body of this API has more than a few fields

_Body = TypeVar("_Body")


def json_response(value: msgspec.Struct) -> Response:
    """The answer to a call that did what it says."""
    return Response(msgspec.json.encode(value), media_type=JSON)


async def decoded(request: Request, shape: type[_Body]) -> _Body:
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
