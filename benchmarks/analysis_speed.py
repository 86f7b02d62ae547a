"""What a token costs from a worker's memory to the report, and the memory that takes.

python benchmarks/analysis_speed.py [--tokens 1e6 1e7 1e8]

Makes the directory of a run of twelve steps (answers of 200 tokens on average, of lognormal length, from two workers),
reports it in a process of its own, and prints a row. CPU time of the machine as it is: what others do on it adds some.
"""

import argparse
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from loadramp.analysis.curve import fold
from loadramp.record.codec import encode
from loadramp.record.columns import decode_table
from loadramp.record.run_directory import RunDir
from loadramp.record.run_info import RunInfo, TargetInfo
from loadramp.record.types import ClientSample, Record, Step
from loadramp.runner.assess import assess
from loadramp.runner.finish import write
from loadramp.runner.scenarios import read_run
from loadramp.scenario.scenario import Slo

TEXT = """
name = "long"
[slo]
ttft_s = 1.0
itl_s = 0.05
[prompts]
kind = "fixed"
input_tokens = 200
output_tokens = 200
[ramp]
kind = "ladder"
rates = {rates}
warmup_s = 5
measure_s = 60
[metrics]
enabled = false
"""
STEPS, STEP_S, WARMUP_S, ANSWER = 12, 65.0, 5.0, 200


def answers(steps: list[Step], seed: int = 1) -> Iterator[Record]:
    """Poisson arrivals; all streams move with the steps of one engine, which slow down and are longer now and then."""
    rng = np.random.default_rng(seed)
    n = int(steps[-1].end_s / 0.018) + 20_000
    gaps_s = 0.018 * (1.0 + 0.5 * np.linspace(0.0, 1.0, n) ** 2) * rng.lognormal(0.0, 0.05, n)
    clock_s = np.cumsum(gaps_s + 0.03 * (rng.random(n) < 0.05))
    seq = 0
    for step in steps:
        due_s = np.sort(rng.uniform(step.begin_s, step.end_s, rng.poisson(step.rate_rps * STEP_S)))
        sizes = np.maximum(1, ANSWER * rng.lognormal(-0.15, 0.55, len(due_s))).astype(np.int64)
        first = np.searchsorted(clock_s, due_s + 0.01)
        for due, k, at in zip(due_s.tolist(), sizes.tolist(), first.tolist(), strict=True):
            event_s = (clock_s[at : at + k] + rng.uniform(0.0, 0.0004, k)).tolist()
            yield Record(
                seq, step.index, due, seq % 2, sent_s=due + 0.0003, first_byte_s=event_s[0], event_s=event_s,
                answer_s=event_s[0], stream_end_s=event_s[-1], status="ok", http_status=200, asked_input_tokens=200,
                asked_output_tokens=k, prompt_tokens=200, output_tokens=k, token_source="continuous",
                finish_reason="length", done_marker=True, stamps="kernel",
            )  # fmt: skip
            seq += 1


def run_directory(parent: Path, tokens: int) -> Path:
    """A run of about ``tokens`` tokens, its last step four times as fast as its first."""
    share = np.geomspace(1.0, 4.0, STEPS)
    rates = (tokens / ANSWER / STEP_S * share / share.sum()).round(3).tolist()
    steps = [
        Step(i, rate_rps=rate, begin_s=0.1 + i * STEP_S, warmup_s=WARMUP_S, measure_s=STEP_S - WARMUP_S)
        for i, rate in enumerate(rates)
    ]
    rundir = RunDir.create(parent, "long", TEXT.format(rates=rates), datetime.now(UTC))
    with rundir.records_path(0).open("wb") as even, rundir.records_path(1).open("wb") as odd:
        for record in answers(steps):
            (odd if record.worker else even).write(encode(record))
    seconds = np.arange(1.0, steps[-1].end_s).tolist()
    rundir.append_client([ClientSample(t_s, worker) for t_s in seconds for worker in range(2)])
    target = TargetInfo("http://127.0.0.1:8000", "m")
    rundir.save_info(RunInfo(name="long", workers=2, state="complete", steps=steps, target=target, repeats=1))
    rundir.let_go()
    return rundir.path


def reported(path: Path) -> tuple[float, dict[str, float]]:
    """CPU seconds of ``loadramp report``, and the most memory of each kind, MB."""
    code = "import resource; from loadramp.cli import main\ntry: main()\nfinally:\n u = resource.getrusage(0)\n"
    code += " print('CPU', u.ru_utime + u.ru_stime)"
    command = [sys.executable, "-c", code, "report", str(path)]
    most: dict[str, float] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            lines = (line.split() for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
            now = {name: float(value) / 1e3 for name, value, *_ in (line for line in lines if len(line) > 1)
                   if name in {"RssAnon:", "RssFile:"}}  # fmt: skip
            most = {name: max(most.get(name, 0.0), value) for name, value in (most | now).items()}
            time.sleep(0.02)
        assert process.stdout is not None
        cpu_s = float(process.stdout.read().rsplit("CPU", 1)[1])
    return cpu_s, most


def parts(path: Path, tokens: int) -> None:
    """What a token costs in each part, in this process."""
    lines = (path / "records-0.jsonl").read_bytes().splitlines(keepends=True)
    own = sum(line.count(b",") for line in lines)

    def say(what: str, function: Callable[[], Any], per: int) -> Any:
        before = time.process_time()
        out = function()
        print(f"| {what} | {(time.process_time() - before) / per * 1e6:.2f} |")
        return out

    print("\n| a token in | us of CPU |\n|---|---|")
    steps = [Step(0, rate_rps=50.0, measure_s=tokens / 2 / 50.0 / ANSWER)]
    some = list(answers(steps))
    say("a worker: encoded", lambda: [encode(one) for one in some], sum(len(one.event_s) for one in some))
    say("the main process: taken in", lambda: decode_table(lines), own)
    run = say("the report: read", lambda: read_run(path)[0], tokens)
    step = run.steps[-1]
    seen = run.table.alive(step.begin_s, step.end_s)
    say("the main process: folded into a row", lambda: fold(step, seen, slo=Slo(itl_s=0.05)), len(seen.event_s))
    say("the report: judged", lambda: assess(run), tokens)
    say("the report: drawn and written", lambda: write(run), tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=float, nargs="+", default=[1e6, 1e7])
    asked = parser.parse_args()
    print(f"{platform.machine()}, python {platform.python_version()}, numpy {np.__version__}\n")
    print("| tokens | records, MB | CPU, s | us a token | own memory at most, MB | mapped files at most, MB |")
    print("|---|---|---|---|---|---|")
    for tokens in map(int, asked.tokens):
        with tempfile.TemporaryDirectory() as folder:
            path = run_directory(Path(folder), tokens)
            size = sum(file.stat().st_size for file in path.glob("records-*"))
            cpu_s, most = reported(path)
            print(f"| {tokens:,d} | {size / 1e6:,.0f} | {cpu_s:.1f} | {cpu_s / tokens * 1e6:.2f} | "
                  f"{most['RssAnon:']:,.0f} | {most['RssFile:']:,.0f} |", flush=True)  # fmt: skip
            if tokens == int(min(asked.tokens, key=lambda one: abs(one - 1e7))):
                parts(path, tokens)


if __name__ == "__main__":
    main()
