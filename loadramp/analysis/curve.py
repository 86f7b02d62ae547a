"""Records of one step to one row of the curve (columns: docs/format.md). Rule: a null has its reason beside it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from loadramp.analysis import latency, long_run, offered_load, saturation, server_window, steady_state, traffic_classes
from loadramp.analysis.checks.validity import void_reasons
from loadramp.analysis.error_classes import load_independent
from loadramp.analysis.latency import WindowView
from loadramp.analysis.load_errors import known_independent, load_error_ratio
from loadramp.analysis.quantiles import NOT_STATIONARY, Values, estimate, mean, median_of_known, quantile, quantile_name
from loadramp.analysis.throughput import falls_behind
from loadramp.record.row import Quantiles, Row, SloStatistic, Statistic
from loadramp.record.table import Floats, Table, within
from loadramp.record.types import ENDS, EVENTS, ClientSample, Sample, Step
from loadramp.scenario.scenario import Slo
from loadramp.units import percent

THROUGHPUT_BLOCKS = 10


def fold(
    step: Step,
    table: Table,
    *,
    samples: Sequence[Sample] = (),
    client: Sequence[ClientSample] = (),
    slo: Slo = Slo(),  # noqa: B008 (frozen)
    base_ttft_p50_s: float | None = None,
    output_tokens_mean: float | None = None,
    now_s: float | None = None,
    share: float = 1.0,
    gap_cv: float | None = 1.0,
    streamed: bool = True,
) -> Row:
    """One row of the curve.

    Args:
        step: the step; its window is cut at ``now_s`` when it was ended early.
        table: all records of the run so far, unfinished requests included (status ``in_flight``, events so far).
        samples, client: the server's and the client's own health, of the whole run or of this step.
        slo: what a good answer is; each of its limits gets a ``slo_{metric}_s`` column.
        base_ttft_p50_s: median TTFT of the first step, which the queue signal scales with; None: of this step.
        output_tokens_mean: mean output tokens of a request of the corpus, if it is known.
        now_s: the instant up to which the data reaches; None: the end of the data.
        share: of the asked rate that the arrival process offers in the window on average.
        gap_cv: coefficient of variation of the gaps between arrivals; None: not known, as seen, at least 1.
        streamed: False: answers come whole; what only a stream can tell is null.
    """
    begin_s, end_s = step.window_s
    window_s = (begin_s, end_s if now_s is None else max(min(end_s, now_s), begin_s))
    window = latency.window_view(table, window_s, now_s)
    load = table.select(~known_independent(table, window_s[1]))
    row = _lags(counts(_head(step, window_s), window.due), window.due)
    row = _throughput(row, step, window, table, load, output_tokens_mean)
    row = server_window.with_server(row, samples)
    row = _load(row, step, window, load, samples, base_ttft_p50_s)
    row = _latencies(row, window, slo)
    row = replace(
        row,
        classes=traffic_classes.by_class(window, slo, row.stationary) or None,
        sessions=traffic_classes.sessions(table, window.window_s),
    )
    void = void_reasons(
        step, window.due, client, ttft_p50_s=_ttft_by_s(window.due, end_s), itl_p50_s=row.of("itl").p50.value or 0.0
    )
    load_rps = offered_load.load_of_step(row, window.due.due_s, share=share, gap_cv=gap_cv)
    row = replace(row, load_rps=load_rps, void=tuple(void))
    if not streamed:
        row = replace(latency.without_stream(row), began_with_backlog=False)  # who waits and who is served: not known
    return latency.without_gaps(row) if row.token_source == ENDS else row


def _head(step: Step, window_s: tuple[float, float]) -> Row:
    return Row(
        step=step.index,
        role=step.role,
        rate_rps=step.rate_rps,
        users=step.users,
        partial=step.partial,
        begin_s=step.begin_s,
        window_begin_s=window_s[0],
        window_end_s=window_s[1],
    )


def _latencies(row: Row, window: WindowView, slo: Slo) -> Row:
    """With every latency, what tells of the pace, and how the SLO is kept."""
    pace_s, slow_times_s = long_run.pace_of_window(window)  # first: it takes as much memory as all that follows
    pooled = latency.families(window)
    families: dict[str, Quantiles] = {}
    reasons: latency.Reasons = {}
    of_gaps = mean(pooled["gap"], row.stationary)
    for name, data in pooled.items():
        known = of_gaps if data.values is pooled["gap"].values else None  # most events bring one token
        families[name], why = latency.statistics(name, data, row.stationary, known)
        reasons |= why
    of_all, why = latency.everyone(window, row.stationary)
    row, why_stalls = latency.stalls(row, window, pooled["gap"])
    row, why_slo = _slo(row, window, pooled, slo)
    reasons |= why | why_stalls | why_slo
    if not row.stationary:
        reasons["stationary"] = f"{NOT_STATIONARY} ({', '.join(row.signals)})"
    return replace(
        row,
        latency=families | of_all,
        pace_s=pace_s,
        slow_times_s=slow_times_s,
        prefill_share=prefill_share(window, pooled["gap"]),
        reasons=reasons,
    )


def prefill_share(window: WindowView, gaps: Values) -> float | None:
    """Share of the p99 excess (time above the median in gaps of at least p99) that prefills explain.

    A gap counts when another request's first token arrives within max(1.5 ms, 0.3 medians) of its end, or when a
    prompt of 1024 tokens or more was between sending and first token at its middle. None under 100 gaps.
    """
    if len(gaps) < 100:
        return None
    median_s, p99_s = quantile(gaps.ordered, 0.5), quantile(gaps.ordered, 0.99)
    top = window.gaps.gap_s >= p99_s
    end_s, gap_s = window.gaps.end_s[top], window.gaps.gap_s[top]
    excess_s = gap_s - median_s
    total_s = float(excess_s.sum())
    if total_s <= 0.0:
        return 0.0
    first_s = window.near.first_s
    known = np.sort(first_s[~np.isnan(first_s)])
    reach_s = max(0.0015, 0.3 * median_s)
    close = np.searchsorted(known, end_s + reach_s, "right") > np.searchsorted(known, end_s - reach_s, "left")
    tokens = window.near.input_tokens
    big = (tokens >= 1024) & ~np.isnan(window.near.sent_s)
    middle_s = end_s - gap_s / 2.0
    sent = np.searchsorted(np.sort(window.near.sent_s[big]), middle_s)
    begun = np.searchsorted(np.sort(np.nan_to_num(first_s[big], nan=np.inf)), middle_s)
    return float(excess_s[close | (sent > begun)].sum()) / total_s


def mean_output_tokens(table: Table, begin_s: float, until_s: float) -> tuple[float | None, float, int]:
    """Mean output tokens of the requests due in ``[begin_s, until_s)``, their standard deviation and number.

    The mean of what was asked, times received / asked of all that finished: taking the finished alone would favour
    short answers. Where the asked length is not known, the mean of all that finished so far.
    """
    received = table.received
    done = (table.due_s < until_s) & table.ok & (received > 0)
    if not done.any():
        return None, 0.0, 0
    asked = table.asked_output_tokens
    due = within(table.due_s, (begin_s, until_s))
    if not due.any() or np.isnan(asked[due | done]).any() or asked[done].sum() <= 0.0:
        return float(received[done].mean()), _sd(received[done]), int(np.count_nonzero(done))
    kept = float(received[done].sum() / asked[done].sum())
    return float(asked[due].mean()) * kept, _sd(asked[due]) * kept, int(np.count_nonzero(due))


def counts(row: Row, due: Table) -> Row:
    """How many of the requests ended, and how. It grows while requests of the step are still in flight."""
    failed = due.failed
    kinds = [error or status for error, status in zip(due.error[failed], due.status[failed], strict=True)]
    pending = int(np.count_nonzero(due.in_flight))
    ended = len(due) - pending
    malformed = int(np.count_nonzero((due.malformed_events > 0) & ~due.in_flight))
    row = replace(
        row,
        requests=len(due),
        ok=int(np.count_nonzero(due.ok)),
        pending=pending,
        malformed_events=int(due.malformed_events.sum()),
        malformed_answers=malformed,
        malformed_ratio=malformed / ended if ended else None,
        errors=dict(Counter(map(str, kinds))),
        error_ratio=int(np.count_nonzero(failed)) / ended if ended else None,
        load_independent_errors=int(np.count_nonzero(load_independent(due))),
    )
    return replace(row, load_error_ratio=load_error_ratio(row))


def _lags(row: Row, due: Table) -> Row:
    lag_s = np.sort(due.lag_s[~np.isnan(due.lag_s)])
    sources = Counter(str(source) for source in due.token_source[due.ok] if source)
    return replace(
        row,
        lag_p50_s=quantile(lag_s, 0.5) if len(lag_s) else None,
        lag_p99_s=quantile(lag_s, 0.99) if len(lag_s) else None,
        token_source=sources.most_common(1)[0][0] if sources else None,
    )


def _throughput(
    row: Row, step: Step, window: WindowView, table: Table, load: Table, output_tokens_mean: float | None
) -> Row:
    end_s, length_s = window.window_s[1], window.length_s
    sent, finished = within(table.sent_s, window.window_s), table.ok & within(table.stream_end_s, window.window_s)
    prompt = window.due.input_tokens
    mean, sd, n = mean_output_tokens(load, step.begin_s, end_s)
    if output_tokens_mean is not None:  # the corpus is known: no error from estimating it
        mean, sd = output_tokens_mean, 0.0
    seconds = max(1, int(length_s + 1e-9))
    blocks, by_second = window.arrivals(THROUGHPUT_BLOCKS, seconds)
    per_block = length_s / THROUGHPUT_BLOCKS * mean if mean else None
    return replace(
        row,
        arrival_rps=len(window.due) / length_s,
        sent_rps=int(np.count_nonzero(sent)) / length_s,
        done_rps=int(np.count_nonzero(finished)) / length_s,
        throughput_rps=float(blocks.sum()) / length_s / mean if mean else 0.0,
        throughput_blocks=[float(b) / per_block for b in blocks] if per_block else [0.0] * THROUGHPUT_BLOCKS,
        first_token_blocks=_first_token_blocks(window, prompt),
        output_tokens_mean=mean,
        output_tokens_sd=sd,
        output_tokens_n=n,
        input_tokens_per_s=float(np.nansum(prompt)) / length_s,
        output_tokens_per_s=float(by_second.sum()) / length_s,
        peak_output_tokens_per_s=float(by_second.max()) * seconds / length_s,  # bins of a second that fill the window
    )


def _first_token_blocks(window: WindowView, prompt: Floats) -> list[float]:
    """Prompts worked off in each tenth of the window, in requests a second: first tokens weighted by prompt length."""
    tokens = window.near.input_tokens
    mean = float(np.nanmean(prompt)) if len(prompt) and not np.isnan(prompt).all() else 0.0
    weights = np.nan_to_num(tokens) / mean if mean > 0.0 else np.ones(len(tokens))
    at = (window.near.first_s - window.window_s[0]) * (THROUGHPUT_BLOCKS / window.length_s)
    inside = (at >= 0.0) & (at < THROUGHPUT_BLOCKS)
    counts = np.bincount(at[inside].astype(np.int64), weights=weights[inside], minlength=THROUGHPUT_BLOCKS)
    return [float(count) * THROUGHPUT_BLOCKS / window.length_s for count in counts]


def _load(
    row: Row, step: Step, window: WindowView, table: Table, samples: Sequence[Sample], base_ttft_p50_s: float | None
) -> Row:
    """Occupancy, the signals of saturation, and whether the window had settled. ``table`` is without the requests that
    failed whatever the load: they were no load."""
    window_s = window.window_s
    load = saturation.occupancy(table, window_s)
    due_s = table.due_s[within(table.due_s, window_s)]
    rate_rps, arrivals = len(due_s) / window.length_s, len(due_s)
    base_s = median_of_known(window.due.ttft_s) if base_ttft_p50_s is None else base_ttft_p50_s
    signs = [
        saturation.queue(load, rate_rps, base_s),
        saturation.backlog(load, rate_rps, arrivals),
        saturation.ttft_trend(table, window_s),
        saturation.server_queue(samples, window_s, load.third(2)),
    ]
    if step.users is not None:  # closed loop: the number in flight is set, not suffered
        signs = [sign for sign in signs if sign.name != "backlog"]
    names = [sign.name for sign in signs if sign.fired]
    edge = saturation.in_flight_at(table, np.array(window_s))
    begun = steady_state.began_with_backlog(table, step.begin_s)
    settled = steady_state.settled(load, window.due.e2e_s[window.due.ok], window_s[0] - step.begin_s)
    cv = saturation.variation(due_s)
    behind = saturation.deficit(row.throughput_rps, rate_rps, window.length_s, cv)
    behind = behind or falls_behind(row, names, rate_rps, window.length_s, cv)
    return replace(
        row,
        in_flight_begin=float(edge[0]),
        in_flight_end=float(edge[1]),
        in_flight_mean=float(load.in_flight.mean()),
        in_flight_max=float(max(load.in_flight.max(), *edge)),
        queue_first_third=load.third(0),
        queue_last_third=load.third(2),
        saturated=bool(names),
        deficit=behind,
        signals=names,
        evidence={sign.name: dict(sign.figures) for sign in signs},
        began_with_backlog=begun,
        settled=settled,
        stationary=not names,
    )


def _slo(row: Row, window: WindowView, pooled: Mapping[str, Values], slo: Slo) -> tuple[Row, latency.Reasons]:
    fine, decided, unknown = latency.good(window, slo)
    reasons: latency.Reasons = {} if decided else {"good_ratio": "no request of this window has ended"}
    if unknown:
        between = f"between {percent(fine / decided)} and {percent((fine + unknown) / decided)} are good"
        reasons = dict.fromkeys(("good_ratio", "good_rps"), f"{latency.BY_EVENTS}: {between}")
    kept: dict[str, SloStatistic] = {}
    for metric, limit_s in slo.limits.items():
        by_events = metric == "itl" and bool((window.near.token_source == EVENTS).any())
        data = latency.itl_at_worst(window, limit_s) if by_events else pooled[metric]
        measured = estimate(data, slo.quantile, row.stationary)
        figure = Statistic(measured.value, measured.low, measured.high, measured.log_se)
        kept[metric] = SloStatistic(figure, np.count_nonzero(data.values > limit_s) / len(data) if len(data) else None)
        if measured.value is None:
            reasons[f"slo_{metric}_s"] = f"{quantile_name(slo.quantile)}: {measured.reason}"
    good_ratio = fine / decided if decided and not unknown else None
    good_rps = None if unknown else fine / window.length_s
    return replace(row, good_ratio=good_ratio, good_rps=good_rps, good_n=decided, slo=kept), reasons


def _sd(values: Floats) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _ttft_by_s(due: Table, end_s: float) -> float:
    """Median TTFT of the requests that had a first token by ``end_s``: what is known when the step ends."""
    return median_of_known(due.ttft_s[due.due_s + due.ttft_s <= end_s])
