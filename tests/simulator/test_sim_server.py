"""The simulated server on a real loopback socket: bound to this machine, kept alive, reset, encrypted, restarted."""

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from raw_http_client import CHAT, Reply, Wire, chat

from loadramp.simulator.faults import Faults
from loadramp.simulator.profiles import EngineProfile
from loadramp.simulator.server import SimulatorServer, serve

FAST = EngineProfile(
    name="fast", t0_s=0.001, decode_s=0.0, context_s=0.0, prefill_s=0.0, noise_ratio=0.0,
    max_num_seqs=64, kv_blocks=600, max_model_len=4096,
)  # fmt: skip


class Pipe(asyncio.Protocol):
    """The client's end of a socket, as the simulator's test client wants it."""

    def __init__(self, on_bytes: Callable[[bytes, float], None], on_close: Callable[[str | None, str], None]) -> None:
        self._on_bytes, self._on_close = on_bytes, on_close
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._on_bytes(data, time.monotonic())

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_close("reset" if isinstance(exc, ConnectionResetError) else None, "")

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def close(self) -> None:
        self._transport.abort()


def to(server: SimulatorServer, tls: ssl.SSLContext | None = None) -> Any:
    async def connect(on_bytes: Any, on_close: Any) -> Pipe:
        loop = asyncio.get_running_loop()
        name = "localhost" if tls else None
        _, pipe = await loop.create_connection(
            lambda: Pipe(on_bytes, on_close), "127.0.0.1", server.port, ssl=tls, server_hostname=name
        )
        return pipe

    return connect


def with_server(talk: Callable[[SimulatorServer], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        server = await serve(FAST, **options)
        try:
            return await asyncio.wait_for(talk(server), 30)
        finally:
            await server.close()

    return asyncio.run(main())


async def until(holds: Callable[[], bool]) -> None:
    """Wait, at most ten seconds, until ``holds``."""
    for _ in range(10_000):
        if holds():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never happened")


def test_it_binds_to_this_machine_alone_and_takes_a_free_port() -> None:
    async def talk(server: SimulatorServer) -> tuple[str, int]:
        assert server._listener is not None
        address = server._listener.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    host, port = with_server(talk)
    assert host == "127.0.0.1"
    assert port > 0


def test_a_taken_port_is_an_os_error() -> None:
    async def talk(server: SimulatorServer) -> None:
        with pytest.raises(OSError, match="in use"):
            await serve(FAST, port=server.port)

    with_server(talk)


def test_two_answers_come_over_one_kept_connection() -> None:
    async def talk(server: SimulatorServer) -> list[Reply]:
        wire = await Wire.open(to(server))
        return [await wire.post(CHAT, chat(tokens=20)) for _ in range(2)]

    replies = with_server(talk)
    assert [len(r.token_s) for r in replies] == [20, 20]
    assert all(r.token_s == sorted(r.token_s) for r in replies)


def test_it_runs_on_uvloop_too() -> None:
    async def main() -> list[Reply]:
        server = await serve(FAST, faults=Faults(reset_ratio=0.5, reset_tokens=2))
        wires = [await Wire.open(to(server)) for _ in range(20)]
        seen = list(await asyncio.gather(*(wire.post(CHAT, chat(tokens=5)) for wire in wires)))
        await server.close()
        return seen

    assert {(r.closed, len(r.token_s)) for r in uvloop.run(main()) if not r.complete} == {("reset", 2)}


def test_many_streams_at_once_all_get_their_tokens() -> None:
    async def talk(server: SimulatorServer) -> list[Reply]:
        wires = [await Wire.open(to(server)) for _ in range(100)]
        return list(await asyncio.gather(*(wire.post(CHAT, chat(tokens=10)) for wire in wires)))

    assert [len(r.token_s) for r in with_server(talk)] == [10] * 100


def test_an_injected_reset_is_a_real_reset() -> None:
    async def talk(server: SimulatorServer) -> Reply:
        return await (await Wire.open(to(server))).post(CHAT, chat(tokens=50))

    reply = with_server(talk, faults=Faults(reset_ratio=1.0, reset_tokens=3))
    assert (reply.closed, reply.complete, len(reply.token_s)) == ("reset", False, 3)


def test_a_client_that_resets_frees_its_seat() -> None:
    async def talk(server: SimulatorServer) -> int:
        wire = await Wire.open(to(server))
        wire.send("POST", CHAT, chat(tokens=4000))
        await until(lambda: server.service.engine.running == 1)
        wire.pipe.close()
        await until(lambda: server.service.engine.running == 0)
        return server.service.engine.stats.aborted

    assert with_server(talk) == 1


def test_a_crashed_server_refuses_and_comes_back_on_the_same_port_with_empty_counters() -> None:
    async def talk(server: SimulatorServer) -> tuple[Any, ...]:
        wire = await Wire.open(to(server))
        assert (await wire.post(CHAT, chat(tokens=2))).complete
        reply = wire.send("POST", CHAT, chat(tokens=4000))
        await until(lambda: server.service.engine.running == 1)
        server.service.crash()
        broken = await reply
        with pytest.raises(ConnectionRefusedError):
            await Wire.open(to(server))
        while True:
            try:
                again = await Wire.open(to(server))
                break
            except ConnectionRefusedError:
                await asyncio.sleep(0.005)
        page = (await again.get("/metrics")).body.decode()
        return broken.closed, broken.complete, page

    closed, complete, page = with_server(talk, faults=Faults(crash_kind="process", restart_s=0.05))
    assert (closed, complete) == ("end", False)
    assert "vllm:generation_tokens_total{" in page
    assert 'vllm:generation_tokens_total{engine="0",model_name="sim"} 0.0' in page


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate of localhost and its key, as PEM files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(pem)
    return folder / "cert.pem", folder / "key.pem"


def test_it_speaks_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    async def talk(server: SimulatorServer) -> Reply:
        trusting = ssl.create_default_context(cafile=str(cert))
        return await (await Wire.open(to(server, trusting))).post(CHAT, chat(tokens=5))

    assert len(with_server(talk, tls=context).token_s) == 5


def test_closing_the_server_breaks_what_is_open() -> None:
    async def main() -> str | None:
        server = await serve(FAST)
        wire = await Wire.open(to(server))
        reply = wire.send("POST", CHAT, chat(tokens=4000))
        await asyncio.sleep(0.01)
        await server.close()
        await reply
        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", server.port), 1):
            pass
        return wire.closed

    assert asyncio.run(main()) == "end"
