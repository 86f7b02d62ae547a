"""A shortened campaign against a real vLLM on the CPU, with a real kill -9 and restart in mid-load: some 15 minutes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from real.server import HERE, HOME, _wait, install, kill, start

pytestmark = pytest.mark.real

PORT = 8024
RECOVERY_S, HOLD_S = 200.0, 30.0
OPTIONS = ("--max-num-seqs", "8", "--max-num-queued-reqs", "24")
CAMPAIGN = """
name = "real-vllm"
seed = 13
[slo]
ttft_s = 5
quantile = 0.9
[target]
ready_timeout_s = 200
[prompts]
kind = "fixed"
input_tokens = 48
output_tokens = 64
[ramp]
start_rps = 1
warmup_s = 8
measure_s = 30
soak_s = 45
settle_s = 10
settle_requests = 8
[campaign]
target_ratio = 0.6
model_config = "config.json"
[campaign.baseline]
measure_s = 20
warmup_s = 5
[campaign.sustained]
measure_s = 90
error_ratio = 0.05
[campaign.overload]
measure_s = 40
stage_s = 40
warmup_s = 5
[campaign.chaos]
after_s = 30
measure_s = 240
recovery_s = 200
timeout_s = 30
"""


def test_a_campaign_survives_a_real_kill_and_restart(tmp_path: Path) -> None:
    install()
    pid_file, scenario = tmp_path / "pid", tmp_path / "campaign.toml"
    scenario.write_text(CAMPAIGN)
    # a model of twice the context: 2,048 is then a cap that somebody chose
    config = json.loads((HOME / "model" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 4096}))
    server = start(PORT, *OPTIONS)
    pid_file.write_text(str(server.pid))
    try:
        _wait(server, PORT)
        restart = f'"{sys.executable}" "{HERE / "restart.py"}" "{pid_file}" {PORT} {" ".join(OPTIONS)}'
        document = campaign(scenario, restart, tmp_path)
    finally:
        kill(int(pid_file.read_text()))
        server.wait()
    phases = {phase["phase"]: phase for phase in document["phases"]}
    assert [phase["state"] for phase in document["phases"]] == ["done"] * 5
    chaos = {one["code"]: one["status"] for one in phases["chaos"]["criteria"]}
    away = Away.of(Path(document["campaign_dir"]) / phases["chaos"]["run"])
    assert chaos["struck"] == "pass"
    assert away.down_s > 1.0, "a new vLLM takes seconds to start"
    assert chaos["recovery"] in away.recovery()
    assert {chaos["felt"], chaos["nothing_lost"]} == ({"pass"} if away.usual_is_known else {"inconclusive"})
    assert chaos["retried"] == chaos["absorbed"] == "inconclusive"  # one page shows neither
    overload = {one["code"]: one["status"] for one in phases["overload"]["criteria"]}
    assert (overload["no_crash"], overload["refusals"]) == ("pass", "pass")
    items = {item["id"]: item["state"] for item in document["scorecard"]["items"]}
    assert items["max_model_len"] == "shown"
    # too short to count as proof; what is shown to be missing is missing all the same
    assert items["chaos_recovery"] == ("gap" if chaos["recovery"] == "fail" else "open")
    assert items["memory"] == items["sustained_hour"] == items["rollback"] == "open"


@dataclass(frozen=True)
class Away:
    """What the kill did, read off the raw files without the campaign's own code."""

    usual_is_known: bool
    """20 requests had succeeded in the measured window before the kill."""
    down_s: float
    """From the kill to the first health check that was answered after one that was not."""
    watched_s: float
    """From the kill to the end of the measured window."""

    @staticmethod
    def of(run: Path) -> Away:
        struck_s = json.loads((run / "strike.json").read_text())["begin_s"]
        step = next(one for one in json.loads((run / "run.json").read_text())["steps"] if one["role"] == "step")
        begin_s = step["begin_s"] + step["warmup_s"]
        end_s = begin_s + step["measure_s"]
        records = [json.loads(line) for file in run.glob("records-*.jsonl") for line in file.read_text().splitlines()]
        before = [one for one in records if begin_s <= one["due_us"] / 1e6 < struck_s and one["status"] == "ok"]
        checks = [json.loads(line) for line in (run / "health.jsonl").read_text().splitlines()]
        bad = [one["t_s"] for one in checks if not one["ok"] and one["t_s"] >= struck_s]
        good = [one["t_s"] for one in checks if one["ok"] and bad and one["t_s"] > bad[0]]
        return Away(len(before) >= 20, (good[0] if good else end_s) - struck_s, end_s - struck_s)

    def recovery(self) -> set[str]:
        """What the criterion may say: RECOVERY_S are allowed, and well means well for as long as ten requests take. A
        server that is there is not well at once, so only one that came back too late cannot have passed."""
        if not self.usual_is_known:
            return {"inconclusive"}
        if self.down_s > RECOVERY_S + 2.0:  # a health check a second
            return {"fail", "inconclusive"}
        return {"pass", "fail"} if self.watched_s > RECOVERY_S + HOLD_S else {"pass", "fail", "inconclusive"}


def campaign(scenario: Path, restart: str, tmp_path: Path) -> dict[str, Any]:
    """The campaign's JSON document; the client is kept off the server's core."""
    command = [
        "taskset", "-c", "1", sys.executable, "-m", "loadramp", "campaign", str(scenario),
        "--base-url", f"http://127.0.0.1:{PORT}", "--chaos", restart, "--json", "--yes",
        "--out", os.environ.get("LOADRAMP_REAL_OUT", str(tmp_path)),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=2400)
    print(done.stderr[-4000:])
    document: dict[str, Any] = json.loads(done.stdout)
    for phase in document["phases"]:
        print(phase["phase"], phase["verdict"])
        for one in phase["criteria"]:
            print(f"  {one['status']:12s} {one['asked']}: {one['said']}")
    return document
