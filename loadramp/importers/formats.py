"""The formats: each recognises its own files and reads one into levels of load. Pure.

Sources: vLLM's ``benchmarks/serve.py`` (``--save-result --save-detailed``), GuideLLM 0.8's ``GenerativeRequestStats``,
AIPerf 0.13's ``MetricRecordInfo`` (``profile_export.jsonl``), inference-perf 0.7's
``build_per_request_lifecycle_entry`` and ``summarize_requests``.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Any

from loadramp.importers.csv_table import csv_levels, csv_rows
from loadramp.importers.levels import RecordedLevel
from loadramp.record.types import Record
from loadramp.registry import ScenarioError
from loadramp.runner.recorded import check_load, record_of

Json = Any


@dataclass(slots=True, frozen=True)
class ResultFormat:
    """One tool's format. ``read`` takes what ``parse`` made of the text, and of the files that lie ``beside`` it."""

    name: str
    parse: Callable[[str], Json]
    is_one: Callable[[Json], bool]
    read: Callable[[Json, Sequence[Json]], list[RecordedLevel]]
    lacks: Mapping[str, str] = field(default_factory=dict)
    """What the tool does not tell, and why it matters."""
    beside: str = ""
    """Names of other files of the same result, as a pattern; they are read in order of the numbers in their names."""


def read_levels(
    text: str, name: str, wanted: str = "auto", beside: Callable[[str], Sequence[str]] = lambda _: ()
) -> tuple[ResultFormat, list[RecordedLevel]]:
    """The levels in ``text``, and the format it has. ``beside``: a pattern to the texts of the files that have it.

    Raises:
        ScenarioError: it has no format that is known, or not the one that was named, or holds no request.
    """
    chosen = list(FORMATS.values()) if wanted == "auto" else [FORMATS[wanted]]
    for form in chosen:
        try:
            document = form.parse(text)
            if not form.is_one(document):
                continue
            others = [form.parse(other) for other in beside(form.beside)] if form.beside else []
            levels = [level for level in form.read(document, others) if level.records]
            for level in levels:
                check_load(level.rate_rps, level.users)
        except ScenarioError as error:
            raise ScenarioError(f"{name}: {error}") from None
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            if wanted == "auto" and isinstance(error, ValueError):
                continue  # not even its syntax
            raise ScenarioError(f"{name}: not a result of {form.name}: {type(error).__name__}: {error}") from None
        if not levels:
            raise ScenarioError(f"{name}: a result of {form.name} that holds no request")
        return form, levels
    known = ", ".join(form.name for form in chosen)
    raise ScenarioError(f"{name}: {_broken(text)}no format that is known; expected detailed results of {known}")


def _broken(text: str) -> str:
    """Where a text that begins as JSON is none, as if it was cut off."""
    if text.lstrip()[:1] not in ("{", "["):
        return ""
    try:
        json.loads(text)
    except json.JSONDecodeError as whole:
        if whole.msg != "Extra data":
            return f"line {whole.lineno}: no JSON from here on ({whole.msg}; was it cut off?): "
    for number, line in enumerate(text.splitlines(), 1):
        try:
            json.loads(line or "0")
        except json.JSONDecodeError as error:
            return f"line {number}: no JSON ({error.msg}; was it cut off?): "
    return ""


# -- vllm bench serve ----------------------------------------------------------------------------------------------


def _is_vllm(document: Json) -> bool:
    return isinstance(document, dict) and "ttfts" in document and "itls" in document


def _vllm(document: Json, _: Sequence[Json]) -> list[RecordedLevel]:
    """One file is one level. Times count from ``start_times``; a request waited ``queue_times`` before that."""
    n = len(document["ttfts"])
    starts = document.get("start_times")
    if not starts:
        raise ScenarioError(
            "no start_times: saved by a vLLM older than 0.11, whose results do not say when requests began"
        )
    waits, errors = document.get("queue_times") or [0.0] * n, document.get("errors") or [""] * n
    records = []
    for i in range(n):
        sent_s, error = float(starts[i]), errors[i] or None
        first_s = document["ttfts"][i]  # 0: no token came
        events = list(accumulate([sent_s + first_s, *document["itls"][i]])) if first_s and not error else []
        records.append(
            record_of(
                sent_s - float(waits[i]),
                sent_s=sent_s,
                token_s=events,
                output_tokens=document["output_lens"][i] or None,
                prompt_tokens=document["input_lens"][i],
                error=error,
            )
        )
    rate = document.get("request_rate")
    open_loop = isinstance(rate, int | float) and rate != float("inf")  # json reads Infinity
    users = document.get("max_concurrency")
    burstiness = float(document.get("burstiness") or 1.0)  # infinite: even gaps
    arrivals = f'kind = "gamma"\ncv = {burstiness**-0.5:.6g}' if burstiness < float("inf") else 'kind = "constant"'
    arrivals = 'kind = "poisson"' if burstiness == 1.0 else arrivals
    model = str(document.get("model_id") or "")
    if open_loop:
        return [RecordedLevel(records, float(rate), None, arrivals, model)]
    return [RecordedLevel(records, None, int(users) if users else None, model=model)]


# -- GuideLLM ------------------------------------------------------------------------------------------------------


def _is_guidellm(document: Json) -> bool:
    return isinstance(document, dict) and isinstance(document.get("benchmarks"), list)


def _guidellm(document: Json, _: Sequence[Json]) -> list[RecordedLevel]:
    """One benchmark is one level. Only the first and the last token of a request are told."""
    return [_guidellm_level(benchmark) for benchmark in document["benchmarks"]]


def _guidellm_level(benchmark: Json) -> RecordedLevel:
    requests = benchmark["requests"]
    strategy = (
        (benchmark.get("config") or {}).get("strategy") or (benchmark.get("scheduler") or {}).get("strategy") or {}
    )
    kind, rate = str(strategy.get("type_") or strategy.get("kind") or ""), strategy.get("rate")
    planned = kind in {"constant", "poisson", "trace"}
    records = [_guidellm_record(done, None, planned) for done in requests.get("successful") or ()]
    records += [_guidellm_record(failed, _guidellm_error(failed), planned) for failed in requests.get("errored") or ()]
    if kind in {"constant", "poisson"} and rate:
        return RecordedLevel(records, float(rate), None, f'kind = "{kind}"')
    streams = strategy.get("streams") or strategy.get("max_concurrency") if kind == "concurrent" else None
    return RecordedLevel(records, None, int(streams) if streams else None)


def _guidellm_record(request: Json, error: str | None, planned: bool) -> Record:
    """``planned``: the strategy has a schedule; others aim at once for every request of the level."""
    timings = (request.get("info") or request.get("scheduler_info") or {})["timings"]
    sent_s = timings.get("request_start") or timings.get("resolve_start") or timings["targeted_start"]
    return record_of(
        float((planned and timings.get("targeted_start")) or sent_s),
        sent_s=float(sent_s),
        first_s=None if error else timings.get("first_token_iteration") or timings.get("first_iteration"),
        last_s=None if error else timings.get("last_token_iteration") or timings.get("last_iteration"),
        end_s=timings.get("request_end") or timings.get("resolve_end"),
        output_tokens=request.get("output_tokens"),
        prompt_tokens=request.get("prompt_tokens"),
        error=error,
    )


def _guidellm_error(request: Json) -> str:
    return str((request.get("info") or {}).get("error") or request.get("error") or "failed")


# -- AIPerf --------------------------------------------------------------------------------------------------------


def _lines(text: str) -> Json:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _is_aiperf(document: Json) -> bool:
    return bool(document) and isinstance(document[0], dict) and "request_start_ns" in document[0].get("metadata", {})


def _aiperf(document: Json, _: Sequence[Json]) -> list[RecordedLevel]:
    """``profile_export.jsonl``: a level for each phase that is no warm-up. Instants count from the first one, so that
    nanoseconds are kept. A request was due when its credit was issued."""
    lines = [line for line in document if line["metadata"].get("benchmark_phase", "profiling") == "profiling"]
    origin_ns = min(_aiperf_due_ns(line) for line in lines)
    phases: dict[int, list[Record]] = {}
    for line in lines:
        phases.setdefault(line["metadata"].get("profiling_index") or 0, []).append(_aiperf_record(line, origin_ns))
    return [RecordedLevel(phases[index]) for index in sorted(phases)]


def _aiperf_due_ns(line: Json) -> int:
    return int(line["metadata"].get("credit_issued_ns") or line["metadata"]["request_start_ns"])


def _aiperf_record(line: Json, origin_ns: int) -> Record:
    metadata, metrics, error = line["metadata"], line.get("metrics") or {}, line.get("error")
    sent_s = (metadata["request_start_ns"] - origin_ns) / 1e9

    def seconds(name: str) -> Any:
        value = metrics.get(name, {}).get("value")
        scale = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}.get(metrics.get(name, {}).get("unit", ""), 1.0)
        return [v * scale for v in value] if isinstance(value, list) else None if value is None else value * scale

    ttft_s, gaps_s, e2e_s = (
        seconds(name) for name in ("time_to_first_token", "inter_chunk_latency", "request_latency")
    )
    events = [] if ttft_s is None or gaps_s is None else list(accumulate([sent_s + ttft_s, *gaps_s]))
    tokens = (metrics.get("output_sequence_length") or metrics.get("output_token_count") or {}).get("value")
    return record_of(
        (_aiperf_due_ns(line) - origin_ns) / 1e9,
        sent_s=sent_s,
        token_s=events,
        first_s=None if ttft_s is None else sent_s + ttft_s,
        last_s=None if e2e_s is None else sent_s + e2e_s,
        end_s=(metadata["request_end_ns"] - origin_ns) / 1e9 if metadata.get("request_end_ns") else None,
        output_tokens=None if tokens is None else int(tokens),
        prompt_tokens=int(metrics["input_sequence_length"]["value"]) if "input_sequence_length" in metrics else None,
        error=f"{error.get('type')}: {error.get('message')}" if error else None,
        http_status=error.get("code") if error and isinstance(error.get("code"), int) else None,
    )


# -- inference-perf ------------------------------------------------------------------------------------------------


def _is_inference_perf(document: Json) -> bool:
    return (
        isinstance(document, list) and bool(document) and isinstance(document[0], dict) and "start_time" in document[0]
    )


def _inference_perf(document: Json, stages: Sequence[Json]) -> list[RecordedLevel]:
    """``per_request_lifecycle_metrics.json``. It does not say to which stage a request belongs: the summaries of the
    stages beside it give their sizes, and stages follow one another. Without them it is one level."""
    records = [_inference_perf_record(item) for item in sorted(document, key=lambda item: float(item["start_time"]))]
    loads = [stage["load_summary"] for stage in stages]
    if sum(load["count"] for load in loads) != len(records):
        return [RecordedLevel(records)]
    ends = list(accumulate(load["count"] for load in loads))
    return [
        RecordedLevel(records[end - load["count"] : end], *_inference_perf_load(load))
        for load, end in zip(loads, ends, strict=True)
    ]


def _inference_perf_load(load: Json) -> tuple[float | None, int | None]:
    """The rate, or the number of users, that a stage asked for."""
    users, rate = load.get("concurrency"), load.get("requested_rate")
    return (None, int(users)) if users else (float(rate) if rate else None, None)


def _inference_perf_record(request: Json) -> Record:
    info, error = request.get("info") or {}, request.get("error")
    answer = info.get("response_metrics") or {}
    times = [float(at_s) for at_s in answer.get("output_token_times") or answer.get("chunk_times") or ()]
    events = [(at_s, len(list(chunk))) for at_s, chunk in groupby(times)]  # tokens of a chunk share its instant
    usage = answer.get("server_usage") or {}
    counted = len(events) < len(times) and usage.get("completion_tokens") != len(events)  # else the server knows better
    return record_of(
        float(request["start_time"]),
        token_s=[] if error else [at_s for at_s, _ in events],
        event_tokens=[n for _, n in events] if counted and not error else (),
        end_s=float(request["end_time"]),
        output_tokens=usage.get("completion_tokens") or answer.get("output_tokens") or None,
        prompt_tokens=info.get("input_tokens"),
        error=f"{error.get('error_type')}: {error.get('error_msg')}" if error else None,
    )


_CLOSED = "the plan's instants are not kept: times count from sending, so a late client does not show"
_MOVED = "a request was due when AIPerf issued it: it moves its schedule after a delay of 10 ms, which does not show"
FORMATS: Mapping[str, ResultFormat] = {
    form.name: form
    for form in (
        ResultFormat("vllm-bench", json.loads, _is_vllm, _vllm, {"due_s": _CLOSED}),
        ResultFormat(
            "guidellm", json.loads, _is_guidellm, _guidellm, {"itl": "only the first and the last token are kept"}
        ),
        ResultFormat(
            "inference-perf",
            json.loads,
            _is_inference_perf,
            _inference_perf,
            {"due_s": _CLOSED},
            beside="stage_*_lifecycle_metrics.json",
        ),
        ResultFormat("aiperf", _lines, _is_aiperf, _aiperf, {"due_s": _MOVED}),
        ResultFormat("csv", csv_rows, lambda _: True, csv_levels),
    )
}
"""By name, in the order in which a file is tried."""
