"""The chaos command and the health checks, with real processes and sockets on loopback."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from loadramp.campaign.health_check import Pulse, read_health
from loadramp.campaign.launch import _health_url, rehearse, run_command
from loadramp.cli import cli
from loadramp.client.endpoint import endpoint_of
from loadramp.commands import terminal
from loadramp.registry import ScenarioError
from loadramp.runner.scenarios import Options
from loadramp.scenario.scenario import Target


def python(code: str) -> str:
    """A command line that runs ``code``."""
    return f'"{sys.executable}" -c "{code}"'


def test_a_command_s_exit_code_and_last_line_are_kept() -> None:
    assert asyncio.run(run_command(python("print('one'); print('two')"), 20.0)) == (0, "two")
    assert asyncio.run(run_command(python("raise SystemExit('no such pod')"), 20.0)) == (1, "no such pod")


def test_no_shell_looks_at_the_command(tmp_path: Path) -> None:
    marker = tmp_path / "made"
    command = f'"{sys.executable}" -c "import sys; print(sys.argv[1:])" "$HOME" "; touch {marker}"'
    code, said = asyncio.run(run_command(command, 20.0))
    assert code == 0
    assert said == f"['$HOME', '; touch {marker}']"
    assert not marker.exists()


def test_a_command_that_cannot_be_started_says_why() -> None:
    for command, words in (
        ("", "no command was given"),
        ("/nowhere/to/be/found", "No such file"),
        ('"open', "No closing"),
    ):
        code, said = asyncio.run(run_command(command, 5.0))
        assert code is None
        assert words in said


SLEEPER = """
import subprocess, sys, time
pid_file, session = sys.argv[1:]
left = subprocess.Popen(["sleep", "60"], start_new_session=session == "own")
open(pid_file, "w").write(str(left.pid))
print("on", flush=True)
time.sleep(60 if session == "same" else 0)
"""


def test_a_command_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    script, pids = tmp_path / "sleeper.py", tmp_path / "pid"
    script.write_text(SLEEPER)
    found, said = asyncio.run(run_command(f'"{sys.executable}" "{script}" "{pids}" same', 3.0))
    assert found is None
    assert said == "the command took longer than 3 s and was ended"
    assert gone(int(pids.read_text()))


def test_what_a_command_leaves_running_does_not_hold_it_up(tmp_path: Path) -> None:
    script, pids = tmp_path / "sleeper.py", tmp_path / "pid"
    script.write_text(SLEEPER)
    found = asyncio.run(run_command(f'"{sys.executable}" "{script}" "{pids}" own', 20.0))
    left = int(pids.read_text())
    try:
        assert found == (0, "on")
        assert not gone(left, 5)
    finally:
        os.kill(left, 9)


def gone(pid: int, looks: int = 200) -> bool:
    """Dead, or a zombie that nobody waits for."""
    for _ in range(looks):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


@contextmanager
def answering(status_of: Callable[[str], int]) -> Iterator[str]:
    """A server on loopback that answers each path with a status."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(status_of(self.path))
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_health_is_checked_on_a_grid_and_each_check_is_a_line(tmp_path: Path) -> None:
    status = {"now": 200}
    path = tmp_path / "health.jsonl"
    with answering(lambda _: status["now"]) as url:
        pulse = Pulse(f"{url}/health", path, t0_s=time.monotonic(), period_s=0.05)
        pulse.start()
        wait_for(path, 4)
        status["now"] = 503
        known = len(read_health(path))
        wait_for(path, known + 4)
        pulse.stop()
    found = read_health(path)
    assert found[0].ok
    assert (found[-1].ok, found[-1].error) == (False, "http 503")
    assert [one.t_s for one in found] == sorted(one.t_s for one in found)
    path.write_bytes(path.read_bytes() + b'{"t_s": 1')  # torn
    assert len(read_health(path)) == len(found)
    assert read_health(tmp_path / "none.jsonl") == []


def test_a_server_that_is_gone_is_refused_not_an_exception(tmp_path: Path) -> None:
    path = tmp_path / "health.jsonl"
    with answering(lambda _: 200) as url:
        pass
    pulse = Pulse(f"{url}/health", path, t0_s=time.monotonic(), period_s=0.05)
    pulse.start()
    wait_for(path, 2)
    pulse.stop()
    assert {one.error for one in read_health(path)} == {"connection refused"}


def wait_for(path: Path, lines: int) -> None:
    for _ in range(1000):
        if len(read_health(path)) >= lines:
            return
        time.sleep(0.01)
    raise AssertionError(f"fewer than {lines} checks after ten seconds")


def test_a_server_without_a_health_check_is_asked_for_its_models() -> None:
    with answering(lambda path: 404 if path == "/health" else 200) as url:
        endpoint = endpoint_of(Target(base_url=url), {})
        assert _health_url(endpoint, "", False) == f"{url}/v1/models"
    with answering(lambda path: 500 if path == "/health" else 200) as url:  # a gateway with one sick model among many
        assert _health_url(endpoint_of(Target(base_url=url), {}), "", False) == f"{url}/v1/models"
    with answering(lambda _: 503) as url:
        assert _health_url(endpoint_of(Target(base_url=url), {}), "", False) == f"{url}/health"


def test_a_campaign_asks_before_it_loads_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "asks", lambda yes, as_json: not yes and not as_json)
    asked = CliRunner().invoke(cli, ["campaign", "campaign", "--base-url", "http://10.255.255.1:9"], input="n\n")
    assert asked.exit_code == 1
    assert "Load 10.255.255.1 for " in asked.output


@pytest.mark.parametrize(
    ("command", "said"),
    [("kubectl 'delete", "--chaos: No closing quotation"), ("/nowhere/kill", "--chaos: /nowhere/kill: no program")],
)
def test_a_chaos_command_that_cannot_run_is_refused_before_the_hours_that_come_first(
    tmp_path: Path, command: str, said: str
) -> None:
    scenario = tmp_path / "c.toml"
    scenario.write_text("[campaign]\ntarget_rps = 4\n")
    options = Options(base_url="http://127.0.0.1:1", out=tmp_path / "out")
    with pytest.raises(ScenarioError, match=said):
        asyncio.run(rehearse(scenario, options, lambda _: None, lambda _: None, chaos=command))
    assert not (tmp_path / "out").exists()
