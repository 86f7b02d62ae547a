"""The /metrics page in vLLM V1's names, from the engine's own counters. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from loadramp.metrics.prometheus_text import Family, MetricPoint, expose, histogram
from loadramp.simulator.engine import Engine
from loadramp.simulator.engine.stats import Histogram, Stats

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
    families = [
        Family(
            "process_start_time_seconds",
            "gauge",
            "Start time of the process since unix epoch in seconds.",
            [MetricPoint("process_start_time_seconds", {}, started_at_s)],
        )
    ]
    if memory_bytes is not None:
        name = "process_resident_memory_bytes"
        families.append(Family(name, "gauge", "Resident memory size in bytes.", [MetricPoint(name, {}, memory_bytes)]))
    families += [
        Family(f"vllm:{name}", "gauge", words, [MetricPoint(f"vllm:{name}", labels, gauges[key])])
        for name, (key, words) in _GAUGES.items()
    ]
    families += _counters(engine.stats, labels)
    families += [
        _histogram(f"vllm:{name}", words, getattr(engine.stats, key), labels)
        for name, (key, words) in _HISTOGRAMS.items()
    ]
    return expose([*families, _cache_config(engine)])


def _counters(stats: Stats, labels: Mapping[str, str]) -> list[Family]:
    names = {**_COUNTERS, **(_DRAFT_COUNTERS if stats.drafts else {})}
    families = [
        Family(
            f"vllm:{name}_total",
            "counter",
            words,
            [MetricPoint(f"vllm:{name}_total", dict(labels), getattr(stats, key))],
        )
        for name, (key, words) in names.items()
    ]
    reasons: list[tuple[str, int]] = [*stats.done.items(), ("abort", 0), ("error", 0)]  # vLLM counts no client abort
    success = "vllm:request_success_total"
    ended = [MetricPoint(success, {**labels, "finished_reason": reason}, n) for reason, n in reasons]
    refused = "vllm:admission_rejections_total"
    full = MetricPoint(refused, {"model_name": labels["model_name"], "reason": "max_num_queued_reqs"}, stats.rejected)
    return [
        *families,
        Family(success, "counter", "Count of successfully processed requests.", ended),
        Family(refused, "counter", "Number of requests rejected at admission.", [full]),
    ]


def _histogram(name: str, words: str, counted: Histogram, labels: Mapping[str, str]) -> Family:
    return Family(name, "histogram", words, histogram(name, counted.bounds, counted.counts, counted.sum, labels))


def _cache_config(engine: Engine) -> Family:
    p = engine.profile
    name = "vllm:cache_config_info"
    labels = {
        "block_size": str(p.block_tokens),
        "enable_prefix_caching": str(p.prefix_cache),
        "engine": "0",
        "kv_cache_size_tokens": str(p.kv_blocks * p.block_tokens),
        "num_gpu_blocks": str(p.kv_blocks),
    }
    return Family(name, "gauge", "Information of the LLMEngine CacheConfig", [MetricPoint(name, labels, 1.0)])
