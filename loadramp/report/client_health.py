"""Was the client itself on time: how late requests left, how late its loop was, how busy its processors. Pure."""

from collections.abc import Sequence

import numpy as np

from loadramp.record.table import Floats, Run
from loadramp.record.types import ClientSample
from loadramp.report import charts as c
from loadramp.report import rows as r
from loadramp.report.charts import Figure, Key
from loadramp.report.timeline import line
from loadramp.units import latency, percent


def client_section(run: Run) -> str | None:
    """Was the client itself on time: how late requests were sent, how late its loop was, how busy its processors."""
    words = "A load generator that is late measures itself. A step in which the client was late is void and never used."
    return c.chart_section("client", "The client", (_lag_panel(run), _health_panel(run)), words=words)


def _lag_panel(run: Run) -> Figure | None:
    steps = [row for row in r.rising_rows(run) if row.lag_p99_s is not None]
    if not any(row.lag_p99_s for row in steps):
        return None
    looks = (("p50", Key("p50", "--p50", symbol="circle")), ("p99", Key("p99", "--p99", dash="dot", symbol="diamond")))
    data, values = [], []
    for q, key in looks:
        y = [None if (v := row.number(f"lag_{q}_s")) is None else max(v, 1e-6) for row in steps]
        trace = c.over_load(key, steps, y, [f"{q} of lag {latency(v)}" for v in y])
        data.append(c.hollow_markers(trace, [bool(row.void) for row in steps]))
        values += y
    worst = max(steps, key=lambda row: row.lag_p99_s or 0.0)
    return Figure(
        title="Schedule lag: sent minus due",
        data=data,
        layout={"xaxis": c.load_axis(steps), "yaxis": c.value_axis(values)},
        words=f"How late requests left the client. Worst p99: {latency(worst.number('lag_p99_s'))} at "
        f"{r.label(worst)}. Hollow: void.",
        key=[key for _, key in looks],
    )


def _health_panel(run: Run) -> Figure | None:
    if not run.client:
        return None
    lag_key = Key("event loop lag, worst worker", "--p99", dash="dot")
    cpu_key = Key("processor share, busiest worker", "--p50")
    t_s, lag_s = _worst(run.client, "loop_lag_s")
    _, cpu = _worst(run.client, "cpu_ratio")
    lag, busy = line(lag_key, t_s, np.maximum(lag_s, 1e-6)), line(cpu_key, t_s, cpu)
    return Figure(
        title="Client: loop lag and processor share",
        data=[lag, {**busy, "yaxis": "y2"}],
        layout={
            "xaxis": {"title": {"text": "seconds since the run began"}, "anchor": "y2"},
            "yaxis": {**c.value_axis(np.maximum(lag_s, 1e-6)), "domain": [0.54, 1.0]},
            "yaxis2": {"domain": [0.0, 0.44], **c.share_axis(0, 1.08)},
        },
        words=f"Longest lateness of the client's own loop: {latency(float(lag_s.max()))}; "
        f"busiest second: {percent(float(cpu.max()))} of a processor.",
        key=[lag_key, cpu_key],
    )


def _worst(samples: Sequence[ClientSample], name: str) -> tuple[Floats, Floats]:
    """The highest value over workers in each second."""
    worst: dict[int, float] = {}
    for sample in samples:
        second = int(sample.t_s)
        worst[second] = max(worst.get(second, 0.0), getattr(sample, name))
    at = sorted(worst)
    return np.array(at, dtype=np.float64), np.array([worst[s] for s in at], dtype=np.float64)
