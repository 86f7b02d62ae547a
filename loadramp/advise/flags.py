"""The command that starts the engine, with a reason for every flag. Pure.

Rule: only flags that exist: those of vLLM 0.32's help and of SGLang's server arguments; a test holds them against both.
analysis/diagnosis/remedies.py says which of them an older vLLM does not have.
"""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor

from loadramp.advise.demand import Demand
from loadramp.advise.gpus import NO_FP8, NO_FP8_KV
from loadramp.advise.memory import Envelope
from loadramp.advise.model import Model
from loadramp.analysis.diagnosis.remedies import SINCE, Version, has_flag
from loadramp.units import percent, plural

REUSE_RATIO = 0.35
"""Prefix caching pays from this share of reused prompt tokens on."""
CONTEXT_STEP = 256
LONGEST_FACTOR = 1.25
"""The cap is raised to the longest request seen where that is at most so many times the p95."""
USUAL_SEQUENCES = (128, 256)
"""Sequences at once in production; more risks running out of memory."""
MOST_SEQUENCES = 1024
SMALL_CHUNK = 2048


@dataclass(slots=True, frozen=True)
class Flag:
    """One flag with its value (empty: a switch) and why. ``set`` False: it is left out, and why."""

    name: str
    value: str
    reason: str
    set: bool = True

    @property
    def words(self) -> str:
        return f"{self.name} {self.value}".strip()


@dataclass(slots=True, frozen=True)
class EnginePlan:
    """What the flags are made of."""

    envelope: Envelope
    context_tokens: int
    context_reason: str
    sequences: int
    sequences_reason: str
    vllm: Version | None = None
    """Version of vLLM; None: not known."""


def plan_of(envelope: Envelope, demand: Demand, context: tuple[int, str], vllm: Version | None = None) -> EnginePlan:
    """Sequences at once for an envelope that holds at least one."""
    sequences, why = sequences_of(envelope, demand, context[0])
    return EnginePlan(envelope, context[0], context[1], sequences, why, vllm)


def context_of(demand: Demand, most: int | None) -> tuple[int, str] | None:
    """The context cap and why; None where no lengths are known.

    The p95 of input plus output, rounded up to 256; the longest request where it is not much longer.
    """
    if demand.context_p95 is None:
        return None
    cap = _up(demand.context_p95, CONTEXT_STEP)
    longest = demand.context_max or demand.context_p95
    why = f"95 of 100 requests have at most {plural(demand.context_p95, 'token')}, input and output together"
    if not demand.requests:
        why = f"requests have {plural(demand.context_p95, 'token')}, as given; longer ones would be refused"
    if longest > cap and longest <= LONGEST_FACTOR * cap:
        cap = _up(longest, CONTEXT_STEP)
        why += f"; the longest, {longest:,}, is not much longer"
    elif longest > cap:
        beyond = f"{demand.beyond_p95:,} of {demand.requests:,} were longer"
        why += f"; {beyond} (up to {longest:,}): what is beyond the cap is refused, so raise it to serve them"
    if most is not None and cap > most:
        return most, f"{why}; the model itself ends at {most:,}"
    return cap, why


def sequences_of(envelope: Envelope, demand: Demand, context_tokens: int) -> tuple[int, str]:
    """How many sequences at once, and why.

    128 to 256, by what was seen at once; more only where more was seen. Fewer where the KV cache holds fewer at the p95
    length, or the ITL limit was seen to bear fewer.
    """
    typical = min(demand.context_p95 or context_tokens, context_tokens)
    room = envelope.sequences(typical)
    most, why = _usual(demand)
    holds = f"the KV cache holds {plural(room, 'sequence')} of {plural(typical, 'token')}"
    if room < most:
        most, why = room, holds
    else:
        why += f"; {holds}"
    if demand.slo_running is not None and demand.slo_running < most:
        most = demand.slo_running
        why = f"with more than {most} at once p99 ITL was beyond its limit; {holds}"
    elif demand.largest_batch is not None and demand.largest_batch < most:
        why += f"; how tokens fare with more than {demand.largest_batch} at once was not measured"
    rounded = most // 8 * 8 if most >= 16 else most
    if rounded != most:
        why += "; rounded down to a multiple of 8"
    if demand.in_flight is not None:
        why += f"; {_whole(demand.in_flight)} were in flight at the rate that was sustained"
    return max(1, rounded), why


def _usual(demand: Demand) -> tuple[int, str]:
    """Sequences at once by what was seen at once, and why."""
    low, high = USUAL_SEQUENCES
    peaks = [value for value in (demand.in_flight, demand.largest_batch) if value is not None]
    if not peaks:
        return high, f"{low} to {high} is usual, more risks running out of memory"
    need = _up(max(peaks), 8)
    if need <= low:
        return low, f"{low} to {high} is usual, and at most {_whole(max(peaks))} were seen at once"
    if need <= high:
        return need, f"{_whole(max(peaks))} were seen at once, within the usual {low} to {high}"
    most = min(need, MOST_SEQUENCES)
    return most, f"{_whole(max(peaks))} were seen at once, more than the usual {low} to {high}: watch the GPU's memory"


def vllm_flags(plan: EnginePlan, demand: Demand) -> list[Flag]:
    """Flags of ``vllm serve``."""
    return [
        _group("--tensor-parallel-size", plan),
        Flag("--max-model-len", str(plan.context_tokens), plan.context_reason),
        Flag("--max-num-seqs", str(plan.sequences), plan.sequences_reason),
        Flag("--gpu-memory-utilization", f"{plan.envelope.utilization:.2f}", _rest(plan.envelope)),
        *_dtype(plan.envelope),
        *_quantized(plan.envelope),
        *_kv_type(plan.envelope, "fp8"),
        _prefix(demand, "--enable-prefix-caching", "--no-enable-prefix-caching"),
        *_chunks(demand, "--max-num-batched-tokens"),
        *_queue(plan, demand, "--max-num-queued-reqs", running_too=True),
    ]


def sglang_flags(plan: EnginePlan, demand: Demand) -> list[Flag]:
    """Flags of ``python -m sglang.launch_server``."""
    envelope = plan.envelope
    static = floor((envelope.weight_bytes + envelope.usable_bytes) / envelope.gpu.memory_bytes * 100.0) / 100.0
    prefix = _prefix(demand, "", "--disable-radix-cache")
    return [
        _group("--tp-size", plan),
        Flag("--context-length", str(plan.context_tokens), plan.context_reason),
        Flag("--max-running-requests", str(plan.sequences), plan.sequences_reason),
        Flag("--mem-fraction-static", f"{static:.2f}", "weights and KV cache; the rest is for activations and graphs"),
        *_dtype(envelope),
        *_quantized(envelope),
        *_kv_type(envelope, "fp8_e4m3"),
        prefix,
        *_chunks(demand, "--chunked-prefill-size"),
        *_queue(plan, demand, "--max-queued-requests", running_too=False),
        Flag("--enable-metrics", "", "without it there is no metrics page"),
    ]


ENGINES: dict[str, tuple[str, Callable[[EnginePlan, Demand], list[Flag]]]] = {
    "vllm": ("vllm serve {model}", vllm_flags),
    "sglang": ("python -m sglang.launch_server --model-path {model}", sglang_flags),
}
"""Engine to the command's beginning and its flags."""


def command_of(engine: str, flags: list[Flag], model: str) -> str:
    """The whole command, fit for a shell."""
    begin = ENGINES[engine][0].format(model=shlex.quote(model) if model else "MODEL")
    return " ".join([begin, *(flag.words for flag in flags if flag.set)])


def _group(name: str, plan: EnginePlan) -> Flag:
    envelope = plan.envelope
    weights = f"weights take {envelope.weight_bytes / 1e9:.3g} of {envelope.engine_bytes / 1e9:.3g} GB a card"
    heads = f"{envelope.model.kv_heads} KV heads can be divided by {envelope.gpus}"
    if envelope.gpus == 1:
        return Flag(name, "1", f"{weights}: one {envelope.gpu.name} is enough", set=False)
    return Flag(name, str(envelope.gpus), f"{weights}, and {heads}")


def _rest(envelope: Envelope) -> str:
    outside = 1.0 - envelope.utilization
    return f"{percent(outside)} of the card stay outside the engine: driver, collectives, what is not foreseen"


def _dtype(envelope: Envelope) -> list[Flag]:
    """A card without bfloat16 refuses a bfloat16 checkpoint unless it is told to compute in float16."""
    if envelope.gpu.has_bf16:
        return []
    return [Flag("--dtype", "half", f"{envelope.gpu.name} ({envelope.gpu.generation}) has no bfloat16")]


def _quantized(envelope: Envelope) -> list[Flag]:
    """A quantized checkpoint says itself how; the flag is for one in 16 bit, which engines can load in FP8 only."""
    model = envelope.model
    if model.quantized_by or model.weights in {"bf16", "fp16", "fp32"}:
        return []
    if model.weights == "fp8":
        why = "weights of 1 byte a parameter; leave it out for a checkpoint that is FP8"
        old = envelope.gpu.generation if envelope.gpu.generation in NO_FP8 else ""
        return [
            Flag("--quantization", "fp8", why + (f"; {old} computes in 16 bit: memory is saved, not time" * bool(old)))
        ]
    return [Flag("--quantization", "", f"read from the checkpoint, which must be {MAKERS[model.weights]}: "
                 "the flag would not quantize one in 16 bit, the engine would not start", set=False)]  # fmt: skip


MAKERS = {"int4": "quantized with AWQ or GPTQ", "int8": "quantized with GPTQ or compressed-tensors (W8A8)",
          "fp4": "NVFP4 or MXFP4"}  # fmt: skip
"""What checkpoints that engines cannot make from 16 bit while loading are."""
SUFFIX = {"int4": "AWQ", "int8": "W8A8", "fp4": "NVFP4"}


def checkpoint_of(model: Model) -> tuple[str, str]:
    """(what the command serves, a note where that is another checkpoint than the one named)."""
    name = model.name or "MODEL"
    if model.quantized_by or model.weights not in MAKERS:
        return name, ""
    if SUFFIX[model.weights].lower() in name.lower() or (model.weights == "int4" and "gptq" in name.lower()):
        return name, ""
    other = f"{name}-{SUFFIX[model.weights]}"
    return other, (
        f"--weights {model.weights} needs a checkpoint that is {MAKERS[model.weights]}; nothing given says that "
        f"{name} is: {other} in the commands stands for its name"
    )


def _kv_type(envelope: Envelope, name: str) -> list[Flag]:
    if envelope.kv_dtype != "fp8":
        return []
    made = envelope.gpu.generation
    support = f"native on {made}" if made else "native from Hopper on, emulated before"
    if made in NO_FP8_KV:
        support = f"emulated on {made} (widened in every step, which may cost speed), native from Hopper on"
    return [Flag("--kv-cache-dtype", name, f"1 byte a number: twice the tokens; check long answers; {support}")]


def _prefix(demand: Demand, on: str, off: str) -> Flag:
    reuse = demand.reuse_ratio
    if reuse is None:
        return Flag(on or off, "", f"left at its default (on): {demand.reuse_reason}", set=False)
    reused = f"{percent(reuse)} of the prompt tokens were reused"
    if reuse >= REUSE_RATIO:
        return Flag(on or off, "", f"{reused}, at least {percent(REUSE_RATIO)}: keep prefix caching on", set=bool(on))
    return Flag(off, "", f"{reused}, below {percent(REUSE_RATIO)}: keeping and looking them up is not worth it")


def _chunks(demand: Demand, name: str) -> list[Flag]:
    if "prefill_contention" not in demand.findings:
        return []
    return [Flag(name, str(SMALL_CHUNK), "tokens waited for the prompts of others: smaller chunks even ITL out")]


def _queue(plan: EnginePlan, demand: Demand, name: str, *, running_too: bool) -> list[Flag]:
    """A limit on the queue: what is worked off within the TTFT limit. vLLM counts the running requests, too."""
    if demand.ttft_s is None or demand.rate is None:
        return []
    waiting = max(1, ceil(demand.rate.low_rps * demand.ttft_s))
    value = waiting + plan.sequences if running_too else waiting
    counted = f" beside {plan.sequences} that run" if running_too else ""
    if running_too and not has_flag(name, plan.vllm):
        return [Flag(name, "", f"{_since(name, plan.vllm)}: limit the queue at the gateway", set=False)]
    why = f"{waiting} waiting{counted} are what {demand.rate.low_rps:.3g} req/s work off within {demand.ttft_s:g} s"
    needs = f" ({_since(name, None)})" if running_too and plan.vllm is None else ""
    return [Flag(name, str(value), f"{why}; more would wait in vain, and are refused at once instead{needs}")]


def _whole(value: float) -> str:
    return f"{value:.3g}" if value < 100.0 else f"{value:,.0f}"


def _up(value: float, step: int) -> int:
    return int(-(-value // step) * step)


def _since(name: str, version: Version | None) -> str:
    """From which version on there is the flag, in words."""
    first = ".".join(str(part) for part in SINCE[name])
    if version is None:
        return f"vLLM {first} or newer"
    return f"vLLM {version[0]}.{version[1]} has no such flag, {first} is the first that has"
