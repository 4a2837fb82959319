"""Calls of the fleet's admin API."""

from collections.abc import Mapping
from typing import Any, Self, TypeVar

import httpx2
import msgspec

from pilothouse.cli.fleet_record import SupervisorRecord, base_url
from pilothouse.cli.output import CommandError
from pilothouse.config.paths import FleetPaths
from pilothouse.model.errors import ERRORS, PilothouseError
from pilothouse.model.status import FleetStatus, ReloadResult
from pilothouse.store.admin_token import read_admin_token

_Shape = TypeVar("_Shape")

_STATUS_TIMEOUT_S = 5.0
_RELOAD_TIMEOUT_S = 60.0


class _Error(msgspec.Struct):
    code: str
    message: str
    hint: str | None = None


class _ErrorBody(msgspec.Struct):
    error: _Error


class AdminClient:
    """One fleet's admin API; to be used in an `async with`.

    Its calls raise PilothouseError: controller_unreachable when nothing answers, else what the API says.
    """

    def __init__(self, paths: FleetPaths, record: SupervisorRecord) -> None:
        self._url = base_url(record.admin)
        self._fleet = record.fleet
        self._client = httpx2.AsyncClient(
            base_url=self._url,
            headers={"authorization": f"Bearer {read_admin_token(paths.admin_token)}"},
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def status(self) -> FleetStatus:
        """The fleet as it is now."""
        return await self.call("GET", "/v1/fleet", FleetStatus, timeout_s=_STATUS_TIMEOUT_S)

    async def reload(self) -> ReloadResult:
        """Have the fleet file read again."""
        return await self.call("POST", "/v1/fleet/reload", ReloadResult, timeout_s=_RELOAD_TIMEOUT_S)

    async def call(
        self,
        method: str,
        path: str,
        shape: type[_Shape],
        *,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        timeout_s: float,
    ) -> _Shape:
        """Any call; a POST without a body sends an empty object."""
        if method == "POST" and body is None:
            body = {}
        try:
            response = await self._client.request(method, path, json=body, params=params, timeout=timeout_s)
        except httpx2.HTTPError as error:
            raise PilothouseError(
                "controller_unreachable",
                f"the controller of {self._fleet} does not answer at {self._url}: {str(error) or type(error).__name__}",
            ) from error
        if response.status_code != 200:
            raise _refusal(response)
        return msgspec.json.decode(response.content, type=shape)


def _refusal(response: httpx2.Response) -> PilothouseError | CommandError:
    try:
        error = msgspec.json.decode(response.content, type=_ErrorBody).error
    except msgspec.MsgspecError:
        return CommandError(f"the controller answered with status {response.status_code}")
    if error.code in ERRORS:
        return PilothouseError(error.code, error.message, hint=error.hint)
    return CommandError(error.message, hint=error.hint)
