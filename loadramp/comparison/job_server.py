"""A small HTTP server that runs jobs of a fixed list for rollout controllers: start, then poll.

A request can start a job or ask how it went; it cannot say what is loaded, from where, or with how much. Endpoints:
docs/canary.md.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import io
import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from loadramp.comparison.job_config import JobConfig, key_of, status, token_of, verdict_of
from loadramp.comparison.job_queue import JobQueue
from loadramp.registry import ScenarioError
from loadramp.units import plural

MOST_BODY = 64 * 1024
MOST_DRAINED = 1024 * 1024
DEADLINE_S = 10.0
"""For a whole request, from the moment that it is waited for to its last byte."""
MOST_CONNECTIONS = 64
"""Open at once. One more closes the one that has kept its request back the longest, so that a health check is answered
however many connections somebody opens and says nothing on."""
MOST_DIGITS = 9
RETRY_AFTER_S = 30
BUSY = "another job is running; one at a time"


class _Deadline(io.RawIOBase):
    """Reads a socket until a given instant, however the bytes drip in."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.restart()

    def restart(self) -> None:
        """A request has DEADLINE_S from now."""
        self._end_s = time.monotonic() + DEADLINE_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises TimeoutError when the time is over."""
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(left_s)
        return self._connection.recv_into(buffer)


class Handler(BaseHTTPRequestHandler):
    """One connection. ``server`` is a Server."""

    server: JobServer
    server_version = "loadramp"
    sys_version = ""
    protocol_version = default_request_version = "HTTP/1.1"

    def setup(self) -> None:
        """Read with one deadline for a whole request instead of one for each read."""
        super().setup()
        self.rfile.close()
        self._deadline = _Deadline(self.connection)
        self.rfile = io.BufferedReader(self._deadline)

    def handle_one_request(self) -> None:
        """One request, within DEADLINE_S from the moment that it is waited for."""
        self._deadline.restart()
        self.server.waits(self.connection, True)
        super().handle_one_request()

    def do_GET(self) -> None:  # the name that http.server calls
        """``/healthz``, ``/v1/jobs`` and ``/v1/jobs/NAME``: how its last run went."""
        if self.headers.get("Content-Length", "0") != "0" or self.headers.get("Transfer-Encoding"):
            self._answer(400, {"error": "no body is expected"}, close=True)
        elif self._misdirected():
            return
        elif self.path == "/healthz":
            self._answer(200, {"status": "ok"})
        elif self._refused(b""):
            return
        elif self.path == "/v1/jobs":
            desk = self.server.desk
            self._answer(200, {"jobs": [status(name, desk.latest(name)) for name in desk.jobs]})
        elif (name := self._job("")) is not None:
            self._answer(200, status(name, self.server.desk.latest(name)))

    def do_POST(self) -> None:  # the name that http.server calls
        """``/v1/jobs/NAME/start`` and the gates ``/confirm`` and ``/rollback``."""
        body = self._body()
        if body is None or self._misdirected() or self._refused(body):
            return
        try:
            key = key_of(body)
        except ValueError as error:
            self._answer(400, {"error": str(error)})
            return
        for action in (self._start, self._confirm, self._rollback):
            verb = action.__name__.removeprefix("_")
            if self.path.endswith(f"/{verb}"):
                name = self._job(f"/{verb}")
                if name is not None:
                    action(name, key)
                return
        self._answer(404, {"error": "no such path"})

    def _start(self, name: str, key: str) -> None:
        """Start it, or say how the run of this key went: for a controller that polls with one call."""
        code, outcome = self.server.desk.start(name, key)
        answer = status(name, outcome) if outcome else {"error": BUSY, "verdict": "busy"}
        self._answer(code, answer)

    def _confirm(self, name: str, key: str) -> None:
        """A gate that starts its run and stays shut until that passes: 200 only then."""
        code, outcome = self.server.desk.start(name, key or "gate")
        if outcome is None:
            self._answer(code, {"error": BUSY, "verdict": "busy"})
        else:
            passed = verdict_of(outcome) == "pass"
            waits = outcome.state == "running"
            self._answer(200 if passed else 503 if waits else 412, status(name, outcome))

    def _rollback(self, name: str, key: str) -> None:
        """A gate that opens when the run has failed: 200 tells the controller to roll back."""
        outcome = self.server.desk.latest(name, key)
        self._answer(200 if verdict_of(outcome) == "fail" else 412, status(name, outcome))

    def _job(self, suffix: str) -> str | None:
        """The job that the path names; answers 404 where there is none."""
        name = self.path.removeprefix("/v1/jobs/").removesuffix(suffix)
        if self.path == f"/v1/jobs/{name}{suffix}" and name in self.server.desk.jobs:
            return name
        self._answer(404, {"error": "no such job"})
        return None

    def _body(self) -> bytes | None:
        """The body, at most 64 KiB; answers and returns None otherwise."""
        lengths = self.headers.get_all("Content-Length", [])
        if self.headers.get("Transfer-Encoding") or not lengths:
            self._answer(411, {"error": "Content-Length is needed"}, close=True)
            return None
        length = lengths[0]
        if len(lengths) > 1 or not (length.isascii() and length.isdecimal()) or len(length) > MOST_DIGITS:
            self._answer(400, {"error": f"Content-Length: one number of at most {MOST_DIGITS} digits"}, close=True)
            return None
        if int(length) > MOST_BODY:
            self.rfile.read(min(int(length), MOST_DRAINED))  # so that the answer is not lost with the connection
            self._answer(413, {"error": f"at most {MOST_BODY} bytes"}, close=True)
            return None
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self._answer(400, {"error": "the body is shorter than its Content-Length"}, close=True)
            return None
        return body

    def _misdirected(self) -> bool:
        """Answers a call whose Host header names another host: a page of a browser that resolves its own name to this
        address sends that name."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) == 1 and self.server.answers_to(hosts[0]):
            return False
        self._answer(400, {"error": "Host: expected the address that this server listens on"}, close=True)
        return True

    def _refused(self, body: bytes) -> bool:
        """Answers a call from a browser's page, or one without the token."""
        if self.headers.get("Origin"):
            self._answer(403, {"error": "not for browsers"})
            return True
        token = self.server.token
        if token and not any(_same(token, given) for given in self._tokens(body)):
            self._answer(401, {"error": "a bearer token is needed"})
            return True
        return False

    def _tokens(self, body: bytes) -> list[str]:
        """Tokens that came with the call: bearer, the password of Basic, Flagger's metadata."""
        kind, _, value = self.headers.get("Authorization", "").partition(" ")
        given = [token_of(body)]
        if kind.lower() == "bearer":
            given.append(value.strip())
        elif kind.lower() == "basic":
            with contextlib.suppress(ValueError):  # no Base64, or not text
                given.append(base64.b64decode(value, validate=True).decode().partition(":")[2])
        return given

    def _answer(self, code: int, document: dict[str, Any], close: bool = False) -> None:
        self.server.waits(self.connection, False)
        text = json.dumps(document, allow_nan=False).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Cache-Control", "no-store")
        if code == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        if code in (202, 409, 503):
            self.send_header("Retry-After", str(RETRY_AFTER_S))
        if close:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """One line a request for whoever watches; the path is not trusted to be printable."""
        self.server.desk.say(f"{self.client_address[0]} {format % args!a}")


class JobServer(ThreadingHTTPServer):
    """Listens for controllers. Not to be reached from outside without a token."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, desk: JobQueue, token: str) -> None:
        """Raises ScenarioError where others can reach the address and there is no token, OSError where it is taken."""
        if not token and not _loopback(host):
            raise ScenarioError(f"--host {host}: others can reach it, so --token-env NAME is needed")
        self.desk = desk
        self.token = token
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.host = host
        self._open: dict[socket.socket, bool] = {}
        """The open connections, the oldest first, and whether each still keeps its request back."""
        self._lock = threading.Lock()
        super().__init__((host, port), Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for the connection. Where there are too many, the oldest that still waits gives way; where none
        does, the new one."""
        with self._lock:
            full = len(self._open) >= MOST_CONNECTIONS
            oldest = next((connection for connection, waits in self._open.items() if waits), None)
            if full and oldest is not None:
                del self._open[oldest]
            if not full or oldest is not None:
                self._open[request] = True
        if full and oldest is None:
            self.shutdown_request(request)
            return
        if full and oldest is not None:
            with contextlib.suppress(OSError):  # it has just ended by itself
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """What the thread does."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)

    def waits(self, connection: socket.socket, for_a_request: bool) -> None:
        """Note that a connection waits for its next request, or that it has one to answer."""
        with self._lock:
            if self._open.pop(connection, None) is not None:
                self._open[connection] = for_a_request

    def answers_to(self, written: str) -> bool:
        """Whether a Host header may say ``written``: the address listened on. On a loopback address any name of that,
        elsewhere any at all: a service may have many names, and there a token is demanded."""
        if not _loopback(self.host):
            return True
        name = written[: written.index("]") + 1] if written.startswith("[") and "]" in written else (
            written.rpartition(":")[0] if ":" in written else written)  # fmt: skip
        return _loopback(name.strip("[]").lower())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A line instead of a traceback: mostly a client that has left."""
        self.desk.say(f"{client_address[0]} {type(sys.exception()).__name__}")

    def close(self) -> None:
        """Stop listening and end what is running."""
        self.server_close()
        self.desk.close()


def serve(host: str, port: int, jobs: dict[str, JobConfig], out: Path, token: str, say: Callable[[str], None]) -> None:
    """Serve until interrupted.

    Raises:
        ScenarioError: an address that others can reach, and no token.
        OSError: the address is taken.
    """
    server = JobServer(host, port, JobQueue(jobs, out, say), token)
    say(f"serving {plural(len(jobs), 'job')} on http://{host}:{server.server_address[1]}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    try:
        server.serve_forever(poll_interval=0.2)
    finally:
        server.close()


def _same(token: str, given: str) -> bool:
    """Compared in constant time; JSON may hold half characters."""
    return hmac.compare_digest(token.encode(), given.encode("utf-8", "surrogatepass"))


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
