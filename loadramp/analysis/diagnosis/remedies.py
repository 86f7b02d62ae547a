"""Cures as a table: what to do, when it matters, and each engine's own flag for it. Data only.

Rule: a flag that is not known to exist is left out; a wrong one is worse than none. They are those of vLLM 0.32's help,
SGLang's server arguments, trtllm-serve's options and YAML, TGI's launcher, LMDeploy's api_server and llama-server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ENGINES = ("vllm", "sglang", "trtllm", "tgi", "lmdeploy", "llamacpp")


@dataclass(slots=True, frozen=True)
class Remedy:
    """A cure as it stands in the table. ``flags`` by engine; ``{longest} {context} {fewer} {more}`` are figures of the
    run."""

    action: str
    when: str
    flags: Mapping[str, str] = field(default_factory=dict)


REMEDIES: dict[str, Remedy] = {
    "quantized_weights": Remedy(
        "Serve quantized weights: FP8 or INT4.",
        "when weights take most of the GPU's memory, or each step reads them for too few requests: less to read is "
        "faster and leaves room for KV cache; check the answers' quality",
        {"vllm": "--quantization fp8", "sglang": "--quantization fp8", "tgi": "--quantize fp8",
         "lmdeploy": "--model-format awq (with a model quantized by AWQ)",
         "trtllm": "a checkpoint quantized to FP8 or NVFP4",
         "llamacpp": "a GGUF file of fewer bits, such as Q4_K_M"},
    ),
    "fp8_kv_cache": Remedy(
        "Store the KV cache in 8 bits.",
        "when the KV cache is full: about twice as many tokens fit; check long answers' quality",
        {"vllm": "--kv-cache-dtype fp8", "sglang": "--kv-cache-dtype fp8_e4m3", "tgi": "--kv-cache-dtype fp8_e4m3fn",
         "lmdeploy": "--quant-policy 8", "trtllm": "kv_cache_config.dtype: fp8 in the YAML of --extra_llm_api_options",
         "llamacpp": "--cache-type-k q8_0 --cache-type-v q8_0"},
    ),
    "prefix_caching": Remedy(
        "Share equal prefixes of prompts (prefix caching).",
        "when prompts begin alike (system prompts, turns of a chat); no use for prompts that differ from the start",
        {"vllm": "--enable-prefix-caching (on by default since V1)", "lmdeploy": "--enable-prefix-caching",
         "sglang": "on unless --disable-radix-cache is given",
         "trtllm": "kv_cache_config.enable_block_reuse: true in the YAML of --extra_llm_api_options",
         "llamacpp": "--cache-prompt (on by default) and --cache-reuse 256"},
    ),
    "chunked_prefill": Remedy(
        "Compute prompts in chunks, smaller ones.",
        "when tokens wait for prompts of others: a smaller chunk makes ITL smoother and TTFT of long prompts longer",
        {"vllm": "--enable-chunked-prefill --max-num-batched-tokens 2048", "sglang": "--chunked-prefill-size 2048",
         "trtllm": "--max_num_tokens 2048, and enable_chunked_prefill: true in the YAML of --extra_llm_api_options",
         "tgi": "--max-batch-prefill-tokens 2048",
         "lmdeploy": "--max-prefill-token-num 2048", "llamacpp": "--batch-size 512"},
    ),
    "context_cap": Remedy(
        "Cap the context at what is needed.",
        "when a few very long requests hold much of the KV cache; the longest request of this run had "
        "{longest} tokens",
        {"vllm": "--max-model-len {context}", "sglang": "--context-length {context}",
         "trtllm": "--max_seq_len {context}", "tgi": "--max-total-tokens {context}",
         "lmdeploy": "--session-len {context}", "llamacpp": "--ctx-size N (the slots of --parallel share it)"},
    ),
    "fewer_sequences": Remedy(
        "Let fewer requests run at once.",
        "when running requests are thrown out: they wait in the queue instead, and none is computed twice",
        {"vllm": "--max-num-seqs {fewer}", "sglang": "--max-running-requests {fewer}",
         "trtllm": "--max_batch_size {fewer}", "lmdeploy": "--max-batch-size {fewer}",
         "llamacpp": "--parallel {fewer}"},
    ),
    "more_sequences": Remedy(
        "Let more requests run at once.",
        "when the batch stands at its limit while the KV cache has room and ITL has, too",
        {"vllm": "--max-num-seqs {more}", "sglang": "--max-running-requests {more}",
         "trtllm": "--max_batch_size {more}", "lmdeploy": "--max-batch-size {more}", "llamacpp": "--parallel {more}"},
    ),
    "more_kv_memory": Remedy(
        "Give the KV cache more of the GPU's memory.",
        "when the engine was given less; beyond 0.90 it ends in out of memory under load, unless nothing else uses the "
        "GPU, which a ramp does not see",
        {"vllm": "--gpu-memory-utilization 0.90", "sglang": "--mem-fraction-static 0.9",
         "trtllm": "--kv_cache_free_gpu_memory_fraction 0.9", "lmdeploy": "--cache-max-entry-count 0.9"},
    ),
    "less_memory": Remedy(
        "Leave more of the GPU's memory free.",
        "when memory runs out under load: activations and graphs need room beside weights and KV cache",
        {"vllm": "--gpu-memory-utilization 0.88", "sglang": "--mem-fraction-static 0.8",
         "trtllm": "--kv_cache_free_gpu_memory_fraction 0.8", "lmdeploy": "--cache-max-entry-count 0.6",
         "tgi": "--cuda-memory-fraction 0.9"},
    ),
    "memory_budget": Remedy(
        "Recompute the memory budget: weights, KV cache, and 5 to 10 % for the rest.",
        "when memory runs out at start or at admission: loadramp advise RUN --gpu NAME --model-config config.json",
    ),
    "larger_gpu": Remedy(
        "Give a replica more GPU memory: a larger GPU, or more of them.",
        "when the flags above are not enough: what weights do not take is KV cache",
        {"vllm": "--tensor-parallel-size N", "sglang": "--tp-size N", "trtllm": "--tp_size N", "lmdeploy": "--tp N",
         "tgi": "--num-shard N"},
    ),
    "replicas": Remedy(
        "Add replicas behind a load balancer.",
        "when the steps above are done and one replica is still too small: capacity grows with their number",
        {"vllm": "--data-parallel-size 2", "sglang": "--dp-size 2"},
    ),
    "queue_limit": Remedy(
        "Refuse early what cannot be answered in time.",
        "when callers give up waiting anyway: a short queue answers with an error at once and keeps TTFT low",
        {"vllm": "--max-num-queued-reqs N (vLLM 0.29 or newer)", "sglang": "--max-queued-requests N",
         "tgi": "--max-concurrent-requests N"},
    ),
    "raise_queue_limit": Remedy(
        "Let more requests wait, or spread them.",
        "when refusals are not meant: raise the limit of server, gateway or quota; a longer queue is a longer TTFT",
        {"vllm": "--max-num-queued-reqs N (vLLM 0.29 or newer)", "sglang": "--max-queued-requests N",
         "tgi": "--max-concurrent-requests N"},
    ),
    "more_connections": Remedy(
        "Let the server, and what is before it, hold more connections.",
        "when connections are refused while the server goes on: its limit on open files (ulimit -n, LimitNOFILE), the "
        "listen backlog (net.core.somaxconn), a proxy's limit on connections; a longer queue is a longer TTFT",
        {"vllm": "--api-server-count N"},
    ),
    "disaggregation": Remedy(
        "Send long prompts to replicas of their own, or compute prompts on other GPUs than answers.",
        "when long and short prompts share a server and smaller chunks are not enough",
    ),
    "collectives": Remedy(
        "Look at what the GPUs wait for: nvidia-smi topo -m, NCCL_DEBUG=INFO, clocks, other processes on the host.",
        "when all streams freeze together at any load: slow collectives, garbage collection, recompilation",
        {"vllm": "--disable-custom-all-reduce (to tell whether it is to blame)"},
    ),
    "steady_host": Remedy(
        "Look at the CPU of the server's host while it is slow: top, perf top, cpu.stat of its cgroup (nr_throttled).",
        "when steps double for seconds at any load: the host that launches the kernels is busy, throttled or shared; "
        "give the server cores of its own, and the load generator others",
    ),
    "cuda_graphs": Remedy(
        "Let the engine replay CUDA graphs instead of launching every kernel from the host.",
        "when the server was started without them (--enforce-eager and the like): then each step waits for the host",
        {"vllm": "--no-enforce-eager"},
    ),
    "steady_machine": Remedy(
        "Look at the clocks (nvidia-smi -q -d CLOCK,PERFORMANCE,POWER) and at who else uses the machine.",
        "when the GPU is capped by heat or power, or neighbours on the host, the GPU or the disk come and go",
    ),
    "longer_steps": Remedy(
        "Measure long enough to see slow and fast stretches many times, and repeat the run before comparing it.",
        "always while it lasts: a short step says how much of it was slow, not how fast the engine is",
    ),
    "fewer_gpus_each": Remedy(
        "Spread the model over fewer GPUs, and run more replicas.",
        "when it fits: each token needs fewer exchanges between GPUs",
        {"vllm": "--tensor-parallel-size N", "sglang": "--tp-size N", "trtllm": "--tp_size N", "lmdeploy": "--tp N",
         "tgi": "--num-shard N"},
    ),
    "unbuffered_proxy": Remedy(
        "Turn buffering off on the way.",
        "always, for streams: nginx proxy_buffering off, or the header X-Accel-Buffering: no from the server",
    ),
    "fixed_replicas": Remedy(
        "Hold the number of replicas still while measuring, and list each one's metrics page.",
        "when an autoscaler, a spot machine or a neighbour changes the capacity: a ramp measures one at a time",
    ),
    "stronger_client": Remedy(
        "Give the client more: workers, cores, a machine of its own.",
        "always: until then the server has not been measured",
    ),
    "more_room": Remedy(
        "Let more requests be in flight: raise max_in_flight, or where it is not set the limit on open files.",
        "always; for files: ulimit -n in this shell, ulimit -Hn as root, LimitNOFILE in a systemd unit, docker run "
        "--ulimit nofile=N",
    ),
    "draft": Remedy(
        "Propose fewer tokens, use a draft closer to the model, or switch speculation off.",
        "when less than 60 % are accepted; at high load speculation costs throughput even then",
        {"vllm": "num_speculative_tokens in --speculative-config", "sglang": "--speculative-num-draft-tokens N"},
    ),
    "prefix_caching_off": Remedy(
        "Leave prefix caching out of the plan, or switch it off.",
        "when under 35 % of the prompt tokens are found: it brings little, and looking costs a little",
        {"vllm": "--no-enable-prefix-caching", "sglang": "--disable-radix-cache"},
    ),
    "fresh_prompts": Remedy(
        "Use another seed, or restart the server before the run.",
        "when prompts are meant to be new: a warm cache flatters TTFT",
    ),
    "stream_path": Remedy(
        "Measure beside the server, without proxy and network between.",
        "when single streams freeze at any load: packet loss, a proxy, or one slow replica among several",
    ),
    "logs": Remedy("Read the server's log of that minute, then its runbook below.", "always"),
}  # fmt: skip
