"""What ``loadramp compare`` does: reads stored runs, refuses what cannot be compared, judges, writes."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from loadramp import __version__
from loadramp.comparison.configuration_table import tiers_csv, tiers_document, tiers_html, tiers_markdown
from loadramp.comparison.configurations import Tiers, tiers
from loadramp.comparison.decide import Decision
from loadramp.comparison.environment import Difference, differences, fingerprint
from loadramp.comparison.info import COMPARISON, ArmInfo, ComparisonInfo
from loadramp.comparison.judge import asked_of, read
from loadramp.comparison.launch import write_derived
from loadramp.comparison.pairs import Comparison
from loadramp.comparison.stored_runs import Side, failures, indicative, judged, matched_rates
from loadramp.comparison.table import Canary, canary_of
from loadramp.record.run_directory import RunDir, check_place
from loadramp.record.table import Run
from loadramp.registry import ScenarioError
from loadramp.runner.assess import measured
from loadramp.runner.scenarios import load, read_run
from loadramp.units import percent


def compare(names: Sequence[str], out: Path, overrides: Sequence[str] = (), anyway: bool = False) -> Comparison | Tiers:
    """Compare stored runs and write the report below ``out``.

    Args:
        names: one comparison directory to judge again; or two and more configurations, the first being the baseline:
            each a run directory, or several that repeat it, with commas between.
        out: where the report goes.
        overrides: of the ``[canary]`` table of the first run's scenario.
        anyway: compare although conditions differ.

    Raises:
        RunDirError, ScenarioError: a directory is no run, or there is nothing to compare.
        OSError: the files cannot be read or written.
    """
    if len(names) == 1 and (Path(names[0]) / COMPARISON).is_file():
        comparison = read(Path(names[0]))
        write_derived(comparison)
        return comparison
    if len(names) < 2:
        raise ScenarioError("compare: two run directories at least, or one of a canary")
    check_place(out)
    sides = [read_side(paths_of(name), overrides) for name in names]
    canary = sides[0][1]
    if len(sides) > 2:
        return _tiered([side for side, _ in sides], canary, out)
    return _two(sides[0][0], sides[1][0], canary, out, anyway)


def paths_of(name: str) -> list[Path]:
    """The directories called ``a,b,c``; the one of that very name, if there is one."""
    return [Path(name)] if Path(name).is_dir() else [Path(part) for part in name.split(",") if part]


def read_side(paths: Sequence[Path], overrides: Sequence[str] = ()) -> tuple[Side, Canary]:
    """The runs in ``paths``, judged anew, and the ``[canary]`` table of the first.

    Raises:
        RunDirError, ScenarioError: one is no run, or there twice: a repeat that is none would pass for certainty.
    """
    if not paths:
        raise ScenarioError("compare: an empty name of a run directory")
    read = [_read(path, overrides) for path in paths]
    seen: dict[object, Path] = {}
    for path, (run, _) in zip(paths, read, strict=True):
        salt = run.info.prompt_salt  # drawn anew for each run, so a copy of a directory is known as well
        itself = (salt, run.info.began_at) if salt is not None else path.resolve()
        if itself in seen:
            raise ScenarioError(f"compare: {path} is the same run as {seen[itself]}: it repeats nothing")
        seen[itself] = path
    return Side(_short(paths), [run for run, _ in read]), read[0][1]


def _read(path: Path, overrides: Sequence[str]) -> tuple[Run, Canary]:
    run, _ = read_run(path)
    known = run.scenario
    run.scenario = load(known.source, str(path / "scenario.toml"), [*known.overrides, *overrides])
    return measured(run), canary_of(run.scenario)


def _short(paths: Sequence[Path]) -> str:
    name = paths[0].name or str(paths[0])
    return name if len(paths) == 1 else f"{name} and {len(paths) - 1} more"


def _two(base: Side, candidate: Side, canary: Canary, out: Path, anyway: bool) -> Comparison:
    comparison = comparison_of(base, candidate, canary, anyway)
    comparison.path = str(_directory(out, comparison.info, base).path)
    write_derived(comparison)
    return comparison


def comparison_of(base: Side, candidate: Side, canary: Canary, anyway: bool = False) -> Comparison:
    """Two sides, judged; nothing is written. ``anyway``: also where their conditions differ."""
    unsure = indicative(base, candidate)
    asked = replace(asked_of(canary), looks=(), run_sd=canary.run_sd if unsure else 0.0)
    differing = _environment(base, candidate)
    broken = [difference for difference in differing if difference.breaks]
    rates = matched_rates((base, candidate))
    effects, decision = judged(base, candidate, rates, asked)
    if broken and not anyway:
        effects = []
        decision = Decision(
            "inconclusive", (f"different environment: {_listed(broken)}; --anyway compares all the same",)
        )
    return Comparison(
        info=_info(base, candidate),
        baseline=base.runs[0],
        candidate=candidate.runs[0],
        asked=asked,
        decision=decision,
        effects=effects,
        failures=(failures(base, rates), failures(candidate, rates)),
        failures_at={rate: (failures(base, [rate]), failures(candidate, [rate])) for rate in rates},
        environment=differing,
        notes=_notes(base, candidate, rates, canary, broken, unsure),
    )


def _tiered(sides: Sequence[Side], canary: Canary, out: Path) -> Tiers:
    table = tiers(sides, canary.run_sd)
    table.environment = [_environment(sides[0], side) for side in sides]
    table.info = _info(sides[0], sides[1])
    rundir = _directory(out, table.info, sides[0])
    table.path = str(rundir.path)
    rundir.write_json("tiers.json", tiers_document(table))
    rundir.write("tiers.csv", tiers_csv(table))
    rundir.write("summary.md", tiers_markdown(table))
    rundir.write("report.html", tiers_html(table))
    return table


def _environment(base: Side, candidate: Side) -> list[Difference]:
    """In what the first runs of both sides differ."""
    prints = [fingerprint(run) for run in (base.runs[0], candidate.runs[0])]
    return differences(prints[0], prints[1])


def _listed(differing: Sequence[Difference]) -> str:
    return ", ".join(f"{difference.key} ({difference.base} and {difference.candidate})" for difference in differing)


def _info(base: Side, candidate: Side) -> ComparisonInfo:
    baseline, other = (ArmInfo(run_dir=tuple(run.path for run in side.runs)) for side in (base, candidate))
    return ComparisonInfo(
        name=base.runs[0].info.name or base.name,
        kind="compare",
        began_at=datetime.now(UTC).isoformat(timespec="seconds"),
        loadramp=__version__,
        baseline=baseline,
        candidate=other,
        state="complete",
    )


def _notes(
    base: Side, candidate: Side, rates: Sequence[float], canary: Canary, broken: Sequence[Difference], unsure: bool
) -> list[str]:
    out = [f"Steps matched by rate: {', '.join(f'{rate:.4g}' for rate in rates) or 'none'} req/s."]
    if unsure:
        out.append(
            f"One run of each: a spread from run to run of {percent(canary.run_sd)} is assumed ([canary] run_sd). "
            "Several runs of each (A1,A2,A3 B1,B2,B3), or runs with --repeats, measure it."
        )
    else:
        out.append(
            f"Runs or ramps: baseline {base.repeats}, candidate {candidate.repeats}; their spread is the uncertainty."
        )
    if broken:
        out.append(f"Different environment: {_listed(broken)}.")
    return out


def _directory(out: Path, info: ComparisonInfo, base: Side) -> RunDir:
    return RunDir.create(out, f"{info.name}-compare", base.runs[0].scenario.source, datetime.now(UTC))
