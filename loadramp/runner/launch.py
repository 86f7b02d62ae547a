"""From a scenario and an address to a run on disk: guard, readiness, fields, calibration, fleet, scraper, ramp, report.

Everything for people goes to ``say``; the answer is the exit code.
"""

import asyncio
import contextlib
import importlib.metadata
import os
import platform
import secrets
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from loadramp import __version__
from loadramp.client import input_files
from loadramp.client.cluster_fleet import ClusterFleet
from loadramp.client.endpoint import Endpoint, endpoint_of
from loadramp.client.fleet import Fleet, InlineFleet, Orders, raise_file_limit, worker_count
from loadramp.client.permission import check_hosts
from loadramp.client.preflight import EndpointFacts, examine_endpoint, shown
from loadramp.client.ray_cluster import RayCluster
from loadramp.client.tokenizer import basis_of
from loadramp.client.workers import LocalFleet
from loadramp.metrics.model_series import ModelSelection, asked_of
from loadramp.metrics.scraper import LAST_SCRAPE_S, Scraper, find_metrics
from loadramp.record.run_directory import RunDir, check_place, host
from loadramp.record.run_info import ColdStart, OverLength, RunInfo, TargetInfo
from loadramp.record.types import Stop
from loadramp.registry import CannotMeasure, ScenarioError, error_message
from loadramp.report.progress import Watch
from loadramp.runner.conductor import Conductor
from loadramp.runner.finish import COULD_NOT_MEASURE, Finished, judge, judge_run, write
from loadramp.runner.gate_check import check_rules
from loadramp.runner.input_check import check_input, doubts
from loadramp.runner.model_lengths import lengths
from loadramp.runner.run_session import RunSession, conclude, together
from loadramp.runner.scenarios import Options, Shard, with_target
from loadramp.runner.selfcheck import noted
from loadramp.scenario.scenario import FleetOptions, Scenario
from loadramp.workload.preview import most_users
from loadramp.workload.profile import overlong
from loadramp.workload.prompts.source import models_of, names_all
from loadramp.workload.schedule import samples_of

LIBRARIES = ("httptools", "uvloop", "msgspec", "numpy", "scipy", "httpx", "openai", "plotly")

HURRIED_SCRAPE_S = 0.7

Say = Callable[[str], None]
Session = TypeVar("Session", bound=RunSession)
Beside = Callable[[Conductor, Endpoint], Coroutine[Any, Any, None]]
"""Something that goes on beside a run: health checks, a fault on purpose."""


async def ramp(
    scenario: Scenario,
    options: Options,
    say: Say,
    watch: Watch,
    argv: Sequence[str] = (),
    salt: int | None = None,
    beside: Beside | None = None,
) -> Finished:
    """Ramp the endpoint, judge and report. What was measured is on disk whatever happens.

    ``beside`` is called when the endpoint is ready; what it returns runs beside the load, and is cancelled at its end.

    Raises:
        ScenarioError: before anything was sent.
        Unreachable: the endpoint is not there.
        CannotMeasure: the disk was full before there was anything to judge.
        OSError: the run directory cannot be written.
    """
    check_place(options.out)
    reached = await reach(scenario, options, say)
    scenario = reached.scenario
    salt = secrets.randbits(60) if salt is None else salt
    began_at = datetime.now(UTC)
    rundir = RunDir.create(options.out, scenario.name, scenario.source, began_at)
    say(f"writing {rundir.path}")
    info = info_of(reached, salt=salt, argv=argv, began_at=began_at)
    info.quick = options.quick or None
    ramping = await session_of(Conductor, reached, rundir, info, say, watch, save_text=options.save_text)
    ramping.repeats = options.repeats
    return await _through(ramping, say, beside and beside(ramping, reached.endpoint))


@dataclass(slots=True, frozen=True)
class Reached:
    """An endpoint that may be loaded and is ready, what was found out about it, and the scenario made ready for it."""

    scenario: Scenario
    """Its text holds no secret of the endpoint."""
    endpoint: Endpoint
    known: EndpointFacts
    workers: int
    too_long: OverLength | None = None
    """How many requests are longer than the model takes; None: it is not known how long it may be."""

    @property
    def asked(self) -> ModelSelection:
        """The models that requests ask for, as the server's list knows them."""
        named = models_of(self.scenario.prompts, self.scenario.prompt_options)
        everyone = names_all(self.scenario.prompts, self.scenario.prompt_options)
        return asked_of(named if everyone else (self.known.model, *named), self.known.cards)


async def reach(scenario: Scenario, options: Options, say: Say) -> Reached:
    """Guard, readiness, fields, calibration: everything before the first measured request.

    Raises:
        ScenarioError: a public host without leave, no model to choose, or thresholds that nobody can judge.
        Unreachable: the endpoint does not answer as it must.
        FleetError: fewer files may be open than the load needs.
    """
    scenario = input_files.ready(with_target(scenario, options))
    check_rules(scenario)
    check_input(scenario)
    for doubt in doubts(scenario):
        say(f"warning: {doubt}")
    endpoint = endpoint_of(scenario.target)
    check_hosts(endpoint, scenario.target, options.yes_i_may_load_test, scenario.metrics)
    for line in input_files.skipped_rows(scenario):
        say(line)
    check_fleet(scenario.fleet)
    workers = worker_count(scenario.fleet.workers) if scenario.fleet.kind == "local" else 1
    if scenario.fleet.kind != "ray":  # its nodes have limits of their own
        scenario = with_room(scenario, workers * (options.shard.of if options.shard else 1))
    models = models_of(scenario.prompts, scenario.prompt_options)
    samples = samples_of(scenario)
    known = await examine_endpoint(scenario.target, endpoint, say, basis_of(scenario.target), models, samples)
    for line in input_files.not_followed(scenario, known.model):
        say(line)
    too_long = overlong(scenario, lengths(scenario, known.model, known.cards), known.calibration.overhead_tokens)
    if too_long is not None and too_long.longer:
        say(f"warning: {too_long.words()}")
    return Reached(scenario.without(endpoint.redact), endpoint, known, workers, too_long)


async def session_of(
    kind: type[Session],
    reached: Reached,
    rundir: RunDir,
    info: RunInfo,
    say: Say,
    watch: Watch,
    *,
    save_text: bool,
    t0_s: float | None = None,
    shard: Shard | None = None,
) -> Session:
    """A run of an endpoint that was reached: its fleet is not started yet, its scraper is.

    Args:
        kind: a kind of session.
        t0_s: when it begins, by CLOCK_MONOTONIC; None: now.
        shard: which share of the load it sends; None: all of it. The first one reads the server's metrics for all.
    """
    t0_s = time.monotonic() if t0_s is None else t0_s
    index, of = (shard.index, shard.of) if shard else (0, 1)
    fleet = _fleet_of(reached, rundir, info.prompt_salt or 0, t0_s, save_text, index, of)
    scenario, scraper = reached.scenario, None
    if not index:
        scraper = await scraper_of(scenario, reached.endpoint, rundir, t0_s, info, say, reached.asked)
    return kind(scenario, rundir, fleet, time.monotonic, t0_s, info, scraper, watch)


def _fleet_of(
    reached: Reached, rundir: RunDir, salt: int, t0_s: float, save_text: bool, shard: int, shards: int
) -> Fleet:
    """What sends share ``shard`` of ``shards`` of a run's load."""
    scenario, known = reached.scenario, reached.known
    local = scenario.fleet.kind == "local"
    read = input_files.without_files(scenario) if local else scenario
    orders = Orders(read, reached.endpoint, known.model, known.fields, known.calibration, salt, t0_s, save_text)
    if scenario.fleet.kind == "ray":
        return ClusterFleet(orders, rundir.records_path, RayCluster(scenario.fleet))
    if local:
        return LocalFleet(orders, rundir.records_path, reached.workers, shard, shards)
    return InlineFleet(orders, rundir.records_path, time.monotonic, shard=shard, shards=shards)


def check_fleet(fleet: FleetOptions) -> None:
    """Refuse keys that the fleet's kind does not take. Raises ScenarioError."""
    given = [name for name in ("address", "nodes") if getattr(fleet, name)]
    if given and fleet.kind != "ray":
        raise ScenarioError(f"[fleet] {given[0]}: only kind = 'ray' takes it; it is {fleet.kind!r}")


def info_of(reached: Reached, *, salt: int, argv: Sequence[str], began_at: datetime) -> RunInfo:
    """What run.json says of a run before it begins. Holds no secret."""
    scenario, endpoint, known = reached.scenario, reached.endpoint, reached.known
    target = scenario.target
    return RunInfo(
        name=scenario.name,
        began_at=began_at.isoformat(timespec="seconds"),
        loadramp=__version__,
        argv=[endpoint.redact(argument) for argument in argv],
        seed=scenario.seed,
        prompt_salt=salt,
        overrides=[endpoint.redact(override) for override in scenario.overrides],
        slo=scenario.slo,
        target=TargetInfo(
            endpoint.url,
            shown(endpoint, known.model),
            target.api,
            target.via,
            insecure=target.insecure or None,
            ca_file=target.ca_file or None,
            **known.identity,
        ),
        labels={name: endpoint.redact(value) for name, value in target.labels.items()},
        over_length=reached.too_long,
        fields=sorted(known.fields),
        preflight_warnings=list(known.warnings),
        calibration=replace(known.calibration, words=(), ids=()),
        files=input_files.notes(scenario),
        models={name: ColdStart(*starts) for name, starts in known.models.items()},
        workers=reached.workers,
        arrivals=scenario.arrivals.kind,
        host=host(),
        selfcheck=noted(),
        versions={"python": platform.python_version(), **_versions()},
    )


def with_room(scenario: Scenario, workers: int) -> Scenario:
    """The scenario with its limit on requests in flight known: as asked, or as many as files may be open.

    Raises:
        FleetError: this machine's hard limit on open files is too low for what is asked.
    """
    asked, users = scenario.pace.max_in_flight, most_users(scenario)
    if users is not None:  # each of them holds a connection
        raise_file_limit(-(-users // workers), "users")
    each = raise_file_limit(None if asked is None else -(-asked // workers))
    most = asked if asked is not None else each * workers
    return replace(scenario, pace=replace(scenario.pace, max_in_flight=most))


async def _through(ramping: Conductor, say: Say, beside: Coroutine[Any, Any, None] | None = None) -> Finished:
    """Run to the end, let go of everything, judge what there is."""
    caught, failure = await sent([ramping], ramping.run, say, beside)
    finished, failure = _reported(ramping, failure)
    ramping.rundir.let_go()
    if failure is not None:
        path = ramping.rundir.path
        say(f"stopped: {error_message(failure)}")
        kept = f"what was measured is kept: loadramp report {path}"
        gone = f"{path} was removed while the run went on: the answer below is all that is left of it"
        say(kept if path.is_dir() else gone)
        return Finished(finished.run, COULD_NOT_MEASURE)
    if caught:
        return Finished(finished.run, 128 + caught[0])
    return finished


async def sent(
    sessions: Sequence[RunSession],
    run: Callable[[], Awaitable[Stop]],
    say: Say,
    beside: Coroutine[Any, Any, None] | None = None,
) -> tuple[list[int], Exception | None]:
    """Start the fleets, ``conclude``, and let go of everything. Returns the signals that came, and what went wrong.

    One ``stop`` ends all sessions.
    """
    failure: Exception | None = None
    task = asyncio.ensure_future(beside) if beside is not None else None
    stop = sessions[0].stop
    with signals(stop, say) as caught:
        try:
            for session in sessions:
                await session.fleet.start()
            await conclude(sessions, run)
        except (CannotMeasure, OSError) as error:
            failure = error
        finally:
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled() and task.exception() is not None:
                    say(f"beside the load: {task.exception()}")
            await _let_go(sessions, hurry=stop.is_set())
    return caught, failure


def _reported(ramping: Conductor, failure: Exception | None) -> tuple[Finished, Exception | None]:
    """The answer, and what went wrong. A disk that takes no report takes nothing from the answer, and neither does
    somebody who removes the directory while the run goes on."""
    path = ramping.rundir.path
    if failure is not None and not (path / "run.json").is_file():
        if not ramping.rows:
            raise CannotMeasure(f"{error_message(failure)}; nothing was measured") from failure
        return judge_run(ramping.so_far()), failure
    finished = judge(path, ramping.scenario)
    try:
        write(finished.run)
    except OSError as error:
        finished.run.info.state = "stopped"
        return finished, failure or error
    return finished, failure


async def scraper_of(
    scenario: Scenario,
    endpoint: Endpoint,
    rundir: RunDir,
    t0_s: float,
    info: RunInfo,
    say: Say,
    asked: ModelSelection = ModelSelection(),  # noqa: B008 (frozen)
) -> Scraper | None:
    """The scraper of a run, started; None where there is no metrics page. ``info.metrics`` gets the dialect: at once
    where the page was looked for, with its first scrape where it was named. ``asked``: whose series are wanted."""
    metrics, target = scenario.metrics, scenario.target
    urls = [*metrics.urls, *([metrics.url] if metrics.url else [])]
    dialects: dict[str, str] = {}
    if not metrics.enabled:
        return None
    if not urls:
        page = await find_metrics(
            endpoint.server, endpoint.headers, asked=asked, ca_file=target.ca_file, insecure=target.insecure
        )
        if page is None:
            say("note: no metrics page; queue, KV cache and preemptions stay unknown ([metrics] url)")
            return None
        urls, dialects = [page[0]], {page[0]: page[1]}
    scraper = Scraper(
        urls,
        rundir.server_path,
        t0_s=t0_s,
        period_s=metrics.period_s,
        headers=endpoint.headers,
        headers_host=endpoint.host,
        dialects=dialects,
        ca_file=target.ca_file,
        insecure=target.insecure,
        asked=asked,
        say=say,
    )
    info.metrics = scraper.info
    scraper.start()
    return scraper


async def _let_go(sessions: Sequence[RunSession], hurry: bool) -> None:
    """End workers and scrapers, all at once. ``hurry``: somebody waits, so no scraper gets long for a last page."""
    limit_s = HURRIED_SCRAPE_S if hurry else LAST_SCRAPE_S
    endings = [session.fleet.close() for session in sessions]
    endings += [session.scraper.stop(limit_s) for session in sessions if session.scraper]
    await together(endings)


@contextlib.contextmanager
def signals(stop: asyncio.Event, say: Say) -> Iterator[list[int]]:
    """First Ctrl-C, SIGTERM or SIGHUP: stop arrivals, save, report. Second: leave at once. Yields the list of what
    came, a SIGHUP as SIGTERM: its terminal is gone, and that ends a run in the same way."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # a notebook's; signals are the main thread's
        yield caught
        return
    loop = asyncio.get_running_loop()

    def came(number: int) -> None:
        if caught:
            os._exit(128 + number)
        caught.append(number)
        say("interrupted: no new requests; saving what was measured (once more to leave at once)")
        stop.set()

    meant = {signal.SIGINT: signal.SIGINT, signal.SIGTERM: signal.SIGTERM, signal.SIGHUP: signal.SIGTERM}
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup; a shell's background job ignores SIGINT unasked
        del meant[signal.SIGHUP]
    for number, as_what in meant.items():
        loop.add_signal_handler(number, came, int(as_what))
    try:
        yield caught
    finally:
        for number in meant:
            loop.remove_signal_handler(number)


def _versions() -> Mapping[str, str]:
    versions = {}
    for name in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions
