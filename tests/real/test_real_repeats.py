"""Five ramps of a real vLLM on the CPU into preemption: does one ramp's interval agree with how far ramps lie apart?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from real.server import serving
from real.test_real_vllm import run

pytestmark = pytest.mark.real

REPEATED = """
name = "real-vllm-repeats"
seed = 31
[prompts]
kind = "fixed"
input_tokens = 64
output_tokens = 200
[ramp]
kind = "ceiling"
start_rps = 2
warmup_s = 6
measure_s = 25
soak_s = 20
settle_s = 10
settle_requests = 10
"""


def test_five_ramps_lie_as_far_apart_as_their_intervals_say(tmp_path: Path) -> None:
    with serving(8025, "--num-gpu-blocks-override", "24", "--max-num-seqs", "16") as url:
        document = run(REPEATED, url, tmp_path, "--repeats", "5")
    each = [one["ceiling"] for one in document["repeats"]]
    for one in each:
        print({key: one[key] for key in ("status", "rate_rps", "low_rps", "high_rps")})
    assert [one["status"] for one in each] == ["found"] * 5
    rates = np.log([one["rate_rps"] for one in each])
    half = np.log([one["high_rps"] / one["low_rps"] for one in each]) / 2
    middle = document["ceiling"]
    print(f"spread {rates.std(ddof=1):.3f} (sd of the logs); stated half-widths {np.round(half, 3)}; pooled {middle}")
    # a half-width is two standard errors: the spread must not be far beyond it
    assert rates.std(ddof=1) < 2.0 * half.mean() / 1.96
    assert middle["low_rps"] < middle["rate_rps"] < middle["high_rps"]
