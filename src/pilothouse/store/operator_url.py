"""Calls to a URL that an operator gave: no redirects, and no addresses where such a URL must not lead.

Link-local and metadata addresses are refused, private ones where they have not been declared: by name before a
call, and by the address that was connected to after it.
"""

import asyncio
import ipaddress
import socket
from urllib.parse import urlsplit

import httpx2

from pilothouse.config.addresses import check_upstream_url, leads_to_metadata


class OperatorUrl:
    """A URL, and the client to call it with. What is refused raises ValueError."""

    def __init__(self, url: str, *, allow_private: bool, timeout_s: float) -> None:
        check_upstream_url(url)
        self.url = url.rstrip("/")
        self.client = httpx2.AsyncClient(follow_redirects=False, trust_env=False, timeout=timeout_s)
        self._allow_private = allow_private

    async def check(self) -> None:
        """Refuse a name that leads to where it must not, or that cannot be resolved."""
        url = urlsplit(self.url)
        host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ValueError(f"{host} cannot be resolved: {error.strerror}") from error
        for *_, address in found:
            self._check_address(str(address[0]))

    def check_peer(self, response: httpx2.Response) -> None:
        """Refuse an answer from where it must not come: a name may have come to lead elsewhere meanwhile."""
        stream = response.extensions.get("network_stream")
        peer = stream.get_extra_info("server_addr") if stream is not None else None
        if peer:
            self._check_address(str(peer[0]))

    def _check_address(self, text: str) -> None:
        if leads_to_metadata(text):
            raise ValueError(f"{self.url} leads to a link-local or metadata address")
        address = ipaddress.ip_address(text.partition("%")[0])
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if not address.is_global and not self._allow_private:
            raise ValueError(f"{self.url} leads to the private address {address}, which allow_private has to permit")
