"""What to do about a finding: cures in the order in which they are worth trying, and how to see that one helps."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from loadramp.analysis.diagnosis.remedies import ENGINES, REMEDIES, Version, has_flag, version_of
from loadramp.record.table import Run
from loadramp.record.types import Cure, Finding
from loadramp.registry import ScenarioError

CURES: dict[str, tuple[str, ...]] = {
    "client_limited": ("stronger_client",),
    "hardware_fault": ("logs",),
    "out_of_memory": ("logs", "memory_budget", "less_memory", "context_cap", "fewer_sequences", "fp8_kv_cache",
                      "chunked_prefill", "quantized_weights"),
    "server_down": ("logs", "less_memory", "queue_limit"),
    "connections_refused": ("more_connections", "replicas", "queue_limit"),
    "admission_failure": ("raise_queue_limit", "replicas"),
    "errors": ("logs",),
    "autoscaler_moved": ("fixed_replicas",),
    "proxy_buffering": ("unbuffered_proxy",),
    "kv_eviction": ("context_cap", "fp8_kv_cache", "prefix_caching", "fewer_sequences", "more_kv_memory",
                    "quantized_weights", "larger_gpu", "replicas"),
    "kv_full": ("context_cap", "fp8_kv_cache", "prefix_caching", "more_kv_memory", "quantized_weights", "larger_gpu",
                "replicas"),
    "scheduler_oversubscription": ("more_sequences", "replicas", "queue_limit"),
    "compute_bound": ("quantized_weights", "prefix_caching", "chunked_prefill", "replicas", "queue_limit"),
    "engine_unstable": ("steady_host", "cuda_graphs", "steady_machine", "longer_steps"),
    "engine_stall": ("collectives", "fewer_gpus_each"),
    "prefill_contention": ("chunked_prefill", "disaggregation"),  # as good as every engine shares prefixes by itself
    "stream_stall": ("stream_path",),
    "stalls": ("stream_path", "logs"),
    "speculation_weak": ("draft",),
    "prefix_cache_idle": ("prefix_caching_off",),
    "prefix_cache_accidental": ("fresh_prompts",),
}  # fmt: skip
"""Finding to cures, in the order in which they are worth trying: that of RANK, save for OF_CAUSE."""

OF_CAUSE = frozenset({"kv_eviction", "kv_full", "out_of_memory"})
"""Findings whose cures have an order of their own: first what needs only a flag, then another checkpoint, then GPUs."""

RANK = ("quantized_weights", "fp8_kv_cache", "prefix_caching", "chunked_prefill", "context_cap", "fewer_sequences",
        "more_sequences", "more_kv_memory", "less_memory", "replicas", "queue_limit")  # fmt: skip
"""By general effect: what frees memory and time for good, then limits, then more hardware."""


FIGURES = ("longest", "context", "fewer", "more")


def with_cures(findings: Sequence[Finding], run: Run) -> list[Finding]:
    """The findings of a run with what to do about each."""
    engine, figures = engine_of(run), figures_of(run)
    cured = [replace(finding, cures=_that_exist(cures_of(finding.code, engine, figures), run)) for finding in findings]
    if not run.table.out_of_room:
        return cured
    room = REMEDIES["more_room"]  # a faster client would not help
    cure = Cure("more_room", room.action, room.when, proof="run this ramp again; no step may be void")
    return [replace(finding, cures=(cure,)) if finding.code == "client_limited" else finding for finding in cured]


def _that_exist(cures: tuple[Cure, ...], run: Run) -> tuple[Cure, ...]:
    """Cures without the flags that the vLLM of this run does not have."""
    version = met_version(run)
    return tuple(
        cure if has_flag(REMEDIES[cure.name].needs, version) else replace(cure, change="", proof=proof("", ""))
        for cure in cures
    )


def met_version(run: Run) -> Version | None:
    """The version of vLLM that the run met; None for other engines, and where it was not told."""
    version = run.info.target.version
    if not version or engine_of(run) != "vllm":
        return None
    try:
        return version_of(str(version))
    except ScenarioError:  # a server may tell anything
        return None


def cures_of(code: str, engine: str, figures: Mapping[str, int]) -> tuple[Cure, ...]:
    """The cures of one kind of finding for one engine (empty: not known).

    Args:
        code: of the finding.
        engine: a key of ENGINES.
        figures: names of FIGURES; the places of those that are missing show N.
    """
    out = []
    for name in CURES.get(code, ()):
        remedy = REMEDIES[name]
        change = _filled(remedy.change(engine), figures)
        flag = change if engine in remedy.flags else ""
        out.append(Cure(name, remedy.action, _filled(remedy.when, figures), change, proof(code, flag)))
    return tuple(out)


def _filled(text: str, figures: Mapping[str, int]) -> str:
    """``text`` with its places filled; N where a figure is missing."""
    for name in FIGURES:
        text = text.replace(f"{{{name}}}", str(figures.get(name, "N")))
    return text


def proof(code: str, flag: str) -> str:
    """How to see whether a cure has helped; ``flag``: what to start the server with, where that is known."""
    if code == "client_limited":
        return "run this ramp again with --set fleet.workers=N; it is a measurement when no step is void"
    return (
        f"run this ramp again with {flag or 'this changed'}, same scenario and seed, and compare: "
        "loadramp compare BASE CAND"
    )


def engine_of(run: Run) -> str:
    """Which engine it is, from its metrics page or from what it says of itself; empty when unknown."""
    if run.info.dialect in ENGINES:
        return run.info.dialect or ""
    owner = str(run.info.target.engine or "").lower().replace(".", "").replace("-", "").replace("_", "")
    names = {"tensorrtllm": "trtllm", "textgenerationinference": "tgi"}
    return owner if owner in ENGINES else names.get(owner, "")


def figures_of(run: Run) -> dict[str, int]:
    """Figures of this run that flags can be given: its longest request in tokens, a context a tenth above it, and
    batches a fifth smaller and twice as large as the largest it had."""
    table = run.table
    out: dict[str, int] = {}
    sizes = table.prompt_tokens + table.output_tokens
    if not np.isnan(sizes).all():
        longest = int(np.nanmax(sizes))
        out |= {"longest": longest, "context": -(-longest * 11 // 10 // 256) * 256}
    running = [row.running_max for row in run.rows if row.running_max]
    if running:
        out |= {"fewer": max(1, int(0.8 * max(running))), "more": 2 * int(max(running))}
    return out
