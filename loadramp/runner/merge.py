"""Shards to one run: their records side by side on the one time axis that they share, in an ordinary run directory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from loadramp.analysis.checks.clocks import furthest_apart
from loadramp.record import run_directory as rundirs
from loadramp.record.run_directory import RunDir, check_place, naming, read_run_json, scenario_text
from loadramp.record.run_info import RunInfo, ShardInfo, WorkerDeath
from loadramp.registry import ScenarioError
from loadramp.runner.assess import as_it_went, last_word_s
from loadramp.runner.finish import Finished, write_report
from loadramp.runner.run_session import EPSILON_S
from loadramp.runner.scenarios import load

PLAN: dict[str, Callable[[RunInfo], object]] = {
    "version of loadramp": lambda info: info.loadramp,
    "seed": lambda info: info.seed,
    "--set": lambda info: info.overrides,
    "--start-at": lambda info: info.shard and info.shard.start_at,
    "number of shards": lambda info: info.shard and info.shard.of,
    "endpoint": lambda info: info.target.base_url,
    "model": lambda info: info.target.model,
    "[target] api": lambda info: info.target.api,
    "[target] via": lambda info: info.target.via,
    "request fields that the server takes": lambda info: info.fields,
    "count of the server's tokenizer": lambda info: info.calibration,
    "input files": lambda info: [file.sha256 for file in info.files or ()],
    "prompt_salt": lambda info: info.prompt_salt,
}
"""What makes the requests what they are: all shards must agree on it."""
BEFORE = b'{"t_s":-'
"""A sample of the server from before the plan began."""


@dataclass(slots=True)
class Part:
    """One shard as it was found."""

    path: Path
    text: str
    info: RunInfo
    shard: ShardInfo
    end_s: float
    """Nothing is known of it from there on."""

    @property
    def whole(self) -> bool:
        return self.info.state == "complete"

    @property
    def why(self) -> str:
        """Why it is not whole."""
        return "killed" if self.info.state == "running" else self.info.ending or "stopped"


def merge_shards(paths: Sequence[Path], out: Path, *, allow_lost: bool = False) -> Finished:
    """One run directory of the shards in ``paths``, judged and reported.

    Args:
        paths: run directories of ``run --shard``, in any order.
        out: where the run directory goes.
        allow_lost: shards may be missing, or have ended early; the steps that they lack become void.

    Raises:
        ScenarioError: they are not the shards of one plan, some are missing or there twice, or their clocks disagree;
            names which.
        OSError: a file cannot be read or written.
    """
    check_place(out)
    parts = sorted((_part(path) for path in paths), key=lambda part: part.shard.index)
    _one_plan(parts)
    _each_once(parts)
    lost = _lost(parts)
    if lost and not allow_lost:
        reasons = "; ".join(f"{shard.name} {why}" for shard, why in lost)
        raise ScenarioError(f"merge: {reasons}; --allow-lost merges the others, and makes the steps that it lacks void")
    furthest = _furthest(parts)
    words = furthest_apart([part.shard for part in parts], furthest.info.steps)
    if words:
        raise ScenarioError(f"merge: {words}: set the clocks of their hosts (NTP), and run again")
    return _written(parts, lost, furthest, out)


def _part(path: Path) -> Part:
    info = read_run_json(path)
    if info.shard is None:
        raise ScenarioError(f"{path}: not a shard; expected a directory that `loadramp run --shard` has written")
    if info.state == "running":
        if rundirs.in_use(path):
            raise ScenarioError(f"{path}: {info.shard.name} is still being written")
        run, _ = rundirs.read(path, load)
        info.steps, end_s = as_it_went(run), last_word_s(run)  # nobody wrote down how far it came
    else:
        # a step that it saw to its end is not lost
        end_s = info.steps[-1].end_s + EPSILON_S if info.steps else 0.0
    return Part(path, scenario_text(path), info, info.shard, end_s)


def _one_plan(parts: Sequence[Part]) -> None:
    first = parts[0]
    for part in parts[1:]:
        wrong = [] if part.text == first.text else ["scenario.toml"]
        wrong += [name for name, part_of in PLAN.items() if part_of(part.info) != part_of(first.info)]
        if wrong:
            raise ScenarioError(f"merge: {part.path} and {first.path} are of two plans: {', '.join(wrong)} differ")


def _each_once(parts: Sequence[Part]) -> None:
    paths: dict[int, Path] = {}
    for part in parts:
        if (index := part.shard.index) in paths:
            raise ScenarioError(f"merge: {part.shard.name} is there twice: {paths[index]} and {part.path}")
        paths[index] = part.path


def _lost(parts: Sequence[Part]) -> list[tuple[ShardInfo, str]]:
    """The shards that are missing or ended before the others did, each with the words that say so. They get the time
    from which on nothing is known of them."""
    known, of = {part.shard.index: part for part in parts}, parts[0].shard.of
    end_s = _furthest(parts).end_s
    lost = []
    for index in range(of):
        part = known.get(index)
        if part is None:
            lost.append((ShardInfo(index, of, lost_s=0.0), "is missing"))
        elif part.end_s < end_s or part.info.state == "running":
            part.shard.lost_s = part.end_s
            lost.append((part.shard, f"ended early, after {part.end_s:.1f} s of {end_s:.1f} s ({part.why})"))
    return lost


def _furthest(parts: Sequence[Part]) -> Part:
    """The shard whose steps are those of the run: a whole one; else, where all were stopped (an interruption, an
    endpoint that is gone), the one that was stopped first; else the one that was killed last."""
    whole = [part for part in parts if part.whole]
    stopped = [part for part in parts if part.info.state == "stopped"]
    if whole or not stopped:
        return max(whole or parts, key=lambda part: part.end_s)
    return min(stopped, key=lambda part: part.end_s)


def _written(parts: Sequence[Part], lost: Sequence[tuple[ShardInfo, str]], furthest: Part, out: Path) -> Finished:
    first, began_at = parts[0], datetime.fromisoformat(parts[0].shard.start_at)
    rundir = RunDir.create(out, first.info.name or "run", first.text, began_at)
    for part in parts:
        for file in sorted(part.path.glob("records-*.jsonl")):
            _copy(file, rundir.records_path(int(file.stem.partition("-")[2])))
        _copy(part.path / "client.jsonl", rundir.client_path)
        _copy(part.path / "server.jsonl", rundir.server_path)
        part.shard.run, part.shard.host = part.path.name, part.info.host
    shards = [part.shard for part in parts] + [shard for shard, why in lost if why == "is missing"]
    deaths = [WorkerDeath(shard.lost_s or 0.0, f"{shard.name} {why}") for shard, why in lost]
    deaths += [
        WorkerDeath(death.t_s, f"{part.shard.name}: {death.reason}")
        for part in parts
        for death in part.info.dead_workers
    ]
    info = replace(
        first.info,
        workers=sum(part.info.workers or 1 for part in parts),
        metrics=next((part.info.metrics for part in parts if part.info.metrics), None),
        state="complete" if furthest.whole else "stopped",
        ending=furthest.info.ending if furthest.whole else furthest.why,
        stop_cause=furthest.info.stop_cause,
        ended_at=max(part.info.ended_at or "" for part in parts) or None,
        steps=furthest.info.steps,
        dead_workers=sorted(deaths, key=lambda death: death.t_s),
        shard=None,
        shards=sorted(shards, key=lambda shard: shard.index),
    )
    rundir.save_info(info)
    rundir.let_go()
    return write_report(rundir.path)


def _copy(source: Path, target: Path) -> None:
    """Append the lines of ``source``, where it is there, to ``target``, but for those from before the plan began."""
    if not source.is_file():
        return
    with naming(target), source.open("rb") as lines, target.open("ab") as written:
        for line in lines:
            if not line.startswith(BEFORE):
                written.write(line if line.endswith(b"\n") else line + b"\n")  # half a line stays one of its own
