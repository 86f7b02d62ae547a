"""`loadramp campaign` as a stranger uses it: real processes, a server that is killed -9 and started again, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import in_process, loadramp

from loadramp.campaign.table import REHEARSED_S, campaign_of, longest_s, rehearsal_of
from loadramp.cli import cli
from loadramp.registry import ScenarioError
from loadramp.runner.scenarios import load
from loadramp.simulator.practise import SERVING, limits_of

QUICK = """
name = "quick"
seed = 3
[slo]
ttft_s = 5
[prompts]
kind = "fixed"
input_tokens = 20
output_tokens = 4
[ramp]
kind = "ladder"
rates = [10]
warmup_s = 0.2
measure_s = 1.5
settle_s = 0.1
settle_requests = 0
tail_s = 0.2
[campaign]
target_rps = 10
phases = ["baseline", "chaos"]
health_period_s = 0.2
[campaign.baseline]
warmup_s = 0.1
measure_s = 1
[campaign.chaos]
after_s = 2
warmup_s = 0.2
measure_s = 17
recovery_s = 5
"""
RESTART = """
import os, signal, subprocess, sys
pid_file, port = sys.argv[1:]
os.kill(int(open(pid_file).read()), signal.SIGKILL)
command = [sys.executable, "-m", "loadramp", "simulate", "--port", port]
quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
child = subprocess.Popen(command, start_new_session=True, **quiet)
open(pid_file, "w").write(str(child.pid))
print("started again")
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """(URL, command that kills it and starts it again) of a simulator; whoever runs at the end is ended."""
    port, pid_file, script = free_port(), tmp_path / "pid", tmp_path / "restart.py"
    script.write_text(RESTART)
    command = [sys.executable, "-m", "loadramp", "simulate", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith(SERVING)
    pid_file.write_text(str(process.pid))
    try:
        yield f"http://127.0.0.1:{port}", f'"{sys.executable}" "{script}" "{pid_file}" {port}'
    finally:
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
        process.wait()
        process.stdout.close()


@pytest.mark.slow
def test_a_server_killed_in_mid_load_is_felt_and_recovers_and_the_campaign_can_be_judged_again(
    server: tuple[str, str], tmp_path: Path
) -> None:
    url, restart = server
    scenario = tmp_path / "quick.toml"
    scenario.write_text(QUICK)
    out = tmp_path / "out"
    code, stdout, stderr = loadramp("campaign", str(scenario), "--base-url", url, "--out", str(out), "--chaos", restart,
                                    "--json", "--quiet")  # fmt: skip
    document = json.loads(stdout)
    assert code in {3, 99}, stderr  # nobody has answered the scorecard; a busy machine may be slow to start the server
    chaos = document["phases"][1]
    status = {one["code"]: one["status"] for one in chaos["criteria"]}
    assert (status["struck"], status["felt"], status["nothing_lost"]) == ("pass", "pass", "pass")
    path = Path(document["campaign_dir"])
    strike = json.loads((path / chaos["run"] / "strike.json").read_text())
    assert (strike["exit_code"], strike["said"]) == (0, "started again")
    assert "http://127.0.0.1" in (path / chaos["run"] / "run.json").read_text()
    sent = {run: (path / run / "records-0.jsonl").stat().st_size for run in (p["run"] for p in document["phases"])}
    again, stdout, _ = loadramp("report", str(path), "--json")
    assert (again, json.loads(stdout)["phases"]) == (code, document["phases"])
    words = ("campaign", str(scenario), "--base-url", url, "--chaos", restart, "--quiet")
    again, stdout, _ = loadramp(*words, "--resume", str(path))  # all is done: nothing is sent
    assert again == code
    assert "Scorecard" in stdout
    assert {run: (path / run / "records-0.jsonl").stat().st_size for run in sent} == sent
    other, _, stderr = loadramp(*words, "--resume", str(path), "--set", "seed=4")
    assert other == 2
    assert "was begun with no --set" in stderr


@pytest.mark.long
def test_ctrl_c_ends_the_phase_and_keeps_what_was_measured(server: tuple[str, str], tmp_path: Path) -> None:
    url, _ = server
    scenario = tmp_path / "quick.toml"
    scenario.write_text(
        QUICK.replace('"chaos"', '"sustained"') + "[campaign.sustained]\nmeasure_s = 60\nwarmup_s = 0.1\n"
    )
    words = ["campaign", str(scenario), "--base-url", url, "--out", str(tmp_path / "out"), "--quiet"]
    command = [sys.executable, "-m", "loadramp", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    state = wait_for_state(tmp_path / "out", "sustained", "run")
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    told = json.loads(state.read_text())
    assert (told["phases"]["baseline"]["state"], told["phases"]["sustained"]["state"]) == ("done", "stopped")
    assert (state.parent / "report.html").is_file()


def test_a_directory_that_is_no_canary_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    scenario = tmp_path / "quick.toml"
    scenario.write_text(QUICK)
    words = ("campaign", str(scenario), "--base-url", "http://127.0.0.1:9", "--out", str(tmp_path / "out"), "--quiet")
    code, _, stderr = in_process(*words, "--canary", str(tmp_path))
    assert code == 2
    assert "no comparison.json here: it is no canary" in " ".join(stderr.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_kill_9_of_the_campaign_within_and_between_phases_costs_one_phase_at_most(
    server: tuple[str, str], tmp_path: Path
) -> None:
    url, _ = server
    scenario, out = tmp_path / "quick.toml", tmp_path / "out"
    scenario.write_text(
        QUICK.replace('"chaos"', '"sustained", "overload"')
        + "[campaign.sustained]\nmeasure_s = 4\nwarmup_s = 0.1\n"
        + "[campaign.overload]\nwarmup_s = 0.2\nmeasure_s = 12\nstage_s = 12\nrecovery_s = 2\n"
    )
    words = ["campaign", str(scenario), "--base-url", url, "--out", str(out), "--quiet", "--set", "fleet.workers=2"]
    command = [sys.executable, "-m", "loadramp", *words]
    first = killed_at(command, out, "sustained", lambda told: "run" in told)
    path = next(out.iterdir())
    within = json.loads((path / "campaign.json").read_text())["phases"]
    assert (within["baseline"]["state"], within["sustained"]["state"]) == ("done", "running")
    assert gone(first)  # the workers end with the process that leads them
    killed_at([*command, "--resume", str(path)], out, "sustained", lambda told: told.get("state") == "done")
    between = json.loads((path / "campaign.json").read_text())["phases"]
    assert between["sustained"]["attempts"] == [within["sustained"]["run"]]
    code, stdout, stderr = loadramp(*words, "--json", "--resume", str(path))
    assert code in {3, 99}, stderr
    assert [phase["state"] for phase in json.loads(stdout)["phases"]] == ["done"] * 3
    done = json.loads((path / "campaign.json").read_text())["phases"]
    for phase in ("baseline", "sustained"):
        assert done[phase]["run"] == between[phase]["run"]


def killed_at(command: list[str], out: Path, phase: str, ready: Callable[[dict[str, Any]], bool]) -> list[int]:
    """Start a campaign and kill -9 it as soon as what it says of ``phase`` is ``ready``; the ids of its children."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(1200):
        told = [json.loads(state.read_text())["phases"].get(phase, {}) for state in out.glob("*/campaign.json")]
        if any(ready(one) for one in told):
            break
        time.sleep(0.05)
    children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    process.kill()
    process.wait()
    return children


def gone(pids: list[int]) -> bool:
    """All of them ended within ten seconds."""
    for _ in range(100):
        if not any(
            Path(f"/proc/{pid}/cmdline").is_file() and Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids
        ):
            return True
        time.sleep(0.1)
    return False


def wait_for_state(out: Path, phase: str, key: str) -> Path:
    for _ in range(600):
        for state in out.glob("*/campaign.json"):
            if key in json.loads(state.read_text())["phases"].get(phase, {}):
                return state
        time.sleep(0.1)
    raise AssertionError("the phase did not begin within a minute")


def test_what_is_wrong_with_the_scorecard_is_said_before_anything_is_sent(tmp_path: Path) -> None:
    scenario, answers = tmp_path / "quick.toml", tmp_path / "answers.toml"
    scenario.write_text(QUICK)
    answers.write_text("[answers.rollbak]\nanswer = 'yes'\n")
    words = ["campaign", str(scenario), "--base-url", "http://127.0.0.1:9", "--out", str(tmp_path / "out"), "--quiet"]
    for more, said in (
        (["--answers", str(answers)], r"\[answers.rollbak\]: no such item"),
        (["--set", "campaign.scorecard=gone.toml"], r"gone\.toml: no such file"),
        (["--resume", str(tmp_path)], "it is no campaign"),
    ):
        with pytest.raises(ScenarioError, match=said):
            cli.main([*words, *more], standalone_mode=False)


def test_an_endpoint_that_is_not_there_could_not_be_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "quick.toml"
    scenario.write_text(QUICK + "[target]\nready_timeout_s = 0\n")
    words = ["campaign", str(scenario), "--base-url", f"http://127.0.0.1:{free_port()}", "--out", str(tmp_path / "out")]
    assert cli.main(words, standalone_mode=False) == 1
    told = capsys.readouterr()
    assert "is not ready" in told.err
    assert "Not decided yet" in told.out


def test_limits_of_the_simulated_engine_are_told_from_faults() -> None:
    assert limits_of(["max_queue=20", "leak_bytes_per_s=1", "max_in_flight=60"]) == (
        {"max_queue": 20, "max_in_flight": 60}, ["leak_bytes_per_s=1"],
    )  # fmt: skip
    with pytest.raises(ScenarioError, match="--fault max_queue: expected a whole number of at least 1; got 'x'"):
        limits_of(["max_queue=x"])


def test_a_rehearsal_is_a_campaign_whose_phases_take_minutes() -> None:
    text = "[campaign]\ntarget_rps = 8\n"
    short = campaign_of(
        load(text, "t.toml", [f"campaign.{phase}.{key}={value}" for (phase, key), value in REHEARSED_S.items()])
    )
    assert (short.sustained.measure_s, short.overload.measure_s, short.chaos.measure_s) == (60, 45, 90)
    assert longest_s(short) < 600


def test_a_rehearsal_shortens_the_ramp_too_and_never_what_a_recovery_must_be_seen_in() -> None:
    text = "[campaign]\ntarget_rps = 8\n[campaign.chaos]\nrecovery_s = 200\n[campaign.overload]\nrecovery_s = 60\n"
    base = load(text, "t.toml")
    short = load(text, "t.toml", rehearsal_of(base))
    assert campaign_of(short).chaos.measure_s == 15 + 200 + 10
    assert campaign_of(short).overload.stage_s == 60
    assert (short.pace.measure_s, short.ramp.options["soak_s"]) == (20, 20)
    own = '[ramp]\nkind = "ladder"\nrates = [1]\nmeasure_s = 5\n[campaign.sustained]\nmeasure_s = 30\n'
    quick = load(own, "t.toml", rehearsal_of(load(own, "t.toml")))
    assert (quick.pace.measure_s, campaign_of(quick).sustained.measure_s) == (5, 30)
