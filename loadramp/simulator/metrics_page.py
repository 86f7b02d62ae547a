"""The /metrics page in vLLM V1's names, from the engine's own counters. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from loadramp.simulator.engine import Engine
from loadramp.simulator.engine.stats import Stats

_GAUGES = {
    "num_requests_running": ("running", "Number of requests in model execution batches."),
    "num_requests_waiting": ("waiting", "Number of requests waiting to be processed."),
    "kv_cache_usage_perc": ("kv_used_ratio", "KV-cache usage. 1 means 100 percent usage."),
}
_COUNTERS = {
    "prefix_cache_queries": ("prefix_queries", "Prefix cache queries, in terms of number of queried tokens."),
    "prefix_cache_hits": ("prefix_hits", "Prefix cache hits, in terms of number of cached tokens."),
    "num_preemptions": ("preemptions", "Cumulative number of preemption from the engine."),
    "prompt_tokens": ("prompt_tokens", "Number of prefill tokens processed."),
    "generation_tokens": ("output_tokens", "Number of generation tokens processed."),
}
_DRAFT_COUNTERS = {
    "spec_decode_num_drafts": ("drafts", "Number of spec decoding drafts."),
    "spec_decode_num_draft_tokens": ("draft_tokens", "Number of draft tokens."),
    "spec_decode_num_accepted_tokens": ("accepted_tokens", "Number of accepted tokens."),
}
_HISTOGRAMS = {
    "request_prompt_tokens": ("request_prompt_tokens", "Number of prefill tokens processed."),
    "request_generation_tokens": ("request_output_tokens", "Number of generation tokens processed."),
    "iteration_tokens_total": ("iteration_tokens", "Histogram of number of tokens per engine_step."),
    "time_to_first_token_seconds": ("ttft_s", "Histogram of time to first token in seconds."),
    "inter_token_latency_seconds": ("itl_s", "Histogram of inter-token latency in seconds."),
    "request_time_per_output_token_seconds": ("tpot_s", "Histogram of time_per_output_token_seconds per request."),
    "e2e_request_latency_seconds": ("e2e_s", "Histogram of e2e request latency in seconds."),
    "request_queue_time_seconds": ("queue_s", "Histogram of time spent in WAITING phase for request."),
    "request_inference_time_seconds": ("inference_s", "Histogram of time spent in RUNNING phase for request."),
    "request_prefill_time_seconds": ("prefill_s", "Histogram of time spent in PREFILL phase for request."),
    "request_decode_time_seconds": ("decode_s", "Histogram of time spent in DECODE phase for request."),
    "request_num_preemptions": ("request_preemptions", "Histogram of the number of preemptions per request."),
}


Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True, frozen=True, eq=False)
class _OneFamily:
    """A metric family for prometheus_client to write."""

    family: Metric

    def collect(self) -> list[Metric]:
        return [self.family]


def metrics_page(engine: Engine, model: str, started_at_s: float, memory_bytes: float | None = None) -> str:
    """What vLLM V1 would show of ``engine`` now.

    Args:
        engine: the engine, in a step or not.
        model: the ``model_name`` label.
        started_at_s: Unix time at which the server started.
        memory_bytes: of its process; None: not shown.
    """
    started = "Start time of the process since unix epoch in seconds."
    resident = "Resident memory size in bytes."
    labels = (("engine", "0"), ("model_name", model))
    gauges = engine.gauges()
    page = _written(_heads(GaugeMetricFamily, "process_start_time_seconds", started, ((),)), [started_at_s])
    if memory_bytes is not None:
        page += _written(_heads(GaugeMetricFamily, "process_resident_memory_bytes", resident, ((),)), [memory_bytes])
    for name, (key, words) in _GAUGES.items():
        page += _written(_heads(GaugeMetricFamily, f"vllm:{name}", words, (labels,)), [gauges[key]])
    page += _counters(engine.stats, model)
    for name, (key, words) in _HISTOGRAMS.items():
        counted = getattr(engine.stats, key)
        heads = _heads(HistogramMetricFamily, f"vllm:{name}", words, (labels,), counted.bounds)
        counts = [*accumulate(counted.counts)]
        page += _written(heads, [*counts, counts[-1], counted.sum])
    return page + _cache_config(engine)


def _counters(stats: Stats, model: str) -> str:
    labels = (("engine", "0"), ("model_name", model))
    page = ""
    for name, (key, words) in {**_COUNTERS, **(_DRAFT_COUNTERS if stats.drafts else {})}.items():
        page += _written(_heads(CounterMetricFamily, f"vllm:{name}", words, (labels,)), [getattr(stats, key)])
    success = "Count of successfully processed requests."
    done = [*stats.done.items(), ("abort", 0), ("error", 0)]  # vLLM counts no client abort
    reasons = tuple((*labels, ("finished_reason", reason)) for reason, _ in done)
    page += _written(
        _heads(CounterMetricFamily, "vllm:request_success", success, reasons), [count for _, count in done]
    )
    refused = "Number of requests rejected at admission."
    limit = (("model_name", model), ("reason", "max_num_queued_reqs"))
    return page + _written(
        _heads(CounterMetricFamily, "vllm:admission_rejections", refused, (limit,)), [stats.rejected]
    )


def _cache_config(engine: Engine) -> str:
    p = engine.profile
    labels = (
        ("block_size", str(p.block_tokens)),
        ("enable_prefix_caching", str(p.prefix_cache)),
        ("engine", "0"),
        ("kv_cache_size_tokens", str(p.kv_blocks * p.block_tokens)),
        ("num_gpu_blocks", str(p.kv_blocks)),
    )
    words = "Information of the LLMEngine CacheConfig"
    return _written(_heads(GaugeMetricFamily, "vllm:cache_config_info", words, (labels,)), [1.0])


def _written(heads: Sequence[str], numbers: Iterable[float]) -> str:
    return "".join([f"{head}{_number(number)}\n" for head, number in zip(heads, numbers, strict=True)])


@lru_cache(maxsize=4096)
def _number(number: float) -> str:
    """As prometheus_client writes it. Most numbers of a page are those of the page before."""
    return str(floatToGoString(number))  # type: ignore[no-untyped-call]


@lru_cache(maxsize=256)
def _heads(
    kind: type[GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily],
    name: str,
    words: str,
    series: tuple[Labels, ...],
    bounds: tuple[float, ...] = (),
) -> tuple[str, ...]:
    """What stands before each number of a family, comments included: as prometheus_client writes it, written once.

    Only the numbers differ from one page to the next, and a page is read every second.
    """
    family = kind(name, words, labels=[label for label, _ in series[0]])
    for labels in series:
        values = [value for _, value in labels]
        if isinstance(family, HistogramMetricFamily):
            family.add_metric(values, [(_number(bound), 0.0) for bound in (*bounds, float("inf"))], 0.0)
        else:
            family.add_metric(values, 0.0)
    registry = CollectorRegistry()
    registry.register(_OneFamily(family))
    heads, comments = [], ""
    for line in generate_latest(registry).decode().splitlines(keepends=True):
        if line.startswith("#"):
            comments += line
        else:
            heads.append(comments + line.rpartition(" ")[0] + " ")
            comments = ""
    return tuple(heads)
