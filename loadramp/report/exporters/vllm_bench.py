"""The JSON that ``vllm bench serve --save-result --save-detailed`` leaves, one file a step. Pure.

Its definitions are kept: latencies count from when a request was *sent*, milliseconds, ITL per event. A percentile that
the step cannot carry is null there as everywhere else.
"""

from typing import Any

import numpy as np

from loadramp.record.row import Row
from loadramp.record.table import Floats, Run, Table
from loadramp.report.exporters.points import Files, began_at, document, identity
from loadramp.units import sig

QUANTILES = ("p50", "p90", "p95", "p99")
NAMES = {"ttft": "sent_ttft", "tpot": "tpot", "itl": "gap", "e2el": "e2e"}
"""Its latencies and the columns that are meant by them."""
BACKENDS = {"chat": "openai-chat", "completions": "openai", "responses": "openai-responses"}
"""What it calls ``[target] api``; the last one it does not have."""


def vllm_bench(run: Run) -> Files:
    """``<rate>qps-step<step>.json`` for every step that was measured."""
    usable = [row for row in run.rows if not row.void and row.requests]
    return {f"{sig(row.load).replace(',', '')}qps-step{row.step}.json": document(result(run, row), indent=None)
            for row in usable}  # fmt: skip


def result(run: Run, row: Row) -> dict[str, Any]:
    """The document of one step."""
    facts, began = identity(run), began_at(run)
    due = run.table.due_in(*row.measured_windows)
    duration_s = float(sum(end_s - begin_s for begin_s, end_s in row.measured_windows))
    backend = BACKENDS.get(run.scenario.target.api, "openai-chat")
    prompt = np.nan_to_num(due.input_tokens)
    output = np.where(due.ok, np.nan_to_num(due.output_tokens), 0.0)
    totals = int(prompt[due.ok].sum()), int(output.sum())
    document: dict[str, Any] = {
        "date": began.strftime("%Y%m%d-%H%M%S") if began else None,
        "endpoint_type": backend,
        "backend": backend,
        "label": facts.get("scenario"),
        "model_id": facts.get("model"),
        "tokenizer_id": facts.get("model"),
        "num_prompts": len(due),
        "request_rate": row.rate_rps if row.rate_rps is not None else "inf",
        "burstiness": _burstiness(run, row),
        "max_concurrency": row.users,
        "duration": duration_s,
        "completed": int(due.ok.sum()),
        "failed": int(due.failed.sum()),
        "total_input_tokens": totals[0],
        "total_output_tokens": totals[1],
        "request_throughput": int(due.ok.sum()) / duration_s,
        "request_goodput": row.good_rps if run.scenario.slo.limits else None,
        "output_throughput": totals[1] / duration_s,
        "total_token_throughput": sum(totals) / duration_s,
        **_each(due, prompt, output),
        "max_output_tokens_per_s": row.peak_output_tokens_per_s,
        "max_concurrent_requests": row.in_flight_max,
        "rtfx": 0.0,
    }
    partial = {"partial": True} if row.partial else {}
    return document | _latencies(row, due) | partial


def _burstiness(run: Run, row: Row) -> float | str | None:
    """The shape of its gamma gaps, 1 / cv^2: 1 for Poisson, "inf" (as it writes a rate without end) for even gaps.

    1 in a closed loop, where it means nothing; None for arrivals that it does not know.
    """
    if row.rate_rps is None:
        return 1.0
    arrivals = run.scenario.arrivals
    if arrivals.kind == "gamma":
        return float(1.0 / arrivals.option("cv") ** 2)
    shapes: dict[str, float | str] = {"poisson": 1.0, "constant": "inf"}
    return shapes.get(arrivals.kind)


def _each(due: Table, prompt: Floats, output: Floats) -> dict[str, list[Any]]:
    """One entry a request, in the order they were due. Texts are never kept here; an error is its kind."""
    gaps: list[list[float]] = [[] for _ in range(len(due))]
    known = due.gaps()
    for request, gap_s in zip(known.request.tolist(), known.gap_s.tolist(), strict=True):
        gaps[request].append(round(gap_s, 6))
    ttft = np.where(np.isnan(due.sent_ttft_s), 0.0, due.sent_ttft_s)
    latency = np.nan_to_num(due.last_s - due.sent_s)
    return {
        "input_lens": prompt.astype(int).tolist(),
        "output_lens": output.astype(int).tolist(),
        "ttfts": ttft.round(6).tolist(),
        "itls": gaps,
        "latencies": latency.round(6).tolist(),
        "start_times": np.nan_to_num(due.sent_s).round(6).tolist(),
        "queue_times": np.nan_to_num(due.lag_s).round(6).tolist(),
        "generated_texts": [""] * len(due),
        "errors": [str(kind) for kind in due.error],
    }


def _latencies(row: Row, due: Table) -> dict[str, float | None]:
    plain = {"ttft": due.sent_ttft_s, "tpot": due.tpot_s, "itl": due.gaps().gap_s, "e2el": due.last_s - due.sent_s}
    out: dict[str, float | None] = {}
    for theirs, ours in NAMES.items():
        values = plain[theirs][due.ok] if theirs != "itl" else plain[theirs]
        values = values[~np.isnan(values)]
        q = {name: _ms(row.number(f"{ours}_{name}_s")) for name in QUANTILES}
        if (
            theirs == "e2el"
        ):  # theirs counts from sending, ours from when it was due; what the row refuses stays refused
            carried = [name for name in QUANTILES if q[name] is not None and len(values)]
            q |= {name: 1e3 * float(np.quantile(values, float(name[1:]) / 100.0)) for name in carried}
        out |= {
            f"mean_{theirs}_ms": 1e3 * float(values.mean()) if len(values) else None,
            f"median_{theirs}_ms": q["p50"],
            f"std_{theirs}_ms": 1e3 * float(values.std()) if len(values) else None,
            **{f"{name}_{theirs}_ms": value for name, value in q.items()},
        }
    return out


def _ms(value: float | None) -> float | None:
    return None if value is None else 1e3 * value
