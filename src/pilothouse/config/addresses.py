"""Addresses in a fleet file: where to listen, and where somebody else's server is."""

import ipaddress
import re
import socket
import urllib.parse

from pilothouse.model.spec import ListenAddress

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?")
_LISTEN = re.compile(r"(?P<host>\[[^\[\]]*\]|[^\[\]:]*):(?P<port>[0-9]+)")
_PORTS, _LONGEST_PORT = 65536, len("65535")
_METADATA_NAMES = frozenset({"metadata.google.internal", "metadata.goog"})
_METADATA_ADDRESSES = (ipaddress.ip_address("fd00:ec2::254"), ipaddress.ip_address("100.100.100.200"))
"""The metadata services of clouds (AWS over IPv6, Alibaba) that are not at a link-local address."""


def parse_listen(text: str) -> ListenAddress:
    """`127.0.0.1:8080`, `[::1]:8080` or `localhost:8080`.

    Raises:
        ValueError: with what is wrong, and how it is written.
    """
    if text.startswith(":") and text[1:].isdecimal():
        raise ValueError(
            f"the address to listen on is missing: 127.0.0.1{text} for this machine, 0.0.0.0{text} for every network"
        )
    if text.count(":") > 1 and "[" not in text:
        raise ValueError("an IPv6 address goes into brackets, as in '[::1]:8080'")
    matched = _LISTEN.fullmatch(text)
    if matched is None:
        raise ValueError("must be HOST:PORT, as in 127.0.0.1:8080")
    host, port = matched["host"], int(matched["port"]) if len(matched["port"]) <= _LONGEST_PORT else _PORTS
    if port >= _PORTS:
        raise ValueError("the port must be between 0 and 65535")
    if host.startswith("["):
        host = host[1:-1]
        if not _is_address(host, ipaddress.IPv6Address):
            raise ValueError(f"{host!r} is not an IPv6 address")
    elif not _is_host(host):
        raise ValueError(f"{host!r} is neither an IPv4 address nor the name of a host")
    return ListenAddress(host=host, port=port)


def check_upstream_url(text: str) -> None:
    """See that an operator's URL leads to a server that may be called.

    Raises:
        ValueError: with what is wrong. The message never repeats the URL, which could hold a secret.
    """
    if not text.isascii() or any(character.isspace() or not character.isprintable() for character in text):
        raise ValueError("a URL holds neither spaces, control characters nor letters beyond ASCII")
    try:
        url = urllib.parse.urlsplit(text)
        port = url.port
    except ValueError as error:
        raise ValueError("this is not a URL") from error
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise ValueError("must begin with http:// or https:// and name a host")
    if url.username is not None or url.password is not None:
        raise ValueError("credentials do not belong in a URL: use api_key")
    if url.query or url.fragment or text.endswith(("?", "#")):
        raise ValueError("must end with the path, without a query")
    if port == 0:
        raise ValueError("port 0 cannot be connected to")
    if "\\" in text or not (_is_host(url.hostname) or _is_address(url.hostname, ipaddress.IPv6Address)):
        raise ValueError("the host is neither an address nor a name")
    if leads_to_metadata(url.hostname):
        raise ValueError("link-local and metadata addresses are refused: they give away the host's credentials")


def check_origin(text: str) -> None:
    """See that a text is the origin of web pages, as a browser sends it, or `*`.

    Raises:
        ValueError: with what is wrong.
    """
    if text == "*":
        return
    scheme, separator, rest = text.partition("://")
    host, _, port = rest.rpartition(":") if rest.rpartition(":")[2].isdecimal() else (rest, "", "")
    is_named = _is_host(host) or (host[:1] == "[" and _is_address(host[1:-1], ipaddress.IPv6Address))
    if scheme not in {"http", "https"} or not separator or not is_named or text != text.lower():
        raise ValueError("must be an origin: http:// or https://, a host in small letters, and a port, no path")
    if (scheme, port) in {("http", "80"), ("https", "443")}:
        raise ValueError("browsers leave out the scheme's own port: leave it out too")


def _is_address(text: str, kind: type[ipaddress.IPv4Address] | type[ipaddress.IPv6Address]) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def _is_host(text: str) -> bool:
    """A name, or an IPv4 address. A name whose last label is a number would be read as an address by some."""
    if _is_address(text, ipaddress.IPv4Address):
        return True
    if len(text) > 253 or not _HOST_NAME.fullmatch(text):
        return False
    return _legacy_address(text) is None and not text.rstrip(".").rpartition(".")[2].isdecimal()


def _legacy_address(host: str) -> ipaddress.IPv4Address | None:
    """What `0xA9FEA9FE`, `2852039166` and the like mean to the system's resolver."""
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def leads_to_metadata(host: str) -> bool:
    """Whether this name or address is a cloud's metadata service, or could be: all that is link-local."""
    if host.rstrip(".").lower() in _METADATA_NAMES:
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_link_local or address in _METADATA_ADDRESSES
