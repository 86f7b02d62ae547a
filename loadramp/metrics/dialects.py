"""How each engine names its own numbers, as data. Pure: names in, names out; no page is read here.

To add an engine: one dict in DIALECTS, canonical name to the names that carry it, newest first. A counter is written
without ``_total`` and found with or without it; ``:`` is found written ``_`` too, and with Ray's ``ray_`` in front.
What no name on a page shows is absent, never 0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

Across = Literal["sum", "max", "min", "mean"]
"""How the series of several engines, ranks, GPUs or replicas become one number."""


@dataclass(slots=True, frozen=True)
class Quantity:
    """One canonical name: a gauge as read, or a counter as its total since the server started."""

    kind: Literal["gauge", "counter"]
    unit: str
    meaning: str
    across: Across = "sum"


@dataclass(slots=True, frozen=True)
class DialectSeries:
    """Where a number stands on a page, when a bare name does not say it."""

    name: str
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Labels that must have one of these values."""
    skip: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Labels that must not have one of these values."""
    label: str = ""
    """The number is the text of this label, not the sample's value."""
    scale: float = 1.0
    plus: str = ""
    """Another name whose value is added; without it on the page this source does not count."""


Source = str | DialectSeries
Dialect = Mapping[str, tuple[Source, ...]]


def _timing(name: str, meaning: str) -> dict[str, Quantity]:
    """The two counters that a histogram of seconds leaves: its sum and its number of observations."""
    return {
        f"{name}_sum": Quantity("counter", "s", f"{meaning}, added up"),
        f"{name}_count": Quantity("counter", "observations", f"{meaning}, how many"),
    }


CANONICAL: dict[str, Quantity] = {
    "running": Quantity("gauge", "requests", "requests in the running batch"),
    "waiting": Quantity("gauge", "requests", "requests in the engine's queue"),
    "kv_used_ratio": Quantity("gauge", "ratio", "KV cache in use; the fullest engine, which preempts first", "max"),
    "preemptions": Quantity("counter", "preemptions", "requests pushed out of the batch for want of KV cache"),
    "prompt_tokens": Quantity("counter", "tokens", "prompt tokens of requests taken up, cached ones included"),
    "output_tokens": Quantity("counter", "tokens", "tokens generated"),
    "prefix_queries": Quantity("counter", "tokens", "prompt tokens looked up in the prefix cache"),
    "prefix_hits": Quantity("counter", "tokens", "prompt tokens found there"),
    "prefix_hit_ratio": Quantity("gauge", "ratio", "hit ratio, of engines that show no counters", "mean"),
    "requests_done": Quantity("counter", "requests", "requests finished with an answer"),
    "requests_aborted": Quantity("counter", "requests", "requests the client gave up, where the engine counts them"),
    "requests_failed": Quantity("counter", "requests", "requests the engine failed"),
    "requests_rejected": Quantity("counter", "requests", "requests refused at the door (queue full)"),
    **_timing("queue_s", "time of a request in the queue"),
    **_timing("prefill_s", "time of a request in prefill"),
    **_timing("decode_s", "time of a request in decode"),
    **_timing("ttft_s", "time to first token, from arrival in the API process"),
    **_timing("itl_s", "time between two outputs of a request"),
    **_timing("tpot_s", "mean time per output token of a request"),
    **_timing("e2e_s", "whole time of a request"),
    "engine_steps": Quantity("counter", "steps", "forward passes of the engine"),
    "spec_draft_tokens": Quantity("counter", "tokens", "tokens proposed by the draft"),
    "spec_accepted_tokens": Quantity("counter", "tokens", "proposed tokens that were accepted"),
    "spec_accept_ratio": Quantity("gauge", "ratio", "acceptance, of engines that show no counters", "mean"),
    "max_num_seqs": Quantity("gauge", "requests", "most requests in the batch at once"),
    "kv_blocks": Quantity("gauge", "blocks", "blocks of the KV cache"),
    "block_size": Quantity("gauge", "tokens", "tokens of a block", "max"),
    "gpu_memory_utilization": Quantity("gauge", "ratio", "share of the GPU's memory that the engine may take", "max"),
    "process_memory_bytes": Quantity("gauge", "bytes", "resident memory of the API process"),
    "process_start_s": Quantity("gauge", "s", "when the process started, Unix time; a change is a restart", "max"),
    "gpu_util_ratio": Quantity("gauge", "ratio", "share of time with a kernel running", "mean"),
    "gpu_memory_used_bytes": Quantity("gauge", "bytes", "memory in use, all GPUs"),
    "gpu_memory_free_bytes": Quantity("gauge", "bytes", "free memory of the fullest GPU", "min"),
    "gpu_temperature_c": Quantity("gauge", "celsius", "the hottest GPU", "max"),
    "gpu_power_w": Quantity("gauge", "W", "power, all GPUs"),
    "gpu_sm_clock_hz": Quantity("gauge", "Hz", "SM clock of the slowest GPU", "min"),
    "gpu_xid_errors": Quantity("gauge", "code", "last Xid error code, 0 for none", "max"),
}

COMMON: Dialect = {
    "process_memory_bytes": ("process_resident_memory_bytes",),
    "process_start_s": ("process_start_time_seconds",),
}
"""What any Python or Go process may show; tells no engine from another. vLLM hides it with several API servers."""


def _histogram(name: str, *families: str) -> dict[str, tuple[Source, ...]]:
    """Sources of the two counters of canonical timing ``name``, from histogram families, newest first."""
    return {f"{name}_{part}": tuple(f"{family}_{part}" for family in families) for part in ("sum", "count")}


_LLAMACPP_PROMPT = DialectSeries("llamacpp:prompt_tokens", plus="llamacpp:prompt_tokens_cached")  # usage has both

DIALECTS: dict[str, Dialect] = {
    "vllm": {
        "running": ("vllm:num_requests_running",),
        "waiting": ("vllm:num_requests_waiting",),
        "kv_used_ratio": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        "preemptions": ("vllm:num_preemptions",),
        "prompt_tokens": ("vllm:prompt_tokens",),
        "output_tokens": ("vllm:generation_tokens",),
        "prefix_queries": ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"),
        "prefix_hits": ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
        "prefix_hit_ratio": ("vllm:gpu_prefix_cache_hit_rate",),
        "requests_done": (DialectSeries("vllm:request_success", skip={"finished_reason": ("abort", "error")}),),
        "requests_aborted": (DialectSeries("vllm:request_success", only={"finished_reason": ("abort",)}),),
        "requests_failed": (DialectSeries("vllm:request_success", only={"finished_reason": ("error",)}),),
        "requests_rejected": ("vllm:admission_rejections",),
        **_histogram("queue_s", "vllm:request_queue_time_seconds", "vllm:time_in_queue_requests"),
        **_histogram("prefill_s", "vllm:request_prefill_time_seconds"),
        **_histogram("decode_s", "vllm:request_decode_time_seconds"),
        **_histogram("ttft_s", "vllm:time_to_first_token_seconds"),
        **_histogram("itl_s", "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
        **_histogram("tpot_s", "vllm:request_time_per_output_token_seconds"),
        **_histogram("e2e_s", "vllm:e2e_request_latency_seconds"),
        "engine_steps": ("vllm:iteration_tokens_total_count",),
        "spec_draft_tokens": ("vllm:spec_decode_num_draft_tokens",),
        "spec_accepted_tokens": ("vllm:spec_decode_num_accepted_tokens",),
        "spec_accept_ratio": ("vllm:spec_decode_draft_acceptance_rate",),
        "kv_blocks": (DialectSeries("vllm:cache_config_info", label="num_gpu_blocks"),),
        "block_size": (DialectSeries("vllm:cache_config_info", label="block_size"),),
        "gpu_memory_utilization": (DialectSeries("vllm:cache_config_info", label="gpu_memory_utilization"),),
    },
    "sglang": {
        "running": ("sglang:num_running_reqs",),
        "waiting": ("sglang:num_queue_reqs",),
        "kv_used_ratio": ("sglang:token_usage",),
        "preemptions": ("sglang:num_retracted_requests",),
        "prompt_tokens": ("sglang:prompt_tokens",),
        "output_tokens": ("sglang:generation_tokens",),
        "prefix_queries": ("sglang:prompt_tokens",),
        "prefix_hits": ("sglang:cached_tokens",),
        "prefix_hit_ratio": ("sglang:cache_hit_rate",),
        "requests_done": ("sglang:num_requests",),
        "requests_aborted": ("sglang:num_aborted_requests",),
        **_histogram("queue_s", "sglang:queue_time_seconds"),
        **_histogram("ttft_s", "sglang:time_to_first_token_seconds"),
        **_histogram("itl_s", "sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
        **_histogram("e2e_s", "sglang:e2e_request_latency_seconds"),
        "spec_accept_ratio": ("sglang:spec_accept_rate",),
        "kv_blocks": (DialectSeries("sglang:cache_config_info", label="num_pages"),),
        "block_size": (DialectSeries("sglang:cache_config_info", label="page_size"),),
    },
    "trtllm": {
        "running": ("trtllm:num_requests_running",),
        "waiting": ("trtllm:num_requests_waiting",),
        "kv_used_ratio": ("trtllm:kv_cache_utilization",),
        "prompt_tokens": ("trtllm:prompt_tokens",),
        "output_tokens": ("trtllm:generation_tokens",),
        "prefix_queries": ("trtllm:prompt_tokens",),
        "prefix_hits": ("trtllm:prompt_cached_tokens", "trtllm:prompt_cache_hit_tokens"),
        "prefix_hit_ratio": ("trtllm:kv_cache_hit_rate",),
        "requests_done": ("trtllm:request_success", "request_success"),
        "requests_failed": ("trtllm:request_error",),
        **_histogram("queue_s", "trtllm:request_queue_time_seconds", "request_queue_time_seconds"),
        **_histogram("prefill_s", "trtllm:request_prefill_time_seconds"),
        **_histogram("decode_s", "trtllm:request_decode_time_seconds"),
        **_histogram("ttft_s", "trtllm:time_to_first_token_seconds", "time_to_first_token_seconds"),
        **_histogram("tpot_s", "trtllm:time_per_output_token_seconds", "time_per_output_token_seconds"),
        **_histogram("e2e_s", "trtllm:e2e_request_latency_seconds", "e2e_request_latency_seconds"),
        "spec_draft_tokens": ("trtllm:spec_decode_drafted_tokens",),
        "spec_accepted_tokens": ("trtllm:spec_decode_accepted_tokens",),
        "max_num_seqs": ("trtllm:max_num_active_requests",),
        "kv_blocks": ("trtllm:kv_cache_max_blocks",),
        "block_size": ("trtllm:kv_cache_tokens_per_block",),
    },
    "nim": {
        "running": ("num_requests_running",),
        "waiting": ("num_requests_waiting",),
        "kv_used_ratio": ("gpu_cache_usage_perc",),
        "prompt_tokens": ("prompt_tokens",),
        "output_tokens": ("generation_tokens",),
        "requests_done": (
            "request_success",
            DialectSeries("request_finish", skip={"finished_reason": ("abort", "error")}),
        ),
        "requests_failed": ("request_failure",),
        **_histogram("ttft_s", "time_to_first_token_seconds"),
        **_histogram("itl_s", "time_per_output_token_seconds"),
        **_histogram("e2e_s", "e2e_request_latency_seconds"),
        "max_num_seqs": ("num_request_max",),
    },
    "tgi": {
        "running": ("tgi_batch_current_size",),
        "waiting": ("tgi_queue_size",),
        "prompt_tokens": ("tgi_request_input_length_sum",),
        "output_tokens": ("tgi_request_generated_tokens_sum",),
        "requests_done": ("tgi_request_success",),
        "requests_failed": (DialectSeries("tgi_request_failure", skip={"err": ("overloaded",)}),),
        "requests_rejected": (DialectSeries("tgi_request_failure", only={"err": ("overloaded",)}),),
        **_histogram("queue_s", "tgi_request_queue_duration"),
        **_histogram("tpot_s", "tgi_request_mean_time_per_token_duration"),
        **_histogram("e2e_s", "tgi_request_duration"),
        "engine_steps": (DialectSeries("tgi_batch_inference_count", only={"method": ("prefill", "decode")}),),
    },
    "lmdeploy": {
        "running": ("lmdeploy:num_requests_running",),
        "waiting": ("lmdeploy:num_requests_waiting",),
        "kv_used_ratio": ("lmdeploy:gpu_cache_usage_perc",),
        "prompt_tokens": ("lmdeploy:prompt_tokens",),
        "output_tokens": ("lmdeploy:generation_tokens",),
        "prefix_queries": ("lmdeploy:prompt_tokens",),
        "prefix_hits": ("lmdeploy:cached_tokens",),
        "prefix_hit_ratio": ("lmdeploy:prefix_cache_hit_rate",),
        "requests_done": ("lmdeploy:request_success", "lmdeploy:num_requests_succeeded"),
        "requests_failed": ("lmdeploy:num_requests_failed",),
        **_histogram("queue_s", "lmdeploy:request_queue_time_seconds"),
        **_histogram("prefill_s", "lmdeploy:request_prefill_time_seconds"),
        **_histogram("decode_s", "lmdeploy:request_decode_time_seconds"),
        **_histogram("ttft_s", "lmdeploy:time_to_first_token_seconds"),
        **_histogram("itl_s", "lmdeploy:iter_token_latency"),
        **_histogram("tpot_s", "lmdeploy:time_per_output_token_seconds"),
        **_histogram("e2e_s", "lmdeploy:e2e_request_latency_seconds"),
        "engine_steps": ("lmdeploy:iteration_tokens_total_count",),
        "spec_draft_tokens": ("lmdeploy:spec_decode_num_draft_tokens",),
        "spec_accepted_tokens": ("lmdeploy:spec_decode_num_accepted_tokens",),
        "spec_accept_ratio": ("lmdeploy:spec_decode_mean_accept_rate",),
    },
    "llamacpp": {
        "running": ("llamacpp:requests_processing",),
        "waiting": ("llamacpp:requests_deferred",),
        "kv_used_ratio": ("llamacpp:kv_cache_usage_ratio",),
        "prompt_tokens": (_LLAMACPP_PROMPT, "llamacpp:prompt_tokens"),
        "output_tokens": ("llamacpp:tokens_predicted",),
        "prefix_queries": (_LLAMACPP_PROMPT,),
        "prefix_hits": ("llamacpp:prompt_tokens_cached",),
        "prefill_s_sum": ("llamacpp:prompt_seconds",),
        "decode_s_sum": ("llamacpp:tokens_predicted_seconds",),
        "engine_steps": ("llamacpp:n_decode",),
        "spec_draft_tokens": ("llamacpp:spec_decode_num_draft_tokens",),
        "spec_accepted_tokens": ("llamacpp:spec_decode_num_accepted_tokens",),
    },
    "dcgm": {
        "gpu_util_ratio": (DialectSeries("DCGM_FI_DEV_GPU_UTIL", scale=0.01), "DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
        "gpu_memory_used_bytes": (DialectSeries("DCGM_FI_DEV_FB_USED", scale=1048576.0),),
        "gpu_memory_free_bytes": (DialectSeries("DCGM_FI_DEV_FB_FREE", scale=1048576.0),),
        "gpu_temperature_c": ("DCGM_FI_DEV_GPU_TEMP",),
        "gpu_power_w": ("DCGM_FI_DEV_POWER_USAGE",),
        "gpu_sm_clock_hz": (DialectSeries("DCGM_FI_DEV_SM_CLOCK", scale=1e6),),
        "gpu_xid_errors": ("DCGM_FI_DEV_XID_ERRORS",),
    },
}

COPIES: dict[str, tuple[str, ...]] = {"sglang": ("tp_rank", "pp_rank", "moe_ep_rank")}
"""Rank labels whose series repeat one number: the largest of the copies counts once. Other labels are summed over."""

METRICS_PATHS = ("/metrics", "/prometheus/metrics", "/v1/metrics")
"""Where pages are looked for. TensorRT-LLM's ``/metrics`` is JSON, and reading it takes the data from others."""


def spellings(name: str, canonical: str) -> tuple[str, ...]:
    """How ``name`` may be written on a page, the native way first."""
    names = [name]
    if CANONICAL[canonical].kind == "counter" and not name.endswith(("_sum", "_count", "_total")):
        names.insert(0, f"{name}_total")
    wrapped = [n for native in names if ":" in native for n in (native.replace(":", "_"), native)]
    return (*names, *(n for n in wrapped if n not in names), *(f"ray_{n}" for n in wrapped))


def names_of(source: Source, canonical: str) -> tuple[tuple[str, ...], ...]:
    """The spellings of each name that ``source`` needs on the page: one tuple, two where it adds two."""
    if isinstance(source, str):
        return (spellings(source, canonical),)
    return tuple(spellings(name, canonical) for name in (source.name, source.plus) if name)


def wanted(dialect: str) -> frozenset[str]:
    """Every name that a page of ``dialect`` may carry."""
    return frozenset(
        spelling
        for canonical, sources in {**DIALECTS[dialect], **COMMON}.items()
        for source in sources
        for names in names_of(source, canonical)
        for spelling in names
    )


def detect(names: Collection[str]) -> str | None:
    """The dialect that explains most of the sample names on a page, or None.

    A name that carries its engine's prefix is enough; of unprefixed names (NIM, the first TensorRT-LLM) two are
    asked for, because another program may use one of them.
    """
    return next(iter(candidates(names)), None)


def candidates(names: Collection[str]) -> list[str]:
    """The dialects that sample names on a page may be of, the one that explains most of them first; see ``detect``."""
    hits, common = {}, {name for sources in COMMON.values() for name in sources}
    for dialect in DIALECTS:
        found = (wanted(dialect) - common).intersection(names)
        if len(found) > 1 or any(prefixed(name, dialect) for name in found):
            hits[dialect] = len(found)
    return sorted(hits, key=lambda dialect: -hits[dialect])


def prefixed(name: str, dialect: str) -> bool:
    """A sample's name begins as those of ``dialect`` do, through Ray or not."""
    return name.lower().removeprefix("ray_").startswith(dialect)
