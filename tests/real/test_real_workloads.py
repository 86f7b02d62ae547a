"""Real shapes on a real vLLM: a ShareGPT-shaped file as sessions, and made-up prompts of exact lengths. Minutes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadramp.record.table import Run
from loadramp.runner.scenarios import read_run
from loadramp.workload.prompts.vocabulary import WORDS
from real.server import HOME, serving

pytestmark = pytest.mark.real

SESSIONS = """
name = "real-sharegpt"
seed = 21
[prompts]
kind = "conversations"
file = "sharegpt.json"
turns = 0
max_input_tokens = 400
max_output_tokens = 40
max_context_tokens = 1000
think_s = 1
think_cv = 0.5
[ramp]
kind = "ladder"
rates = [1, 2]
warmup_s = 15
measure_s = 40
settle_s = 5
settle_requests = 3
"""
EXACT = """
name = "real-exact"
seed = 22
[target]
{target}
[prompts]
kind = "uniform"
input_tokens = 200
output_tokens = 20
[ramp]
kind = "ladder"
rates = [2]
warmup_s = 5
measure_s = 20
settle_s = 3
settle_requests = 3
"""


def sharegpt(path: Path, n: int = 80) -> Path:
    """Invented conversations in the public set's shape, the rows that cannot be used included."""
    rng = np.random.default_rng(5)

    def said(mean: float) -> str:
        return " ".join(rng.choice(WORDS, max(4, int(rng.lognormal(np.log(mean), 0.6)))).tolist()).capitalize() + "."

    rows: list[dict[str, Any]] = [
        {"id": f"r{i}_0", "conversations": [
            {"from": who, "value": said(40 if who == "human" else 30)}
            for who in ("human", "gpt") * int(rng.integers(1, 5))
        ]}
        for i in range(n)
    ]  # fmt: skip
    rows[3]["conversations"] = []
    rows[4]["conversations"] = [{"from": "human", "value": None}, {"from": "gpt", "value": "Nothing was asked."}]
    rows[5]["conversations"].insert(0, {"from": "gpt", "value": "Welcome back."})
    path.write_text(json.dumps(rows))
    return path


def run(text: str, url: str, folder: Path) -> tuple[Run, dict[str, Any], str]:
    """The run, its JSON document, and what was said; the client is kept off the server's core."""
    path = folder / "scenario.toml"
    path.write_text(text)
    out = os.environ.get("LOADRAMP_REAL_OUT", str(folder))
    command = [sys.executable, "-m", "loadramp", "run", str(path), "--base-url", url, "--json", "--out", out]
    done = subprocess.run(["taskset", "-c", "1", *command], capture_output=True, text=True, timeout=900)
    print(done.stderr)
    document: dict[str, Any] = json.loads(done.stdout)
    found, skipped = read_run(Path(document["run_dir"]))
    assert skipped == 0
    return found, document, done.stderr


def check_sessions(url: str, folder: Path) -> None:
    """Sessions of a ShareGPT-shaped file: every turn answered in full, histories grow and are found in the cache."""
    sharegpt(folder / "sharegpt.json")
    found, document, said = run(SESSIONS, url, folder)
    table = found.table
    assert "sharegpt.json: 78 rows (conversations); 2 skipped" in said
    assert "1 began with an answer, which is dropped" in said
    assert set(table.status) == {"ok"}
    assert table.output_tokens.sum() >= 0.98 * table.asked_output_tokens.sum()
    mean = [float(table.prompt_tokens[table.turn == turn].mean()) for turn in range(3)]
    assert mean[0] < mean[1] < mean[2]
    for row in document["steps"]:
        print(row["rate_rps"], row["arrival_rps"], row["sessions"], row["prefix_hit_ratio"])
        for turn, figures in row["classes"]["turn"].items():
            print("turn", turn, {key: figures[key] for key in ("requests", "input_tokens_mean", "ttft_p50_s")})
        assert row["sessions"]["broken"] == 0
    assert document["steps"][-1]["prefix_hit_ratio"] > 0.2
    (kept,) = found.info.files or ()
    assert (kept.rows, len(kept.sha256)) == (78, 64)


def check_lengths(url: str, folder: Path, target: str) -> None:
    """Every prompt has the tokens that were asked, by the server's own count."""
    found, _, _ = run(EXACT.format(target=target), url, folder)
    assert set(found.table.status) == {"ok"}
    off = found.table.prompt_tokens - found.table.asked_input_tokens
    print("counted - asked:", np.unique(off, return_counts=True))
    assert np.all(off == 0)


def test_a_sharegpt_shaped_file_runs_as_sessions(tmp_path: Path) -> None:
    with serving(8023, "--max-num-seqs", "32", "--enable-prefix-caching") as url:
        check_sessions(url, tmp_path)


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_prompts_have_exactly_the_length_that_was_asked(api: str, tmp_path: Path) -> None:
    target = f'api = "{api}"\ntokenizer = "{HOME / "model" / "tokenizer.json"}"'
    with serving(8024, "--max-num-seqs", "32") as url:
        check_lengths(url, tmp_path, target)
        if api == "completions":
            check_lengths(url, tmp_path, f"{target}\ntoken_ids = true")
