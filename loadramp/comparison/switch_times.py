"""How long a canary's switches back took: from the begin of the command to the first request that succeeded."""

import json
from pathlib import Path

import msgspec
import numpy as np

from loadramp.comparison.judge import COMPARISON
from loadramp.record.preparation import Rollback
from loadramp.record.run_directory import RunDirError
from loadramp.record.table import Table
from loadramp.registry import ScenarioError
from loadramp.runner.scenarios import read_run


class Switched(msgspec.Struct, frozen=True):
    """One use of the switch command as comparison.json has it: seconds since the comparison began."""

    arm: str
    begin_s: float
    ready_s: float
    command_s: float | None = None


def rollback_of(path: Path) -> Rollback:
    """The switches back to the version before of the canary in ``path``, with what was served after them.

    Raises:
        ScenarioError: it is no canary.
    """
    try:
        info = json.loads((path / COMPARISON).read_bytes())
        switches = msgspec.convert(info.get("switches", []), list[Switched])
        run, _ = read_run(path / "baseline")
    except FileNotFoundError:
        raise ScenarioError(f"--canary {path}: no {COMPARISON} here: it is no canary") from None
    except (ValueError, AttributeError, msgspec.ValidationError, RunDirError) as error:
        raise ScenarioError(f"--canary {path}: not a canary: {error}") from None
    name = path.resolve().name
    back = [one for i, one in enumerate(switches) if i and one.arm == "baseline"]  # the first comes before any load
    if not back:
        return Rollback(name)
    until = [*(one.begin_s for one in back[1:]), float("inf")]
    served = [run.table.due_in((one.begin_s, end_s)) for one, end_s in zip(back, until, strict=True)]
    first = [_first_end_s(table) - one.begin_s for one, table in zip(back, served, strict=True)]
    since = [step for step in run.steps if step.measured and step.begin_s >= back[0].begin_s]
    after = [run.table.due_in(step.window_s) for step in since]
    return Rollback(
        name,
        took_s=[took_s for took_s in first if np.isfinite(took_s)],
        command_s=[one.command_s for one in back if one.command_s is not None],
        unanswered=int(np.count_nonzero(~np.isfinite(first))),
        measured_s=sum(step.measure_s or 0.0 for step in since),
        requests=sum(len(table) for table in after),
        failed=sum(int(np.count_nonzero(table.failed)) for table in after),
    )


def _first_end_s(table: Table) -> float:
    """When the first request that succeeded ended; infinite where none did."""
    ends = np.fmax(table.stream_end_s, table.last_s)[table.ok]
    return float(np.nanmin(ends)) if len(ends) else float("inf")
