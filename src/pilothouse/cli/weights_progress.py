"""Fetch a fleet's weights before it starts, with a progress bar: so that the controller finds them in the cache."""

from collections.abc import Mapping

from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from pilothouse.cli.output import message_console, say
from pilothouse.config.paths import FleetPaths
from pilothouse.model.spec import FleetSpec
from pilothouse.placement.weights import resolve

_DOING = {"download": "fetching", "unpack": "unpacking", "check": "checking"}


async def fetch_weights(spec: FleetSpec, paths: FleetPaths, env: Mapping[str, str]) -> None:
    """Have all weights of the fleet on this host.

    Raises:
        PilothouseError: what the source of some weights says.
    """
    wanted = {
        deployment.weights: deployment.name
        for model in spec.models
        for deployment in model.deployments
        if deployment.weights is not None
    }
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = message_console()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        for weights, name in wanted.items():
            await resolve(weights, cache_dir=paths.weights_dir, env=env, progress=_Bar(bars, name))


class _Bar:
    """One bar for each phase of fetching some weights; without a terminal, one line."""

    def __init__(self, bars: Progress, name: str) -> None:
        self._bars = bars
        self._name = name
        self._phases: dict[str, TaskID] = {}

    def update(self, phase: str, done: int, total: int | None) -> None:
        """Show how far it is."""
        if phase not in self._phases:
            doing = f"{_DOING.get(phase, phase)} the weights of {self._name}"
            self._phases[phase] = self._bars.add_task(doing, total=total)
            if not self._bars.console.is_terminal:
                say(doing)
        self._bars.update(self._phases[phase], completed=done, total=total)
