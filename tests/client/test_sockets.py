"""Pipes on real sockets, on both event loops: stamps, partial sends, closings, TLS, failures in words."""

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
import uvloop
from certs import Certificates, certificates
from scripted_server import DONE, FIN, USE, C, Scripted, arrival, framed, stream

from loadramp.client.endpoint import endpoint_of
from loadramp.client.http.connect import Dialer, connect_failed, proxy_of, tls_context
from loadramp.client.http.poller import LATE_READ_S
from loadramp.client.http.sockets import ConnectFailed, Pipe, SocketTally, TlsPipe
from loadramp.client.measuring_client import MeasuringClient
from loadramp.record.types import Record
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Target

T = TypeVar("T")
Loops = dict[str, Callable[[], asyncio.AbstractEventLoop]]
LOOPS: Loops = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture(params=list(LOOPS))
def run(request: pytest.FixtureRequest, read_in: str) -> Callable[[Coroutine[Any, Any, T]], T]:
    def runner(main: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as one:
            return one.run(main)

    return runner


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("tls"))


@dataclass
class Heard:
    """Both callbacks of a pipe, written down."""

    reads: list[tuple[bytes, float]] = field(default_factory=list)
    closed: list[tuple[Any, str]] = field(default_factory=list)

    def on_bytes(self, data: bytes, t_s: float) -> None:
        self.reads.append((data, t_s))

    def on_close(self, kind: Any, detail: str) -> None:
        self.closed.append((kind, detail))

    @property
    def data(self) -> bytes:
        return b"".join(data for data, _ in self.reads)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():  # noqa: ASYNC110  # what is waited for is in another object's lists
                await asyncio.sleep(0.001)


class Peer:
    """The other end: a plain listening socket, driven by hand."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]

    async def pipe(self, heard: Heard) -> tuple[Pipe, socket.socket, Dialer]:
        dialer = Dialer("127.0.0.1", self.port, None, 5.0)
        pipe = await dialer(heard.on_bytes, heard.on_close)
        other, _ = await asyncio.get_running_loop().sock_accept(self.listener)
        self.listener.close()
        other.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return pipe, other, dialer


def test_bytes_go_both_ways_and_a_clean_end_is_told_once(run: Any) -> None:
    async def main() -> Heard:
        heard = Heard()
        pipe, other, _ = await Peer().pipe(heard)
        pipe.write(b"ask")
        assert await asyncio.get_running_loop().sock_recv(other, 100) == b"ask"
        other.send(b"answer")
        await heard.until(lambda: heard.data == b"answer")
        other.close()
        await heard.until(lambda: bool(heard.closed))
        pipe.write(b"into the void")
        pipe.close()
        return heard

    assert run(main()).closed == [(None, "")]


def test_a_reset_is_told_in_words(run: Any) -> None:
    async def main() -> Heard:
        heard = Heard()
        _, other, _ = await Peer().pipe(heard)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
        await heard.until(lambda: bool(heard.closed))
        return heard

    assert run(main()).closed == [("reset", "Connection reset by peer")]


def test_what_waits_is_handed_over_before_a_failed_write_ends_the_pipe(run: Any) -> None:
    async def main() -> tuple[Heard, list[int]]:
        heard, lots = Heard(), []
        pipe, other, _ = await Peer().pipe(heard)
        other.send(b"warm")
        await heard.until(lambda: heard.data == b"warm")
        await asyncio.sleep(0.01)
        pipe.expect(lambda lot: lots.append(len(lot.ends)), patient=False)
        other.send(framed(C("a")))
        await asyncio.sleep(0.02)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
        while not heard.closed:  # the loop has no turn in which it could read
            pipe.write(b"x")
        return heard, lots

    heard, lots = run(main())
    assert len(heard.closed) == 1
    assert lots or heard.data.endswith(framed(C("a")))


def test_a_closed_pipe_calls_nobody(run: Any) -> None:
    async def main() -> Heard:
        heard = Heard()
        pipe, other, _ = await Peer().pipe(heard)
        other.send(b"late")
        pipe.close()
        pipe.close()
        await asyncio.sleep(0.01)
        other.close()
        return heard

    heard = run(main())
    assert (heard.reads, heard.closed) == ([], [])


def test_a_large_request_is_sent_whole_to_a_slow_reader(run: Any) -> None:
    sent = bytes(range(256)) * 20_000  # 5 MB: more than the socket buffers hold

    async def main() -> bytes:
        heard = Heard()
        pipe, other, _ = await Peer().pipe(heard)
        pipe.write(sent[:1_000_000])
        pipe.write(sent[1_000_000:])
        got = bytearray()
        while len(got) < len(sent):
            got += await asyncio.get_running_loop().sock_recv(other, 1 << 20)
        other.close()
        pipe.close()
        return bytes(got)

    assert run(main()) == sent


def test_a_pipe_closed_with_bytes_unsent_lets_go_of_them(run: Any) -> None:
    async def main() -> None:
        pipe, other, _ = await Peer().pipe(Heard())
        pipe.write(b"x" * 20_000_000)
        pipe.close()
        other.close()

    run(main())


def test_the_kernel_s_stamp_is_the_arrival_and_not_the_reading(run: Any) -> None:
    """The loop is kept busy for 30 ms while the bytes lie in the socket: their stamp must not move."""

    async def main() -> tuple[Heard, float, float, Pipe, Dialer]:
        heard = Heard()
        pipe, other, dialer = await Peer().pipe(heard)
        other.send(b"warm")  # the kernel starts to stamp with the first socket that asks for it
        await heard.until(lambda: heard.data == b"warm")
        await asyncio.sleep(0.01)
        before_s = time.monotonic()
        other.send(b"x")
        after_s = time.monotonic()
        while time.monotonic() < after_s + 0.03:
            pass
        await heard.until(lambda: heard.data == b"warmx")
        other.close()
        pipe.close()
        return heard, before_s, after_s, pipe, dialer

    heard, before_s, after_s, pipe, dialer = run(main())
    stamp_s = heard.reads[-1][1]
    if pipe.stamps == "user":
        pytest.skip("this kernel does not stamp TCP segments")
    assert before_s - 0.002 <= stamp_s <= after_s + 0.02
    assert dialer.tally.late_reads >= 1
    assert (dialer.tally.poller.reads, dialer.tally.opened) == (2, 1)
    assert LATE_READ_S < 0.03


def test_what_comes_after_the_clocks_were_read_has_its_own_stamp(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> tuple[Heard, float, float]:
        heard = Heard()
        pipe, other, _ = await Peer().pipe(heard)
        other.send(b"warm")
        await heard.until(lambda: heard.data == b"warm")
        monkeypatch.setattr("loadramp.client.http.poller.clocks", lambda: (time.time() - 0.1, time.monotonic() - 0.1))
        before_s = time.monotonic()
        other.send(b"x")
        await heard.until(lambda: heard.data == b"warmx")
        after_s = time.monotonic()
        other.close()
        pipe.close()
        return heard, before_s, after_s

    heard, before_s, after_s = run(main())
    assert before_s - 0.002 <= heard.reads[-1][1] <= after_s


def test_a_stepped_wall_clock_moves_no_stamp(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> tuple[Heard, float, float, Dialer]:
        # An hour's step would be a late read by any measure; what a busy machine delays is none by this one.
        monkeypatch.setattr("loadramp.client.http.poller.LATE_READ_S", 60.0)
        heard = Heard()
        pipe, other, dialer = await Peer().pipe(heard)
        other.send(b"warm")
        await heard.until(lambda: heard.data == b"warm")
        true_time = time.time
        monkeypatch.setattr("loadramp.client.http.poller.time.time", lambda: true_time() + 3600.0)
        before_s = time.monotonic()
        other.send(b"x")
        await heard.until(lambda: heard.data == b"warmx")
        after_s = time.monotonic()
        other.close()
        pipe.close()
        return heard, before_s, after_s, dialer

    heard, before_s, after_s, dialer = run(main())
    assert before_s <= heard.reads[-1][1] <= after_s
    assert dialer.tally.late_reads == 0


# -- failures


async def _dialled(host: str, port: int, timeout_s: float = 5.0, tls: ssl.SSLContext | None = None) -> ConnectFailed:
    with pytest.raises(ConnectFailed) as failure:
        await Dialer(host, port, tls, timeout_s)(lambda data, t_s: None, lambda kind, detail: None)
    return failure.value


def test_a_refused_connection_says_where_and_what_to_look_at(run: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    failure = run(_dialled("127.0.0.1", port))
    assert failure.kind == "connect"
    assert failure.detail == f"connection refused by 127.0.0.1:{port}: is the server up, is the port right?"


def test_a_name_that_no_host_can_have_is_a_failure_in_words(run: Any) -> None:
    failure = run(_dialled("a..b", 80))
    assert failure.kind == "connect"
    assert failure.detail.startswith("no host can have the name 'a..b': ")


def test_an_unknown_host_says_that_it_cannot_be_resolved(run: Any) -> None:
    failure = run(_dialled("no-such-host.invalid", 80))
    assert failure.kind == "connect"
    assert failure.detail.startswith("cannot resolve the host name 'no-such-host.invalid': ")


def test_a_handshake_that_is_never_answered_ends_in_time(run: Any) -> None:
    async def main() -> ConnectFailed:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            return await _dialled("127.0.0.1", mute.getsockname()[1], 0.05, tls_context())

    failure = run(main())
    assert failure.kind == "connect"
    assert failure.detail.endswith("did not answer within 0.05 s")


@pytest.mark.parametrize(("number", "kind"), [(24, "client"), (99, "client"), (113, "connect"), (101, "connect")])
def test_failures_of_this_machine_are_not_blamed_on_the_server(number: int, kind: str) -> None:
    failure = connect_failed(OSError(number, "x"), "::1", 80)
    assert failure.kind == kind
    assert failure.detail


def test_ipv6_and_names_are_dialled(run: Any) -> None:
    async def main(host: str, bound: str) -> Record:
        return await _asked(host, bound=bound)

    assert run(main("localhost", "127.0.0.1")).status == "ok"
    if socket.has_ipv6:
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("no IPv6 loopback here")
        assert run(main("[::1]", "::1")).status == "ok"


# -- TLS


async def _asked(
    host: str, context: ssl.SSLContext | None = None, scheme: str = "", bound: str = "127.0.0.1", **options: Any
) -> Record:
    """One request to a scripted server behind ``context``."""
    script = stream((5, C("a")), (15, C("b" * 40_000)), (25, C("c") + FIN("stop") + USE(1, 3) + DONE))
    server, url = await Scripted([script]).serve(context, bound)
    port = url.rpartition(":")[2]
    target = Target(base_url=f"{scheme or url.partition(':')[0]}://{host}:{port}", **options)
    t0_s = time.monotonic()
    client = MeasuringClient(target, endpoint_of(target, {}), "m", connect=None, clock=time.monotonic, t0_s=t0_s)
    try:
        asked = arrival()
        first = await client.send(asked, client.prepare(asked, "x" * 100_000))
        return await client.send(asked, client.prepare(asked, "again")) if first.status == "ok" else first
    finally:
        await client.close()
        server.close()


def test_cn06_a_self_signed_certificate_is_refused_by_name_unless_told_otherwise(run: Any, made: Certificates) -> None:
    refused = run(_asked("127.0.0.1", made.server))
    assert (refused.status, refused.error, refused.sent_s) == ("error", "tls", None)
    assert (refused.error_detail or "").startswith("certificate not trusted: self")
    for options in ({"ca_file": str(made.ca_file)}, {"insecure": True}):
        taken = run(_asked("127.0.0.1", made.server, **options))
        assert (taken.status, taken.output_tokens) == ("ok", 3)
        assert (taken.sent_ttft_s or 0) > 0.004


@pytest.mark.parametrize("which", ["other_name", "expired"])
def test_cn06_certificates_for_another_name_or_time_are_refused(run: Any, made: Certificates, which: str) -> None:
    files = {"other_name": made.other_ca_file, "expired": made.ca_file}
    record = run(_asked("127.0.0.1", getattr(made, which), ca_file=str(files[which])))
    assert (record.status, record.error) == ("error", "tls")
    assert "certificate not trusted" in (record.error_detail or "")


def test_tls_carries_kernel_stamps_where_the_kernel_stamps(run: Any, made: Certificates) -> None:
    plain, sealed = run(_asked("127.0.0.1")), run(_asked("127.0.0.1", made.server, insecure=True))
    assert sealed.stamps == plain.stamps


def test_a_server_that_is_gone_before_the_handshake_is_not_waited_for(run: Any) -> None:
    async def main() -> BaseException:
        heard = Heard()
        mine, other = socket.socketpair()
        mine.setblocking(False)
        other.close()
        pipe = TlsPipe(tls_context(), "x", heard.on_bytes, heard.on_close)
        with pytest.raises(ConnectionResetError) as failure:
            await asyncio.wait_for(pipe.handshake(mine, SocketTally()), 5.0)
        pipe.close()
        return failure.value

    assert "Broken pipe" in str(run(main()))


def test_tls_towards_a_plain_port_is_said(run: Any) -> None:
    async def main() -> Record:
        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        target = Target(base_url=f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", insecure=True)
        client = MeasuringClient(
            target, endpoint_of(target, {}), "m", connect=None, clock=time.monotonic, t0_s=time.monotonic()
        )
        record = await client.send(arrival(), client.prepare(arrival(), "hi"))
        await client.close()
        server.close()
        return record

    record = run(main())
    assert record.error == "tls"
    assert "the server does not speak TLS on this port: write http://" in (record.error_detail or "")


def test_a_ca_file_that_cannot_be_read_is_a_scenario_error() -> None:
    target = Target(base_url="https://127.0.0.1:1", ca_file="/no/such/file.pem")
    with pytest.raises(ScenarioError, match=r"\[target\] ca_file: cannot use '/no/such/file.pem': No such file"):
        MeasuringClient(target, endpoint_of(target, {}), "m", connect=None, clock=time.monotonic, t0_s=0.0)


# -- proxies


async def _through_proxy(made: Certificates | None, refuse: bool = False, reset: bool = False) -> tuple[Record, bytes]:
    """A request through a proxy that tunnels CONNECT and answers plain requests itself."""
    script = stream((5, C("a") + FIN("stop") + USE(1, 1) + DONE))
    origin = Scripted([script])
    server, url = await origin.serve(made.server if made else None)
    heads: list[bytes] = []
    served: list[asyncio.Task[Any]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.append(task)
        head = await reader.readuntil(b"\r\n\r\n")
        heads.append(head)
        if reset:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        elif refuse:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        elif head.startswith(b"CONNECT"):
            there, back = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_pump(reader, back), _pump(there, writer))
        else:
            for _, what in script:
                if isinstance(what, bytes):
                    writer.write(what)
        await _gone(writer)

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    target = Target(base_url=url, proxy=f"http://us%40er:pw@127.0.0.1:{port}", insecure=True)
    client = MeasuringClient(
        target, endpoint_of(target, {}), "m", connect=None, clock=time.monotonic, t0_s=time.monotonic()
    )
    record = await client.send(arrival(), client.prepare(arrival(), "hi"))
    await client.close()
    await asyncio.wait(served)
    server.close()
    proxy.close()
    return record, heads[0]


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    await _gone(writer)


async def _gone(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


def test_a_named_proxy_gets_the_whole_address_of_plain_requests() -> None:
    record, head = asyncio.run(_through_proxy(None))
    assert record.status == "ok"
    assert head.startswith(b"POST http://127.0.0.1:")
    assert b"/v1/chat/completions HTTP/1.1\r\n" in head
    assert b"Proxy-Authorization: Basic dXNAZXI6cHc=\r\n" in head


def test_a_named_proxy_tunnels_tls(made: Certificates) -> None:
    record, head = asyncio.run(_through_proxy(made))
    assert record.status == "ok"
    assert head.startswith(b"CONNECT 127.0.0.1:")
    assert b"Proxy-Authorization: Basic dXNAZXI6cHc=\r\n" in head


def test_a_proxy_that_refuses_is_named(made: Certificates) -> None:
    record, _ = asyncio.run(_through_proxy(made, refuse=True))
    assert record.error == "connect"
    assert "refuses 127.0.0.1:" in (record.error_detail or "")
    assert "407 Proxy Authentication Required" in (record.error_detail or "")


def test_a_proxy_that_resets_the_connection_is_a_failed_request(made: Certificates) -> None:
    record, _ = asyncio.run(_through_proxy(made, reset=True))
    assert record.error == "connect"
    assert (record.error_detail or "").startswith("the proxy 127.0.0.1:")
    assert (record.error_detail or "").endswith("broke the connection: Connection reset by peer")


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "https://127.0.0.1:9", "http://"])
def test_proxies_of_other_kinds_are_refused(proxy: str) -> None:
    with pytest.raises(ScenarioError, match=r"\[target\] proxy: expected http://HOST:PORT"):
        proxy_of(Target(proxy=proxy))
