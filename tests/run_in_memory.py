"""A whole run in memory: the real conductor, fleet, client and parser against the simulator, on a clock that jumps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inline_scraper import InlineScraper, scrape_inline
from memory_pipe import Connect
from middleboxes import straight
from simulated_time import run as run_jumping

from loadramp.client import input_files
from loadramp.client.endpoint import endpoint_of
from loadramp.client.fleet import InlineFleet, Orders
from loadramp.client.request_body import OPTIONAL_FIELDS
from loadramp.record.run_directory import RunDir
from loadramp.record.run_info import RunInfo
from loadramp.record.table import Run
from loadramp.record.types import Calibration
from loadramp.report.progress import Watch
from loadramp.runner.assess import assess
from loadramp.runner.conductor import Conductor
from loadramp.runner.run_session import conclude
from loadramp.runner.scenarios import load, read_run
from loadramp.scenario.scenario import Scenario
from loadramp.simulator.faults import Faults
from loadramp.simulator.metrics_page import metrics_page
from loadramp.simulator.profiles import PROFILES, EngineProfile
from loadramp.simulator.service import Service
from loadramp.workload.prompts.source import models_of

BEGAN_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def scenario_of(text: str) -> Scenario:
    return load(text, "test.toml")


def ramp_in_memory(
    scenario: Scenario,
    tmp_path: Path,
    profile: EngineProfile | str = "small",
    faults: Faults | None = None,
    watch: Watch = lambda _: None,
    stop_at_s: float | None = None,
    repeats: int = 1,
    meddle: Callable[[Conductor, Service], Any] | None = None,
    world: Callable[[Service], Connect] | None = None,
    metrics: bool = True,
) -> Run:
    """Ramp the simulator as the product ramps an endpoint, and judge what is on disk afterwards.

    Args:
        scenario: what to do.
        tmp_path: where the run directory goes.
        profile, faults: of the simulator.
        watch: sees the progress once a simulated second.
        stop_at_s: interrupt the run then.
        repeats: how many whole ramps.
        meddle: called when the run begins; a coroutine it returns runs beside it.
        world: what lies between client and server (tests/middleboxes.py); None: nothing.
        metrics: whether the server's metrics are read.
    """
    scenario = input_files.ready(scenario)
    rundir = RunDir.create(tmp_path, scenario.name, scenario.source, BEGAN_AT)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        service = Service(
            PROFILES[profile] if isinstance(profile, str) else profile,
            faults=faults,
            seed=scenario.seed,
            adapters=models_of(scenario.prompts, scenario.prompt_options),
        )
        target = replace(scenario.target, base_url="http://127.0.0.1:8000")
        ready = replace(scenario, target=target)
        orders = Orders(ready, endpoint_of(target, {}), "sim", OPTIONAL_FIELDS, Calibration(), 1, loop.time())
        connect = world(service) if world else straight(service)
        fleet = InlineFleet(orders, rundir.records_path, loop.time, connect, precise=False)
        scraper = InlineScraper(rundir)
        ramping = Conductor(ready, rundir, fleet, loop.time, orders.t0_s, RunInfo(), scraper, watch, repeats=repeats)

        async def page(_: str) -> str:
            return metrics_page(service.engine, "sim", service.epoch_s + service.started_s)

        urls = ["http://sim/metrics"] if metrics else []
        tasks = [asyncio.ensure_future(scrape_inline(page, urls, 1.0, loop.time, orders.t0_s, scraper.note))]
        if stop_at_s is not None:
            loop.call_later(stop_at_s, ramping.stop.set)
        beside = meddle(ramping, service) if meddle else None
        if beside is not None:
            tasks.append(asyncio.ensure_future(beside))
        await fleet.start()
        try:
            await conclude([ramping], ramping.run)
        finally:
            for task in tasks:
                task.cancel()
            await fleet.close()
            service.close()

    run_jumping(main())
    found, skipped = read_run(rundir.path, scenario)
    assert skipped == 0
    return assess(found)
