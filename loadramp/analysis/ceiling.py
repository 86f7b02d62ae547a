"""The ceiling: the rate an endpoint can sustain. Queue signals say that it is overloaded, its throughput says how much.

Formulas: docs/method.md, "Ceiling". Rule: void rows are never used, and one bad step is not a ceiling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Annotated

import numpy as np
from msgspec import Meta
from scipy.special import stdtrit

from loadramp.analysis.load_errors import load_arrival_rps, load_error_ratio, load_requests
from loadramp.analysis.offered_load import at, load_of
from loadramp.analysis.quantiles import t_limit
from loadramp.record.table import Floats
from loadramp.record.types import Estimate, EstimateStatus, Row
from loadramp.scenario.scenario import ERROR_RATIO
from loadramp.units import percent, plural

Ratio = Annotated[float, Meta(gt=0, lt=1)]

GONE_REQUESTS = 20
"""So many failures end a run whose endpoint went away; a step that was cut short with fewer tells nothing of that."""
SIGNS = {
    "queue": "the queue grows",
    "backlog": "requests in flight pile up",
    "ttft_trend": "the wait for the first token grows",
    "server_queue": "the server's own queue grows",
}


@dataclass(slots=True, frozen=True)
class Climb:
    """Open-loop steps by rate, cut at the highest quiet one: what lies above it is overload, or an alarm."""

    rows: Sequence[Row]
    quiet: int
    """Index of the highest quiet row, -1 without."""

    @property
    def above(self) -> Sequence[Row]:
        return self.rows[self.quiet + 1 :]

    @property
    def last_quiet(self) -> Row | None:
        return self.rows[self.quiet] if self.quiet >= 0 else None

    @property
    def overloaded(self) -> Row | None:
        """First row above the quiet ones that settles it: saturated and in deficit, or too many errors."""
        return next((r for r in self.above if (r["saturated"] and r["deficit"]) or failing(r)), None)

    @property
    def hiccups(self) -> list[Row]:
        """Rows with an alarm that a quiet row at a higher rate has refuted."""
        return [row for row in self.rows[: max(self.quiet, 0)] if row["saturated"] or row["deficit"]]


@dataclass(slots=True, frozen=True)
class Reading:
    """The throughput of one row, req/s, and the half-width of its 95 % interval on the log scale."""

    rate_rps: float
    log_half: float


def usable(rows: Sequence[Row], roles: tuple[str, ...] = ("step",)) -> list[Row]:
    """Rows that the client delivered, in which requests were due that were a load, and that went on to their end."""
    return [row for row in rows if not row["void"] and row["role"] in roles and load_requests(row) > 0 and counts(row)]


def counts(row: Row) -> bool:
    """False of a step that was cut short, unless it was because the endpoint went away: that is what it shows."""
    if not row.get("partial"):
        return True
    many = sum(row["errors"].values()) >= GONE_REQUESTS or not row["ok"]
    return failing(row) and _unreachable(row) and many


def climb(rows: Sequence[Row]) -> Climb:
    """The open-loop steps in order of the rates that they speak for."""
    steps = sorted((row for row in usable(rows) if row["rate_rps"]), key=load_of)
    quiet = [i for i, row in enumerate(steps) if not (row["saturated"] or row["deficit"] or failing(row))]
    return Climb(steps, quiet[-1] if quiet else -1)


def failing(row: Row) -> bool:
    """More errors that may depend on load than the scenario allows (column ``overloaded``), or than it does by default
    where that is absent."""
    marked = row.get("overloaded")
    return bool(marked) if marked is not None else (load_error_ratio(row) or 0.0) > ERROR_RATIO


def ceiling(rows: Sequence[Row], *, deficit_ratio: Ratio = 0.85) -> Estimate:
    """The ceiling with its 95 % interval, or why there is none.

    Args:
        rows: rows of the curve in any order; ``soak`` rows give ``sustained_rps``.
        deficit_ratio: throughput below this share of the arrivals shows overload.
    """
    if not rows:
        return _estimate("not_measurable", "no step was measured")
    if not usable(rows, ("step", "soak", "down")):
        return _estimate("not_measurable", _nothing(rows))
    if any(row["users"] for row in usable(rows)):
        return plateau(usable(rows))
    found = climb(rows)
    if not found.rows:
        return _only_soaks(rows)
    if all(row["ok"] == 0 and row["requests"] > row["pending"] for row in found.rows):
        return _estimate("not_measurable", "every request failed")
    worst = found.overloaded
    if worst is None:
        return _not_overloaded(found)
    if found.last_quiet is None and failing(worst) and not worst["deficit"]:
        share = percent(load_error_ratio(worst) or 0.0)
        return _estimate(
            "inconclusive", f"{share} of the requests fail at the lowest rate already: not a matter of load"
        )
    if found.last_quiet is not None and failing(worst) and _unreachable(worst):
        return _gone(worst, found.last_quiet, sustained(rows))
    return _overloaded(found, worst, rows, deficit_ratio)


def _nothing(rows: Sequence[Row]) -> str:
    """Why no row is usable."""
    if any(row["void"] for row in rows):
        return "the client could deliver no step"
    if any(load_requests(row) > 0 for row in rows):
        return "the first step was cut short"
    if any(row["requests"] for row in rows):
        return "every request failed, for reasons that do not depend on load"
    return "no request was due in any step"


def plateau(rows: Sequence[Row]) -> Estimate:
    """Closed loop: the throughput that more users no longer raise (less than 10 % for half as many again or more)."""
    steps = sorted((row for row in rows if row["users"]), key=lambda row: int(row["users"]))
    best = max(float(row["throughput_rps"]) for row in steps)
    if best <= 0.0:
        return _estimate("not_measurable", "every request failed")
    reached = next(row for row in steps if float(row["throughput_rps"]) >= best / 1.1)
    reading = read(reached, None)
    more = [row for row in steps if row["users"] >= 1.5 * reached["users"]]
    if not more:
        words = f"throughput still rises at {plural(steps[-1]['users'], 'user')}, the most tried"
        return _estimate("not_found_up_to", words, best)
    top = float(np.median([row["throughput_rps"] for row in [reached, *more]]))
    half = reading.log_half
    words = (
        f"more than {plural(reached['users'], 'user')} bring no more throughput (closed loop: they wait for each other)"
    )
    return Estimate("found", top, top * exp(-half), top * exp(half), "ceiling", words)


def fit(rates: Floats, throughputs: Floats, arrivals: Floats) -> float:
    """c that minimises sum sqrt(A_i) |ln X_i - ln min(r_i, c)|. The minimum lies at some X_i or r_i. Shapes (k,)."""
    candidates = np.concatenate((throughputs, rates))
    candidates = candidates[candidates > 0.0]
    logs = np.log(np.maximum(throughputs, 1e-9))
    costs = [float((np.sqrt(arrivals) * np.abs(logs - np.log(np.minimum(rates, c)))).sum()) for c in candidates]
    return float(candidates[int(np.argmin(costs))])


def read(row: Row, output_tokens_mean: float | None) -> Reading:
    """Throughput of one row in requests a second, with what is known of the prompts worked off.

    While a batch fills up prompts run ahead of answers, X below and first tokens F above what lasts. Their difference
    has mean zero in the long run, so ``X + a (F - X)`` estimates the same for every a; a in [0, 1] is what varies least
    over the ten blocks (a control variate). Standard error: twice that of the blocks' mean (a is fitted to the same
    blocks) or, where the engine's pace has regimes, that of the window's pace if larger; that of the mean answer; and a
    quarter of the correction.
    """
    scale = float(row["output_tokens_mean"] or 0.0) / output_tokens_mean if output_tokens_mean else 1.0
    plain = np.array(row["throughput_blocks"], dtype=np.float64) * scale
    if plain.mean() <= 0.0:
        return Reading(0.0, 0.0)
    ahead = np.array(row.get("first_token_blocks") or row["throughput_blocks"], dtype=np.float64) - plain
    spread = float(ahead.var(ddof=1))
    share = -float(np.cov(plain, ahead)[0, 1]) / spread if spread > 0.0 else 0.0
    blocks = plain + min(max(share, 0.0), 1.0) * ahead
    rate_rps = float(blocks.mean())
    of_blocks = 2.0 * float(blocks.std(ddof=1)) / sqrt(len(blocks)) / rate_rps
    n, answer = row["output_tokens_n"], float(row["output_tokens_mean"] or 0.0)
    of_answer = float(row["output_tokens_sd"] or 0.0) / answer / sqrt(n) if n and answer else 0.0
    corrected = log(rate_rps / float(plain.mean())) / 4.0
    times, of_pace = t_limit(10), float(row.get("pace_log_sd") or 0.0)
    half = max(times * of_blocks, float(stdtrit(row["pace_degrees"], 0.975)) * of_pace if of_pace else 0.0)
    return Reading(rate_rps, sqrt(half**2 + times**2 * (of_answer**2 + corrected**2)))


def corpus_output_tokens(rows: Sequence[Row]) -> float | None:
    """Mean output tokens of a request over all rows, weighted by how many requests each mean rests on."""
    known = [(row["output_tokens_mean"], row["output_tokens_n"]) for row in rows if row["output_tokens_mean"]]
    total = sum(n for _, n in known)
    return sum(mean * n for mean, n in known) / total if total else None


def sustained(rows: Sequence[Row]) -> float | None:
    """Highest rate that a soak has held quietly; of sessions, which may still have filled up, the rate that came."""
    held = [
        float(min(row["rate_rps"], row["arrival_rps"]) if row.get("sessions") else load_of(row))
        for row in usable(rows, ("soak",))
        if not (row["saturated"] or row["deficit"] or failing(row))
    ]
    return max(held, default=None)


def _overloaded(found: Climb, worst: Row, rows: Sequence[Row], deficit_ratio: float) -> Estimate:
    used = [*found.rows, *usable(rows, ("soak",))]
    mean = corpus_output_tokens(used)
    readings = [read(row, mean) for row in used]
    rates = np.array([load_arrival_rps(row) for row in used])
    throughputs = np.array([reading.rate_rps for reading in readings])
    arrivals = np.array([load_requests(row) for row in used], dtype=np.float64)
    quiet = found.last_quiet
    low_words = f"quiet up to {at(quiet)}" if quiet else "no quiet step below it"
    lagging = np.array([row["saturated"] and row["deficit"] for row in used])
    behind = (throughputs < deficit_ratio * rates) | lagging
    if not behind.any():
        return _only_errors(worst, quiet, sustained(rows))
    rate_rps = fit(rates, throughputs, arrivals)
    if rate_rps <= 0.0:
        return _estimate("not_measurable", f"{_failed(worst)} at {at(worst)}; {low_words}")
    apart = np.where(behind, np.abs(np.log(np.maximum(throughputs, 1e-9) / rate_rps)), np.inf)
    i = int(np.argmin(apart))
    half = readings[i].log_half
    status: EstimateStatus = "found" if quiet else "below_range"
    served = f"{throughputs[i]:.3g} of {rates[i]:.3g} req/s are served"
    words = "; ".join(
        [
            f"from {at(worst)} on {_signs(worst)}; {served}",
            low_words if quiet else "overloaded at the lowest rate: start lower",
            *_caveats(found, worst, rate_rps),
        ]
    )
    return Estimate(status, rate_rps, rate_rps * exp(-half), rate_rps * exp(half), "ceiling", words,
                    sustained_rps=sustained(rows))  # fmt: skip


def _only_soaks(rows: Sequence[Row]) -> Estimate:
    held = sustained(rows)
    if held is None:
        return _estimate("inconclusive", "no step was climbed, and no soak was quiet")
    words = f"{held:.3g} req/s held; no higher rate was tried"
    return Estimate("not_found_up_to", held, held, None, "ceiling", words, sustained_rps=held)


def _unreachable(row: Row) -> bool:
    """Nothing succeeded, or most of what failed found nobody listening."""
    return not row["ok"] or 2 * row["errors"].get("connect", 0) > sum(row["errors"].values())


def _gone(worst: Row, quiet: Row, sustained_rps: float | None) -> Estimate:
    """The endpoint broke down or went away above the quiet rates: what it served until then is no rate it sustains."""
    low, high = load_of(quiet), load_of(worst)
    words = f"{_failed(worst)} at {at(worst)}: it broke down or went away; quiet up to {at(quiet)}"
    return Estimate("inconclusive", None, low, high, "ceiling", words, sustained_rps=sustained_rps)


def _only_errors(worst: Row, quiet: Row | None, sustained_rps: float | None) -> Estimate:
    """Errors without a lack of throughput: the rate at which requests succeeded is the best there is to say."""
    succeeded = load_arrival_rps(worst) * (1.0 - (load_error_ratio(worst) or 0.0))
    low, high = load_of(quiet) if quiet else None, load_of(worst)
    words = f"{_failed(worst)} at {at(worst)}; " + (f"quiet up to {at(quiet)}" if quiet else "no quiet step")
    rate_rps = min(max(succeeded, low or 0.0), high)
    return Estimate("found", rate_rps, low, high, "ceiling", words, sustained_rps=sustained_rps)


def _not_overloaded(found: Climb) -> Estimate:
    quiet, above = found.last_quiet, found.above
    alarms = [row for row in above if row["saturated"]]
    if len(alarms) >= 2:
        words = f"saturated from {at(alarms[0])} on, but throughput still follows the load: go higher"
        low = load_of(quiet) if quiet else None
        return Estimate("inconclusive", None, low, None, "ceiling", words)
    if quiet is None:
        words = f"{_signs(above[-1])} at {at(above[-1])}, the only rates measured: not confirmed"
        return _estimate("inconclusive", words)
    rate_rps = load_of(quiet)
    words = f"quiet up to {at(quiet)}, the highest rate tried"
    if above:
        words = f"quiet up to {at(quiet)}; {_signs(above[-1])} at {load_of(above[-1]):.3g}, not confirmed"
    return Estimate("not_found_up_to", rate_rps, rate_rps, None, "ceiling", "; ".join([words, *_hiccups(found)]))


def _caveats(found: Climb, worst: Row, rate_rps: float) -> list[str]:
    out = _hiccups(found)
    if failing(worst):
        out.append(f"{_failed(worst)} there")
    quiet = found.last_quiet
    if quiet and rate_rps < 0.9 * load_arrival_rps(quiet):
        out.append(f"overload costs throughput: {load_arrival_rps(quiet):.3g} req/s were served before it")
    if load_requests(worst) < 490:
        out.append(f"{plural(load_requests(worst), 'arrival')} in that step; telling rates 10 % apart takes about 490")
    return out


def _hiccups(found: Climb) -> list[str]:
    return [f"an alarm at {at(row)} was not confirmed above it (hiccup)" for row in found.hiccups]


def _signs(row: Row) -> str:
    return " and ".join(SIGNS[name] for name in row["signals"]) or "throughput falls behind"


def _failed(row: Row) -> str:
    return f"{percent(load_error_ratio(row) or 0.0)} of the requests fail"


def _estimate(status: EstimateStatus, reason: str, rate_rps: float | None = None) -> Estimate:
    return Estimate(status, rate_rps, rate_rps, None, "ceiling", reason)
