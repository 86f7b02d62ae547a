"""What a campaign proves of the items that a launch needs. Pure: phases in, shown, gap or open out.

A proof is a function ``f(facts) -> Evidence`` in EVIDENCE; LEAST is how long it must have lasted. Rule: what was
shortened or not seen is open, never shown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from loadramp.analysis.diagnosis.queueing import PREEMPTED_RATIO
from loadramp.campaign.criteria import Criterion, PhaseView
from loadramp.campaign.prepared import Evidence, alerts_shown, rollback_timed, rollback_tried, size_shown
from loadramp.record.preparation import Alerts, Rollback, Sized
from loadramp.record.row import Row
from loadramp.units import counted, multiple, percent, plural, span

HOUR_S = 3600.0
CANARY = "rollback"
"""Key of ``Facts.lengths`` for the load that a canary measured after a switch back."""
MOST_UTILIZATION = 0.90
PLAIN = frozenset({"delivered", "to_the_end", "struck"})
"""Criteria that are not worth a word where they hold."""
NOT_RUN = {"baseline": "no baseline was measured", "sustained": "no sustained phase was run",
           "overload": "no overload was tried", "chaos": "no worker was killed"}  # fmt: skip
STANDING = 0.8
"""A batch whose mean is so close to its largest stands at its limit."""


@dataclass(slots=True, frozen=True)
class Facts:
    """What the campaign found: criteria and measurements by phase. Phases that were not run are missing."""

    criteria: Mapping[str, Sequence[Criterion]] = field(default_factory=dict)
    measured: Mapping[str, PhaseView] = field(default_factory=dict)
    load: Mapping[str, float] = field(default_factory=dict)
    """``factor`` and ``check_factor`` of the overload, ``sustained_s`` as measured."""
    model_max: int | None = None
    """Longest context of the model itself, from its config.json."""
    lengths: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    """Measured seconds and requests by phase; of the overload its stages ``overload`` and ``check`` apart."""
    rehearsal: bool = False
    """Everything was shortened: nothing is shown, and nothing is missed."""
    unfinished: frozenset[str] = frozenset()
    """Phases that were interrupted: what they lack is not missed."""
    alerts: Alerts | None = None
    """None: no phase under load was run."""
    sized: Sized | None = None
    """None: the peak is not known, or no ramp was run."""
    rollback: Rollback | None = None
    """None: no canary was given."""

    def of(self, phase: str, *codes: str) -> list[Criterion]:
        """Criteria of a phase whose code begins with one of ``codes``."""
        return [criterion for criterion in self.criteria.get(phase, ()) if criterion.code.startswith(codes)]


Prover = Callable[[Facts], Evidence]


@dataclass(slots=True, frozen=True)
class Minimum:
    """What counts as proof: at least so long, with at least so many requests."""

    of: str
    """Key of ``Facts.lengths``."""
    seconds: float
    requests: int


def prove(name: str, facts: Facts) -> Evidence:
    """What the campaign says of an item, with too short a test not shown, and nothing settled by a rehearsal or by a
    phase that was interrupted."""
    evidence = EVIDENCE[name](facts)
    if evidence.proof == "open":
        return evidence
    if facts.rehearsal:
        return Evidence("open", f"a rehearsal shows nothing ({evidence.words})", evidence.phase)
    if evidence.phase in facts.unfinished:
        return Evidence("open", f"the {evidence.phase} phase was interrupted ({evidence.words})", evidence.phase)
    least = LEAST.get(name)
    if evidence.proof == "gap" or least is None:
        return evidence
    seconds, requests = facts.lengths.get(least.of or evidence.phase, (0.0, 0))
    short = []
    if seconds < least.seconds - 1.0:
        short.append(f"measured for {span(seconds)} of {span(least.seconds)}")
    if requests < least.requests:
        short.append(f"{requests:,} of {plural(least.requests, 'request')}")
    return Evidence("open", f"not shown: {', '.join(short)} ({evidence.words})", evidence.phase) if short else evidence


def _from(criteria: Sequence[Criterion], phase: str, missing: str) -> Evidence:
    """All pass: shown; one fails: a gap; anything else: open."""
    if not criteria:
        return Evidence("open", missing, phase)
    failed = [criterion for criterion in criteria if criterion.status == "fail"]
    unsure = [criterion for criterion in criteria if criterion.status == "inconclusive"]
    if failed:
        return Evidence("gap", "; ".join(f"{criterion.asked}: {criterion.observed}" for criterion in failed), phase)
    if unsure:
        more = f"; and {len(unsure) - 2} more" if len(unsure) > 2 else ""
        return Evidence(
            "open", "; ".join(f"{criterion.asked}: {criterion.observed}" for criterion in unsure[:2]) + more, phase
        )
    return Evidence(
        "shown", "; ".join(criterion.observed for criterion in criteria if criterion.code not in PLAIN), phase
    )


def _slo(facts: Facts) -> Evidence:
    measured = facts.measured.get("sustained") or facts.measured.get("ramp")
    if measured is not None and not measured.slo.limits:
        return Evidence("gap", "the scenario sets no [slo] limit, so nothing was promised", "sustained")
    return _by("sustained", "slo_")(facts)


def _by(phase: str, *codes: str) -> Prover:
    """What the criteria of one phase show, those whose code begins with one of ``codes``."""
    return lambda facts: _from(facts.of(phase, *codes), phase, NOT_RUN[phase])


def _over(factor: str, least: float, *codes: str) -> Prover:
    """The same of the overload, if it was at least so many times the target."""

    def proof(facts: Facts) -> Evidence:
        evidence, tried = _by("overload", *codes)(facts), facts.load.get(factor, 0.0)
        if evidence.proof == "shown" and tried < least - 1e-9:
            return Evidence("open", f"only {multiple(tried)} the target was tried", "overload")
        return evidence

    return proof


def _context(facts: Facts) -> Evidence:
    """The server tells what it serves; only the model's own maximum tells whether somebody chose it."""
    served = next((phase.run.info.target.max_model_len for phase in facts.measured.values()), None)
    if not isinstance(served, int):
        return Evidence("open", "the server does not tell its longest context")
    phase = next(iter(facts.measured))
    if facts.model_max is None:
        why = "without the model's config.json nobody can tell whether that was chosen ([campaign] model_config)"
        return Evidence("open", f"it serves contexts of {plural(served, 'token')}; {why}", phase)
    if served < facts.model_max:
        return Evidence("shown", f"{plural(served, 'token')}, the model could {facts.model_max:,}", phase)
    return Evidence("open", f"it serves all {plural(served, 'token')} that the model has: by choice?", phase)


def _batch(facts: Facts) -> Evidence:
    """The batch stood at its limit while others waited, and the KV cache bore it."""
    rows = [(phase, row) for phase in ("overload", "ramp") for row in _rows(facts, phase)]
    if not rows:
        return Evidence("open", "nothing was run under load")
    if all(row.running_max is None for _, row in rows):
        return Evidence("open", "the batch limit was not seen: no server metrics")
    full = [(phase, row) for phase, row in rows if _stood(row)]
    if not full:
        return Evidence("open", "the batch limit was never reached: nothing waited for long")
    phase, row = max(full, key=lambda entry: entry[1].running_max or 0.0)
    preempted = (row.preemptions or 0.0) / max(row.requests, 1)
    observed = (
        f"{plural(round(row.running_max or 0.0), 'request')} ran at once while up to {row.waiting_max:.0f} waited"
    )
    each = counted(f"{preempted:.2g}", "preemption")
    if preempted > PREEMPTED_RATIO:
        return Evidence("gap", f"{observed}, and {each} a request: more than the KV cache bears", phase)
    return Evidence("shown", f"{observed}; {each} a request", phase)


def _stood(row: Row) -> bool:
    """As many ran all the time as ever did, and others waited."""
    running, mean = row.running_max, row.running_mean
    return bool(running and mean and row.waiting_max and mean >= STANDING * running)


def _metrics(facts: Facts) -> Evidence:
    for phase in ("sustained", "ramp", "overload"):
        measured = facts.measured.get(phase)
        if measured is None or not measured.run.samples:
            continue
        good = sum(bool(check.values) for check in measured.run.samples) / len(measured.run.samples)
        dialect = measured.run.info.dialect or "known names"
        observed = f"{percent(good, 4)} of {plural(len(measured.run.samples), 'scrape')} read ({dialect})"
        return Evidence("shown" if good >= 0.99 else "gap", observed, phase)
    loaded = next((phase for phase in ("sustained", "ramp", "overload") if phase in facts.measured), "")
    return (
        Evidence("gap", "no metrics page was found", loaded)
        if loaded
        else Evidence("open", "nothing was run under load")
    )


def _utilization(facts: Facts) -> Evidence:
    """From the engine's configuration on its metrics page."""
    for phase, measured in facts.measured.items():
        for sample in measured.run.samples:
            utilization = sample.values.get("gpu_memory_utilization")
            if utilization is not None:
                within = utilization <= MOST_UTILIZATION + 1e-9
                return Evidence("shown" if within else "gap", f"the engine runs with {utilization:.3g}", phase)
    return Evidence("open", "the server does not show its gpu_memory_utilization")


EVIDENCE: dict[str, Prover] = {
    "slo": _slo, "memory": _by("sustained", "memory"), "health": _by("sustained", "availability"),
    "sustained_hour": _by("sustained", "delivered", "to_the_end", "errors", "steady", "drift_", "no_restart"),
    "double_load": _over("factor", 2.0, "delivered", "no_crash", "refusals"),
    "headroom": _over("check_factor", 1.2, "headroom", "slo_"), "overload_recovery": _by("overload", "recovery"),
    "chaos_recovery": _by("chaos", "struck", "felt", "recovery"),
    "nothing_lost": _by("chaos", "struck", "felt", "nothing_lost"), "baseline": _by("baseline", ""),
    "max_model_len": _context, "max_num_seqs": _batch, "metrics": _metrics, "gpu_memory_utilization": _utilization,
    "gpus_sized": lambda facts: size_shown(facts.sized), "alerts": lambda facts: alerts_shown(facts.alerts),
    "rollback": lambda facts: rollback_tried(facts.rollback),
    "rollback_time": lambda facts: rollback_timed(facts.rollback),
}  # fmt: skip
"""What a run can prove."""

LEAST: dict[str, Minimum] = {
    "slo": Minimum("sustained", 600.0, 1000), "sustained_hour": Minimum("sustained", HOUR_S, 2995),
    "memory": Minimum("sustained", HOUR_S, 2995), "health": Minimum("sustained", 600.0, 100),
    "double_load": Minimum("overload", 900.0, 1000), "headroom": Minimum("check", 60.0, 100),
    "overload_recovery": Minimum("overload", 900.0, 1000), "chaos_recovery": Minimum("chaos", 600.0, 300),
    "nothing_lost": Minimum("chaos", 600.0, 300), "baseline": Minimum("baseline", 300.0, 20),
    "metrics": Minimum("", 300.0, 100), "max_num_seqs": Minimum("", 60.0, 100),
    "gpus_sized": Minimum("ramp", 300.0, 300), "alerts": Minimum("", 300.0, 100),
    "rollback": Minimum(CANARY, 60.0, 100), "rollback_time": Minimum(CANARY, 60.0, 100),
}  # fmt: skip
"""An empty ``of``: the phase that shows it. 2,995 requests without a failure show fewer
than 0.1 % with 95 % confidence."""


def _rows(facts: Facts, phase: str) -> list[Row]:
    measured = facts.measured.get(phase)
    return measured.rows if measured is not None else []
