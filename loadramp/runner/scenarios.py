"""What is asked for: a scenario from its file or by its name, and what the command line adds to it."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadramp.analysis.itl_knee import KNEES
from loadramp.record import run_directory as rundirs
from loadramp.record.table import Run
from loadramp.record.types import Estimate
from loadramp.registry import Choice, ScenarioError, bind, bind_with, options_of
from loadramp.scenario.scenario import Binders, PromptOptions, RampOptions, Scenario, Target, parse
from loadramp.workload import placeholders
from loadramp.workload.arrivals import ARRIVALS, check_due_times
from loadramp.workload.prompts import PROMPTS
from loadramp.workload.prompts.source import bind_source, images_of
from loadramp.workload.ramps import RAMPS, check_step

LATEST_S = 0.5
"""A shard that is ready so long after the plan begins has missed nothing: its first step begins later."""
FURTHEST_S = 86_400.0
"""A start that is further away is a slip of the keyboard."""
QUICK = ("ramp.measure_s=15", "ramp.warmup_s=5", "ramp.settle_s=5", "ramp.settle_requests=5", "ramp.tail_s=5",
         "ramp.longest_s=0", "ramp.max_minutes=4")  # fmt: skip
QUICK_SOAK = "ramp.soak_s=30"


@dataclass(slots=True, frozen=True)
class Shard:
    """Which share of a plan to send, and when the plan begins."""

    index: int
    """From 0."""
    of: int
    start_s: float
    """Seconds since 1970."""

    @property
    def start_at(self) -> str:
        """ISO 8601, UTC; what another shard takes as ``--start-at``."""
        return datetime.fromtimestamp(self.start_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(slots=True, frozen=True)
class Options:
    """What the command line adds to a scenario."""

    base_url: str | None = None
    model: str | None = None
    api_key_env: str | None = None
    header: Sequence[str] = ()
    ca_file: str | None = None
    insecure: bool = False
    yes_i_may_load_test: Sequence[str] = ()
    """Public hosts that may be connected to."""
    overrides: Sequence[str] = ()
    out: Path = Path("reports")
    save_text: bool = False
    repeats: int = 1
    quick: bool = False
    """Short steps, and a word on what that costs."""
    label: Sequence[str] = ()
    """``NAME=VALUE`` each, beside ``[target] labels``."""
    shard: Shard | None = None


def shard_of(shard: str | None, start_at: str | None, now_s: float) -> Shard | None:
    """What ``--shard`` and ``--start-at`` say; None where neither is given.

    Args:
        shard: ``K/N``, K from 0.
        start_at: ISO 8601 (UTC unless it says otherwise), seconds since 1970, or ``+30s`` from now.
        now_s: seconds since 1970.

    Raises:
        ScenarioError: only one is given, or one cannot be read; or the start is past, or more than a day away.
    """
    if shard is None and start_at is None:
        return None
    if shard is None or start_at is None:
        given, lacking = ("--shard", "--start-at") if start_at is None else ("--start-at", "--shard")
        raise ScenarioError(f"{given}: {lacking} is missing; all shards of a run need both, such as "
                            "--shard 0/8 --start-at 2026-01-02T03:04:00Z")  # fmt: skip
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", shard)
    if match is None or int(match[1]) >= int(match[2]):
        raise ScenarioError(f"--shard {shard}: expected K/N with K from 0 to N - 1, such as 0/8 for the first of eight")
    start_s = _instant(start_at, now_s)
    ahead_s = start_s - now_s
    if ahead_s < -LATEST_S:
        raise ScenarioError(f"--start-at {start_at}: that was {-ahead_s:.1f} s ago; expected a time to come")
    if ahead_s > FURTHEST_S:
        raise ScenarioError(f"--start-at {start_at}: that is more than a day away")
    return Shard(int(match[1]), int(match[2]), start_s)


def _instant(text: str, now_s: float) -> float:
    """Seconds since 1970, to a millisecond, so that all who read the same text mean the same."""
    if after := re.fullmatch(r"\+(\d+(?:\.\d+)?)s?", text):
        return round(now_s + float(after[1]), 3)
    if re.fullmatch(r"\d{9,11}(\.\d+)?", text):
        return round(float(text), 3)
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise ScenarioError(
            f"--start-at {text}: expected ISO 8601 such as 2026-01-02T03:04:00Z, seconds since 1970, or +30s"
        ) from None
    return round((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp(), 3)


def load(text: str, name: str = "scenario.toml", overrides: Sequence[str] = ()) -> Scenario:
    """The scenario that ``text`` is; ``name`` is how errors call it.

    Raises:
        ScenarioError: anything is misspelt, of the wrong type or out of range.
    """
    binders = Binders(
        prompts=lambda table, where: bind_source(table, PROMPTS, where),
        arrivals=lambda table, where: bind(table, ARRIVALS, where, "poisson", check_due_times),
        ramp=_bind_ramp,
        knee=lambda table, where: bind(table, KNEES, where, "ceiling", _check_estimate),
        check=check_target,
    )
    return parse(text, name, overrides, binders)


def read_run(path: Path, scenario: Scenario | None = None) -> tuple[Run, int]:
    """A run from its directory, without anything derived, and how many torn lines were skipped.

    ``scenario``: the run's own where it is still there, with the files that it names; else it is read from the
    directory.

    Raises:
        RunDirError: it is no run directory.
        ScenarioError: its scenario is none any more; or it is one share of a run.
        OSError: a file cannot be read.
    """

    def known(text: str, name: str, overrides: Sequence[str]) -> Scenario:
        return load(text, name, overrides) if scenario is None else scenario

    run, skipped = rundirs.read(path, known)
    if run.info.shard is not None:
        raise ScenarioError(f"{path}: {run.info.shard.name} of a run; merge all of them first: loadramp merge DIR...")
    return run, skipped


def _check_estimate(result: Any, *_: Any) -> str:
    return "" if isinstance(result, Estimate) else "expected an Estimate"


def quick_overrides(path: Path, overrides: Sequence[str]) -> tuple[str, ...]:
    """``overrides`` behind what ``--quick`` sets, so that they win: three minutes for a ramp that doubles six times.

    Raises:
        ScenarioError: as ``read_scenario``.
    """
    ramp = read_scenario(path, overrides).ramp
    soak = (QUICK_SOAK,) if "soak_s" in options_of(ramp.function) else ()
    return (*QUICK, *soak, *overrides)


def read_scenario(path: Path, overrides: Sequence[str] = ()) -> Scenario:
    """The scenario at ``path``, or the shipped one when ``path`` is its name: ``chat`` or ``chat.toml``.

    Raises:
        ScenarioError: no such file, not text, or wrong.
    """
    shipped = shipped_scenarios()
    named = shipped.get(path.name.removesuffix(".toml")) if path.parent == Path() else None
    file = path if path.is_file() else named
    if file is None:
        raise ScenarioError(f"{path}: no such scenario file; shipped ones: {', '.join(sorted(shipped))}")
    try:
        text = file.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: not UTF-8 text: {error}") from None
    return replace(load(text, str(path), overrides), folder=str(file.parent))


def shipped_scenarios() -> dict[str, Path]:
    """Name to path of the scenarios in the package or, in a checkout, beside it."""
    package = Path(__file__).parents[1]
    folders = [folder for folder in (package / "scenarios", package.parent / "scenarios") if folder.is_dir()]
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.toml"))}


def with_target(scenario: Scenario, options: Options) -> Scenario:
    """The scenario with what the command line says of the endpoint."""
    return replace(scenario, target=target_of(scenario.target, options))


def target_of(target: Target, options: Options) -> Target:
    """``target`` changed by options; only those that were given.

    Raises:
        ScenarioError: an option cannot be; a key that was asked for by name and is not there would end in a bare 401.
    """
    if options.api_key_env and not os.environ.get(options.api_key_env):
        raise ScenarioError(f"--api-key-env: the variable {options.api_key_env} is not set")
    headers = {**target.headers, **named("--header", options.header)}
    labels = {**target.labels, **named("--label", options.label)}
    given: dict[str, Any] = {
        "base_url": options.base_url,
        "model": options.model,
        "api_key_env": options.api_key_env,
        "ca_file": options.ca_file,
        "insecure": options.insecure or None,
    }
    known = {key: value for key, value in given.items() if value is not None}
    return replace(target, headers=headers, labels=labels, **known)


def named(option: str, settings: Sequence[str]) -> dict[str, str]:
    """``NAME=VALUE`` of each setting. Raises ScenarioError; a value is not repeated in it."""
    values = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            shown = name.partition(":")[0]  # a header written with a colon: what follows may be a secret
            raise ScenarioError(f"{option} {shown}: expected NAME=VALUE, an equals sign between them")
        values[name.strip()] = value
    return values


def text_of(path: Path) -> str:
    """A file's text.

    Raises:
        ScenarioError: it is not there, or not text.
    """
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        raise ScenarioError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: not UTF-8 text: {error}") from None


def _bind_ramp(table: Mapping[str, Any], where: str) -> tuple[Choice, RampOptions]:
    """``[ramp]``."""
    choice, pace = bind_with(table, RAMPS, where, "ceiling", RampOptions, check_step)
    takes = options_of(choice.function)
    if {"start_rps", "max_rps"} <= takes.keys():
        start_rps, max_rps = choice.option("start_rps"), choice.option("max_rps")
        if start_rps > max_rps:
            raise ScenarioError(f"{where} start_rps: {start_rps:g} is above max_rps = {max_rps:g}: no step is left")
    return choice, pace


def check_target(target: Target, prompts: Choice, options: PromptOptions) -> None:
    """What an API cannot carry, and placeholders that there are not, are found before a run.

    Raises:
        ScenarioError: one of these.
    """
    placeholders.check(target.headers, target.body)
    if target.token_ids and target.api != "completions":
        raise ScenarioError(f"[target] token_ids: only api = 'completions' takes them; got {target.api!r}")
    if target.api == "completions" and images_of(prompts, options):
        raise ScenarioError("[prompts] images: api = 'completions' takes none; there are chat and responses")
