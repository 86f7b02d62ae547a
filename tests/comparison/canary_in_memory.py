"""Two simulated endpoints compared in memory: the real conductor, fleets, clients and judge, on a clock that jumps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from memory_pipe import connect_in_memory
from run_in_memory import BEGAN_AT
from simulated_time import run as run_jumping

from loadramp.client.endpoint import endpoint_of
from loadramp.client.fleet import InlineFleet, Orders
from loadramp.client.http.sockets import ConnectFailed
from loadramp.client.request_body import OPTIONAL_FIELDS
from loadramp.comparison import judge
from loadramp.comparison.canary_run import CanaryRun, Switch
from loadramp.comparison.info import COMPARISON, ComparisonInfo
from loadramp.comparison.pairs import Comparison
from loadramp.record.run_directory import RunDir
from loadramp.record.run_info import RunInfo, TargetInfo
from loadramp.record.types import Calibration
from loadramp.registry import CannotMeasure
from loadramp.runner.run_session import RunSession, conclude
from loadramp.scenario.scenario import Scenario
from loadramp.simulator.faults import Faults
from loadramp.simulator.profiles import PROFILES, EngineProfile
from loadramp.simulator.service import Service

SLOWER = replace(PROFILES["small"], t0_s=PROFILES["small"].t0_s * 1.2)

SHORT = """
name = "short"
seed = 4
[slo]
ttft_s = 0.5
itl_s = 0.2
[prompts]
kind = "fixed"
input_tokens = 60
output_tokens = 10
[ramp]
settle_s = 3
settle_requests = 0
tail_s = 2
[canary]
rates = [8]
block_s = 10
blocks = 8
looks = [4]
error_ratio = 0.02
"""


def compared(
    scenario: Scenario,
    tmp_path: Path,
    candidate: EngineProfile = PROFILES["small"],
    baseline: EngineProfile = PROFILES["small"],
    faults: tuple[Faults | None, Faults | None] = (None, None),
    info: dict[str, Any] | None = None,
    switch: Callable[[list[Service]], Switch] | None = None,
    swap: Callable[[list[Service]], Switch] | None = None,
    meddle: Callable[[CanaryRun, list[Service]], Any] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Run a whole comparison and judge what it left on disk.

    Args:
        scenario: what to do.
        tmp_path: where the comparison goes.
        candidate, baseline: what the two addresses serve.
        faults: of baseline and candidate.
        info: more of comparison.json.
        switch, swap: made from the two services.
        meddle: a coroutine that runs beside it.
        say: hears the progress.
    """
    top = RunDir.create(tmp_path, "duel", scenario.source, BEGAN_AT)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        t0_s = loop.time()
        profiles = zip((3, 4), (baseline, candidate), faults, strict=True)
        services = [Service(profile, faults=wrong, seed=seed) for seed, profile, wrong in profiles]
        arms = [_arm(scenario, top, name, service, t0_s) for name, service in zip(judge.ARMS, services, strict=True)]
        about = ComparisonInfo(name=scenario.name, swap_command="swap" if swap else None, **(info or {}))
        duel = CanaryRun(scenario, top, arms[0], arms[1], about, say,
                         switch(services) if switch else None, swap(services) if swap else None)  # fmt: skip
        beside = asyncio.ensure_future(meddle(duel, services)) if meddle else None
        for arm in arms:
            await arm.fleet.start()
        try:
            await conclude(duel.arms, duel.run)
        except CannotMeasure:
            pass  # the comparison on disk says so
        finally:
            if beside is not None:
                beside.cancel()
            for arm, service in zip(arms, services, strict=True):
                await arm.fleet.close()
                service.close()

    run_jumping(main())
    return judge.read(top.path)


def _arm(scenario: Scenario, top: RunDir, name: str, service: Service, t0_s: float) -> RunSession:
    loop = asyncio.get_running_loop()
    path = top.path / name
    path.mkdir()
    (path / "scenario.toml").write_text(scenario.source)
    rundir = RunDir(path)
    ready = replace(scenario, target=replace(scenario.target, base_url="http://127.0.0.1:8000"))
    orders = Orders(ready, endpoint_of(ready.target, {}), "sim", OPTIONAL_FIELDS, Calibration(), 1, t0_s)
    connect = connect_in_memory(service, refused=ConnectFailed)
    fleet = InlineFleet(orders, rundir.records_path, loop.time, connect, precise=False)
    return RunSession(ready, rundir, fleet, loop.time, t0_s, RunInfo(target=TargetInfo(model="sim")))


def document(found: Comparison) -> dict[str, Any]:
    """comparison.json as it lies on disk."""
    told: dict[str, Any] = json.loads((Path(found.path) / COMPARISON).read_text())
    return told
