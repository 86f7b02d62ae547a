"""Tuning of a real vLLM on the CPU: from two sequences at once it must find its way up, and tell why a flag that vLLM
does not have, or a value that it does not take, does not start. Some 25 minutes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from real.server import command_of, environment, install

pytestmark = pytest.mark.real

TUNE = """
name = "real-vllm-tune"
seed = 17
[prompts]
kind = "fixed"
input_tokens = 32
output_tokens = 48
[ramp]
start_rps = 1
warmup_s = 6
settle_s = 5
settle_requests = 5
[tune]
objective = "ceiling"
baseline = "--max-num-seqs 2"
candidates = ["--max-num-seqs 32", "--no-such-flag 1", "--max-model-len 100000000"]
step_s = [30]
confirmations = 2
start_timeout_s = 300
"""


def test_tune_finds_its_way_up_and_tells_what_does_not_start(tmp_path: Path) -> None:
    install()
    scenario = tmp_path / "tune.toml"
    scenario.write_text(TUNE)
    document = tune(scenario, tmp_path)
    assert document["verdict"] == "best"
    assert document["best"]["flags"] == "--max-num-seqs 32"
    assert document["best"]["confirmed"]
    assert document["best"]["ratio_low"] > 1.5
    states = {one["flags"]: one for one in document["candidates"]}
    unknown = states["--max-num-seqs 2 --no-such-flag 1"]
    assert unknown["state"] == "did_not_start"
    assert unknown["reason"].startswith("did not start: unknown flag (exit code 2)")
    long = states["--max-model-len 100000000 --max-num-seqs 2"]
    assert long["state"] == "did_not_start"
    assert long["exit_code"] != 0
    assert long["log_tail"]
    for one in document["candidates"]:
        if one["state"] == "measured":
            assert (Path(one["run_dir"]) / "run.json").is_file()


def tune(scenario: Path, tmp_path: Path) -> dict[str, Any]:
    """The document of the command, the client on another core than the server."""
    server = f"{shlex.join(command_of('PORT')).replace('PORT', '{port}')} {{flags}}"
    command = [
        "taskset", "-c", "1", sys.executable, "-m", "loadramp", "tune", str(scenario), "--server", server, "--json",
        "--yes", "--out", os.environ.get("LOADRAMP_REAL_OUT", str(tmp_path)),
    ]  # fmt: skip
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=3000)
    print(done.stderr[-6000:])
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == 0, document["sentence"]
    return document
