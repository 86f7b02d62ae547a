"""Could the client deliver this step? Each rule that fails makes the step void: what it shows is the client.

Formulas: docs/method.md, "Client-limited". What happened after the step's end has no say, so a step is judged the same
while the run goes on and from its files.
"""

from collections.abc import Sequence
from math import ceil

import numpy as np

from loadramp.analysis.quantiles import median_of_known, quantile
from loadramp.record.row import Void
from loadramp.record.table import Floats, Table
from loadramp.record.types import ClientSample, Step
from loadramp.units import agreed, latency, percent, plural

LAG_S = 0.010
LATE_REQUESTS = 3
"""Fewer late ones are a hiccup: among 30 requests the p99 is the latest of them, and one does not bend a step."""
LOOP_LAG_S = 0.005
CPU_RATIO = 0.7
COMFORTABLE_RATIO = 0.5
"""Of a core; a worker above it is warned of."""
SENT_RATIO = 0.98
SPARE_S = 0.1
"""A request due so shortly before the end of its step need not have left by then."""
PARSED_RATIO = 0.01
"""Requests with the client's parsing in their times: fewer do not reach a p99."""
PARSING = "ask for shorter or streamed answers, or see what the server sends (loadramp probe)"
MORE_ROOM = "raise max_in_flight, or where it is not set the limit on open files (ulimit -n)"
RESTART = "see the worker's log, start the run again"
LEAST_FAILED = 5
"""All of five failed: more than half of all requests do (exact one-sided limit at 5 %: 55 %)."""
LAGS_A_LIMIT = 10.0
"""A time limit so many times the loop's lag ran out because of the server."""
TICKS = 50
"""Ticks of the loop-lag ticker in one client sample (20 ms)."""


def void_reasons(
    step: Step,
    table: Table,
    client: Sequence[ClientSample],
    *,
    ttft_p50_s: float | None = None,
    itl_p50_s: float | None = None,
) -> list[Void]:
    """Why the client, not the server, shaped this step; empty when it did not.

    Args:
        step: which window.
        table: records of the run so far.
        client: one sample a worker and second.
        ttft_p50_s, itl_p50_s: medians that the allowances scale with; None: from the records of the window.
    """
    begin_s, end_s = step.window_s
    due = table.due_in(step.window_s)
    inside = [s for s in client if begin_s <= s.t_s <= end_s]
    if all_failed_at_the_server(due, inside, end_s):
        return []
    ttft_p50_s = median_of_known(due.ttft_s) if ttft_p50_s is None else ttft_p50_s
    if itl_p50_s is None:
        itl_p50_s = median_of_known(due.gaps().gap_s)
    slow = MORE_ROOM if due.out_of_room else _slow(inside)
    judged = {
        "late": (_late(due, end_s, ttft_p50_s), slow),
        "not_sent": (_not_sent(due, end_s), slow),
        "loop_lag": (_loop_lag(inside, itl_p50_s), slow),
        "cpu": (_cpu(inside), slow),
        "late_reads": (_late_reads(inside), slow),
        "parsing": (_parsing(due), PARSING),
        "not_random": (_not_random(due, end_s) if step.users is None else "", slow),
        "held": (_held(inside), "raise the cap or end the ramp earlier"),
        "silent": (_dead(inside, begin_s, end_s), RESTART),
    }
    return [Void(what, cure, rule) for rule, (what, cure) in judged.items() if what]


def all_failed_at_the_server(due: Table, samples: Sequence[ClientSample], end_s: float) -> bool:
    """Nothing was answered by ``end_s``, and most requests had failed of what no slow client makes: refused, broken
    off, an error of the server, or a time limit far above the loop's lag. That the server failed them holds however
    late they left; there are no latencies that the client could have bent."""
    if np.any(due.first_s[due.ok | due.in_flight] <= end_s) or np.any(due.ok & (due.done_s <= end_s)):
        return False
    lag_s = max((s.loop_lag_s for s in samples), default=0.0)
    timed_out = np.char.startswith(due.error.astype(str), "timeout")
    by_client = (due.error.astype(str) == "client") | (timed_out & (due.done_s - due.due_s < LAGS_A_LIMIT * lag_s))
    failed = int(np.count_nonzero(due.failed & (due.done_s <= end_s) & ~by_client))
    return failed >= max(LEAST_FAILED, len(due) / 2)


def workers_needed(samples: Sequence[ClientSample]) -> int:
    """How many workers would carry what these carried at half of a core each; at least one more than there are."""
    workers = len({s.worker for s in samples}) or 1
    return max(workers + 1, ceil(workers * cpu_ratio(samples) / COMFORTABLE_RATIO))


def _slow(samples: Sequence[ClientSample]) -> str:
    if samples and cpu_ratio(samples) <= CPU_RATIO:  # more workers help only a client that lacks CPU
        return (
            f"the client used only {percent(cpu_ratio(samples))} of a core, so the machine was probably busy with "
            "something else: use a quieter machine"
        )
    n = workers_needed(samples)
    return (
        f"the client is too slow for this rate: use {plural(n, 'worker')} (--set fleet.workers={n}) or a quieter "
        f"machine"
    )


def _left_s(due: Table) -> Floats:
    """When each request left the client: what connecting took is the server's and the network's. NaN: not yet."""
    return np.asarray(due.sent_s - np.nan_to_num(due.connect_s))


def pacing_lag_s(due: Table) -> Floats:
    """How late each request was, without the time spent on connecting, which is the server's and the network's."""
    lag_s = due.lag_s - np.nan_to_num(due.connect_s)
    return np.asarray(lag_s[~np.isnan(lag_s)])


def loop_lag_p99_s(samples: Sequence[ClientSample]) -> float:
    """p99 of the loop's lag over ticks, from the largest of each second: the largest of 50 ticks stays below the
    p99 of one tick with probability 0.99 ** 50 = 0.605."""
    worst = [
        quantile(np.sort([s.loop_lag_s for s in samples if s.worker == worker]), 0.99**TICKS)
        for worker in {s.worker for s in samples}
    ]
    return max(worst, default=0.0)


def cpu_ratio(samples: Sequence[ClientSample]) -> float:
    """Mean CPU share of the busiest worker."""
    workers = {s.worker for s in samples}
    return max((float(np.mean([s.cpu_ratio for s in samples if s.worker == w])) for w in workers), default=0.0)


def anderson_darling(gaps_s: Floats) -> float:
    """Anderson-Darling statistic for exponential gaps of unknown mean, corrected for n (Stephens 1974).

    1.341 is exceeded by 5 %, 2.98 by 0.1 % of Poisson samples.
    """
    n = len(gaps_s)
    u = -np.expm1(-np.sort(gaps_s) / gaps_s.mean())
    u = np.clip(u, 1e-12, 1.0 - 1e-12)
    weight = 2.0 * np.arange(1, n + 1) - 1.0
    a2 = -n - float(np.sum(weight * (np.log(u) + np.log1p(-u[::-1])))) / n
    return a2 * (1.0 + 0.6 / n)


def _late(due: Table, end_s: float, ttft_p50_s: float) -> str:
    lag_s = np.sort(lag_by_s(due, end_s))
    if len(lag_s) == 0:
        return ""
    p99_s, allowed_s = quantile(lag_s, 0.99), max(LAG_S, 0.1 * ttft_p50_s)
    if p99_s <= allowed_s or np.count_nonzero(lag_s > allowed_s) < LATE_REQUESTS:
        return ""
    return f"requests left late: p99 of the lag {latency(p99_s)} (allowed {latency(allowed_s)})"


def lag_by_s(due: Table, end_s: float) -> Floats:
    """How late each request was at ``end_s``, the end of its step: what left later is as late as it was by then."""
    left_s, over_s = _left_s(due), np.where(due.failed, due.stream_end_s, np.inf)
    waited = np.isnan(left_s) & np.isnan(due.connect_s) & (over_s > end_s)
    lag_s = np.minimum(np.where(waited, end_s, left_s), end_s) - due.due_s
    return np.asarray(lag_s[~np.isnan(lag_s)])


def _not_sent(due: Table, end_s: float) -> str:
    refused = np.isin(due.error.astype(str), ("connect", "tls"))
    of_client = due.error.astype(str) == "client"  # no file or port left for a connection
    connecting = np.isnan(due.sent_s) & ~np.isnan(due.connect_s) & ~of_client
    in_time = (_left_s(due) <= end_s) | (due.due_s > end_s - SPARE_S) | refused | connecting
    missing = len(due) - int(np.count_nonzero(in_time))
    if missing < 2 or missing <= (1.0 - SENT_RATIO) * len(due):
        return ""
    allowed = percent(1.0 - SENT_RATIO)
    return (
        f"{missing} of {plural(len(due), 'planned request')} {agreed(missing, 'were')} not sent within the step "
        f"(allowed {allowed})"
    )


def _loop_lag(samples: Sequence[ClientSample], itl_p50_s: float) -> str:
    lag_s, allowed_s = loop_lag_p99_s(samples), max(LOOP_LAG_S, 0.25 * itl_p50_s)
    if lag_s <= allowed_s:
        return ""
    lagged = f"p99 {latency(lag_s)} (allowed {latency(allowed_s)})"
    return f"the client's event loop lagged: {lagged}, so latencies include it"


def _cpu(samples: Sequence[ClientSample]) -> str:
    ratio = cpu_ratio(samples)
    if ratio <= CPU_RATIO:
        return ""
    return f"a client process used {percent(ratio)} of a core (allowed {percent(CPU_RATIO)})"


def _held(samples: Sequence[ClientSample]) -> str:
    held = sum(s.held for s in samples)
    if not held:
        return ""
    return f"{plural(held, 'request', 'were')} held back by max_rps or max_in_flight"


def _late_reads(samples: Sequence[ClientSample]) -> str:
    late, tokens = sum(s.late_reads for s in samples), sum(s.tokens for s in samples)
    if late < 10 or late <= 0.01 * max(tokens, 1):
        return ""
    return f"{plural(late, 'read')} came more than 5 ms after the data, so gaps were merged before they were stamped"


def _parsing(due: Table) -> str:
    late = int(np.count_nonzero(due.parsed_late))
    if late <= PARSED_RATIO * len(due):
        return ""
    return f"the client was busy parsing while {late} of {plural(len(due), 'answer')} came, so their times include it"


def _dead(samples: Sequence[ClientSample], begin_s: float, end_s: float) -> str:
    latest = {s.worker: 0.0 for s in samples}
    for s in samples:
        latest[s.worker] = max(latest[s.worker], s.t_s)
    if not latest:
        return ""
    alive_s = min(max(latest.values()), end_s)
    dead = sorted(worker for worker, t_s in latest.items() if t_s < alive_s - 3.0)
    if not dead:
        return ""
    return f"worker {', '.join(map(str, dead))} fell silent in this step"


def _not_random(due: Table, end_s: float) -> str:
    """The plan's gaps look exponential and those sent do not, and by more than a trifle."""
    left = due.sent_s <= end_s  # where the server took no connection, that is not the client's doing
    sent_s, due_s = np.sort(due.sent_s[left]), np.sort(due.due_s[left])
    if len(sent_s) < 100 or len(due_s) < 100:
        return ""
    sent, planned = np.diff(sent_s), np.diff(due_s)
    if planned.mean() <= 0 or sent.mean() <= 0 or anderson_darling(planned) > 1.341 or anderson_darling(sent) < 2.98:
        return ""
    grid = np.concatenate((sent, planned))
    apart = np.searchsorted(np.sort(sent), grid, "right") / len(sent)
    apart = np.abs(apart - np.searchsorted(np.sort(planned), grid, "right") / len(planned)).max()
    if apart < 0.05:
        return ""
    return "requests left in bunches, not at random as planned (Anderson-Darling p < 0.001)"
