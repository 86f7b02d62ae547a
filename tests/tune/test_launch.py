"""A whole tuning. The ramp is a stand-in that asks the server for its flags; servers are real ones on loopback where
they are what is tried, else stand-ins, too."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from command_line import free_port, in_process
from test_server_process import FLAGGED, SERVER, gone

from loadramp.analysis.diagnosis.cures import cures_of
from loadramp.record.run_directory import RunDir
from loadramp.record.run_info import RunInfo
from loadramp.record.table import Run, Table
from loadramp.record.types import Cure, Estimate, Finding
from loadramp.registry import ScenarioError
from loadramp.runner.finish import Finished
from loadramp.runner.scenarios import Options, load
from loadramp.scenario.scenario import Scenario
from loadramp.tune import launch
from loadramp.tune.launch import TuneOptions, prepared, tune
from loadramp.tune.preview import planned
from loadramp.tune.state import load_state

SCENARIO = """
name = "chat"
[prompts]
kind = "fixed"
input_tokens = 30
output_tokens = 6
[tune]
step_s = [1]
stop_timeout_s = 60
"""


@dataclass
class StandIn:
    """In place of ``runner.launch.ramp``: the ceiling is five times the requests that may run at once."""

    cures: Callable[[int], list[Cure]] = lambda _: []
    exit_codes: list[int] = field(default_factory=list)
    """Of the first runs; 0 then."""
    ramps: list[tuple[str, str]] = field(default_factory=list)
    """(label, [ramp] as it was set)."""

    async def ramp(
        self, scenario: Scenario, options: Options, say: Any, watch: Any, argv: Any, beside: Any
    ) -> Finished:
        def ask() -> dict[str, int]:
            with urllib.request.urlopen(f"{options.base_url}/flags", timeout=20) as reply:
                told: dict[str, int] = json.loads(reply.read())
            return told

        flags = await asyncio.to_thread(ask) if options.base_url else {}
        told = options.label[-1].rpartition(" ")[2]
        count = max([*flags.values(), int(told) if told.isdecimal() and not flags else 1])
        self.ramps.append((options.label[-1], scenario.overrides[-2]))
        ceiling = Estimate("found", 5.0 * count, 4.8 * count, 5.2 * count, "ceiling")
        nothing = Estimate("not_measurable", reason="no limit is set in [slo]")
        run = Run(RunInfo(state="complete"), scenario, [], Table.of([]), path="")
        run.estimates = {"ceiling": ceiling, "p99_itl_knee": nothing, "slo_capacity": nothing}
        run.findings = [Finding("scheduler_oversubscription", "certain", (), (), tuple(self.cures(count)))]
        return Finished(run, self.exit_codes.pop(0) if self.exit_codes else 0)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn()
    monkeypatch.setattr(launch.launch, "ramp", made.ramp)
    return made


class InMemory:
    """In place of a server: it runs with whatever flags it is given."""

    exit_code = None
    base_url = None

    def __init__(self, *_: Any, **__: Any) -> None:
        self.flags: str | None = None
        self.stop = asyncio.Event()

    async def start(self, flags: str, *_: Any) -> float:
        self.flags = flags
        return 2.0

    async def end(self) -> None:
        self.flags = None


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "ServerProcess", InMemory)


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "chat.toml"
    path.write_text(SCENARIO)
    return path


def options(tmp_path: Path, *overrides: str) -> Options:
    return Options(out=tmp_path / "out", overrides=overrides)


def go(scenario: Path, ask: TuneOptions) -> Any:
    return asyncio.run(tune(scenario, ask, lambda _: None, lambda _: None))


def test_flags_of_sglang_and_of_llama_server_are_tuned_alike(scenario: Path, tmp_path: Path, stand_in: StandIn) -> None:
    tries = ["--max-running-requests 8", "--parallel 2", "--bogus 1"]
    ask = TuneOptions(options(tmp_path, "tune.most_candidates=3"), SERVER, tries=tries)
    found, code = go(scenario, ask)
    assert code == 0
    assert found.verdict.best == "--max-running-requests 8"
    document = json.loads((Path(found.path) / "tune.json").read_text())["answer"]
    assert document["verdict"] == "best"
    assert (document["best"]["flags"], document["best"]["objective"]) == ("--max-running-requests 8", pytest.approx(40))
    states = {one["flags"]: one["state"] for one in document["candidates"]}
    assert states == {
        "--max-running-requests 8": "measured",
        "--parallel 2": "out",
        "--bogus 1": "did_not_start",
    }
    bogus = next(one for one in document["candidates"] if one["flags"] == "--bogus 1")
    assert bogus["exit_code"] == 2
    assert bogus["reason"].startswith("did not start: unknown flag")
    assert bogus["log_tail"][-1].endswith("unrecognized arguments: --bogus 1")
    assert document["command"].endswith("--port 8000 --max-running-requests 8")


@pytest.mark.usefixtures("no_server")
def test_without_candidates_the_cures_of_each_better_run_lead_on(
    scenario: Path, tmp_path: Path, stand_in: StandIn
) -> None:
    stand_in.cures = lambda count: (
        [Cure("more_sequences", "", "", f"--max-running-requests {4 * count}")] if count < 16 else []
    )
    found, _ = go(scenario, TuneOptions(options(tmp_path), SERVER))
    assert found.verdict.best == "--max-running-requests 16"
    assert [label for label, _ in stand_in.ramps][:3] == [
        "flags=baseline", "flags=--max-running-requests 4", "flags=--max-running-requests 16",
    ]  # fmt: skip


@pytest.mark.usefixtures("no_server")
def test_a_climb_begins_below_what_is_known_and_elsewhere_where_the_scenario_says(
    scenario: Path, tmp_path: Path, stand_in: StandIn
) -> None:
    go(scenario, TuneOptions(options(tmp_path, "ramp.start_rps=3", "ramp.max_rps=99"), SERVER, tries=["--parallel 9"]))
    first, second = (ramp for _, ramp in stand_in.ramps[:2])
    assert "start_rps = 3.0" in first
    assert "soak_s = 0.0" in first
    assert "max_rps = 99.0" in first
    assert "factor = 2.0" in second


@pytest.mark.usefixtures("no_server")
def test_an_interruption_costs_the_measurement_it_falls_into_and_resume_goes_on(
    scenario: Path, tmp_path: Path, stand_in: StandIn
) -> None:
    stand_in.exit_codes = [0, 130]
    ask = TuneOptions(options(tmp_path), SERVER, tries=["--parallel 8"])
    found, code = go(scenario, ask)
    assert code == 130
    path = Path(found.path)
    state = load_state(path)
    assert [one.flags for one in state.visits] == [""]
    assert (state.state, state.ended) == ("stopped", "interrupted")
    plan = planned(*prepared(scenario, TuneOptions(options(tmp_path), resume=path)))
    assert any(line.startswith("of it 1 measurement and ") for line in plan)
    again, again_code = go(scenario, TuneOptions(options(tmp_path), resume=path))
    assert again_code == 0
    assert again.verdict.best == "--parallel 8"
    assert [one.flags for one in load_state(path).visits][:2] == ["", "--parallel 8"]


def test_nothing_begins_that_would_end_after_the_budget(scenario: Path, tmp_path: Path, stand_in: StandIn) -> None:
    found, code = go(scenario, TuneOptions(options(tmp_path, "tune.max_hours=0.001"), SERVER, tries=["--parallel 8"]))
    assert code == 1
    assert stand_in.ramps == []
    assert "max_hours are left" in found.state.ended


def test_a_tuning_is_resumed_only_as_it_was_begun(scenario: Path, tmp_path: Path, stand_in: StandIn) -> None:
    found, _ = go(scenario, TuneOptions(options(tmp_path, "tune.max_hours=0.001"), SERVER, tries=["--parallel 8"]))
    path = Path(found.path)
    with pytest.raises(ScenarioError, match=r"was begun with --set tune\.max_hours=0\.001; give the same again"):
        go(scenario, TuneOptions(options(tmp_path, "ramp.start_rps=2"), resume=path))
    for other, said in (
        (TuneOptions(options(tmp_path), SERVER + " --model b", resume=path), "was begun with --server"),
        (
            TuneOptions(options(tmp_path), tries=["--parallel 4"], resume=path),
            r"was begun with --try \['--parallel 8'\]",
        ),
    ):
        with pytest.raises(ScenarioError, match=said):
            go(scenario, other)
    with pytest.raises(ScenarioError, match=r"no tune\.json here"):
        go(scenario, TuneOptions(options(tmp_path), resume=tmp_path))


def test_the_plan_is_shown_and_nothing_is_started(scenario: Path, tmp_path: Path) -> None:
    code, out, _ = in_process(
        "tune", str(scenario), "--server", SERVER, "--try", "--parallel 2", "--try", "--parallel 4", "--dry-run",
        "--out", str(tmp_path / "out"),
    )  # fmt: skip
    assert code == 0
    assert "candidate: --parallel 2\ncandidate: --parallel 4\nthen all of them that do not hurt, and" in out
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_server")
def test_a_directory_that_is_a_tuning_is_judged_again(scenario: Path, tmp_path: Path, stand_in: StandIn) -> None:
    found, code = go(scenario, TuneOptions(options(tmp_path), SERVER, tries=["--parallel 8"]))
    code, out, _ = in_process("report", found.path)
    assert code == 0
    assert "The best is --parallel 8: ceiling 40 req/s" in " ".join(out.split())


@pytest.mark.usefixtures("no_server")
def test_a_tuning_is_exported_as_csv(scenario: Path, tmp_path: Path, stand_in: StandIn) -> None:
    found, code = go(scenario, TuneOptions(options(tmp_path), SERVER, tries=["--parallel 8"]))
    code, out, _ = in_process("export", found.path, "--format", "csv", "--output", str(tmp_path / "csv"))
    assert code == 0, out
    first = (tmp_path / "csv" / "configurations.csv").read_text().splitlines()[1]
    assert first.startswith("'--parallel 8,40.")
    assert len((tmp_path / "csv" / "measurements.csv").read_text().splitlines()) == 1 + len(found.state.visits)


def test_the_cures_of_a_stored_run_are_the_candidates_in_their_order(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(RunInfo(), load(SCENARIO), [], Table.of([]))
    cures = cures_of("kv_full", "vllm", {"context": 2560, "longest": 2323})
    run.findings = [Finding("kv_full", "certain", (), (), cures)]
    monkeypatch.setattr(launch, "judge", lambda _: Finished(run, 0))
    skipping = options(tmp_path, 'tune.skip=["quantized_weights"]')
    base, state = prepared(scenario, TuneOptions(skipping, SERVER, of_run=tmp_path))
    assert planned(base, state)[2:5] == [
        "candidate: --max-model-len 2560",
        "candidate: --kv-cache-dtype fp8",
        "candidate: --gpu-memory-utilization 0.90",
    ]
    assert planned(base, state)[5] == f"cures of {tmp_path}, then those of each better configuration"
    assert "not tried: --quantization fp8: [tune] skip" in planned(base, state)
    assert "not tried: replicas: it needs more GPUs or hosts" in planned(base, state)
    lines = planned(*prepared(scenario, TuneOptions(skipping, f"{SERVER} --kv-cache-dtype fp8", of_run=tmp_path)))
    assert "candidate: --kv-cache-dtype fp8" not in lines
    assert sum("the command has it already" in line for line in lines) == 1


def test_a_wrong_command_line_is_a_usage_error(scenario: Path) -> None:
    for words, told in (
        (["--try", "--n 1"], "--server or --switch-command"),
        (["--server", "x {port}", "--objective", "cost"], "price_per_hour"),
        (["--server", "x {port}", "--objective", "goodput"], "needs limits in [slo]"),
        (["--server", "x {port}", "--limit", "p98 ITL < 1"], "limit"),
        (["--server", "x {port}", "--grid"], "--grid: needs candidates"),
    ):
        code, _, err = in_process("tune", str(scenario), *words, "--yes")
        assert (code, told in err) == (2, True), err


class Interrupted:
    """As much of a conductor as stands beside a load."""

    def __init__(self, path: Path) -> None:
        self.rundir = RunDir(path)
        self.stop = asyncio.Event()


def test_a_server_that_dies_in_mid_ramp_is_a_result(
    scenario: Path, tmp_path: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ramp(asked: Scenario, options: Options, say: Any, watch: Any, argv: Any, beside: Any) -> Finished:
        if not options.label[-1].endswith("1.5"):
            return await stand_in.ramp(asked, options, say, watch, argv, beside)
        ramping = Interrupted(tmp_path / "run")
        going = asyncio.ensure_future(beside(ramping, None))
        await asyncio.wait_for(ramping.stop.wait(), 60)
        await going
        return Finished(Run(RunInfo(state="stopped"), asked, [], Table.of([])), 3)

    monkeypatch.setattr(launch.launch, "ramp", ramp)
    found, code = go(scenario, TuneOptions(options(tmp_path), SERVER, tries=["--dies-after 1.5"]))
    died = next(one for one in found.state.visits if one.flags)
    assert (died.state, died.exit_code, died.run) == ("died", 1, "run")
    assert died.reason.startswith("died: out of memory (exit code 1)")
    assert (code, found.verdict.best) == (0, "")


def test_a_server_of_others_is_switched_with_the_flags(scenario: Path, tmp_path: Path, stand_in: StandIn) -> None:
    port, running = free_port(), tmp_path / "running"
    code = (
        "import os, subprocess, sys\n"
        f"pid = {str(running)!r}\n"
        "if os.path.exists(pid): os.kill(int(open(pid).read()), 9)\n"
        f"words = [sys.executable, {str(FLAGGED)!r}, '--port', '{port}', *sys.argv[1].split()]\n"
        "server = subprocess.Popen(words, start_new_session=True)\n"
        "open(pid, 'w').write(str(server.pid))\n"
    )
    script = tmp_path / "switch.py"
    script.write_text(code)
    asked = Options(out=tmp_path / "out", base_url=f"http://127.0.0.1:{port}")
    try:
        switch = f'"{sys.executable}" "{script}" "{{flags}}"'
        found, code = go(scenario, TuneOptions(asked, "", switch, tries=["--parallel 8"]))
    finally:
        os.kill(int(running.read_text()), signal.SIGKILL)
    assert (code, found.verdict.best, found.command) == (0, "--parallel 8", "--parallel 8")


def test_ctrl_c_while_a_server_starts_ends_it_and_saves(scenario: Path, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(300)"
    words = ["tune", str(scenario), "--server", f'"{sys.executable}" -c "{code}" {{port}} {{flags}}', "--try", "--n 1"]
    command = [sys.executable, "-m", "loadramp", *words, "--yes", "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tuning:
        assert tuning.stderr is not None
        while not pid.is_file() or not pid.read_text():
            assert tuning.poll() is None
            time.sleep(0.05)
        tuning.send_signal(signal.SIGINT)
        assert tuning.wait(60) == 130
    assert gone(int(pid.read_text()))
    state = load_state(next((tmp_path / "out").iterdir()))
    assert (state.state, state.ended, state.visits) == ("stopped", "interrupted", [])
