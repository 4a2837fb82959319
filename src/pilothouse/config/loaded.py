"""A fleet file that has been read and found good."""

from pathlib import Path

import msgspec

from pilothouse.config.problems import Origins, SpecPath
from pilothouse.config.schema import FleetFile
from pilothouse.model.spec import FleetSpec


class LoadedFleet(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet, and what is known of where each part of it was written.

    Attributes:
        spec: What the file means, secrets resolved.
        path: The absolute path of the file, links not followed; `None` for the built-in fleet.
        text: The file as it is.
        warnings: What is not wrong but perhaps not meant, a line each.
        file: The file in its long form, secrets as references.
        origins: Where each value came from.
    """

    spec: FleetSpec
    path: Path | None
    text: str
    warnings: tuple[str, ...]
    file: FleetFile
    origins: Origins

    def locate(self, path: SpecPath) -> str:
        """Where a part of the long form was written: `fleet.yaml:7`, `command line` or `environment NAME`."""
        return self.origins.place(path)
