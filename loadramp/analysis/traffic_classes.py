"""One step by class of traffic, by model and by turn; and how its sessions went. Rule: a null has its reason beside it.

A class is judged as the whole step is: the same windows, the same refusal of a percentile that its sample cannot carry.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from loadramp.analysis import latency
from loadramp.analysis.latency import WindowView
from loadramp.analysis.quantiles import estimate, mean_of_known, quantile, quantile_name
from loadramp.record.row import ClassFigures
from loadramp.record.table import Bools, Floats, Ints, Table, within
from loadramp.scenario.scenario import Slo

MOST_CLASSES = 24
LAST_TURN = 8
"""Turns from here on are one class."""
FIGURES = (("ttft", (0.5, 0.99)), ("itl", (0.5, 0.99)), ("e2e", (0.5, 0.99)))
OTHERS = "(others)"
UNNAMED = "(none)"


def by_class(window: WindowView, slo: Slo, stationary: bool = True) -> dict[str, dict[str, ClassFigures]]:
    """``label``, ``model`` and ``turn`` to name to figures; a kind of which there is only one name is left out.

    Args:
        window: the step's.
        slo: what a good answer is.
        stationary: False: no intervals were given for the step either.
    """
    near = window.near
    by_kind: dict[str, dict[str, ClassFigures]] = {}
    for kind, values in (("label", near.label), ("model", near.model), ("turn", near.turn)):
        if len(set(values.tolist())) < 2:
            continue
        names = _turns(near.turn) if kind == "turn" else _named(values.tolist())
        known = sorted(set(names))
        if len(known) > 1:
            column = np.array(names, dtype=object)
            by_kind[kind] = {name: _figures(_part(window, column == name), slo, stationary) for name in known}
    return by_kind


def sessions(table: Table, window_s: tuple[float, float]) -> dict[str, float | int | None] | None:
    """How the sessions that began in the window went; None where there are none at all.

    ``started``; ``ended`` with their last turn answered; ``broken`` by a failed turn; ``open``: neither, yet. Times are
    of those that ended, in seconds: ``duration`` from the first request's due time to the end of the last answer,
    pauses included; ``answering`` without them.
    """
    rows = np.flatnonzero(~np.isnan(table.session))
    if not len(rows):
        return None
    ids, place = np.unique(table.session[rows], return_inverse=True)
    n = len(ids)
    begin_s = np.full(n, np.inf)
    opening = table.turn[rows] == 0
    np.minimum.at(begin_s, place[opening], table.due_s[rows][opening])
    ours = within(begin_s, window_s)
    ok, done_s = table.ok[rows], table.done_s[rows]
    last = ok & (table.turn[rows] == table.turns[rows] - 1)
    ended, broken = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
    ended[place[last]] = True
    broken[place[table.failed[rows]]] = True
    end_s, answering_s, turns = np.full(n, -np.inf), np.zeros(n), np.zeros(n)
    np.maximum.at(end_s, place[ok], done_s[ok])
    np.add.at(answering_s, place[ok], (done_s - table.due_s[rows])[ok])
    np.add.at(turns, place[ok], 1)
    whole = ours & ended
    return {
        "started": int(np.count_nonzero(ours)),
        "ended": int(np.count_nonzero(whole)),
        "broken": int(np.count_nonzero(ours & broken & ~ended)),
        "open": int(np.count_nonzero(ours & ~broken & ~ended)),
        "turns_mean": float(turns[ours].mean()) if ours.any() else None,
        **_spread("duration", (end_s - begin_s)[whole]),
        **_spread("answering", answering_s[whole]),
    }


def _spread(name: str, values: Floats) -> dict[str, float | None]:
    ordered = np.sort(values)
    return {f"{name}_{quantile_name(q)}_s": quantile(ordered, q) if len(ordered) else None for q in (0.5, 0.9)}


def _named(names: Sequence[str]) -> list[str]:
    """The commonest names, the others together."""
    kept = {name: name or UNNAMED for name, _ in Counter(names).most_common(MOST_CLASSES)}
    return [kept.get(name, OTHERS) for name in names]


def _turns(turn: Ints) -> list[str]:
    """``1``, ``2``, ...; a request outside a session is a first turn."""
    return [f"{t}+" if t == LAST_TURN else str(t) for t in np.minimum(turn + 1, LAST_TURN).tolist()]


def _part(window: WindowView, keep: Bools) -> WindowView:
    return latency.window_view(window.near.select(np.asarray(keep, dtype=np.bool_)), window.window_s, window.now_s)


def _figures(window: WindowView, slo: Slo, stationary: bool) -> ClassFigures:
    due = window.due
    failed = int(np.count_nonzero(due.failed))
    ended = len(due) - int(np.count_nonzero(due.in_flight))
    fine, decided, unknown = latency.good(window, slo)
    latencies: dict[str, float | None] = {}
    reasons: dict[str, str] = {"good_ratio": latency.BY_EVENTS} if unknown else {}
    pooled = latency.families(window)
    for name, quantiles in FIGURES:
        for level in quantiles:
            column = f"{name}_{quantile_name(level)}_s"
            figure = estimate(pooled[name], level, stationary)
            latencies[column] = figure.value
            if figure.value is None:
                reasons[column] = figure.reason
    return ClassFigures(
        requests=len(due),
        ok=int(np.count_nonzero(due.ok)),
        error_ratio=failed / ended if ended else None,
        arrival_rps=len(due) / window.length_s,
        input_tokens_mean=mean_of_known(due.input_tokens),
        output_tokens_mean=mean_of_known(due.output_tokens[due.ok]),
        good_ratio=fine / decided if decided and not unknown else None,
        latency=latencies,
        reasons=reasons,
    )
