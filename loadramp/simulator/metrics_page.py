"""The /metrics page in vLLM V1's names, from the engine's own counters. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
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


@dataclass(slots=True, frozen=True, eq=False)
class _PageFamilies:
    """Metric families for prometheus_client to write."""

    families: list[Metric]

    def collect(self) -> list[Metric]:
        return self.families


def metrics_page(engine: Engine, model: str, started_at_s: float, memory_bytes: float | None = None) -> str:
    """What vLLM V1 would show of ``engine`` now.

    Args:
        engine: the engine, in a step or not.
        model: the ``model_name`` label.
        started_at_s: Unix time at which the server started.
        memory_bytes: of its process; None: not shown.
    """
    labels = {"engine": "0", "model_name": model}
    gauges = engine.gauges()
    started = "Start time of the process since unix epoch in seconds."
    families: list[Metric] = [GaugeMetricFamily("process_start_time_seconds", started, started_at_s)]
    if memory_bytes is not None:
        resident = "Resident memory size in bytes."
        families.append(GaugeMetricFamily("process_resident_memory_bytes", resident, memory_bytes))
    for name, (key, words) in _GAUGES.items():
        family = GaugeMetricFamily(f"vllm:{name}", words, labels=[*labels])
        family.add_metric([*labels.values()], gauges[key])
        families.append(family)
    families += _counters(engine.stats, model)
    for name, (key, words) in _HISTOGRAMS.items():
        counted = getattr(engine.stats, key)
        bounds = map(floatToGoString, (*counted.bounds, float("inf")))
        buckets = [*zip(bounds, accumulate(counted.counts), strict=True)]
        histogram = HistogramMetricFamily(f"vllm:{name}", words, labels=[*labels])
        histogram.add_metric([*labels.values()], buckets, counted.sum)
        families.append(histogram)
    registry = CollectorRegistry()
    registry.register(_PageFamilies([*families, _cache_config(engine)]))
    return generate_latest(registry).decode()


def _counters(stats: Stats, model: str) -> Iterable[Metric]:
    for name, (key, words) in {**_COUNTERS, **(_DRAFT_COUNTERS if stats.drafts else {})}.items():
        family = CounterMetricFamily(f"vllm:{name}", words, labels=("engine", "model_name"))
        family.add_metric(("0", model), getattr(stats, key))
        yield family
    success = "Count of successfully processed requests."
    family = CounterMetricFamily("vllm:request_success", success, labels=("engine", "model_name", "finished_reason"))
    for reason, count in (*stats.done.items(), ("abort", 0), ("error", 0)):  # vLLM counts no client abort
        family.add_metric(("0", model, reason), count)
    yield family
    refused = "Number of requests rejected at admission."
    family = CounterMetricFamily("vllm:admission_rejections", refused, labels=("model_name", "reason"))
    family.add_metric((model, "max_num_queued_reqs"), stats.rejected)
    yield family


def _cache_config(engine: Engine) -> Metric:
    p = engine.profile
    labels = {
        "block_size": str(p.block_tokens),
        "enable_prefix_caching": str(p.prefix_cache),
        "engine": "0",
        "kv_cache_size_tokens": str(p.kv_blocks * p.block_tokens),
        "num_gpu_blocks": str(p.kv_blocks),
    }
    family = GaugeMetricFamily("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", labels=[*labels])
    family.add_metric([*labels.values()], 1.0)
    return family
