"""Opens sockets: names, addresses, the handshake, and failures in words a person understands."""

import asyncio
import base64
import errno
import ipaddress
import socket
import ssl
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from loadramp.client.endpoint import Endpoint
from loadramp.client.error_text import describe_os_error, describe_tls_error
from loadramp.client.http.sockets import ConnectFailed, OnBytes, OnClose, Pipe, SocketPipe, SocketTally, TlsPipe
from loadramp.record.types import NO_FILES
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Target

_SO_TIMESTAMPNS = getattr(socket, "SO_TIMESTAMPNS", 35)


@dataclass(slots=True, frozen=True, repr=False)
class Proxy:
    """An HTTP proxy, used only because ``[target] proxy`` names it."""

    host: str
    port: int
    authorization: str
    """``Basic ...`` or empty."""

    async def tunnel(self, sock: socket.socket, host: str, port: int) -> None:
        """Ask for a tunnel to ``host``. Raises ConnectFailed when the proxy refuses."""
        loop = asyncio.get_running_loop()
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        login = f"Proxy-Authorization: {self.authorization}\r\n" if self.authorization else ""
        await loop.sock_sendall(sock, f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{login}\r\n".encode("latin-1"))
        reply = b""
        while b"\r\n\r\n" not in reply:  # nothing follows until we speak
            piece = await loop.sock_recv(sock, 4096)
            if not piece or len(reply) > 65_536:
                raise ConnectFailed("connect", f"the proxy {self.host}:{self.port} closed the connection")
            reply += piece
        status = reply.split(b"\r\n")[0].decode("latin-1")
        if status.split(" ")[1:2] != ["200"]:
            raise ConnectFailed("connect", f"the proxy {self.host}:{self.port} refuses {where}: {status}")


class Dialer:
    """Opens sockets to one host: the function ``Connect`` of production, with a tally of what its pipes saw.

    ``timeout_s`` covers name, connection and handshake.
    """

    def __init__(
        self, host: str, port: int, tls: ssl.SSLContext | None, timeout_s: float, proxy: Proxy | None = None
    ) -> None:
        self.tally = SocketTally()
        self._host, self._port, self._tls, self._timeout_s = host, port, tls, timeout_s
        self._proxy = proxy
        self._addresses: list[tuple[int, Any]] = []

    async def __call__(self, on_bytes: OnBytes, on_close: OnClose) -> Pipe:
        """Raises ConnectFailed."""
        try:
            async with asyncio.timeout(self._timeout_s):
                sock = await self._connected()
                return await self._wrapped(sock, on_bytes, on_close)
        except TimeoutError:
            where = f"{self._host}:{self._port}"
            raise ConnectFailed("connect", f"{where} did not answer within {self._timeout_s:g} s") from None

    async def _connected(self) -> socket.socket:
        host, port = (self._proxy.host, self._proxy.port) if self._proxy else (self._host, self._port)
        if not self._addresses:
            self._addresses = await resolve(host, port)
        failure: OSError | None = None
        for family, address in tuple(self._addresses):
            try:
                sock = await _connect(family, address)
            except OSError as error:
                failure = failure or error
                continue
            if failure is not None:
                self._addresses = [(family, address)]  # the one that answers
            self.tally.opened += 1
            return sock
        self._addresses = []  # next time ask again: the name may have moved
        assert failure is not None
        raise connect_failed(failure, host, port) from None

    async def _wrapped(self, sock: socket.socket, on_bytes: OnBytes, on_close: OnClose) -> Pipe:
        with ExitStack() as undo:
            undo.callback(sock.close)
            if self._tls is None:  # through a proxy, plain requests name the whole address instead
                undo.pop_all()
                return SocketPipe(sock, on_bytes, on_close, self.tally)
            if self._proxy is not None:
                try:
                    await self._proxy.tunnel(sock, self._host, self._port)
                except OSError as error:
                    where = f"the proxy {self._proxy.host}:{self._proxy.port}"
                    raise ConnectFailed(
                        "connect", f"{where} broke the connection: {describe_os_error(error)}"
                    ) from None
            pipe = TlsPipe(self._tls, self._host, on_bytes, on_close)
            undo.callback(pipe.close)
            try:
                await pipe.handshake(sock, self.tally)
            except ssl.SSLError as error:
                raise ConnectFailed("tls", describe_tls_error(error)) from None
            except ConnectionError as error:
                where = f"{self._host}:{self._port}"
                raise ConnectFailed("tls", f"{where} closed the connection in the TLS handshake: {error}") from None
            undo.pop_all()
            return pipe


async def _connect(family: int, address: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    with ExitStack() as undo:
        undo.callback(sock.close)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError):  # no kernel stamps here; each pipe says which stamps it has
            sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        await asyncio.get_running_loop().sock_connect(sock, address)
        undo.pop_all()
    return sock


async def resolve(host: str, port: int) -> list[tuple[int, Any]]:
    """Socket family and address of each address of ``host``. Raises ConnectFailed."""
    try:
        literal = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        literal = None
    if literal is not None and "%" not in host:
        return [(socket.AF_INET6 if literal.version == 6 else socket.AF_INET, (host, port))]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConnectFailed("connect", f"cannot resolve the host name {host!r}: {describe_os_error(error)}") from None
    except UnicodeError as error:
        raise ConnectFailed("connect", f"no host can have the name {host!r}: {error}") from None
    return [(family, address) for family, _, _, _, address in found]


def connect_failed(error: OSError, host: str, port: int) -> ConnectFailed:
    """The failure of ``connect`` in words, and whose fault it is."""
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if isinstance(error, ConnectionRefusedError):
        return ConnectFailed("connect", f"connection refused by {where}: is the server up, is the port right?")
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return ConnectFailed("client", f"{NO_FILES}: raise the limit (ulimit -n)")
    if error.errno == errno.EADDRNOTAVAIL:
        return ConnectFailed("client", f"no local port left for another connection to {where}")
    return ConnectFailed("connect", f"cannot connect to {where}: {describe_os_error(error)}")


def tls_context(ca_file: str = "", insecure: bool = False) -> ssl.SSLContext:
    """Trust the system's certificates, or those of ``ca_file``, or (``insecure``) anything. Raises OSError."""
    context = ssl.create_default_context(cafile=ca_file or None)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def proxy_of(target: Target) -> Proxy | None:
    """The proxy that the scenario names. Raises ScenarioError when it cannot be used."""
    if not target.proxy:
        return None
    url = urlsplit(target.proxy if "://" in target.proxy else f"http://{target.proxy}")
    if url.scheme != "http" or not url.hostname:
        raise ScenarioError("[target] proxy: expected http://HOST:PORT")
    login = ""
    if url.username:
        plain = f"{unquote(url.username)}:{unquote(url.password or '')}"
        login = "Basic " + base64.b64encode(plain.encode()).decode()
    return Proxy(url.hostname, url.port or 8080, login)


def tls_context_of(target: Target, endpoint: Endpoint) -> ssl.SSLContext | None:
    """None for plain HTTP. Raises ScenarioError when the CA file cannot be used."""
    try:
        return tls_context(target.ca_file, target.insecure) if endpoint.tls else None
    except OSError as error:
        raise ScenarioError(f"[target] ca_file: cannot use {target.ca_file!r}: {error.strerror or error}") from None


def dialer_of(target: Target, endpoint: Endpoint) -> Dialer:
    """Real sockets to ``endpoint`` as ``target`` wants them. Raises ScenarioError: CA file or proxy cannot be used."""
    context = tls_context_of(target, endpoint)
    return Dialer(endpoint.host, endpoint.port, context, target.connect_timeout_s, proxy_of(target))
