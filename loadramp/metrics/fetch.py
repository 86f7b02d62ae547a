"""Gets one page over HTTP, again and again, on a kept connection. Never run it on the measuring loop.

A failure is a FetchFailed with a few words, which hold no header, key or query. Redirects never leave the host.
"""

import asyncio
import socket
import ssl
import zlib
from collections.abc import Mapping

import httpx

from loadramp.client.error_text import causes_of

PAGE_CAP_BYTES = 8 * 1024 * 1024
_ACCEPT = "text/plain;version=0.0.4,application/json;q=0.5,*/*;q=0.1"
_COMPRESSED = frozenset({"gzip", "x-gzip", "deflate"})
_DROPPED = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)


class FetchFailed(Exception):  # noqa: N818 - it names what happened, as the other rooms' do
    """No page: the reason in a few words."""


class Fetcher:
    """Gets pages of one server and keeps its connection. Does not ask for compressed pages but reads them.

    Args:
        headers: sent with every request.
        context: how certificates are checked; None: only plain HTTP is spoken.
    """

    __slots__ = ("_answered", "_http", "_tls")

    def __init__(self, headers: Mapping[str, str] | None = None, context: ssl.SSLContext | None = None):
        self._http = httpx.AsyncClient(
            headers={"Accept": _ACCEPT, "Accept-Encoding": "identity", "User-Agent": "loadramp", **(headers or {})},
            verify=context or False,
            timeout=None,  # noqa: S113  # ``get`` limits the whole exchange
            trust_env=False,
        )
        self._tls = context is not None
        self._answered = False

    async def get(self, url: str, timeout_s: float) -> str:
        """The page at ``url`` (user and password allowed) as text, within ``timeout_s`` from first to last byte.

        Raises:
            FetchFailed: no http address, refused, no such name, time-out, status other than 200, above 8 MB, not HTTP.
        """
        address = address_of(url)
        assert self._tls or address.scheme == "http"
        try:
            async with asyncio.timeout(timeout_s):
                try:
                    return await self._page(address)
                except _DROPPED:
                    if not self._answered:
                        raise
                    self._answered = False  # the server had closed the idle connection: that is no failure
                    return await self._page(address)
        except TimeoutError:
            raise FetchFailed("timeout") from None
        except (httpx.HTTPError, zlib.error) as error:
            raise FetchFailed(_reason(error)) from None

    async def close(self) -> None:
        await self._http.aclose()

    async def _page(self, address: httpx.URL) -> str:
        request = self._http.build_request("GET", address)
        for _ in range(3):
            response = await self._http.send(request, stream=True)
            try:
                if response.status_code == 200:
                    page = await _body(response)
                    self._answered = True
                    return page
                onward = response.next_request
            finally:
                await response.aclose()
            if onward is None:
                break
            if (onward.url.scheme, onward.url.netloc) != (address.scheme, address.netloc):
                raise FetchFailed(f"http {response.status_code}: sends to another host")
            request = onward
        raise FetchFailed(f"http {response.status_code}")


def address_of(url: str) -> httpx.URL:
    """``url`` taken apart. Raises FetchFailed where it is no http or https address."""
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:
        raise FetchFailed("not an http address") from None
    if address.scheme not in {"http", "https"} or not address.host or address.port == 0:
        raise FetchFailed("not an http address")
    return address


async def fetch_once(url: str, headers: Mapping[str, str], context: ssl.SSLContext | None, timeout_s: float) -> str:
    """``Fetcher.get`` on a connection of its own."""
    fetcher = Fetcher(headers, context)
    try:
        return await fetcher.get(url, timeout_s)
    finally:
        await fetcher.close()


async def _body(response: httpx.Response) -> str:
    compressed = response.headers.get("content-encoding", "").lower() in _COMPRESSED
    unpacker = zlib.decompressobj(wbits=47) if compressed else None
    body = bytearray()
    async for data in response.aiter_raw():
        body += data if unpacker is None else unpacker.decompress(data, PAGE_CAP_BYTES + 1)
        if len(body) > PAGE_CAP_BYTES:
            raise FetchFailed("page above 8 MB")
    if not response.headers.keys() & {"content-length", "transfer-encoding"}:
        del body[body.rfind(b"\n") + 1 :]  # ends with its connection: a last line without its end may be half a number
    return body.decode("utf-8", "replace")


def _reason(error: Exception) -> str:
    """What went wrong, without anything that was sent."""
    for cause in causes_of(error):
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused"
        if isinstance(cause, socket.gaierror):
            return "no such host"
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"tls: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return f"tls: {cause.reason}"
    if isinstance(error, zlib.error):
        return "cannot be unpacked"
    if isinstance(error, httpx.RemoteProtocolError) and "complete message body" in str(error):
        return "page cut short"
    if isinstance(error, httpx.RemoteProtocolError) and "Server disconnected" not in str(error):
        return "not HTTP"
    if isinstance(error, httpx.ConnectError):
        return next(
            (cause.strerror for cause in causes_of(error) if isinstance(cause, OSError) and cause.strerror),
            "no connection",
        )
    return "connection lost"
