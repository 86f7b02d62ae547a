"""Do the clocks of the machines that sent one run agree? Pure.

Each shard says how late its steps began by its own wall clock, and, where the endpoint tells the time, how far the
endpoint's clock is ahead of it. Only the latter sees a clock that is wrong all the time.
"""

from collections.abc import Sequence

from loadramp.record.run_info import ShardInfo
from loadramp.record.table import Run
from loadramp.record.types import Check, Step
from loadramp.units import sig

SKEW_RATIO = 0.1
"""Most difference between two shards, of the shortest step's measured length."""


def limit_s(steps: Sequence[Step]) -> float:
    """Most seconds that two shards may be apart."""
    return SKEW_RATIO * min((step.measure_s or 0.0 for step in steps if step.measured), default=0.0)


def furthest_apart(shards: Sequence[ShardInfo], steps: Sequence[Step]) -> str:
    """Which two shards are further apart than ``limit_s``, and by how much; empty where none are.

    A shard began a step between its lateness plus its clock's offset, less and more the error of the latter. Two are
    apart by what lies between these ranges at least.
    """
    most_s = limit_s(steps)
    for step in steps:
        known = [shard for shard in shards if step.index in shard.late_s]
        measured = [(shard.late_s[step.index], shard.late_s[step.index], shard) for shard in known]
        common = [
            (late_s + clock.offset_s - clock.error_s, late_s + clock.offset_s + clock.error_s, shard)
            for late_s, _, shard in measured
            if (clock := shard.clock) is not None
        ]
        for ranges, by in ((measured, "their wall clocks"), (common, "the endpoint's clock")):
            if len(ranges) < 2:
                continue
            last = max(ranges, key=lambda bounds: bounds[0])
            first = min(ranges, key=lambda bounds: bounds[1])
            apart_s = last[0] - first[1]
            if apart_s > most_s:
                return (
                    f"{first[2].name} began step {step.index} at least {sig(apart_s)} s before {last[2].name} by {by}; "
                    f"at most a tenth of a step is allowed ({sig(most_s)} s)"
                )
    return ""


def check(run: Run) -> list[Check]:
    """Shards of which it is not known whether they began their steps at the same time."""
    shards, most_s = run.info.shards or (), limit_s(run.steps)
    unsure = [shard.name for shard in shards if shard.clock is None or shard.clock.error_s > most_s]
    if len(shards) < 2 or not unsure:
        return []
    message = f"the clocks of {len(unsure)} shards were not compared to within a tenth of a step ({sig(most_s)} s)"
    advice = f"see that their hosts keep time (chronyc tracking): {', '.join(unsure[:8])}"
    return [Check("clocks", "note", message, advice)]
