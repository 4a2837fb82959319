"""What the admin API asks of whoever runs the fleet."""

from typing import Protocol

from pilothouse.model.status import FleetStatus, ReloadResult
from pilothouse.telemetry.exposition import Exposition


class FleetOperations(Protocol):
    """Implemented where controller and console are put together."""

    def status(self) -> FleetStatus:
        """The fleet as it is now."""

    async def reload(self) -> ReloadResult:
        """Read the fleet file again and change the fleet accordingly.

        Raises PilothouseError, `config_invalid` above all; then nothing was changed.
        """

    def metrics_text(self, accept: str) -> Exposition:
        """All metrics, in the format that `accept` (the request's header) asks for."""
