"""Whom `chat` and `bench` call."""

import msgspec


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A data plane to call: its address without `/v1`, and the key if there is one."""

    url: str
    api_key: str | None

    @property
    def headers(self) -> dict[str, str]:
        """What a request needs beside its body."""
        return {} if self.api_key is None else {"authorization": f"Bearer {self.api_key}"}
