"""The formats: each recognises its own files and reads one into levels of load. Pure.

Sources: vLLM's ``benchmarks/serve.py`` (``--save-result --save-detailed``), GuideLLM's ``GenerativeRequestStats``,
AIPerf's ``MetricRecordInfo`` (``profile_export.jsonl``), inference-perf's ``RequestLifecycleMetric``
(``per_request_lifecycle_metrics.json``), each as released in 2026.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Any

from loadramp.record.types import Record
from loadramp.registry import ScenarioError
from loadramp.runner.recorded import record_of

Json = Any


@dataclass(slots=True, frozen=True)
class RecordedLevel:
    """The requests of one level of load. Exactly what was asked is in ``rate_rps`` or ``users``; neither: not known."""

    records: list[Record]
    rate_rps: float | None = None
    users: int | None = None
    arrivals: str = 'kind = "replay"'
    """The ``[arrivals]`` table, in TOML."""
    model: str = ""


@dataclass(slots=True, frozen=True)
class ResultFormat:
    """One tool's format. ``read`` takes what ``parse`` made of the text."""

    name: str
    parse: Callable[[str], Json]
    is_one: Callable[[Json], bool]
    read: Callable[[Json], list[RecordedLevel]]
    lacks: Mapping[str, str] = field(default_factory=dict)
    """What the tool does not tell, and why it matters."""


def read_levels(text: str, name: str, wanted: str = "auto") -> tuple[ResultFormat, list[RecordedLevel]]:
    """The levels in ``text``, and the format it has.

    Raises:
        ScenarioError: it has no format that is known, or not the one that was named, or holds no request.
    """
    chosen = list(FORMATS.values()) if wanted == "auto" else [FORMATS[wanted]]
    for form in chosen:
        try:
            document = form.parse(text)
            if not form.is_one(document):
                continue
            levels = [level for level in form.read(document) if level.records]
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            if wanted == "auto" and isinstance(error, ValueError) and not isinstance(error, ScenarioError):
                continue  # not even its syntax
            raise ScenarioError(f"{name}: not a result of {form.name}: {type(error).__name__}: {error}") from None
        if not levels:
            raise ScenarioError(f"{name}: a result of {form.name} that holds no request")
        return form, levels
    known = ", ".join(form.name for form in chosen)
    raise ScenarioError(f"{name}: no format that is known; expected detailed results of {known}")


# -- vllm bench serve ----------------------------------------------------------------------------------------------


def _is_vllm(document: Json) -> bool:
    return isinstance(document, dict) and "ttfts" in document and "itls" in document


def _vllm(document: Json) -> list[RecordedLevel]:
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
        events = [] if error else list(accumulate([sent_s + document["ttfts"][i], *document["itls"][i]]))
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
    open_loop = isinstance(rate, int | float) and rate != float("inf")
    users = document.get("max_concurrency")
    burstiness = float(document.get("burstiness") or 1.0)
    arrivals = 'kind = "poisson"' if burstiness == 1.0 else f'kind = "gamma"\ncv = {burstiness**-0.5:.6g}'
    model = str(document.get("model_id") or "")
    if open_loop:
        return [RecordedLevel(records, float(rate), None, arrivals, model)]
    return [RecordedLevel(records, None, int(users) if users else None, model=model)]


# -- GuideLLM ------------------------------------------------------------------------------------------------------


def _is_guidellm(document: Json) -> bool:
    return isinstance(document, dict) and isinstance(document.get("benchmarks"), list)


def _guidellm(document: Json) -> list[RecordedLevel]:
    """One benchmark is one level. Only the first and the last token of a request are told."""
    return [_guidellm_level(benchmark) for benchmark in document["benchmarks"]]


def _guidellm_level(benchmark: Json) -> RecordedLevel:
    requests = benchmark["requests"]
    records = [_guidellm_record(one, None) for one in requests.get("successful") or ()]
    records += [_guidellm_record(one, _guidellm_error(one)) for one in requests.get("errored") or ()]
    strategy = (
        (benchmark.get("config") or {}).get("strategy") or (benchmark.get("scheduler") or {}).get("strategy") or {}
    )
    kind, rate = str(strategy.get("type_") or strategy.get("kind") or ""), strategy.get("rate")
    if kind in {"constant", "poisson"} and rate:
        return RecordedLevel(records, float(rate), None, f'kind = "{kind}"')
    streams = strategy.get("streams") or strategy.get("max_concurrency") if kind == "concurrent" else None
    return RecordedLevel(records, None, int(streams) if streams else None)


def _guidellm_record(one: Json, error: str | None) -> Record:
    timings = (one.get("info") or one.get("scheduler_info") or {})["timings"]
    sent_s = timings.get("request_start") or timings.get("resolve_start") or timings["targeted_start"]
    return record_of(
        float(timings.get("targeted_start") or sent_s),
        sent_s=float(sent_s),
        first_s=None if error else timings.get("first_token_iteration") or timings.get("first_iteration"),
        last_s=None if error else timings.get("last_token_iteration") or timings.get("last_iteration"),
        end_s=timings.get("request_end") or timings.get("resolve_end"),
        output_tokens=one.get("output_tokens"),
        prompt_tokens=one.get("prompt_tokens"),
        error=error,
    )


def _guidellm_error(one: Json) -> str:
    return str((one.get("info") or {}).get("error") or one.get("error") or "failed")


# -- AIPerf --------------------------------------------------------------------------------------------------------


def _lines(text: str) -> Json:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _is_aiperf(document: Json) -> bool:
    return bool(document) and isinstance(document[0], dict) and "request_start_ns" in document[0].get("metadata", {})


def _aiperf(document: Json) -> list[RecordedLevel]:
    """``profile_export.jsonl``: one level. Instants count from the first request, so that nanoseconds are kept."""
    lines = [line for line in document if line["metadata"].get("benchmark_phase", "profiling") == "profiling"]
    origin_ns = min(line["metadata"]["request_start_ns"] for line in lines)
    return [RecordedLevel([_aiperf_record(line, origin_ns) for line in lines])]


def _aiperf_record(line: Json, origin_ns: int) -> Record:
    told, metrics, error = line["metadata"], line.get("metrics") or {}, line.get("error")
    sent_s = (told["request_start_ns"] - origin_ns) / 1e9

    def seconds(name: str) -> Any:
        value = metrics.get(name, {}).get("value")
        scale = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}.get(metrics.get(name, {}).get("unit", ""), 1.0)
        return [one * scale for one in value] if isinstance(value, list) else None if value is None else value * scale

    ttft_s, gaps_s, e2e_s = (
        seconds(name) for name in ("time_to_first_token", "inter_chunk_latency", "request_latency")
    )
    events = [] if ttft_s is None or gaps_s is None else list(accumulate([sent_s + ttft_s, *gaps_s]))
    tokens = (metrics.get("output_sequence_length") or metrics.get("output_token_count") or {}).get("value")
    return record_of(
        sent_s,
        token_s=events,
        first_s=None if ttft_s is None else sent_s + ttft_s,
        last_s=None if e2e_s is None else sent_s + e2e_s,
        end_s=(told["request_end_ns"] - origin_ns) / 1e9 if told.get("request_end_ns") else None,
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


def _inference_perf(document: Json) -> list[RecordedLevel]:
    """``per_request_lifecycle_metrics.json``: one level for each stage."""
    ordered = sorted(document, key=lambda one: (one.get("stage_id") or 0, one["start_time"]))
    stages = groupby(ordered, key=lambda one: one.get("stage_id") or 0)
    return [RecordedLevel([_inference_perf_record(one) for one in own]) for _, own in stages]


def _inference_perf_record(one: Json) -> Record:
    info, error = one.get("info") or {}, one.get("error")
    answer = info.get("response_metrics") or info
    events = [float(at_s) for at_s in answer.get("output_token_times") or ()]
    return record_of(
        float(one.get("scheduled_time") or one["start_time"]),
        sent_s=float(one["start_time"]),
        token_s=[] if error else events,
        end_s=float(one["end_time"]),
        output_tokens=answer.get("output_tokens") or None,
        prompt_tokens=info.get("input_tokens"),
        error=f"{error.get('error_type')}: {error.get('error_msg')}" if error else None,
    )


# -- CSV -----------------------------------------------------------------------------------------------------------

_NUMBERS = {"due_s", "sent_s", "first_token_s", "last_token_s", "end_s", "rate_rps"}
_COUNTS = {"output_tokens", "prompt_tokens", "http_status", "users"}
_WORDS = {"error", "label", "model", "step"}


def _table(text: str) -> Json:
    rows = list(csv.DictReader(io.StringIO(text)))
    if not rows or not {"due_s", "sent_s"} & set(rows[0]):
        raise ValueError("no column due_s or sent_s")
    if unknown := set(rows[0]) - _NUMBERS - _COUNTS - _WORDS - {"token_s"}:
        allowed = ", ".join(sorted(_NUMBERS | _COUNTS | _WORDS | {"token_s"}))
        raise ScenarioError(f"{', '.join(sorted(map(str, unknown)))}: no such column; there are {allowed}")
    return rows


def _csv(document: Json) -> list[RecordedLevel]:
    """The columns of docs/import.md; ``token_s`` holds instants with spaces between them."""
    rows = [_plain(row) for row in document]
    levels = []
    for _, own in groupby(sorted(rows, key=lambda row: str(row.get("step") or "")), key=lambda row: row.get("step")):
        members = list(own)
        asked = {(row.get("rate_rps"), row.get("users")) for row in members}
        if len(asked) > 1:
            raise ScenarioError(f"step {members[0].get('step')}: several rates in one step: {sorted(map(str, asked))}")
        rate_rps, users = asked.pop()
        levels.append(RecordedLevel([_csv_record(row) for row in members], rate_rps, users))
    return levels


def _plain(row: Mapping[str, str]) -> dict[str, Any]:
    kinds: Iterable[tuple[set[str], Callable[[str], Any]]] = ((_NUMBERS, float), (_COUNTS, int), (_WORDS, str))
    known = {name: kind(row[name]) for names, kind in kinds for name in names if row.get(name)}
    return known | {"token_s": [float(at_s) for at_s in (row.get("token_s") or "").split()]}


def _csv_record(row: Mapping[str, Any]) -> Record:
    return record_of(
        row.get("due_s", row.get("sent_s")),
        sent_s=row.get("sent_s"),
        token_s=row["token_s"],
        first_s=row.get("first_token_s"),
        last_s=row.get("last_token_s"),
        end_s=row.get("end_s"),
        output_tokens=row.get("output_tokens"),
        prompt_tokens=row.get("prompt_tokens"),
        error=row.get("error"),
        http_status=row.get("http_status"),
        label=row.get("label", ""),
        model=row.get("model"),
    )


_CLOSED = "the plan's instants are not kept: times count from sending, so a late client does not show"
FORMATS: Mapping[str, ResultFormat] = {
    form.name: form
    for form in (
        ResultFormat("vllm-bench", json.loads, _is_vllm, _vllm, {"due_s": _CLOSED}),
        ResultFormat(
            "guidellm", json.loads, _is_guidellm, _guidellm, {"itl": "only the first and the last token are kept"}
        ),
        ResultFormat("inference-perf", json.loads, _is_inference_perf, _inference_perf),
        ResultFormat("aiperf", _lines, _is_aiperf, _aiperf, {"due_s": _CLOSED}),
        ResultFormat("csv", _table, lambda _: True, _csv),
    )
}
"""By name, in the order in which a file is tried."""


def total(levels: Sequence[RecordedLevel]) -> int:
    """Requests of all levels."""
    return sum(len(level.records) for level in levels)
