"""How each engine names its own numbers, as data (dialects.toml). Pure: names in, names out; no page is read here.

What no name on a page shows is absent, never 0.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from loadramp.registry import data_of

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


_FOLDS: dict[Across, Callable[[Collection[float]], float]] = {
    "sum": math.fsum,
    "max": max,
    "min": min,
    "mean": lambda numbers: math.fsum(numbers) / len(numbers),
}
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


def _dialect(table: Mapping[str, Any]) -> Dialect:
    """One engine's table of dialects.toml; a timing stands for the two counters of its histograms."""
    dialect: dict[str, tuple[Source, ...]] = {}
    for name, sources in msgspec.convert(table, dict[str, tuple[Source, ...]]).items():
        if name in CANONICAL:
            dialect[name] = sources
        else:
            dialect |= {f"{name}_{part}": tuple(f"{family}_{part}" for family in sources) for part in ("sum", "count")}
    return dialect


DIALECTS: dict[str, Dialect] = {
    engine: _dialect(table) for engine, table in data_of(__package__, "dialects.toml").items()
}

COPIES: dict[str, tuple[str, ...]] = {"sglang": ("tp_rank", "pp_rank", "moe_ep_rank")}
"""Rank labels whose series repeat one number: the largest of the copies counts once. Other labels are summed over."""

METRICS_PATHS = ("/metrics", "/prometheus/metrics", "/v1/metrics")
"""Where pages are looked for. TensorRT-LLM's ``/metrics`` is JSON, and reading it takes the data from others."""


COUNTERS = frozenset(name for name, quantity in CANONICAL.items() if quantity.kind == "counter")


def fold(name: str, numbers: Collection[float]) -> float:
    """One number of several (at least one: of engines, ranks, GPUs or replicas), as the quantity ``name`` says."""
    quantity = CANONICAL.get(name)
    return _FOLDS[quantity.across if quantity else "sum"](numbers)


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


def candidates(names: Collection[str]) -> list[str]:
    """The dialects that sample names on a page may be of, the one that explains most of them first.

    A name that carries its engine's prefix is enough; of unprefixed names (NIM, the first TensorRT-LLM) two are
    asked for, because another program may use one of them.
    """
    hits, common = {}, {name for sources in COMMON.values() for name in sources}
    for dialect in DIALECTS:
        matches = (wanted(dialect) - common).intersection(names)
        if len(matches) > 1 or any(prefixed(name, dialect) for name in matches):
            hits[dialect] = len(matches)
    return sorted(hits, key=lambda dialect: -hits[dialect])


def prefixed(name: str, dialect: str) -> bool:
    """A sample's name begins as those of ``dialect`` do, through Ray or not."""
    return name.lower().removeprefix("ray_").startswith(dialect)
