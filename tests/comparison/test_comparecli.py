"""``canary``, ``compare`` and ``serve`` on real sockets: the commands in this process, the servers in their own."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from command_line import in_process as loadramp

from loadramp.cli import cli
from loadramp.commands import terminal
from loadramp.simulator.practise import simulator

QUICK = """
name = "quick"
seed = 3
[slo]
ttft_s = 5
[prompts]
kind = "fixed"
input_tokens = 30
output_tokens = 6
[fleet]
kind = "inline"
[ramp]
kind = "ladder"
rates = [10, 20]
warmup_s = 0.2
measure_s = 1.5
settle_s = 0.3
settle_requests = 0
tail_s = 0.3
[canary]
rates = [20]
block_s = 1
blocks = 3
looks = []
answers = 2
answer_tokens = 8
error_ratio = 0.1
"""


@pytest.fixture(scope="module")
def pair(sim: str) -> Iterator[tuple[str, str]]:
    with simulator() as other:
        yield sim, other


@pytest.fixture
def quick(tmp_path: Path) -> Path:
    path = tmp_path / "quick.toml"
    path.write_text(QUICK)
    return path


def test_a_canary_leaves_a_verdict_that_can_be_made_again(pair: tuple[str, str], quick: Path, tmp_path: Path) -> None:
    code, out, err = loadramp(
        "canary", str(quick), "--baseline", pair[0], "--candidate", pair[1], "--out", str(tmp_path), "--json",
        "--label", "gpu=H100", "--candidate-label", "gpu=L4",
    )  # fmt: skip
    document = json.loads(out)
    assert {"key": "gpu", "kind": "condition", "baseline": "H100", "candidate": "L4"} in document["environment"]
    assert code in {0, 3, 99}, err
    assert {0: "pass", 3: "inconclusive", 99: "fail"}[code] == document["verdict"]
    assert document["schema"] == "loadramp.verdict/1"
    assert document["answers"]["prompts"] == 2
    assert document["baseline"]["base_url"] == f"{pair[0]}/v1"
    assert {one["metric"] for one in document["checks"] if one["primary"]} == {
        "itl_p99", "itl_p50", "tpot_mean", "ttft_p50", "output_tokens_per_s",
    } or document["blocks"]["used"] == 0  # fmt: skip
    assert document["blocks"]["used"] + document["blocks"]["not_used"] >= 3
    path = Path(document["comparison_dir"])
    assert {file.name for file in path.iterdir()} >= {
        "baseline", "candidate", "comparison.json", "comparison.csv", "verdict.json", "summary.md", "report.html",
        "scenario.toml",
    }  # fmt: skip
    for arm in ("baseline", "candidate"):
        assert (path / arm / "records-0.jsonl").stat().st_size > 0
        assert json.loads((path / arm / "run.json").read_text())["state"] == "complete"
    assert not (path / "answers.jsonl").exists()
    assert "block 1 is done" in err
    for again in (["report", str(path)], ["compare", str(path)]):
        code_again, out_again, _ = loadramp(*again, "--json")
        assert (code_again, json.loads(out_again)) == (code, document)
    rounds = json.loads((path / "comparison.json").read_text())["rounds"]
    sent = [sent_in(path / arm, {one[f"{arm}_step"] for one in rounds}) for arm in ("baseline", "candidate")]
    assert len(sent[0]) > 20
    assert sent[0] == sent[1]


def sent_in(run: Path, numbers: set[int]) -> list[tuple[int, int]]:
    """(due, length) of the requests of these steps, without those due behind a step's end."""
    steps = {step["index"]: step for step in json.loads((run / "run.json").read_text())["steps"]}
    ends_s = {k: sum(steps[k][name] or 0.0 for name in ("begin_s", "warmup_s", "measure_s")) for k in numbers}
    records = map(json.loads, (run / "records-0.jsonl").read_text().splitlines())
    return sorted(
        (told["due_us"], told["asked_output_tokens"])
        for told in records
        if told["step"] in numbers and told["due_us"] < 1e6 * ends_s[told["step"]]
    )


@pytest.mark.long
def test_one_machine_is_switched_by_a_command_without_a_shell(
    pair: tuple[str, str], quick: Path, tmp_path: Path
) -> None:
    note = tmp_path / "switch.py"
    note.write_text("import os, sys; open(sys.argv[1], 'a').write(sys.argv[2] + os.environ['LOADRAMP_ARM'] + ';')")
    log = tmp_path / "log"
    line = shlex.join([sys.executable, str(note), str(log), "{arm}$(x)"])
    code, out, err = loadramp(
        "canary", str(quick), "--baseline", pair[0], "--candidate", pair[0], "--switch-command", line, "--out",
        str(tmp_path), "--json", "--set", "canary.design=abba", "--set", "canary.blocks=2", "--set", "canary.answers=0",
        "--set", "canary.warmup_s=0.3", "--set", "canary.error_ratio=0.05",
    )  # fmt: skip
    assert code in {3, 99}, err
    told_at = err.index(
        "note: It cannot be expected to pass: an error rate below 5 % takes 59 requests without an error, "
    )
    assert told_at < err.index("writing ") < err.index("block 1 is done")
    assert json.loads(out)["design"] == "abba"
    told = [word.split("$(x)")[0] for word in log.read_text().split(";") if word]
    assert told == ["baseline", "candidate", "baseline", "candidate", "baseline"]
    assert log.read_text().startswith("baseline$(x)baseline;")


def test_a_switch_command_that_fails_is_exit_code_1(pair: tuple[str, str], quick: Path, tmp_path: Path) -> None:
    common = ["canary", str(quick), "--baseline", pair[0], "--candidate", pair[0], "--out", str(tmp_path),
              "--set", "canary.design=abba"]  # fmt: skip
    for line, words in (
        (f"{sys.executable} -c 'raise SystemExit(7)'", "exit code 7"),
        (f"{sys.executable} -c 'import time; time.sleep(60)'", "not finished within 1 s"),
    ):
        code, _, err = loadramp(*common, "--switch-command", line, "--set", "canary.switch_timeout_s=1")
        assert (code, words in err) == (1, True), err


FOUR = ["--set", "canary.blocks=4"]
TWO = ["--baseline", "http://127.0.0.1:1", "--candidate", "http://127.0.0.1:2"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--baseline", "http://127.0.0.1:1", "--candidate", "http://127.0.0.1:1"], "the same URL"),
        (["--baseline", "http://127.0.0.1:1", "--candidate", "HTTP://127.0.0.1:1/v1/"], "the same URL"),
        ([*TWO, "--switch-command", "x"], "--switch-command"),
        ([*TWO, "--switch-command", "'", "--set", "canary.design=abba"], "No closing quotation"),
        ([*TWO, *FOUR, "--swap-command", "/nowhere/swap {arm}"], "--swap-command: /nowhere/swap: no program"),
        ([*TWO, *FOUR, "--swap-command", " "], "--swap-command: expected a command"),
        (["--baseline", "http://127.0.0.1:1"], "--candidate"),
        ([*TWO, "--label", "gpu"], "--label gpu: expected NAME=VALUE"),
        (["--baseline", "http://93.184.216.34", "--candidate", "http://127.0.0.1:1"], "public host"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_a_usage_error(
    arguments: list[str], words: str, quick: Path, tmp_path: Path
) -> None:
    code, _, err = loadramp("canary", str(quick), *arguments, "--out", str(tmp_path))
    assert (code, words in err) == (2, True), err
    assert "Traceback" not in err


def test_a_candidate_that_is_not_there_is_exit_code_1(pair: tuple[str, str], quick: Path, tmp_path: Path) -> None:
    code, _, err = loadramp("canary", str(quick), "--baseline", pair[0], "--candidate", "http://127.0.0.1:9", "--out",
                            str(tmp_path), "--set", "target.ready_timeout_s=0")  # fmt: skip
    assert code == 1
    assert "127.0.0.1:9" in err


@pytest.mark.long
def test_stored_runs_are_compared(pair: tuple[str, str], quick: Path, tmp_path: Path) -> None:
    runs = []
    for i in range(2):
        _, out, err = loadramp(
            "run", str(quick), "--base-url", pair[i % 2], "--out", str(tmp_path / "r"), "--json", "--quiet",
            "--label", f"flags=--max-num-seqs {i}",
        )  # fmt: skip
        runs.append(json.loads(out)["run_dir"])
    code, out, err = loadramp("compare", runs[0], runs[1], "--out", str(tmp_path / "c"), "--json")
    document = json.loads(out)
    assert code in {3, 99}, err  # one run of each cannot pass
    assert document["indicative"]
    assert (Path(document["comparison_dir"]) / "report.html").exists()
    assert {"key": "flags", "kind": "subject", "baseline": "--max-num-seqs 0", "candidate": "--max-num-seqs 1"} in (
        document["environment"]
    )
    code, out, err = loadramp("compare", *runs, runs[0], "--out", str(tmp_path / "c"), "--json")
    assert code in {0, 3}, err
    assert len(json.loads(out)["configurations"]) == 3
    code, _, err = loadramp("compare", runs[0], "--out", str(tmp_path / "c"))
    assert (code, "two run directories" in err) == (2, True)


@pytest.mark.long
def test_the_server_runs_a_real_canary(pair: tuple[str, str], quick: Path, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(f'[jobs.chat]\nscenario = "{quick}"\nbaseline = "{pair[0]}"\ncandidate = "{pair[1]}"\n')
    command = [sys.executable, "-m", "loadramp", "serve", str(jobs), "--port", "0", "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        url = server.stderr.readline().split()[-1]
        start = urllib.request.Request(f"{url}/v1/jobs/chat/start", data=b'{"key": "v2"}', method="POST")
        told = json.loads(urllib.request.urlopen(start, timeout=10).read())
        assert told["verdict"] == "running"
        for _ in range(600):
            told = json.loads(urllib.request.urlopen(f"{url}/v1/jobs/chat", timeout=10).read())
            if told["state"] == "done":
                break
            time.sleep(0.1)
        server.terminate()
        server.communicate(timeout=20)
    assert told["verdict"] in {"pass", "inconclusive", "fail"}, told
    assert (Path(told["report"]) / "verdict.json").exists()
    assert server.returncode == 0


@pytest.mark.long
def test_a_canary_asks_before_it_loads_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "asks", lambda yes, as_json: not yes and not as_json)
    asked = CliRunner().invoke(
        cli,
        ["canary", "canary", "--baseline", "http://127.0.0.1:1", "--candidate", "http://10.255.255.1:9"],
        input="n\n",
    )
    assert asked.exit_code == 1
    assert "Load 127.0.0.1 and 10.255.255.1 for up to 20 minutes?" in asked.output
