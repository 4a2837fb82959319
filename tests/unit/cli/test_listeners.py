import os
import socket

import pytest

from pilothouse.cli.listeners import bound_address, listen, port_holder
from pilothouse.model.errors import PilothouseError
from pilothouse.model.spec import ListenAddress


def listening(host: str, port: int) -> list[socket.socket]:
    return listen(ListenAddress(host=host, port=port), setting="gateway.listen")


def close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()


def test_port_0_takes_a_free_port_and_shows_it() -> None:
    sockets = listening("127.0.0.1", 0)
    try:
        address = bound_address(sockets[0])
        assert address.host == "127.0.0.1"
        with socket.create_connection((address.host, address.port)):
            assert address.port > 0
    finally:
        close(sockets)


def test_a_name_with_several_addresses_gets_one_port_on_all_of_them() -> None:
    sockets = listening("localhost", 0)
    try:
        assert {bound_address(each).port for each in sockets} == {bound_address(sockets[0]).port}
    finally:
        close(sockets)


def test_a_port_in_use_names_the_setting_and_the_process() -> None:
    sockets = listening("127.0.0.1", 0)
    try:
        port = bound_address(sockets[0]).port
        with pytest.raises(PilothouseError) as refused:
            listening("127.0.0.1", port)
        assert refused.value.code == "port_in_use"
        assert refused.value.message.startswith(f"gateway.listen: 127.0.0.1:{port} is in use by ")
        assert f"process {os.getpid()}" in refused.value.message
    finally:
        close(sockets)


def test_a_port_that_was_just_closed_can_be_taken_again() -> None:
    sockets = listening("127.0.0.1", 0)
    port = bound_address(sockets[0]).port
    with socket.create_connection(("127.0.0.1", port)) as client:
        accepted, _ = sockets[0].accept()
        accepted.close()
        close(sockets)
        assert client.recv(1) == b""
    close(listening("127.0.0.1", port))


@pytest.mark.parametrize("host", ["192.0.2.1", "name.invalid"])
def test_an_address_that_is_not_ours_is_refused(host: str) -> None:
    with pytest.raises(PilothouseError) as refused:
        listening(host, 0)
    assert refused.value.code == "address_not_available"
    assert host in refused.value.message


def test_nobody_holds_a_free_port() -> None:
    sockets = listening("127.0.0.1", 0)
    port = bound_address(sockets[0]).port
    assert port_holder(port) is not None
    close(sockets)
    assert port_holder(port) is None
