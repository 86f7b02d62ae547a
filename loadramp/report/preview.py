"""What ``loadramp plan`` shows: the steps a ramp would take and the shape of its load, in words or as data. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from loadramp.record.codec import plain_data
from loadramp.report.progress import step_words
from loadramp.scenario.scenario import Scenario
from loadramp.units import count, counted, percent, plural, sig, span
from loadramp.workload.preview import PreviewPart, PreviewStep
from loadramp.workload.profile import WorkloadProfile

MOST_LINES = 64
LONGER_OR_AGAIN = (
    "Longer steps or another ramp? An engine that keeps its pace needs neither; longer steps (measure_s) narrow its "
    "ceiling more than further ramps do.",
    "If its pace has slow stretches, --repeats 2 narrows the ceiling as well as steps three times as long, in about "
    "the same time, and shows what changes over minutes; --until-sure 0.1 lets each step go on for its latencies.",
)
"""What ``benchmarks/lengthening.py`` counts (docs/benchmarks.md, "Ceilings on engines with regimes")."""
COUNTED = ("requests", "input_tokens", "output_tokens")


def preview_document(
    scenario: Scenario, steps: Sequence[PreviewStep], profile: WorkloadProfile | None = None, files: Sequence[str] = ()
) -> dict[str, Any]:
    """``loadramp plan --json``: one object a step (``PreviewStep``), the totals, the profile of the load."""
    return {
        "name": scenario.name,
        "ramp": scenario.ramp.kind,
        "arrivals": scenario.arrivals.kind,
        "prompts": scenario.prompts.kind,
        **_steps_document(steps),
        "notes": [*files, *notes(scenario, steps)],
        "profile": profile_document(profile),
    }


def parts_document(parts: Sequence[PreviewPart]) -> list[dict[str, Any]]:
    """What a command would send: one object a part; ``runs``: how often all of it is sent."""
    return [
        {"title": part.title, "runs": part.runs, **_steps_document(part.steps), "notes": list(part.notes)}
        for part in parts
    ]


def _steps_document(steps: Sequence[PreviewStep]) -> dict[str, Any]:
    listed = [
        {
            **{key: getattr(planned.step, key) for key in ("role", "rate_rps", "users", "warmup_s", "measure_s")},
            **{key: getattr(planned, key) for key in COUNTED},
            "ends_at_s": planned.cumulative_s,
            "offered_rps": planned.offered_rps,
        }
        for planned in steps
    ]
    minutes = round(steps[-1].cumulative_s / 60, 2) if steps else 0.0
    return {"steps": listed, "total": {**{key: _total(steps, key) for key in COUNTED}, "minutes": minutes}}


def preview_table(
    scenario: Scenario, steps: Sequence[PreviewStep], profile: WorkloadProfile | None = None, files: Sequence[str] = ()
) -> str:
    """The same for people, as plain text."""
    kinds = f"{scenario.ramp.kind} ramp, {scenario.arrivals.kind} arrivals, {scenario.prompts.kind} prompts"
    title = f"{scenario.name}: {kinds}"
    shape = [*profile_lines(profile), ""] if profile is not None else []
    return "\n".join([title, *files, "", *_step_lines(steps), "", *shape, *notes(scenario, steps)])


def parts_table(
    scenario: Scenario,
    parts: Mapping[str, Sequence[PreviewPart]],
    ramp: Mapping[str, Any],
    profile: WorkloadProfile,
    files: Sequence[str] = (),
) -> str:
    """What the commands would send that the scenario has tables for.

    Args:
        scenario: the scenario.
        parts: command to its parts.
        ramp: the document of what ``run`` would send, which is told in a line.
        profile: the shape of the load.
        files: a line for each file read.
    """
    out = [f"{scenario.name}: {scenario.arrivals.kind} arrivals, {scenario.prompts.kind} prompts", *files, ""]
    for chosen in parts.values():
        for part in chosen:
            total = f" ({span(part.runs * part.steps[-1].cumulative_s)} in all)" if part.steps else ""
            out += [f"== loadramp {part.title}{total}", *_step_lines(part.steps), *part.notes, ""]
    out += [*profile_lines(profile), ""]
    total, steps = ramp["total"], plural(len(ramp["steps"]), "step")
    out.append(f"loadramp run would ramp as [ramp] says: {steps}, {span(60 * total['minutes'])} (--json lists them).")
    return "\n".join(out)


def _step_lines(steps: Sequence[PreviewStep]) -> list[str]:
    """The table, steps alike that follow one another in one line."""
    if not steps:
        return []
    groups = [list(group) for _, group in groupby(steps, key=_alike)]
    shown = [_cells(group) for group in groups[:MOST_LINES]]
    lines = _aligned(
        [("step", "requests", "input tokens", "output tokens", "warm-up + measured", "done after"), *shown]
    )
    left = sum(len(group) for group in groups[MOST_LINES:])
    rest = f"and so on: {plural(left, 'more step')}, done after {span(steps[-1].cumulative_s)}"
    return [*lines, rest] if left else lines


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _alike(planned: PreviewStep) -> tuple[object, ...]:
    step = planned.step
    return step.role, step.rate_rps, step.users, step.warmup_s, step.measure_s


def profile_document(profile: WorkloadProfile | None) -> dict[str, Any] | None:
    """The shape of a load as data; lengths in tokens."""
    plain: dict[str, Any] | None = None if profile is None else plain_data(asdict(profile))
    return plain


def profile_lines(profile: WorkloadProfile) -> list[str]:
    """The same in words."""
    heads = ("", "mean", "p50", "p95", "p99")
    rows: list[tuple[str, ...]] = [heads]
    for name, lengths in (("input tokens", profile.input_tokens), ("output tokens", profile.output_tokens)):
        rows.append((name, *(count(getattr(lengths, head)) or "?" for head in heads[1:])))
    lines = _aligned(rows)
    guessed = f", the prompts of {percent(profile.estimated_ratio)} of them guessed at 4 characters a token"
    lines.append(f"from {plural(profile.requests, 'request')}{guessed if profile.estimated_ratio else ''}")
    reuse = percent(profile.prefix_reuse_ratio)
    lines.append(f"prefix reuse: {reuse} of the prompt tokens" if reuse else "prefix reuse: not known")
    if profile.gap_cv is not None:
        lines.append(f"burstiness: the gaps' coefficient of variation is {sig(profile.gap_cv)} (Poisson: 1)")
    if profile.turns_mean > 1:
        lines.append(f"sessions of {counted(sig(profile.turns_mean), 'turn')} on average")
    for name, shares in (("classes", profile.classes), ("models", profile.models)):
        if shares:
            lines.append(f"{name}: {', '.join(f'{value} {percent(share)}' for value, share in shares.items())}")
    return lines


def notes(scenario: Scenario, steps: Sequence[PreviewStep]) -> list[str]:
    """What the table cannot say."""
    closed = any(planned.requests is None for planned in steps)
    return [*(["A closed loop sends as many requests as are answered."] if closed else []), *ramp_notes(scenario)]


def ramp_notes(scenario: Scenario) -> list[str]:
    """When a ramp ends, and what comes on top."""
    pace, parts = scenario.pace, []
    if scenario.ramp.kind == "ceiling":
        soak_s = scenario.ramp.option("soak_s")
        parts.append(
            "The ramp stops at the first overloaded step, so this is the most it can send; "
            + (f"a soak of {span(soak_s)} below the ceiling comes on top." if soak_s else "no soak follows.")
        )
    if pace.max_requests or pace.max_minutes:
        caps = [plural(pace.max_requests, "request")] if pace.max_requests else []
        caps += [counted(f"{pace.max_minutes:g}", "minute")] if pace.max_minutes else []
        parts.append(f"It ends before a step that would exceed {' or '.join(caps)}.")
    if pace.until_sure is not None:
        parts.append(
            f"A step goes on until the interval of {pace.sure_of} reaches no further than {percent(pace.until_sure)} "
            f"from its value, at most to {span(pace.limit_s(None))} measured; the table has the shortest."
        )
    elif len(scenario.ramp.options.get("rates", ())) != 1:
        parts += LONGER_OR_AGAIN
    if pace.warmup_s == 0 and pace.settle_s + pace.settle_requests == 0:
        parts.append("No warm-up: the first step is measured from its first request on (settle_requests, warmup_s).")
    if pace.warmup_s is None:
        parts.append("Warm-ups grow with the time that requests take; 10 s is the least.")
    return parts


def _cells(group: Sequence[PreviewStep]) -> tuple[str, ...]:
    """The line of steps alike."""
    step = group[0].step
    times = f"{len(group)} x " if len(group) > 1 else ""
    return (
        times + step_words(step),
        *(count(_total(group, name)) or "?" for name in COUNTED),
        f"{step.warmup_s:.0f} + {step.measure_s:.0f} s",
        span(group[-1].cumulative_s),
    )


def _total(steps: Sequence[PreviewStep], name: str) -> int | None:
    values = [getattr(planned, name) for planned in steps]
    return None if any(value is None for value in values) else sum(values)
