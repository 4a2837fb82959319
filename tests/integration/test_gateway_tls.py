"""TLS on the data plane: certificates from files, followed when they change, and clients that must show one."""

import asyncio
import contextlib
import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import trustme

from data_plane import ENGINE_KEY, MODEL, Wire, chat, request, snapshot
from pilothouse.gateway.tls import CertificateWatch, make_context
from pilothouse.model.errors import PilothouseError
from pilothouse.model.spec import TlsSpec
from pilothouse.testing.fake_engine import EngineOptions, FakeEngine
from worker_home import WorkerHome

pytestmark = pytest.mark.timeout(40)

CHAT = "/v1/chat/completions"


class Files:
    """Certificates on disk, as an operator has them."""

    def __init__(self, directory: Path) -> None:
        self.authority = trustme.CA()
        self.clients = trustme.CA()
        self.spec = TlsSpec(certificate=str(directory / "cert.pem"), key=str(directory / "key.pem"))
        self.mutual = msgspec.structs.replace(self.spec, client_ca=str(directory / "clients.pem"))
        self.clients.cert_pem.write_to_path(str(directory / "clients.pem"))
        self.issue("localhost")

    def issue(self, name: str) -> None:
        """Put a new certificate in place, each file in one step."""
        issued = self.authority.issue_cert(name)
        for path, content in (
            (self.spec.certificate, b"".join(blob.bytes() for blob in issued.cert_chain_pems)),
            (self.spec.key, issued.private_key_pem.bytes()),
        ):
            Path(f"{path}.new").write_bytes(content)
            os.replace(f"{path}.new", path)

    def trust(self) -> ssl.SSLContext:
        """What a client needs to trust the listener."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context

    def identified(self) -> ssl.SSLContext:
        """The same for a client with a certificate."""
        context = self.trust()
        self.clients.issue_cert("client@example.com").configure_cert(context)
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[WorkerHome]:
    with contextlib.closing(WorkerHome(tmp_path)) as found:
        yield found


async def connect(home: WorkerHome, context: ssl.SSLContext, name: str = "localhost") -> Wire:
    wire = Wire(*await asyncio.open_connection("127.0.0.1", home.port, ssl=context, server_hostname=name))
    home.wires.append(wire)
    return wire


async def ask(wire: Wire) -> int:
    wire.writer.write(request(CHAT, chat(max_tokens=2)))
    return (await wire.answer()).status


def engine() -> FakeEngine:
    return FakeEngine(EngineOptions(served_model_names=(MODEL,), api_key=ENGINE_KEY, time_scale=0.01))


@pytest.mark.asyncio
async def test_requests_and_streams_over_tls_and_nothing_without(home: WorkerHome, files: Files) -> None:
    home.boot = msgspec.structs.replace(home.boot, tls=files.spec)
    async with engine() as upstream:
        home.snapshot.write_bytes(msgspec.json.encode(snapshot([upstream.port])))
        async with home.worker() as worker:
            await worker.wait_for_line("worker serves")
            wire = await connect(home, files.trust())
            assert [await ask(wire) for _ in range(3)] == [200] * 3
            wire.writer.write(request(CHAT, chat(max_tokens=200, stream=True)))
            assert (await wire.answer()).body.endswith(b"data: [DONE]\n\n")
            with pytest.raises(ssl.SSLError):
                await connect(home, ssl.create_default_context())
            plain = await home.send(request(CHAT, chat()))
            with contextlib.suppress(ConnectionError):
                assert await plain.reader.read() == b""


@pytest.mark.asyncio
async def test_a_changed_certificate_is_used_and_connections_stay(home: WorkerHome, files: Files) -> None:
    home.boot = msgspec.structs.replace(home.boot, tls=files.spec)
    async with engine() as upstream:
        home.snapshot.write_bytes(msgspec.json.encode(snapshot([upstream.port])))
        async with home.worker() as worker:
            await worker.wait_for_line("worker serves")
            old = await connect(home, files.trust())
            Path(files.spec.key).write_text("no key")
            await worker.wait_for_line("certificates not replaced")
            assert await ask(await connect(home, files.trust())) == 200, "a damaged file changes nothing"
            files.issue("other.example.com")
            await worker.wait_for_line("certificates replaced")
            assert await ask(await connect(home, files.trust(), "other.example.com")) == 200
            with pytest.raises(ssl.SSLCertVerificationError):
                await connect(home, files.trust(), "localhost")
            assert await ask(old) == 200


@pytest.mark.asyncio
async def test_clients_must_show_a_certificate_where_that_is_asked(home: WorkerHome, files: Files) -> None:
    home.boot = msgspec.structs.replace(home.boot, tls=files.mutual)
    async with engine() as upstream:
        home.snapshot.write_bytes(msgspec.json.encode(snapshot([upstream.port])))
        async with home.worker() as worker:
            await worker.wait_for_line("worker serves")
            assert await ask(await connect(home, files.identified())) == 200
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await ask(await connect(home, files.trust()))


@pytest.mark.asyncio
async def test_a_worker_whose_certificate_cannot_be_used_says_which(home: WorkerHome, files: Files) -> None:
    Path(files.spec.certificate).unlink()
    home.boot = msgspec.structs.replace(home.boot, tls=files.spec)
    async with home.worker() as worker:
        assert await worker.wait() == 1
        assert any("tls_unusable" in line and files.spec.certificate in line for line in worker.lines)


@pytest.mark.parametrize("damage", ["missing", "empty", "no pem", "another key", "no authority"])
def test_files_that_cannot_be_used_are_named(damage: str, files: Files, tmp_path: Path) -> None:
    match damage:
        case "missing":
            Path(files.spec.key).unlink()
        case "empty":
            Path(files.spec.certificate).write_bytes(b"")
        case "no pem":
            Path(files.spec.key).write_text("-----BEGIN")
        case "another key":
            Path(files.spec.key).write_bytes(trustme.CA().issue_cert("a.example").private_key_pem.bytes())
        case _:
            (tmp_path / "clients.pem").write_bytes(b"")
    with pytest.raises(PilothouseError, match="pem") as caught:
        make_context(files.mutual)
    assert caught.value.code == "tls_unusable"


def test_the_watch_says_only_what_changed(files: Files) -> None:
    watch = CertificateWatch(files.spec)
    assert watch.changed() is None
    files.issue("b.example")
    assert watch.changed() is not None
    assert watch.changed() is None
