"""What to do at once, step by step, when it happens in production. Plain words; the report shows them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Runbook:
    """First things first."""

    title: str
    steps: tuple[str, ...]


RUNBOOKS: dict[str, Runbook] = {
    "high_latency": Runbook(
        "High latency",
        (
            "Look at the waiting queue first. If it grows, the load is above the ceiling: shed or divert load until it "
            "shrinks; nothing else helps meanwhile.",
            "No queue, but slow tokens: compare preemptions, KV-cache use and prompt lengths with a good hour's.",
            "Preemptions or a full KV cache: lower the limit on running requests or on the context, then plan for "
            "more KV cache.",
            "Tokens stutter when long prompts arrive: smaller prefill chunks, or other replicas for long prompts.",
            "All streams stutter together at any load: GPU clocks, temperature, other processes on the host, NCCL.",
            "Latency at the client but not in the server's own metrics: proxy, load balancer, network, client.",
            "Take the rate down to the sustained one, wait until requests in flight are back to normal, then raise it.",
        ),
    ),
    "out_of_memory": Runbook(
        "Out of memory",
        (
            "Take traffic off the replica before it restarts, or it dies again in the warm-up.",
            "Read in the log where it happened: while loading (weights do not fit), in prefill (chunk or batch of "
            "prompts too large), in decode (too many requests at once), or on the host (the kernel's OOM killer).",
            "Prefill: smaller chunks (max batched tokens). Decode: fewer running requests. Both: leave more of the "
            "GPU's memory free.",
            "Cap the context at what callers need: one request of the model's full length may hold a large part of the "
            "KV cache.",
            "Then free memory for good: quantized weights, KV cache in 8 bits, more GPUs a replica.",
            "Put a limit on the queue, so that the next peak is refused instead of killing the server.",
            "Run the ramp again past the rate at which it died, before traffic comes back.",
        ),
    ),
    "hardware_fault": Runbook(
        "Hardware fault",
        (
            "Take the node out of the load balancer; let running answers end if they still move.",
            "Note the Xid code (dmesg, DCGM) and look it up in NVIDIA's list: 13, 31, 43 and 45 are mostly the "
            "program's fault; 48, 63, 64, 74, 79, 94 and 95 speak of memory, NVLink or a GPU that is gone.",
            "Read ECC errors, retired pages, temperature, power and clocks (nvidia-smi -q); a throttled GPU slows "
            "every rank of a tensor-parallel group.",
            "Reset the GPU or reboot the node, run the vendor's diagnostics (dcgmi diag -r 3), and only then let it "
            "serve.",
            "If it comes back, replace the part: a node that fails once a week costs more than it serves.",
            "Repeat a short ramp on the node and compare with a good one before it takes traffic.",
        ),
    ),
}

RUNBOOK_OF: dict[str, str] = {
    "out_of_memory": "out_of_memory",
    "server_down": "out_of_memory",
    "hardware_fault": "hardware_fault",
    "engine_stall": "hardware_fault",
    "kv_eviction": "high_latency",
    "kv_full": "high_latency",
    "scheduler_oversubscription": "high_latency",
    "compute_bound": "high_latency",
    "prefill_contention": "high_latency",
}
"""Finding to runbook."""


def runbook_of(code: str) -> Runbook | None:
    """The runbook for a finding, None where there is nothing to do at once."""
    name = RUNBOOK_OF.get(code)
    return RUNBOOKS[name] if name else None
