"""The server for rollout controllers: what a call may do, what it may not, and what a controller reads."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from loadramp.comparison.job_config import (
    JobConfig,
    JobOutcome,
    arguments,
    key_of,
    read_jobs,
    status,
    token_of,
    verdict_of,
)
from loadramp.comparison.job_queue import JobQueue
from loadramp.comparison.job_server import MOST_BODY, MOST_CONNECTIONS, JobServer
from loadramp.registry import ScenarioError

JOBS = """
[jobs.chat]
scenario = "canary"
baseline = "http://old:8000"
candidate = "http://new:8000"
set = ["canary.blocks=5"]
options = ["--quiet"]

[jobs.smoke]
scenario = "demo"
kind = "run"
base_url = "http://new:8000"
"""
PLAY = """
import json, pathlib, sys, time
here, words = pathlib.Path(sys.argv[1]), json.load(sys.stdin)
with (here / "calls").open("a") as file:
    file.write(json.dumps(words) + "\\n")
print("block 1 is done", file=sys.stderr, flush=True)
while not (here / "go").exists():
    time.sleep(0.01)
code, verdict = (here / "go").read_text().split()
print(json.dumps({"verdict": verdict, "sentence": "So it is.", "comparison_dir": "reports/x"}))
sys.exit(int(code))
"""


@contextmanager
def serving(tmp_path: Path, token: str = "", jobs: str = JOBS) -> Iterator[JobServer]:
    """A server on a free port whose jobs are a play: they end when the file ``go`` says how."""
    script = tmp_path / "play.py"
    script.write_text(PLAY)
    desk = JobQueue(
        read_jobs(jobs, "jobs.toml"), tmp_path / "out", command=(sys.executable, str(script), str(tmp_path))
    )
    server = JobServer("127.0.0.1", 0, desk, token)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        (tmp_path / "go").write_text("1 none")
        server.shutdown()
        server.close()
        thread.join()


def call(
    server: JobServer, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    text = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
    connection.request(method, path, body=text if method == "POST" else None, headers=headers or {})
    reply = connection.getresponse()
    told = json.loads(reply.read())
    connection.close()
    return reply.status, told


def until_done(server: JobServer, name: str = "chat") -> dict[str, Any]:
    for _ in range(1000):
        _, told = call(server, "GET", f"/v1/jobs/{name}")
        if told["state"] == "done":
            return told
        time.sleep(0.01)
    raise AssertionError(told)


def test_start_then_poll_until_it_passes(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert call(server, "GET", "/v1/jobs/chat")[1]["verdict"] == "none"
        code, told = call(server, "POST", "/v1/jobs/chat/start", {"key": "v2"})
        assert (code, told["state"], told["verdict"], told["key"]) == (202, "running", "running", "v2")
        assert call(server, "POST", "/v1/jobs/chat/start", {"key": "v2"})[1]["id"] == told["id"]
        (tmp_path / "go").write_text("0 pass")
        done = until_done(server)
        assert (done["verdict"], done["exit_code"], done["sentence"], done["report"]) == (
            "pass", 0, "So it is.", "reports/x",
        )  # fmt: skip
        assert call(server, "POST", "/v1/jobs/chat/start", {"key": "v2"}) == (200, done)
        (line,) = (tmp_path / "calls").read_text().splitlines()
        assert json.loads(line) == [
            "canary", "canary", "--baseline", "http://old:8000", "--candidate", "http://new:8000",
            "--set", "canary.blocks=5", "--quiet", "--out", str(tmp_path / "out"), "--json",
        ]  # fmt: skip


def test_one_job_at_a_time(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        call(server, "POST", "/v1/jobs/chat/start", {"key": "v2"})
        code, told = call(server, "POST", "/v1/jobs/smoke/start", {})
        assert (code, told["verdict"]) == (409, "busy")
        assert call(server, "POST", "/v1/jobs/chat/start", {"key": "v3"})[0] == 409
        (tmp_path / "go").write_text("3 inconclusive")
        assert until_done(server)["verdict"] == "inconclusive"
        assert call(server, "POST", "/v1/jobs/smoke/start", {})[0] == 202
        assert until_done(server, "smoke")["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    ("ending", "confirm", "rollback"),
    [("0 pass", 200, 412), ("99 fail", 412, 200), ("3 inconclusive", 412, 412), ("1 none", 412, 412)],
)
def test_flagger_s_gates_open_only_on_what_they_wait_for(
    tmp_path: Path, ending: str, confirm: int, rollback: int
) -> None:
    hook = {"name": "chat", "namespace": "llm", "phase": "Progressing", "checksum": "7f9d8c", "metadata": {}}
    with serving(tmp_path) as server:
        assert call(server, "POST", "/v1/jobs/chat/rollback", hook)[0] == 412
        assert call(server, "POST", "/v1/jobs/chat/confirm", hook)[0] == 503
        assert call(server, "POST", "/v1/jobs/chat/confirm", hook)[0] == 503
        assert call(server, "POST", "/v1/jobs/chat/rollback", hook)[0] == 412
        (tmp_path / "go").write_text(ending)
        until_done(server)
        assert call(server, "POST", "/v1/jobs/chat/confirm", hook)[0] == confirm
        assert call(server, "POST", "/v1/jobs/chat/rollback", hook)[0] == rollback
        assert len((tmp_path / "calls").read_text().splitlines()) == 1  # the same checksum is the same run
        assert call(server, "POST", "/v1/jobs/chat/confirm", hook | {"checksum": "other"})[0] in (503, 200, 412)


@pytest.mark.parametrize(
    ("ending", "verdict"),
    [("0 fail", "inconclusive"), ("99 pass", "inconclusive"), ("1 pass", "error"), ("0 nonsense", "inconclusive")],
)
def test_it_passes_only_where_exit_code_and_document_agree(tmp_path: Path, ending: str, verdict: str) -> None:
    """CR-01."""
    with serving(tmp_path) as server:
        (tmp_path / "go").write_text(ending)
        call(server, "POST", "/v1/jobs/chat/start", {})
        assert until_done(server)["verdict"] == verdict


def test_a_token_is_asked_for_in_every_call_but_the_health_check(tmp_path: Path) -> None:
    basic = base64.b64encode(b"flagger:s3cret-token").decode()
    with serving(tmp_path, token="s3cret-token") as server:
        assert call(server, "GET", "/healthz") == (200, {"status": "ok"})
        for method, path in (("GET", "/v1/jobs"), ("GET", "/v1/jobs/chat"), ("POST", "/v1/jobs/chat/start")):
            assert call(server, method, path)[0] == 401
            assert call(server, method, path, headers={"Authorization": "Bearer wrong"})[0] == 401
            assert call(server, method, path, headers={"Authorization": "Basic !!!"})[0] == 401
        for headers in ({"Authorization": "Bearer s3cret-token"}, {"Authorization": f"Basic {basic}"}):
            assert call(server, "GET", "/v1/jobs/chat", headers=headers)[0] == 200
        assert call(server, "POST", "/v1/jobs/chat/confirm", {"metadata": {"token": "wrong"}})[0] == 401
        assert call(server, "POST", "/v1/jobs/chat/confirm", {"metadata": {"token": "s3cret-token"}})[0] == 503
        assert "s3cret-token" not in json.dumps(
            call(server, "GET", "/v1/jobs", headers={"Authorization": "Bearer s3cret-token"})
        )


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/v1/jobs/nosuch", None, 404),
        ("GET", "/v1/jobs/../../etc/passwd", None, 404),
        ("GET", "/", None, 404),
        ("GET", "/v1/jobs/chat?x=1", None, 404),
        ("POST", "/v1/jobs/nosuch/start", {}, 404),
        ("POST", "/v1/jobs/chat", {}, 404),
        ("POST", "/v1/jobs/chat/stop", {}, 404),
        ("POST", "/v1/jobs/chat/start", b"[1]", 400),
        ("POST", "/v1/jobs/chat/start", b"{", 400),
        ("POST", "/v1/jobs/chat/start", {"key": "a b"}, 400),
        ("POST", "/v1/jobs/chat/start", {"key": 7}, 400),
        ("POST", "/v1/jobs/chat/start", {"key": "x" * 129}, 400),
        ("POST", "/v1/jobs/chat/start", b" " * (MOST_BODY + 1), 413),
    ],
)
def test_what_is_not_in_the_list_is_refused(tmp_path: Path, method: str, path: str, body: Any, code: int) -> None:
    with serving(tmp_path) as server:
        assert call(server, method, path, body)[0] == code
        assert not (tmp_path / "calls").exists()


def test_urls_paths_and_commands_in_a_call_change_nothing(tmp_path: Path) -> None:
    body = {"key": "v2", "baseline": "http://evil", "scenario": "/etc/passwd", "set": ["target.base_url=x"], "out": "/"}
    with serving(tmp_path) as server:
        call(server, "POST", "/v1/jobs/chat/start", body)
        (tmp_path / "go").write_text("0 pass")
        until_done(server)
        assert "evil" not in (tmp_path / "calls").read_text()
        assert "passwd" not in (tmp_path / "calls").read_text()


def test_a_page_in_a_browser_cannot_start_anything(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert call(server, "POST", "/v1/jobs/chat/start", {}, {"Origin": "http://evil"})[0] == 403
        assert call(server, "GET", "/v1/jobs/chat", headers={"Origin": "null"})[0] == 403


def raw(server: JobServer, text: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=5) as line:
        line.sendall(text)
        got = b""
        while part := line.recv(4096):
            got += part
        return got


def test_bodies_that_could_smuggle_a_second_call_end_the_connection(tmp_path: Path) -> None:
    smuggled = b"GET /v1/jobs/chat HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcdGET /healthz HTTP/1.1\r\n\r\n"
    chunked = b"POST /v1/jobs/chat/start HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with serving(tmp_path) as server:
        assert raw(server, smuggled).count(b"HTTP/1.1 ") == 1
        assert raw(server, chunked).startswith(b"HTTP/1.1 411")


def test_an_address_that_others_reach_needs_a_token(tmp_path: Path) -> None:
    desk = JobQueue(read_jobs(JOBS, "jobs.toml"), tmp_path)
    for host in ("0.0.0.0", "10.1.2.3", "example.test"):
        with pytest.raises(ScenarioError, match="--token-env"):
            JobServer(host, 0, desk, "")


def test_closing_ends_what_is_running(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        call(server, "POST", "/v1/jobs/chat/start", {})
        for _ in range(500):
            if (tmp_path / "calls").exists():
                break
            time.sleep(0.01)
        server.desk.close()
        outcome = server.desk.latest("chat")
        assert outcome is not None
        assert outcome.state == "done"
        assert verdict_of(outcome) == "error"
        assert server.desk.start("chat", "") == (409, None)


@pytest.mark.parametrize(
    ("slo", "gates", "verdict"),
    [
        ("inconclusive", [], "inconclusive"),
        ("inconclusive", [{"status": "pass"}], "pass"),
        ("found", [], "pass"),
        ("not_measurable", [], "pass"),  # no limit was set
    ],
)
def test_a_ramp_whose_service_level_stayed_open_lets_nothing_pass(slo: str, gates: list[object], verdict: str) -> None:
    document = {"verdict": "pass", "slo_capacity": {"status": slo}, "gates": gates}
    outcome = JobOutcome("1", "ramp", "", "2026-01-02T03:04:05+00:00", "done", 0, document)
    assert verdict_of(outcome) == verdict


def test_a_job_that_cannot_start_or_takes_too_long_is_an_error(tmp_path: Path) -> None:
    desk = JobQueue(read_jobs(JOBS, "jobs.toml"), tmp_path, command=("/nowhere/loadramp",))
    _, outcome = desk.start("chat", "")
    desk.close()
    assert outcome is not None
    assert (verdict_of(outcome), "/nowhere/loadramp" in outcome.progress) == ("error", True)
    script = tmp_path / "play.py"
    script.write_text(PLAY)
    slow = read_jobs(JOBS.replace('options = ["--quiet"]', "timeout_s = 0.3"), "jobs.toml")
    desk = JobQueue(slow, tmp_path, command=(sys.executable, str(script), str(tmp_path)))
    _, outcome = desk.start("chat", "")
    assert desk._thread is not None
    desk._thread.join(20)
    assert outcome is not None
    assert verdict_of(outcome) == "error"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "expected tables"),
        ("[jobs]", "expected tables"),
        ("[jobs.a]\nkind = 'canary'", "scenario: missing"),
        ("[jobs.a]\nscenario = 'canary'\nbaseline = 'http://x'", "candidate: missing"),
        ("[jobs.a]\nscenario = 'demo'\nkind = 'run'", "base_url: missing"),
        ("[jobs.a]\nscenario = 'demo'\nkind = 'shell'", "kind"),
        ("[jobs.'a/b']\nscenario = 'demo'", "a name is letters"),
        ("[jobs.a]\nscenario = 'demo'\ncommand = 'rm'", "unknown key"),
        ("[jobs", "not TOML"),
    ],
)
def test_a_wrong_list_of_jobs_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        read_jobs(text, "jobs.toml")


def test_what_a_job_is_on_the_command_line() -> None:
    job = JobConfig("demo", "run", base_url="http://x", set=("ramp.soak_s=9",))
    assert arguments(job, "out") == [
        "run",
        "demo",
        "--base-url",
        "http://x",
        "--set",
        "ramp.soak_s=9",
        "--out",
        "out",
        "--json",
    ]


def test_keys_and_tokens_of_a_body() -> None:
    assert key_of(b"") == ""
    assert key_of(b'{"checksum": "abc"}') == "abc"
    assert key_of(b'{"key": "k", "checksum": "abc"}') == "k"
    assert token_of(b'{"metadata": {"token": "t"}}') == "t"
    assert token_of(b"[]") == token_of(b"{") == token_of(b'{"metadata": 3}') == ""


def test_a_status_is_one_flat_object() -> None:
    outcome = JobOutcome(
        "1", "chat", "v2", "2026-01-02T03:04:05+00:00", "done", 99, {"verdict": "fail", "reasons": ["r"]}
    )
    told = status("chat", outcome)
    assert (told["verdict"], told["reasons"], told["state"]) == ("fail", ["r"], "done")
    assert all(not isinstance(value, dict) for value in told.values())


def reply_to(server: JobServer, sent: bytes) -> bytes:
    """What comes back for these bytes, at once."""
    with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=10) as sock:
        sock.sendall(sent)
        return sock.recv(65536)


def post(body: bytes, *headers: bytes, length: bytes | None = None) -> bytes:
    length = str(len(body)).encode() if length is None else length
    head = [b"POST /v1/jobs/chat/start HTTP/1.1", b"Host: localhost", b"Content-Length: " + length, *headers]
    return b"\r\n".join([*head, b"", body])


@pytest.mark.parametrize(
    ("request_bytes", "code"),
    [
        (post(b'{"key": '), 400),
        (post(b"\xff\xfe"), 400),
        (post(b'{"key": "\\ud800"}'), 400),
        (post(b"[" * 60_000), 400),
        (post(b"", length=b"9" * 5000), 400),
        (post(b"", length=b"9" * 12), 400),
        (post(b"", length=b"-1"), 400),
        (post(b"", length=b"1e3"), 400),
        (post(b"", length="²".encode("latin-1")), 400),
        (post(b"", b"Content-Length: 3"), 400),
        (post(b"").replace(b"Host: localhost", b"Host: evil.example"), 400),
        (post(b"").replace(b"Host: localhost\r\n", b""), 400),
        (post(b"", b"Host: localhost"), 400),
        (b"GET /healthz HTTP/1.1\r\nHost: rebound.example:8080\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost:8080\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", 200),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
    ],
)
def test_what_is_broken_is_answered_and_starts_nothing(tmp_path: Path, request_bytes: bytes, code: int) -> None:
    with serving(tmp_path) as server:
        assert int(reply_to(server, request_bytes).split()[1]) == code
        assert server.desk.outcomes == []


@pytest.mark.parametrize(
    "request_bytes",
    [
        post(b'{"metadata": {"token": "\\udcff"}}'),
        post(b'{"metadata": {"token": ["x"]}}'),
        post(b"[" * 60_000),
        post(b"", "Authorization: Basic \xfc\xfc==".encode("latin-1")),
        post(b"", b"Authorization: Basic ////"),
        post(b"", b"Authorization: Basic a"),
        post(b"", "Authorization: Bearer \xff".encode("latin-1")),
    ],
)
def test_credentials_that_are_none_are_refused(tmp_path: Path, request_bytes: bytes) -> None:
    with serving(tmp_path, "t0ken") as server:
        assert int(reply_to(server, request_bytes).split()[1]) == 401
        assert server.desk.outcomes == []


def test_a_request_that_drips_in_has_one_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadramp.comparison.job_server.DEADLINE_S", 0.1)
    with serving(tmp_path) as server:
        begin_s = time.monotonic()
        with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=10) as sock:
            sock.settimeout(0.02)
            while time.monotonic() < begin_s + 8.0:
                try:
                    sock.sendall(b"G")
                    if sock.recv(1) == b"":
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
        assert time.monotonic() < begin_s + 8.0


def test_health_is_answered_however_many_connections_say_nothing(tmp_path: Path) -> None:
    with serving(tmp_path) as server, ExitStack() as opened:
        for _ in range(3 * MOST_CONNECTIONS):
            opened.enter_context(socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=10))
        assert call(server, "GET", "/healthz") == (200, {"status": "ok"})
        assert len(server._open) <= MOST_CONNECTIONS


def test_no_address_is_on_the_command_line_of_a_job(tmp_path: Path) -> None:
    desk = JobQueue(read_jobs(JOBS, "jobs.toml"), tmp_path)
    assert desk.command[1:] == ("-m", "loadramp", "--arguments-from-stdin")
    told = json.dumps(["plan", "nowhere.toml"]).encode()
    done = subprocess.run(desk.command, input=told, capture_output=True, timeout=60)
    assert done.returncode == 2
    assert b"nowhere.toml: no such scenario file" in done.stderr
