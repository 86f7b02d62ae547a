"""A real vLLM against itself and against a worse configuration of itself. Minutes; both servers share one core."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from real.server import serving

pytestmark = pytest.mark.real

TEXT = """
name = "real-canary"
seed = 21
[prompts]
kind = "fixed"
input_tokens = 64
output_tokens = 40
[ramp]
settle_s = 20
settle_requests = 10
[canary]
rates = [2]
block_s = 30
blocks = 6
looks = []
primary = ["ttft_p50", "itl_p50", "tpot_mean"]
latency_margin = 0.5
error_ratio = 0.02
answers = 4
answer_tokens = 16
"""


def canary(base: str, candidate: str, tmp_path: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and document; the client on the core that the servers do not have."""
    path = tmp_path / "canary.toml"
    path.write_text(TEXT)
    command = [sys.executable, "-m", "loadramp", "canary", str(path), "--baseline", base, "--candidate", candidate,
               "--model", "tiny", "--out", str(tmp_path / "out"), "--json"]  # fmt: skip
    other = ["taskset", "-c", "1"] if len(os.sched_getaffinity(0)) > 1 else []
    done = subprocess.run([*other, *command], capture_output=True, text=True, timeout=1500)
    assert done.returncode in {0, 3, 99}, done.stderr[-2000:]
    return done.returncode, json.loads(done.stdout)


def told(document: dict[str, Any]) -> str:
    shown = [one for one in document["checks"] if one["primary"] and one["value"]]
    checks = [f"{one['id']} {one['value']:.3f} {one['ci']} {one['status']}, sd {one['block_sd']:.3f}" for one in shown]
    return "\n".join([document["sentence"], *checks, str(document["answers"]), str(document["blocks"])])


def measured(document: dict[str, Any]) -> None:
    """On a machine that is too busy every block is void, and rightly nothing is known."""
    if document["blocks"]["used"] < 2:
        pytest.skip(f"the client could not deliver the load here: {document['reasons'][0][:200]}")


def test_itself_is_not_worse_and_one_sequence_at_a_time_is(tmp_path: Path) -> None:
    with serving(18_201) as base:
        with serving(18_202) as same:
            code, document = canary(base, same, tmp_path)
            print(told(document))
            measured(document)
            assert code != 99
            assert document["answers"]["match_ratio"] == document["answers"]["baseline_repeats_itself_ratio"]
        with serving(18_203, "--max-num-seqs", "1") as worse:
            code, document = canary(base, worse, tmp_path)
            print(told(document))
            measured(document)
            assert code == 99
