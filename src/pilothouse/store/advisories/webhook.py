"""Tells a URL of the operator's that the posture of a deployment has become worse."""

import asyncio
import logging

import httpx2
import msgspec

from pilothouse.model.posture import Outcome
from pilothouse.store.operator_url import OperatorUrl

ATTEMPTS = 4
FIRST_PAUSE_S = 1.0
_TIMEOUT_S = 10.0

_logger = logging.getLogger(__name__)


class PostureWorsened(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent. `at` is RFC 3339; `upgrade_to` is the lowest version that clears it, `None` if none is known."""

    fleet: str
    deployment: str
    outcome: Outcome
    without: tuple[str, ...]
    headline: str
    reasons: tuple[str, ...]
    upgrade_to: str | None
    at: str
    event: str = "posture.worsened"


async def tell(url: str, message: PostureWorsened, *, allow_private: bool) -> None:
    """POST the message; a few times, with growing pauses, if it is not taken. What remains untold is in the log."""
    problem = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            await asyncio.sleep(FIRST_PAUSE_S * 2 ** (attempt - 1))
        try:
            status = await _post(url, message, allow_private=allow_private)
        except (httpx2.HTTPError, ValueError) as error:
            problem = str(error) or type(error).__name__
            continue
        if status < 300:
            return
        problem = f"status {status}"
    _logger.error("the posture webhook does not take what it is told", extra={"reason": problem})


async def _post(url: str, message: PostureWorsened, *, allow_private: bool) -> int:
    target = OperatorUrl(url, allow_private=allow_private, timeout_s=_TIMEOUT_S)
    async with target.client:
        await target.check()
        headers = {"content-type": "application/json"}
        body = msgspec.json.encode(message)
        async with target.client.stream("POST", target.url, content=body, headers=headers) as response:
            target.check_peer(response)
            return response.status_code
