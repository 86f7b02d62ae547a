"""A real vLLM on the CPU: a ramp into preemption, and one step beside ``vllm bench serve``. Minutes, not seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from real.server import HOME, serving

pytestmark = pytest.mark.real

PREEMPTING = """
name = "real-vllm-preempting"
seed = 11
[slo]
ttft_s = 2
quantile = 0.9
[prompts]
kind = "fixed"
input_tokens = 64
output_tokens = 200
[ramp]
kind = "ceiling"
start_rps = 1
warmup_s = 10
measure_s = 40
soak_s = 90
settle_s = 15
settle_requests = 10
"""
ONE_RATE = """
name = "real-vllm-one-rate"
seed = 12
[prompts]
kind = "fixed"
input_tokens = 64
output_tokens = 100
[ramp]
kind = "ladder"
rates = [2]
warmup_s = 10
measure_s = 60
settle_s = 15
settle_requests = 10
"""


SHOWN = (
    "role", "rate_rps", "requests", "ok", "done_rps", "throughput_rps", "ttft_p50_s", "ttft_p90_s", "itl_p50_s",
    "itl_p99_s", "tpot_p50_s", "preemptions", "kv_used_ratio_max", "waiting_max", "signals", "deficit", "void",
)  # fmt: skip


def run(scenario: str, url: str, tmp_path: Path, *options: str) -> dict[str, Any]:
    """The JSON document of a run whose client is kept off the server's core."""
    path = tmp_path / "scenario.toml"
    path.write_text(scenario)
    command = [sys.executable, "-m", "loadramp", "run", str(path), "--base-url", url, "--json", "--quiet", *options]
    out = os.environ.get("LOADRAMP_REAL_OUT", str(tmp_path))
    done = subprocess.run(["taskset", "-c", "1", *command, "--out", out], capture_output=True, text=True, timeout=1800)
    print(done.stderr)
    document: dict[str, Any] = json.loads(done.stdout)
    print(json.dumps({key: value for key, value in document.items() if key != "steps"}, indent=1))
    for row in document["steps"]:
        print({key: row[key] for key in SHOWN})
    return document


def test_a_ramp_into_preemption_finds_the_ceiling_and_writes_the_report(tmp_path: Path) -> None:
    with serving(8021, "--num-gpu-blocks-override", "24", "--max-num-seqs", "16") as url:
        document = run(PREEMPTING, url, tmp_path)
    assert document["state"] == "complete"
    steps = document["steps"]
    assert steps[0]["ok"] == steps[0]["requests"] > 20
    assert steps[0]["preemptions"] == 0
    assert max(step["preemptions"] for step in steps) > 5
    cause = next(one for one in document["diagnosis"] if one["code"] == "kv_eviction")
    assert cause["confidence"] == "certain"
    assert "--kv-cache-dtype fp8" in {cure["change"] for cure in cause["cures"]}
    assert not [check for check in document["checks"] if check["code"] == "server_counts"]
    assert document["ceiling"]["status"] == "found"
    assert 1.5 < document["ceiling"]["rate_rps"] < 12
    assert (Path(document["run_dir"]) / "report.html").stat().st_size > 100_000


def test_one_step_agrees_with_vllm_bench_serve(tmp_path: Path) -> None:
    with serving(8022, "--max-num-seqs", "64") as url:
        ours = run(ONE_RATE, url, tmp_path)["steps"][0]
        theirs = bench(url, tmp_path)
    table = {
        "ttft": (ours["sent_ttft_p50_s"], theirs["median_ttft_ms"] / 1e3),
        "gap": (ours["gap_p50_s"], theirs["median_itl_ms"] / 1e3),
        "tpot": (ours["tpot_p50_s"], theirs["median_tpot_ms"] / 1e3),
    }
    for name, (mine, other) in table.items():
        print(
            f"{name:5s} p50: loadramp {mine * 1e3:8.2f} ms, vllm bench serve {other * 1e3:8.2f} ms, {mine / other:.3f}"
        )
    assert theirs["completed"] == 120
    for name, (mine, other) in table.items():
        assert mine == pytest.approx(other, rel=0.35), name


def bench(url: str, tmp_path: Path) -> dict[str, Any]:
    """What ``vllm bench serve`` says of the same rate and lengths on the same server."""
    command = [
        "taskset", "-c", "1", str(HOME / "venv/bin/vllm"), "bench", "serve", "--backend", "openai-chat",
        "--base-url", url, "--endpoint", "/v1/chat/completions", "--model", "tiny", "--tokenizer", str(HOME / "model"),
        "--dataset-name", "random", "--random-input-len", "56", "--random-output-len", "100", "--num-prompts", "120",
        "--request-rate", "2", "--ignore-eos", "--seed", "3", "--percentile-metrics", "ttft,tpot,itl,e2el",
        "--save-result", "--result-dir", str(tmp_path), "--result-filename", "bench.json", "--disable-tqdm",
    ]  # fmt: skip
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=900)
    found: dict[str, Any] = json.loads((tmp_path / "bench.json").read_text())
    return found
