"""Levels of load from files of other tools, set one after the other, as a run directory."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import combinations
from pathlib import Path

from loadramp.importers.formats import ResultFormat, read_levels
from loadramp.importers.levels import RecordedLevel
from loadramp.record.codec import encode
from loadramp.record.run_directory import RunDir, check_place, put
from loadramp.record.run_info import ImportedInfo, RunInfo, TargetInfo
from loadramp.record.types import Record, Step
from loadramp.registry import ScenarioError
from loadramp.runner import finish
from loadramp.runner.finish import Finished
from loadramp.runner.recorded import recorded_run, step_of
from loadramp.workload.prompts.lines import utf8

PAUSE_S = 60.0
"""Between the last token of one level and the first request of the next: levels do not reach into one another."""


def import_runs(paths: Sequence[Path], out: Path, *, wanted: str, name: str, slo: Mapping[str, float]) -> Finished:
    """One run directory of the results in ``paths``, judged and reported.

    Raises:
        ScenarioError: a file is not readable as what it should be, or levels of different kinds are mixed.
        OSError: the directory cannot be written.
    """
    check_place(out)
    texts = {path: _text(path) for path in paths}
    if same := next(((a, b) for a, b in combinations(paths, 2) if texts[a] == texts[b]), None):
        raise ScenarioError(f"{same[1]}: the same results as {same[0]}: each level counts once")
    read = [read_levels(text, str(path), wanted, partial(_beside, path)) for path, text in texts.items()]
    levels = sorted((level for _, of_file in read for level in of_file), key=_load)
    if len({level.users is None for level in levels}) > 1:
        raise ScenarioError("import: some levels have a request rate and others a number of users: import them apart")
    arrivals = {level.arrivals for level in levels}
    records, steps = laid_out(levels)
    formats = list({form.name: form for form, _ in read}.values())
    run = recorded_run(
        records,
        steps,
        name=name or paths[0].stem,
        slo=slo,
        arrivals=arrivals.pop() if len(arrivals) == 1 else RecordedLevel([]).arrivals,
        info=RunInfo(imported=_imported(formats, paths, len(records)), target=_target(levels)),
    )
    began_at = datetime.now(UTC)
    rundir = RunDir.create(out, run.scenario.name, run.scenario.source, began_at)
    put(rundir.records_path(0), b"".join(encode(record) for record in sorted(records, key=lambda record: record.seq)))
    rundir.save_info(replace(run.info, began_at=began_at.isoformat(timespec="seconds")))
    rundir.let_go()
    return finish.write_report(rundir.path)


def _beside(path: Path, pattern: str) -> list[str]:
    """The texts of the files beside ``path``, in order of the numbers in their names."""
    files = sorted(path.parent.glob(pattern), key=lambda file: (len(file.name), file.name))
    return [_text(file) for file in files]


def _text(path: Path) -> str:
    """A file's text, in any encoding of Unicode."""
    try:
        return b"".join(utf8([path.read_bytes()])).decode()
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: not text: {error}") from None


def laid_out(levels: Sequence[RecordedLevel]) -> tuple[list[Record], list[Step]]:
    """Records and steps of the levels, one after the other on one clock."""
    records: list[Record] = []
    steps: list[Step] = []
    end_s = 0.0
    for index, level in enumerate(levels):
        begin_s = min(record.due_s for record in level.records)
        records_of_level = _after(level.records, end_s - begin_s)
        records += records_of_level
        steps.append(step_of(records_of_level, index, rate_rps=level.rate_rps, users=level.users))
        end_s = PAUSE_S + max(max(record.due_s, record.stream_end_s or 0.0) for record in records_of_level)
    return records, [replace(step, index=index) for index, step in enumerate(steps)]


def _load(level: RecordedLevel) -> tuple[float, float]:
    """What orders levels: what was asked, else how fast the requests came."""
    due_s = [record.due_s for record in level.records]
    observed_rps = len(due_s) / max(max(due_s) - min(due_s), 1e-9)
    return float(level.rate_rps or level.users or observed_rps), min(due_s)


def _imported(formats: Sequence[ResultFormat], paths: Sequence[Path], requests: int) -> ImportedInfo:
    names = ", ".join(form.name for form in formats)
    lacks = {key: why for form in formats for key, why in form.lacks.items()}
    return ImportedInfo(names, [path.name for path in paths], requests, lacks)


def _target(levels: Sequence[RecordedLevel]) -> TargetInfo:
    models = {level.model for level in levels if level.model}
    return TargetInfo(model=models.pop() if len(models) == 1 else None)


def _after(records: Sequence[Record], shift_s: float) -> list[Record]:
    """``records`` as if all of it had happened ``shift_s`` later."""

    def later(value: float | None) -> float | None:
        return None if value is None else value + shift_s

    return [
        replace(
            record,
            due_s=record.due_s + shift_s,
            sent_s=later(record.sent_s),
            first_byte_s=later(record.first_byte_s),
            stream_end_s=later(record.stream_end_s),
            event_s=[at_s + shift_s for at_s in record.event_s],
        )
        for record in records
    ]
