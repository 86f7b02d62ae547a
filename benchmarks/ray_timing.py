"""How exact a fleet of Ray is: the same plan from local workers and from nodes of a Ray cluster on this machine.

Both are whole runs against the C server, whose log says when each request came and when each token left. `stamp` is the
error of single instants by the clock of the host that took them; `ITL p99` that of this percentile over all tokens;
`late` is how long after its due time, by the clock of the host that conducts, a request had reached the server.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from stage import by_request, machine, metronome

from loadramp.client.endpoint import Endpoint
from loadramp.record.run_info import ClockOffset
from loadramp.record.table import Run, Table
from loadramp.record.types import Step
from loadramp.runner import launch
from loadramp.runner.conductor import Conductor
from loadramp.runner.scenarios import Options, load

TTFT_US, ITL_US, TOKENS = 50_000, 20_000, 50
SCENARIO = """
name = "fleet"
seed = 5
[prompts]
kind = "fixed"
input_tokens = 20
output_tokens = {tokens}
[ramp]
kind = "ladder"
rates = {rates}
warmup_s = 1
measure_s = {seconds}
settle_s = 0
settle_requests = 0
tail_s = 1
[metrics]
enabled = false
[fleet]
{fleet}
"""


@contextmanager
def cluster(nodes: int) -> Iterator[str]:
    """The address of a cluster: a head without processors, and nodes with one each."""
    from ray.cluster_utils import Cluster  # only Ray's rows need it

    os.environ.setdefault("RAY_worker_niceness", "0")
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(nodes):
            made.add_node(num_cpus=1)
        yield made.address
    finally:
        made.shutdown()


def rows(name: str, fleet: str, mode: str, rates: list[float], seconds: float) -> tuple[list[str], list[ClockOffset]]:
    """A row of the table for each step of one run, and the clocks of its nodes."""
    begun_s = []

    async def note(ramping: Conductor, _: Endpoint) -> None:
        begun_s.append(ramping.t0_s)

    scenario = load(SCENARIO.format(tokens=TOKENS, rates=rates, seconds=seconds, fleet=fleet))
    with (
        tempfile.TemporaryDirectory() as folder,
        metronome(TTFT_US, ITL_US, ITL_US * (mode == "ticks"), log=True) as server,
    ):
        options = Options(base_url=server.url, out=Path(folder))
        run = asyncio.run(launch.ramp(scenario, options, lambda _: None, lambda _: None, salt=7, beside=note)).run
    sent = server.sent[server.sent["request_ns"] > begun_s[0] * 1e9]  # those before it tried the endpoint
    clocks = list(run.info.clocks or ())
    ahead_s = np.array([clock.offset_s for clock in clocks] or [0.0])
    true = by_request(sent)
    steps = zip([step for step in run.steps if step.measured], run.rows, strict=True)
    return [
        f"| {mode} | {step.rate_rps * TOKENS:g} | {name} | {_errors(run, step, true, begun_s[0], ahead_s)} "
        f"| {'; '.join(void.what for void in row.void)} |"
        for step, row in steps
    ], clocks


def _errors(run: Run, step: Step, true: dict[int, Any], t0_s: float, ahead_s: Any) -> str:
    """The figures of the requests that were due in the window of ``step``."""
    table: Table = run.table.due_in(step.window_s)
    stamp, gap, true_gap, late = [], [], [], []
    for i, seq in enumerate(table.seq.tolist()):
        log = true.get(seq)
        if log is None:
            continue
        late.append(log["request_ns"][0] / 1e9 - t0_s - table.due_s[i])
        seen_s, true_s = table.event_s[table.begin[i] : table.begin[i + 1]] + t0_s, log["send_ns"] / 1e9
        if len(seen_s) == len(true_s) == TOKENS:
            stamp.append(seen_s + ahead_s[table.worker[i] % len(ahead_s)] - true_s)
            gap.append(np.diff(seen_s))
            true_gap.append(np.diff(true_s))
    seen, truth = np.quantile(np.concatenate(gap), 0.99), np.quantile(np.concatenate(true_gap), 0.99)
    figures = (*np.quantile(np.concatenate(stamp), [0.5, 0.99]), seen - truth, truth, *np.quantile(late, [0.5, 0.99]))
    return f"{len(table)} | {len(stamp)} | {' | '.join(f'{figure * 1e3:.3f}' for figure in figures)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", default="1000,5000,10000", help=f"tokens a second, {TOKENS} a request")
    parser.add_argument("--workers", type=int, default=2, help="local ones, and nodes of Ray with one each")
    parser.add_argument("--modes", default="steady,ticks")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    rates = [float(rate) / TOKENS for rate in options.rates.split(",")]
    print(f"{machine()}; {options.workers} workers, {options.seconds:g} s a step; milliseconds")
    heads = "mode | tokens/s | fleet | requests | with every token | stamp p50 | stamp p99 | ITL p99 | true ITL p99"
    print(f"\n| {heads} | late p50 | late p99 | void |\n{'|---' * 12}|")
    clocks = []
    with cluster(options.workers) as address:
        for mode in options.modes.split(","):
            for name, fleet in (
                ("local", f"workers = {options.workers}"),
                ("Ray", f'kind = "ray"\nworkers = 1\naddress = "{address}"'),
            ):
                lines, found = rows(name, fleet, mode, rates, options.seconds)
                clocks += [(mode, clock) for clock in found]
                print("\n".join(lines), flush=True)
    print("\nClocks (all of them are one: the offset is the error), microseconds")
    print("\n| mode | node | offset | at most, by the round trip | moved by the end |\n|---|---|---|---|---|")
    for mode, clock in clocks:
        micros = " | ".join(f"{(value or 0.0) * 1e6:.1f}" for value in (clock.offset_s, clock.error_s, clock.moved_s))
        print(f"| {mode} | {clock.of} | {micros} |")
    print(f"\n{machine()} (after); {Path(__file__).name}")


if __name__ == "__main__":
    main()
