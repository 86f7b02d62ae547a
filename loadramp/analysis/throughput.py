"""How many requests a second a step served, with its error, and the capacity that explains several of them. Pure.

Formulas: docs/method.md, "Signals" and "Ceiling".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

import numpy as np
from scipy.special import stdtrit

from loadramp.analysis.quantiles import t_limit
from loadramp.analysis.saturation import short_of
from loadramp.record.row import Row
from loadramp.record.table import Floats

BEHIND_RATIO = 0.95
"""A smaller lack of throughput is no overload, however certain it is."""


@dataclass(slots=True, frozen=True)
class Reading:
    """The throughput of one row, req/s, and the half-width of its 95 % interval on the log scale."""

    rate_rps: float
    log_half: float


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
    scale = (row.output_tokens_mean or 0.0) / output_tokens_mean if output_tokens_mean else 1.0
    plain = np.array(row.throughput_blocks, dtype=np.float64) * scale
    if plain.mean() <= 0.0:
        return Reading(0.0, 0.0)
    ahead = np.array(row.first_token_blocks or row.throughput_blocks, dtype=np.float64) - plain
    spread = float(ahead.var(ddof=1))
    share = -float(np.cov(plain, ahead)[0, 1]) / spread if spread > 0.0 else 0.0
    blocks = plain + min(max(share, 0.0), 1.0) * ahead
    rate_rps = float(blocks.mean())
    of_blocks = 2.0 * float(blocks.std(ddof=1)) / sqrt(len(blocks)) / rate_rps
    n, answer = row.output_tokens_n, (row.output_tokens_mean or 0.0)
    of_answer = row.output_tokens_sd / answer / sqrt(n) if n and answer else 0.0
    corrected = log(rate_rps / float(plain.mean())) / 4.0
    times, of_pace = t_limit(10), row.pace_log_sd or 0.0
    half = max(
        times * of_blocks, float(stdtrit(row.pace_degrees, 0.975)) * of_pace if of_pace and row.pace_degrees else 0.0
    )
    return Reading(rate_rps, sqrt(half**2 + times**2 * (of_answer**2 + corrected**2)))


def corpus_output_tokens(rows: Sequence[Row]) -> float | None:
    """Mean output tokens of a request over all rows, weighted by how many requests each mean rests on."""
    known = [(row.output_tokens_mean, row.output_tokens_n) for row in rows if row.output_tokens_mean]
    total = sum(n for _, n in known)
    return sum(mean * n for mean, n in known) / total if total else None


def falls_behind(row: Row, signals: Sequence[str], rate_rps: float, length_s: float, gap_cv: float = 1.0) -> bool:
    """A queue grows outside the batch, and the 95 % interval of the throughput is wholly below what was due.

    The interval is narrower than the margin of ``saturation.deficit``, which allows for a batch that fills up: there
    answers lag behind arrivals although the endpoint will keep up. A queue outside the batch rules that out.

    Args:
        row: the columns of its throughput and of its answers.
        signals: those that fired.
        rate_rps: requests a second that were due.
        length_s: of the window.
        gap_cv: coefficient of variation of the gaps between arrivals.
    """
    if not {"queue", "server_queue"} & set(signals):
        return False
    reading = read(row, None)
    most_rps = reading.rate_rps * exp(reading.log_half)
    clear = most_rps < rate_rps and reading.rate_rps < BEHIND_RATIO * rate_rps
    return clear and short_of(reading.rate_rps, rate_rps, length_s, gap_cv)
