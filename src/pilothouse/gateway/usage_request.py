"""A tenant's question after its own usage: the controller has the ledger, so the answer takes a moment."""

import asyncio
from typing import TYPE_CHECKING

from pilothouse.gateway import answers
from pilothouse.model.errors import PilothouseError, Refusal
from pilothouse.model.ids import RequestId
from pilothouse.telemetry.catalogue import NO_MODEL, Reason
from pilothouse.wire.http1 import Request

if TYPE_CHECKING:
    from pilothouse.gateway.client_connection import ClientConnection


class UsageRequest:
    """Takes the place of an exchange on its connection (`ClientConnection.exchange`) until the controller answers."""

    def __init__(self, client: "ClientConnection", request: Request, route: str) -> None:
        self.id: RequestId = client.plane.new_request_id()
        self._client = client
        self._request = request
        self._route = route
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Ask."""
        plane = self._client.plane
        self._task = plane.spawn(self._ask())
        plane.wheel.arm(self._client, plane.delays.idle)

    async def _ask(self) -> None:
        client = self._client
        caller = client.caller
        assert caller is not None, "no request gets here without a key"
        try:
            answer = await client.plane.ask_usage(caller.tenant_id, self._request.query.decode("latin-1"))
        except PilothouseError as error:
            self.fail(Refusal(code="usage_unavailable", message=f"The usage cannot be told now: {error.message}."))
            return
        if isinstance(answer, Refusal):
            self.fail(answer)
            return
        self._task = None
        request, own_id = self._request, self.id
        answers.count(client, request, own_id, model=NO_MODEL, route=self._route, status=200, reason=Reason.OK)
        answers.answer(client, request, 200, answers.JSON, answer, own_id=own_id)

    # What a connection calls of an exchange.

    def fail(self, refusal: Refusal) -> None:
        """End with an error."""
        task, self._task = self._task, None
        if task is None:
            return
        if task is not asyncio.current_task():
            task.cancel()
        answers.refuse(self._client, self._request, refusal, model=NO_MODEL, route=self._route, own_id=self.id)

    def timed_out(self) -> None:
        """The controller has not answered for as long as a connection may idle."""
        self.fail(Refusal(code="usage_unavailable", message="The usage cannot be told now."))

    def client_gone(self) -> None:
        """Nobody waits any more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            answers.count(
                self._client,
                self._request,
                self.id,
                model=NO_MODEL,
                route=self._route,
                status=answers.CLIENT_CLOSED_REQUEST,
                reason=Reason.CLIENT_DISCONNECTED,
            )

    def client_paused(self) -> None:
        """There is nothing to hold back."""

    def client_resumed(self) -> None:
        """There is nothing to go on with."""
