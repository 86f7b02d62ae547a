"""A whole campaign in memory: the real phases, conductor, client and judge against one simulator that lives through all
of them, on a clock that jumps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from inline_scraper import InlineScraper, scrape_inline
from memory_pipe import connect_in_memory
from run_in_memory import BEGAN_AT
from simulated_time import run as run_jumping

from loadramp.campaign.assess import SCORECARD, model_max_of, scorecard_text, write_campaign
from loadramp.campaign.phases import HEALTH, CampaignRun
from loadramp.campaign.recovery import HealthSample
from loadramp.campaign.state import CampaignState, begin, resume
from loadramp.campaign.table import rehearsal_of
from loadramp.campaign.text import CampaignView
from loadramp.client import input_files
from loadramp.client.endpoint import endpoint_of
from loadramp.client.fleet import InlineFleet, Orders
from loadramp.client.http.sockets import ConnectFailed
from loadramp.client.request_body import OPTIONAL_FIELDS
from loadramp.record.run_directory import RunDir
from loadramp.record.run_info import MetricsInfo, RunInfo, TargetInfo
from loadramp.record.types import Calibration
from loadramp.runner.assess import assess
from loadramp.runner.conductor import Conductor
from loadramp.runner.finish import Finished
from loadramp.runner.launch import Beside
from loadramp.runner.run_session import conclude
from loadramp.runner.scenarios import load, read_run
from loadramp.scenario.scenario import Scenario
from loadramp.simulator.faults import Faults
from loadramp.simulator.metrics_page import metrics_page
from loadramp.simulator.profiles import PROFILES, EngineProfile
from loadramp.simulator.service import Service


@dataclass(slots=True)
class InlinePulse:
    """Health checks as a task of the jumping loop: what campaign.health_check does from a thread."""

    service: Service
    ramping: Conductor
    task: asyncio.Task[None] | None = None

    def start(self) -> InlinePulse:
        self.task = asyncio.ensure_future(self._watch())
        return self

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def _watch(self) -> None:
        ramping, words = self.ramping, {"up": None, "failing": "http 503", "down": "connection refused"}
        while True:
            error = words[self.service.state]
            sample = HealthSample(ramping.clock() - ramping.t0_s, error is None, 0.001, error)
            with (ramping.rundir.path / HEALTH).open("ab") as file:  # a line a simulated second
                file.write(msgspec.json.encode(sample) + b"\n")
            await asyncio.sleep(1.0)


@dataclass(slots=True)
class Stage:
    """Where a campaign plays: one simulator, one directory."""

    text: str
    path: Path
    service: Service
    stop_in: str = ""
    """Interrupt that phase after 20 simulated seconds."""
    command: tuple[int | None, str] | None = (0, "")
    """What the chaos command comes to; it crashes the simulator when it works. None: there is none."""
    sent: list[str] | None = None
    short: Sequence[str] = ()
    """Overrides that make it a rehearsal."""

    def read(self, more: Sequence[str]) -> Scenario:
        return load(self.text, "test.toml", [*self.short, *more])

    async def send(self, scenario: Scenario, phase: str, beside: Beside) -> Finished:
        """What launch.ramp does, without sockets."""
        if self.sent is not None:
            self.sent.append(phase)
        loop = asyncio.get_running_loop()
        scenario = input_files.ready(scenario)
        target = replace(scenario.target, base_url="http://127.0.0.1:8000")
        ready = replace(scenario, target=target)
        rundir = RunDir.create(self.path, scenario.name, scenario.source, BEGAN_AT)
        endpoint = endpoint_of(target, {})
        orders = Orders(ready, endpoint, "sim", OPTIONAL_FIELDS, Calibration(), 1, loop.time())
        connect = connect_in_memory(self.service, refused=ConnectFailed)
        fleet = InlineFleet(orders, rundir.records_path, loop.time, connect, precise=False)
        about = TargetInfo(model="sim", max_model_len=self.service.profile.max_model_len)
        info = RunInfo(scenario.name, overrides=list(scenario.overrides), slo=scenario.slo, target=about,
                       metrics=MetricsInfo("vllm"))  # fmt: skip
        scraper = InlineScraper(rundir)
        ramping = Conductor(ready, rundir, fleet, loop.time, orders.t0_s, info, scraper)
        tasks = [
            asyncio.ensure_future(beside(ramping, endpoint)),
            asyncio.ensure_future(self._scrape(ramping, scraper)),
        ]
        if phase == self.stop_in:
            loop.call_later(20.0, ramping.stop.set)
        await fleet.start()
        try:
            await conclude([ramping], ramping.run)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await fleet.close()
        run, skipped = read_run(rundir.path, scenario)
        assert skipped == 0
        return Finished(assess(run), 130 if phase == self.stop_in else 0)

    async def _scrape(self, ramping: Conductor, scraper: InlineScraper) -> None:
        service = self.service

        async def page(_: str) -> str:
            if service.state == "down":
                raise ConnectionRefusedError
            return metrics_page(service.engine, "sim", service.epoch_s + service.started_s, service.memory_bytes())

        await scrape_inline(page, ["http://sim/metrics"], 1.0, ramping.clock, ramping.t0_s, scraper.note)

    async def strike(self) -> tuple[int | None, str]:
        assert self.command is not None
        if self.command[0] == 0:
            self.service.crash()
        await asyncio.sleep(0.5)
        return self.command


def rehearse_in_memory(
    text: str,
    tmp_path: Path,
    profile: EngineProfile | str = "small",
    faults: Faults | None = None,
    *,
    resumed: Path | None = None,
    answers: Path | None = None,
    rehearsal: bool = False,
    **stage: Any,
) -> tuple[CampaignView, int]:
    """Run a campaign of the scenario ``text``; what it comes to, and the code of its phases."""

    async def main() -> int:
        scenario = load(text, "test.toml")
        short = rehearsal_of(scenario) if rehearsal else []
        about = CampaignState(
            name=scenario.name, overrides=short, model_max_context=model_max_of(scenario), rehearsal=rehearsal
        )
        path = resumed or begin(tmp_path, about, text)
        RunDir(path).write(SCORECARD, scorecard_text(scenario))
        engine = PROFILES[profile] if isinstance(profile, str) else profile
        service = Service(engine, faults=faults, seed=3)
        play = Stage(text, path, service, short=short, **stage)
        places.append(path)

        def pulse(ramping: Conductor, _: Any) -> InlinePulse:
            return InlinePulse(service, ramping).start()

        try:
            strike = play.strike if play.command else None
            return await CampaignRun(path, play.read, play.send, pulse, strike, state=resume(path, text, short)).run()
        finally:
            service.close()

    places: list[Path] = []
    code = run_jumping(main())
    return write_campaign(places[0], answers), code
