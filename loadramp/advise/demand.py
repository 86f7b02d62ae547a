"""What traffic asks of a replica: lengths, reuse, requests at once, and the rate it was shown to take. From a judged
run, or from numbers given. Rule: what a run did not show is None, and says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import floor
from typing import Any

import numpy as np

from loadramp.advise.options import TrafficFacts
from loadramp.analysis.diagnosis.cures import met_version
from loadramp.analysis.diagnosis.remedies import Version
from loadramp.analysis.quantiles import mean_of_known
from loadramp.record.prompt_facts import prefix_reuse_unknown
from loadramp.record.row import Row
from loadramp.record.table import Run
from loadramp.record.types import Estimate
from loadramp.registry import ScenarioError


@dataclass(slots=True, frozen=True)
class Rate:
    """Requests a second that one replica takes: the interval, and what it rests on."""

    low_rps: float
    high_rps: float
    basis: str


@dataclass(slots=True, frozen=True)
class Demand:
    """What one replica was asked, and what it took."""

    input_tokens: float | None = None
    """Mean a request."""
    output_tokens: float | None = None
    context_p95: int | None = None
    """95 of 100 requests have at most so many tokens, input and output together."""
    context_max: int | None = None
    beyond_p95: int = 0
    requests: int = 0
    reuse_ratio: float | None = None
    """Share of the prompt tokens that were found in the prefix cache."""
    reuse_reason: str = ""
    in_flight: float | None = None
    """Requests at once at the rate that was sustained."""
    largest_batch: int | None = None
    """Most requests that were seen to run at once."""
    slo_running: int | None = None
    """The largest batch within the ITL limit, where a larger one broke it."""
    rate: Rate | None = None
    rate_reason: str = ""
    ttft_s: float | None = None
    """The service level's limit of time to first token."""
    vllm_version: Version | None = None
    """Of the vLLM that the run met; None: another engine, or not told."""
    findings: tuple[str, ...] = field(default_factory=tuple)
    """Codes of what the diagnosis found."""


def demand_of(run: Run) -> Demand:
    """Read a judged run (rows, estimates and findings are there)."""
    table = run.table.select(run.table.ok)
    given = table.input_tokens
    made = np.where(np.isnan(table.output_tokens), table.asked_output_tokens, table.output_tokens)
    both = given + made
    known = both[~np.isnan(both)]
    p95 = int(np.ceil(np.quantile(known, 0.95))) if len(known) else None
    reuse, why = prefix_reuse_of(run)
    rate, no_rate = rate_of(run)
    slo = run.scenario.slo
    return Demand(
        input_tokens=mean_of_known(given),
        output_tokens=mean_of_known(made),
        context_p95=p95,
        context_max=int(known.max()) if len(known) else None,
        beyond_p95=int(np.count_nonzero(known > p95)) if p95 else 0,
        requests=len(known),
        reuse_ratio=reuse,
        reuse_reason=why,
        in_flight=_in_flight(run),
        largest_batch=int(max((row.running_max or 0.0 for row in run.rows), default=0.0)) or None,
        slo_running=_slo_running(run.rows, slo.itl_s),
        rate=rate,
        rate_reason=no_rate,
        ttft_s=slo.ttft_s,
        vllm_version=met_version(run),
        findings=tuple(finding.code for finding in run.findings),
    )


def rate_of(run: Run) -> tuple[Rate | None, str]:
    """What a replica takes: of the ceiling, the soak and the service level the one that gives way first.

    Where the scenario has latency limits, never more than the low end of the SLO capacity, and nothing without it.

    The low end is the lowest of the three; the high end is that of the interval of the rate that binds. A rate whose
    low end is not known is none to size by: its point is the middle of what may be true.
    """
    ceiling, slo = run.estimates.get("ceiling"), run.estimates.get("slo_capacity")
    rates: list[tuple[float, float, str]] = []
    if run.scenario.slo.limits:
        why = _unsized(slo)
        if why or slo is None:
            return None, why
        low, high = _met(slo)
        rates.append((low, high, "service level"))
    if ceiling is not None and ceiling.rate_rps is not None and ceiling.status in {"found", "not_found_up_to"}:
        low, high = _limits(ceiling)
        if low > 0.0:
            rates.append((low, high, "ceiling" if ceiling.status == "found" else "highest rate offered"))
        elif not rates:  # the service level is never above the ceiling: its low end would do
            return None, _open_below("ceiling", ceiling)
        if ceiling.sustained_rps is not None:
            rates.append((ceiling.sustained_rps, high, "sustained in the soak"))
    if not rates:
        reason = ceiling.reason if ceiling is not None else "no estimate"
        return None, f"this run gives no rate to size by ({reason})"
    low, high, basis = min(rates)
    return Rate(low, max(low, min(high, *(entry[1] for entry in rates))), basis), ""


def prefix_reuse_of(run: Run) -> tuple[float | None, str]:
    """Share of prompt tokens found in the prefix cache, where the prompts were such that it means something."""
    why = prefix_reuse_unknown(run)
    if why:
        return None, why
    table = run.table.select(run.table.ok)
    counted = ~np.isnan(table.cached_tokens) & ~np.isnan(table.prompt_tokens)
    total = float(table.prompt_tokens[counted].sum())
    if total > 0.0:
        return float(table.cached_tokens[counted].sum()) / total, ""
    shown = [float(row.prefix_hit_ratio) for row in run.rows if row.prefix_hit_ratio is not None]
    if not shown:
        return None, "the server shows no prefix cache hits"
    return float(np.median(shown)), ""


UNMEASURED = Demand(
    reuse_reason="no prefix reuse was given (--prefix-reuse, or a RUN)",
    rate_reason="no rate was measured or given (a RUN, or --replica-rps)",
)
"""Without a run."""


def overruled(demand: Demand, traffic: TrafficFacts) -> Demand:
    """``demand`` with what was said of the traffic on top.

    Raises:
        ScenarioError: a mean request is longer than the longest one.
    """
    context_tokens, rate_rps = traffic.context_tokens, traffic.replica_rps
    if context_tokens is None and demand.context_p95 is None and traffic.input_tokens and traffic.output_tokens:
        context_tokens = int(np.ceil(traffic.input_tokens + traffic.output_tokens))
    given: dict[str, Any] = {
        "input_tokens": traffic.input_tokens, "output_tokens": traffic.output_tokens,
        "context_p95": context_tokens, "context_max": context_tokens,
        "requests": None if context_tokens is None else 0,
        "reuse_ratio": traffic.prefix_reuse, "in_flight": traffic.concurrency,
        "rate": None if rate_rps is None else Rate(rate_rps, rate_rps, "given"),
    }  # fmt: skip
    said = replace(demand, **{key: value for key, value in given.items() if value is not None})
    mean, longest = (said.input_tokens or 0.0) + (said.output_tokens or 0.0), said.context_p95
    if (
        longest is not None
        and longest < floor(mean)
        and (traffic.input_tokens or traffic.output_tokens or context_tokens)
    ):
        whose = "as measured" if context_tokens is None else "as given"
        raise ScenarioError(
            f"--context-tokens: {longest:,} ({whose}) is less than the {mean:,.0f} of a mean request, input and output "
            "together: every other request would be refused"
        )
    return said


def comparable(runs: Sequence[Run]) -> list[str]:
    """Why figures of these runs may not be compared: other prompts, or another service level. Empty: they may."""
    out = []
    for table in ("prompts", "slo"):
        first = runs[0].scenario.asked.get(table, {})
        if any(run.scenario.asked.get(table, {}) != first for run in runs[1:]):
            out.append(
                f"[{table}] differs: capacities are of different {'traffic' if table == 'prompts' else 'promises'}"
            )
    return out


def _limits(estimate: Estimate) -> tuple[float, float]:
    """The interval of a rate; what a soak has held cannot be above the ceiling. A low end of 0 is not known."""
    rate = estimate.rate_rps or 0.0
    shown = estimate.low_rps if estimate.status == "found" else rate
    low = max(shown or 0.0, estimate.sustained_rps or 0.0)
    return low, max(low, rate if estimate.high_rps is None else estimate.high_rps)


def _met(slo: Estimate) -> tuple[float, float]:
    """The interval of the rate that was shown to meet the service level; what a soak held is no proof of it."""
    rate = slo.rate_rps or 0.0
    low = rate if slo.low_rps is None else min(rate, slo.low_rps)
    return low, max(low, rate if slo.high_rps is None else slo.high_rps)


def _unsized(slo: Estimate | None) -> str:
    """Why the service level, missed, not judged or too vague, leaves no rate; empty where it leaves one."""
    if slo is None:
        return "the run has no estimate of the rate within its service level"
    if slo.status == "below_range":
        return "the service level was missed at the lowest rate: there is nothing to size"
    if slo.status not in {"found", "not_found_up_to"} or slo.rate_rps is None:
        return f"no rate was shown to meet the service level ({slo.reason or slo.status})"
    return _open_below("service level", slo) if slo.status == "found" and not slo.low_rps else ""


def _open_below(what: str, estimate: Estimate) -> str:
    """What to do about a rate whose low end is not known."""
    if estimate.high_rps is None:
        return f"{what}: the repeats lie too far apart for a low end; longer steps or more repeats would show it"
    return f"{what}: the interval reaches below the lowest rate judged; a lower start or longer steps would show it"


def _in_flight(run: Run) -> float | None:
    """Mean requests in flight in the soak, else in the highest step that was quiet."""
    whole = [row for row in run.rows if not (row.void or row.partial)]
    quiet = [row for row in whole if not (row.saturated or row.overloaded)]
    soaks = [row for row in quiet if row.role == "soak"]
    row = (soaks or quiet)[-1] if quiet else None
    return row.in_flight_mean if row and row.in_flight_mean is not None else None


def _slo_running(rows: Sequence[Row], itl_s: float | None) -> int | None:
    """Largest batch of a step whose p99 ITL was within the limit, if a step with a larger batch was beyond it."""
    if itl_s is None:
        return None
    batches = [
        (row.running_max, p99_s <= itl_s)
        for row in rows
        if row.running_max and (p99_s := row.of("itl").p99.value) is not None and not row.void
    ]
    beyond = [running for running, fine in batches if not fine]
    within = [running for running, fine in batches if fine and (not beyond or running < min(beyond))]
    return int(max(within)) if beyond and within else None
