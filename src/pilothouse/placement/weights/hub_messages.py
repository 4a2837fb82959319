"""What `hub_download.py` says to the process that started it: one JSON object a line, on standard output."""

import msgspec


class HubProgress(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """So many bytes are here, of so many."""

    done: int
    total: int | None


class HubFound(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The last word: the file or directory in the hub's own cache."""

    path: str


class HubFailed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The last word: why not, as a code of the error table and words."""

    code: str
    message: str


HubMessage = HubProgress | HubFound | HubFailed
