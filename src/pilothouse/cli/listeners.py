"""The sockets that the supervisor binds and its children inherit: so a restart of a child refuses no connection."""

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from pilothouse.model.errors import PilothouseError
from pilothouse.model.spec import ListenAddress

_BACKLOG = 4096  # the kernel lowers it to net.core.somaxconn
_LISTEN_STATE = "0A"  # TCP_LISTEN of include/net/tcp_states.h, as /proc/net/tcp prints it


def listen(address: ListenAddress, *, setting: str) -> list[socket.socket]:
    """Listen on every address that the host name stands for, all on the same port. Port 0 takes a free one.

    `setting` names the line of the fleet file that an error is about.

    Raises:
        PilothouseError: port_in_use or address_not_available.
    """
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise PilothouseError(
            "address_not_available", f"{setting}: {address.host} is not an address ({error.strerror})"
        ) from error
    sockets: list[socket.socket] = []
    port = address.port
    try:
        for family, _, _, _, where in dict.fromkeys(found):
            sockets.append(_bind(family, str(where[0]), port))
            port = port or bound_address(sockets[0]).port
    except OSError as error:
        for each in sockets:
            each.close()
        raise _refusal(error, address, setting) from error
    return sockets


def bound_address(bound: socket.socket) -> ListenAddress:
    """Where it listens, with the real port."""
    host, port = bound.getsockname()[:2]
    return ListenAddress(host=host, port=port)


def _bind(family: int, host: str, port: int) -> socket.socket:
    new = socket.socket(family, socket.SOCK_STREAM)
    try:
        new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections in TIME_WAIT must not bar a restart
        if family == socket.AF_INET6:
            new.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # else :: would clash with 0.0.0.0
        new.bind((host, port))
        new.listen(_BACKLOG)
        new.setblocking(False)
    except OSError:
        new.close()
        raise
    return new


def _refusal(error: OSError, address: ListenAddress, setting: str) -> PilothouseError:
    if error.errno == errno.EADDRINUSE:
        holder = port_holder(address.port)
        by = f" by {holder}" if holder else ""
        return PilothouseError("port_in_use", f"{setting}: {address} is in use{by}")
    return PilothouseError("address_not_available", f"{setting}: cannot listen on {address}: {error.strerror}")


def port_holder(port: int) -> str | None:
    """The process that listens on the port, as `name (process PID)`; `None` if it is not ours to see."""
    inodes = set(_listening_inodes(port))
    if not inodes:
        return None
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and inodes & set(_socket_inodes(process)):
            return f"{_name_of(process)} (process {process.name})"
    return None


def _listening_inodes(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN_STATE and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _socket_inodes(process: Path) -> Iterator[str]:
    try:
        for descriptor in (process / "fd").iterdir():
            target = os.readlink(descriptor)
            if target.startswith("socket:["):
                yield target[len("socket:[") : -1]
    except OSError:
        return  # another user's process, or one that has just ended


def _name_of(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return "a process"
