"""A thousand workers in virtual time: what the schedule, the start, the merge and the report do, and what breaks first.

PYTHONPATH=tests:. python benchmarks/scale.py [--workers 1000] [--token-us 10] [--request-us 300]

The costs of planning, drawing and reading are measured here and now. Those of sending are given: of a token as
`loadramp selfcheck` says, of a request besides its tokens 150 to 330 us. Workers, clocks and nodes are simulated.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from simulated_time import run as run_jumping

from loadramp import __version__
from loadramp.client.cluster_fleet import LEAD_S, PERIOD_S, PINGS, ClusterFleet, Verb
from loadramp.client.endpoint import endpoint_of
from loadramp.client.fleet import Orders
from loadramp.client.node_share import NewsOfNode, NodeShare
from loadramp.record.codec import encode
from loadramp.record.columns import decode_table
from loadramp.record.run_directory import RunDir
from loadramp.record.run_info import RunInfo, ShardInfo, TargetInfo
from loadramp.record.types import Calibration, Record, Step
from loadramp.runner.merge import merge_shards
from loadramp.runner.scenarios import Scenario, Shard, load
from loadramp.workload.agreed import agreed_steps
from loadramp.workload.schedule import MOST_ARRIVALS, plan_step

TEXT = """
name = "scale"
seed = 1
[prompts]
kind = "fixed"
input_tokens = 100
output_tokens = {tokens}
[arrivals]
kind = "{arrivals}"
[ramp]
kind = "ladder"
rates = [1000, 2000]
warmup_s = 2
measure_s = 10
settle_s = 0
settle_requests = 0
tail_s = 1
[metrics]
enabled = false
"""
PORTS, STREAMS = 28_232, 20_000
"""Local ports to one address by Linux's default; most streams of one worker."""
WIRE_BYTES, RECORD_BYTES = 280, 320
"""Of one event of a chat stream with its framing; of one request's line, and 6 more a token."""
DUTY = 0.5
"""Share of a core that a worker may use: above it, checks warn."""


def scenario(arrivals: str = "poisson", tokens: int = 3) -> Scenario:
    return load(TEXT.format(arrivals=arrivals, tokens=tokens), "scale.toml")


def cost(function: Callable[[], Any], per: int) -> float:
    """CPU seconds of one of ``per`` things, the least of three times."""
    spent = []
    for _ in range(3):
        before = time.process_time()
        function()
        spent.append(time.process_time() - before)
    return min(spent) / per


def record(seq: int, due_s: float, tokens: int, step: int, worker: int, ttft_s: float = 0.1) -> Record:
    events = [due_s + ttft_s + 0.02 * k for k in range(tokens)]
    return Record(
        seq, step, due_s, worker, sent_s=due_s + 0.0003, first_byte_s=events[0], event_s=events, status="ok",
        stream_end_s=events[-1], http_status=200, asked_input_tokens=100, asked_output_tokens=tokens,
        prompt_tokens=100, output_tokens=tokens, token_source="continuous", finish_reason="length", done_marker=True,
        stamps="kernel",
    )  # fmt: skip


def sizes(token_s: float, request_s: float, own_s: Callable[[float], float]) -> None:
    """What the load needs, each limit by itself."""
    print("\n| load | tokens/s | Gbit/s in | workers by CPU | of these for prompts | streams | hosts of 16 cores |")
    print("|---|---|---|---|---|---|---|")
    loads = [(f"1 million req/s, {tokens} tokens", 1e6, tokens, 1e6 * tokens * 0.02) for tokens in (1, 20, 200)]
    loads += [(f"100,000 streams, {rate} tokens/s each", 100_000 * rate / 200, 200, 100_000.0) for rate in (10, 50)]
    for name, rate_rps, tokens, streams in loads:
        tokens_per_s = rate_rps * tokens
        sending = (tokens_per_s * token_s + rate_rps * request_s) / DUTY
        workers, drawing = sending, 0.0
        for _ in range(50):  # the more workers, the more prompts of others each of them draws
            drawing = rate_rps * own_s(workers) / DUTY
            workers = max(sending + drawing, streams / STREAMS)
        workers = ceil(workers)
        hosts = max(ceil(workers / 14), ceil(streams / PORTS), ceil(tokens_per_s * WIRE_BYTES * 8 / 20e9))
        gbit = tokens_per_s * WIRE_BYTES * 8 / 1e9
        print(f"| {name} | {tokens_per_s:,.0f} | {gbit:,.1f} | {workers:,} | {ceil(drawing):,} | {streams:,.0f} | "
              f"{hosts:,} |")  # fmt: skip


def start_with_clock_errors(workers: int) -> None:
    """The arrivals of all workers at the endpoint, each worker's shifted by the error of its clock.

    The index of dispersion is the variance of counts over their mean: 1 for Poisson arrivals, 0 for even ones.
    """
    print("\n| arrivals | clocks wrong by (sd) | 99 % have begun after | dispersion per 10 ms | per 100 ms |")
    print("|---|---|---|---|---|")
    rng = np.random.default_rng(1)
    for arrivals in ("poisson", "constant"):
        step = Step(0, rate_rps=10_000.0, begin_s=2.0, warmup_s=2.0, measure_s=10.0)
        plan = plan_step(scenario(arrivals), step)  # a worker's own arrivals are 0.1 s apart
        for error_s in (0.0, 0.001, 0.003, 0.01, 0.03, 0.1):
            shift_s = rng.normal(0.0, error_s, workers)
            due_s = plan.due_s + shift_s[plan.numbers % workers]
            counts = [np.histogram(due_s, np.arange(4.0, 13.5, bin_s))[0] for bin_s in (0.01, 0.1)]
            each = " | ".join(f"{one.var() / one.mean():.2f}" for one in counts)
            print(
                f"| {arrivals} | {error_s * 1e3:g} ms | {max(0.0, np.quantile(shift_s, 0.99)) * 1e3:.0f} ms | {each} |"
            )


def merged(workers: int, requests: int) -> None:
    """Real directories of ``workers`` shards, merged and reported."""
    asked = scenario()
    steps = agreed_steps(asked)
    at = Shard(0, workers, 1_767_323_040.0).start_at
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for index in range(workers):
            rundir = RunDir.create(Path(folder, "shards"), f"s{index}", asked.source, datetime.fromisoformat(at))
            info = RunInfo(
                name="scale", began_at=at, loadramp=__version__, seed=1, workers=1, state="complete", steps=steps,
                target=TargetInfo("http://127.0.0.1:8000", "m"), repeats=1, ending="the plan was followed to its end",
                shard=ShardInfo(index, workers, at, late_s={step.index: 0.0 for step in steps}),
            )  # fmt: skip
            rundir.save_info(info)
            rundir.let_go()
            paths.append(rundir.path)
        for step in steps:
            plan = plan_step(asked, step)
            for index in range(workers):
                own = plan[index::workers]
                lines = [
                    encode(record(step.index * 10**7 + int(k), float(t), 3, step.index, index))
                    for k, t in zip(own.numbers, own.due_s, strict=True)
                    if k < requests
                ]
                with (paths[index] / f"records-{index}.jsonl").open("ab") as file:
                    file.writelines(lines)
        begun, cpu = time.perf_counter(), time.process_time()
        run = merge_shards(paths, Path(folder, "reports")).run
        spent = time.process_time() - cpu
        size = sum(file.stat().st_size for file in Path(run.path).glob("*"))
        page = (Path(run.path) / "report.html").stat().st_size
        voids = sum(bool(row.void) for row in run.rows)
        print(f"\nmerge and report of {workers:,} shards, {len(run.table):,} requests: {spent:.1f} s of CPU "
              f"({time.perf_counter() - begun:.1f} s), {size / 1e6:.1f} MB, page {page / 1e6:.1f} MB, "
              f"{voids} of {len(run.rows)} steps void, in step 1: {run.rows[0].arrival_rps:.0f} req/s")  # fmt: skip


@dataclass(slots=True)
class DistantNode:
    """A node of which only the time that words take is there: each costs the conductor ``call_s``, one by one."""

    name: str
    conductor: asyncio.Lock
    rng: np.random.Generator
    call_s: float
    workers: int = 1

    async def call(self, verb: Verb[..., Any], *args: Any) -> Any:
        async with self.conductor:
            await asyncio.sleep(self.call_s)
        await asyncio.sleep(0.0005 * float(self.rng.lognormal(0.0, 0.5)))
        if verb is NodeShare.hello:
            return __version__, asyncio.get_running_loop().time()
        return NewsOfNode() if verb in (NodeShare.news, NodeShare.snapshot) else None

    def drop(self) -> None:
        """Nothing runs there."""


@dataclass(slots=True)
class DistantCluster:
    nodes: Sequence[DistantNode]

    def connect(self) -> Sequence[DistantNode]:
        return self.nodes

    def close(self) -> None:
        """Nothing to let go of."""


def barrier(counts: Sequence[int], call_s: float) -> None:
    """``ClusterFleet`` itself over simulated nodes, on a clock that jumps."""
    print(f"\n| nodes | ready after | a step is known to all after (lead {LEAD_S:g} s) | conductor busy with words |")
    print("|---|---|---|---|")

    async def main(n: int) -> tuple[float, float]:
        loop, lock, rng = asyncio.get_running_loop(), asyncio.Lock(), np.random.default_rng(1)
        asked = replace(scenario(), target=replace(scenario().target, base_url="http://127.0.0.1:8000"))
        orders = Orders(asked, endpoint_of(asked.target, {}), "m", frozenset(), Calibration(), 1, loop.time())
        nodes = [DistantNode(f"node {k}", lock, rng, call_s) for k in range(n)]
        fleet = ClusterFleet(orders, lambda _: Path("unused"), DistantCluster(nodes), loop.time)
        await fleet.start()
        ready_s = loop.time()
        await fleet.begin(Step(0, rate_rps=1.0, begin_s=ready_s + 1.0, warmup_s=0.0, measure_s=1.0), 0)
        known_s = loop.time() - ready_s
        fleet._hands.clear()
        await fleet.close()
        return ready_s, known_s

    for n in counts:
        ready_s, known_s = run_jumping(main(n))
        busy = n * call_s / PERIOD_S
        print(f"| {n:,} | {ready_s:.1f} s ({PINGS} round trips each) | {known_s:.2f} s | {busy:.0%} of a core |")


def limits(workers: int, plan_s: float, prompt_s: float, decode_s: dict[int, float], request_s: float) -> None:
    """Where each part ends, the lowest first. A step is planned by the main process and then by each worker: 180 s of
    arrivals, those after its end included."""
    found = [
        (1 / decode_s[200], "Ray: the conductor decodes every record itself, answers of 200 tokens"),
        (1 / decode_s[1], "Ray: the same with answers of 1 token"),
        (
            DUTY * workers / (request_s + prompt_s),
            f"{workers:,} workers send, and draw a block of 256 prompts each time",
        ),
        (DUTY * workers / request_s, f"{workers:,} workers send, if prompts cost nothing"),
        (
            1.5 / (2 * plan_s) / 180,
            "Ray: a step of 150 s takes 1.5 s to plan, so its first requests are dropped as late",
        ),
        (MOST_ARRIVALS / 180, f"a step of 150 s has more than {MOST_ARRIVALS:,} arrivals, which is refused"),
    ]
    print("\n| breaks at | what |")
    print("|---|---|")
    for rate_rps, what in sorted(found):
        print(f"| {rate_rps:,.0f} req/s | {what} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--token-us", type=float, default=10.0)
    parser.add_argument("--request-us", type=float, default=300.0)
    parser.add_argument("--call-us", type=float, default=150.0, help="of the conductor for one word to one node")
    asked = parser.parse_args()
    token_s, request_s = asked.token_us / 1e6, asked.request_us / 1e6
    step = Step(0, rate_rps=10_000.0, begin_s=0.0, warmup_s=0.0, measure_s=100.0)
    plan = plan_step(scenario(), step)
    plan_s = cost(lambda: plan_step(scenario(), step), len(plan))
    shares = {n: cost(lambda n=n: [one.prompt for one in plan[n // 2 :: n][:200]], 200) for n in (1, 16, 256)}
    lines = {tokens: encode(record(1, 1.0, tokens, 1, 1)) for tokens in (1, 20, 200)}
    decode_s = {tokens: cost(lambda one=line: decode_table([one] * 2000), 2000) for tokens, line in lines.items()}
    print(f"a token: {token_s * 1e6:.1f} us, a request: {request_s * 1e6:.0f} us")
    print(f"an arrival planned: {plan_s * 1e9:.0f} ns")
    for n, own_s in shares.items():
        print(f"a prompt of its own, for one of {n} workers{' or more' * (n == 256)}: {own_s * 1e6:.0f} us")
    for tokens, one_s in decode_s.items():
        print(f"a record with {tokens} tokens, read by the conductor: {one_s * 1e6:.0f} us")
    sizes(token_s, request_s, lambda n: shares[1] + (shares[256] - shares[1]) * min(n, 256) / 256)
    start_with_clock_errors(asked.workers)
    merged(asked.workers, 20_000)
    barrier((10, 100, 1000, asked.workers * 4), asked.call_us / 1e6)
    limits(asked.workers, plan_s, shares[256], decode_s, request_s)


if __name__ == "__main__":
    main()
