"""Does the measuring client grow? One worker under steady load, its resident memory every few minutes.

python benchmarks/memory.py [--minutes 30] [--rate 100] [--tokens 50]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from stage import machine

from loadramp.client.endpoint import endpoint_of
from loadramp.client.fleet import Orders
from loadramp.client.request_body import OPTIONAL_FIELDS
from loadramp.client.workers import LocalFleet
from loadramp.record.types import Calibration, Step
from loadramp.runner.scenarios import load
from loadramp.simulator.practise import null_server

STEP_S = 60.0
SCENARIO = '[target]\nbase_url = "{url}"\n[prompts]\nkind = "fixed"\noutput_tokens = {tokens}\n'


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6


async def soak(minutes: int, rate: float, tokens: int) -> None:
    with null_server() as url, tempfile.TemporaryDirectory() as folder:
        scenario = load(SCENARIO.format(url=url, tokens=tokens))
        t0_s = time.monotonic()
        orders = Orders(scenario, endpoint_of(scenario.target, {}), "null", OPTIONAL_FIELDS, Calibration(), 0, t0_s)
        fleet = LocalFleet(orders, lambda index: Path(folder, f"records-{index}"), 1)
        await fleet.start()
        worker = fleet._hands[0].process.pid
        begin_s, sent, seen = time.monotonic() - t0_s + 0.5, 0, 0
        print("| minute | resident MB | requests | tokens |\n|---|---|---|---|")
        for minute in range(minutes):
            step = Step(minute, rate_rps=rate, begin_s=begin_s + minute * STEP_S, warmup_s=0.0, measure_s=STEP_S)
            await fleet.begin(step, minute * 1_000_000)
            await asyncio.sleep(max(0.0, step.end_s - 0.5 - (time.monotonic() - t0_s)))
            samples = fleet.samples()
            sent += sum(sample.sent for sample in samples)
            seen += sum(sample.tokens for sample in samples)
            if minute % 3 == 2 or minute == 0:
                print(f"| {minute + 1} | {resident_mb(worker):.1f} | {sent} | {seen} |", flush=True)
        await fleet.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--tokens", type=int, default=50)
    asked = parser.parse_args()
    print(machine())
    asyncio.run(soak(asked.minutes, asked.rate, asked.tokens))


if __name__ == "__main__":
    main()
