"""Advice in words: for a terminal, as Markdown, as JSON data. Pure; one set of blocks serves all forms."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loadramp.advise.advice import Advice
from loadramp.advise.demand import Rate
from loadramp.advise.flags import checkpoint_of, command_of
from loadramp.advise.memory import BLOCK_TOKENS, Envelope
from loadramp.advise.sizing import MONTH_H, SizeOption, cheapest
from loadramp.record.codec import plain_data
from loadramp.report.markdown import escaped, table
from loadramp.units import counted, percent, plural, sig, span_of

GB, GIB = 1e9, 2.0**30
WIDTH = 22


@dataclass(slots=True, frozen=True)
class TextBlock:
    """A title, lines of (name, value, words), and a command to copy (empty: none)."""

    title: str
    lines: Sequence[tuple[str, str, str]]
    command: str = ""


def advice_text(advice: Advice) -> str:
    """For a terminal."""
    out: list[str] = []
    for block in blocks(advice):
        out += ["", block.title, *(["", f"  {block.command}", ""] if block.command else [])]
        names = max((len(name) for name, _, _ in block.lines), default=0)
        values = min(max((len(value) for _, value, _ in block.lines), default=0), WIDTH)
        out += [f"  {name:<{names}}  {value:<{values}}  {words}".rstrip() for name, value, words in block.lines]
    return "\n".join(out[1:])


def advice_markdown(advice: Advice) -> str:
    """For a ticket or a wiki."""
    out = ["# What to run", ""]
    for block in blocks(advice):
        out += [f"## {escaped(block.title)}", ""]
        out += ["```", block.command, "```", ""] if block.command else []
        if block.lines:
            out += [*table(("", "", ""), ([escaped(cell) for cell in line] for line in block.lines)), ""]
    return "\n".join(out).rstrip() + "\n"


def blocks(advice: Advice) -> list[TextBlock]:
    """Everything that is said, in reading order."""
    parts = [_memory(advice), *_commands(advice), _size(advice), _comparison(advice), _unsized(advice)]
    notes = [("", "", note) for note in advice.notes]
    return [block for block in (*parts, TextBlock("Notes", notes) if notes else None) if block is not None]


def _memory(advice: Advice) -> TextBlock | None:
    envelope = advice.envelope
    if envelope is None:
        return None
    model, gpu = envelope.model, envelope.gpu
    kept = f"1 of {envelope.gpus} shares; " if envelope.gpus > 1 else ""
    lines = [
        (
            "the engine may use",
            _gb(envelope.engine_bytes),
            f"{percent(envelope.utilization)} of {_gb(gpu.memory_bytes)}",
        ),
        (
            "weights",
            _gb(envelope.weight_bytes),
            f"{kept}{model.parameters / 1e9:.3g} billion parameters, {model.weights}",
        ),
        ("left for KV cache", _gb(envelope.kv_bytes), f"{envelope.kv_bytes / GIB:.3g} GiB"),
        (
            "of it counted on",
            _gb(envelope.usable_bytes),
            f"{percent(envelope.reserve_ratio)} kept for activations, graphs and blocks in part use",
        ),
        ("a token", f"{model.token_bytes(_each(envelope)):,.0f} B", _formula(envelope)),
        ("room for", plural(envelope.tokens, "token"), f"{plural(envelope.blocks, 'block')} of {BLOCK_TOKENS}"),
        *_sequences(advice, envelope),
        *((f"not {plural(gpus, 'GPU')}", "", why) for gpus, why in advice.refused),
    ]
    name = model.name or "the model"
    return TextBlock(f"Memory of one card: {name} on {envelope.gpus} x {gpu.name}", lines)


def _sequences(advice: Advice, envelope: Envelope) -> list[tuple[str, str, str]]:
    cap = advice.plan.context_tokens if advice.plan else min(envelope.model.max_context or 4096, 4096)
    lengths = {cap: "the context cap"}
    if advice.demand.requests and advice.demand.context_p95 and advice.demand.context_p95 <= cap - BLOCK_TOKENS:
        lengths = {advice.demand.context_p95: "the p95 of input plus output"} | lengths
    return [
        ("sequences at once", f"{envelope.sequences(tokens):,}", f"of {plural(tokens, 'token')}, {what}; "
         f"one takes {envelope.sequence_bytes(tokens) / GB:.3g} GB")
        for tokens, what in lengths.items()
    ]  # fmt: skip


def _commands(advice: Advice) -> list[TextBlock]:
    if advice.flags is None or advice.envelope is None:
        return []
    titles = {"vllm": "vLLM", "sglang": "SGLang"}
    return [
        TextBlock(
            titles.get(engine, engine),
            [(flag.name, flag.value if flag.set else "left out", flag.reason) for flag in flags],
            command_of(engine, flags, checkpoint_of(advice.envelope.model)[0]),
        )
        for engine, flags in advice.flags.items()
    ]


def _size(advice: Advice) -> TextBlock | None:
    """The size of the only configuration, with how it comes about."""
    if advice.load is None or len(advice.choices) != 1:
        return None
    size, load = advice.choices[0].size, advice.load
    spared = f"; {size.replicas_at_best} if the high end is true" if size.replicas_at_best != size.replicas else ""
    mean = f", {sig(load.mean_rps)} on average" if load.mean_rps else ""
    lines = [
        ("peak", f"{sig(load.peak_rps)} req/s", f"{percent(load.headroom_ratio)} of the capacity stay free{mean}"),
        ("one replica takes", f"{sig(size.rate.low_rps)} req/s", _rate(size.rate)),
        ("replicas", str(size.replicas), f"{size.needed} for the peak, {load.spare} to spare{spared}"),
        ("GPUs", str(size.gpus), f"{size.gpus_each} each"),
        ("at the peak", f"{percent(size.busy_ratio)} busy", f"{_gone(size.survives)} before the rest is at its limit"),
        *_costs(advice.choices[0]),
    ]
    return TextBlock("Replicas", lines)


def _unsized(advice: Advice) -> TextBlock | None:
    """What is missing where there is a load and no rate to size by."""
    if not advice.unsized:
        return None
    return TextBlock(
        "Replicas: not sized", [("missing", "", f"{why}; --replica-rps would do") for why in advice.unsized]
    )


def _gone(survives: int) -> str:
    return "no replica may fail" if survives < 1 else f"{plural(survives, 'replica')} may fail"


def _costs(choice: SizeOption) -> list[tuple[str, str, str]]:
    size = choice.size
    if size.cost_per_hour is None:
        return [("cost", "", "no price was given (--price, of one GPU and hour)")]
    lines = [
        ("an hour", _money(size.cost_per_hour), f"{_money(size.cost_per_hour * MONTH_H)} a month of {MONTH_H:g} hours")
    ]
    for name, tokens in (("output", size.output_tokens), ("input and output", _both(choice))):
        busy, fleet = size.busy_cost(tokens), size.fleet_cost(tokens)
        if busy is not None:
            best, worst = (_money(cost) for cost in busy)
            whose = "by a replica at the rate above"
            between = worst if best == worst else f"{best} to {worst}"
            lines.append(
                (f"10^6 tokens, {name}", between, whose + (f"; {_money(fleet)} at the mean load" if fleet else ""))
            )
    return lines


def _both(choice: SizeOption) -> float | None:
    size = choice.size
    return None if size.input_tokens is None or size.output_tokens is None else size.input_tokens + size.output_tokens


def _comparison(advice: Advice) -> TextBlock | None:
    """Several configurations side by side."""
    if len(advice.choices) < 2:
        return None
    lines = []
    for choice in advice.choices:
        size = choice.size
        cost = f", {_money(size.cost_per_hour)} an hour" if size.cost_per_hour is not None else ""
        busy = size.busy_cost(size.output_tokens)
        each = f", {_money(busy[1])} for 10^6 output tokens" if busy else ""
        lines.append(
            (choice.name, f"{size.replicas} x {plural(size.gpus_each, 'GPU')}", f"{_rate(size.rate)}{cost}{each}")
        )
    best, rivals = cheapest(advice.choices)
    what = "least cost" if best[0].size.price_per_hour is not None else "fewest GPUs"
    named = best[0].name if len(best) == 1 else f"the same for {', '.join(choice.name for choice in best)}"
    shaky = f"{', '.join(choice.name for choice in rivals)} may be as good: the intervals do not tell" if rivals else ""
    return TextBlock("Configurations compared", [*lines, (what, named, shaky)])


def advice_document(advice: Advice) -> dict[str, Any]:
    """As JSON data."""
    envelope, plan = advice.envelope, advice.plan
    document: dict[str, Any] = {
        "memory": None if envelope is None else {
            "model": envelope.model.name, "gpu": envelope.gpu.name, "gpus": envelope.gpus,
            "gpu_memory_bytes": envelope.gpu.memory_bytes, "engine_bytes": envelope.engine_bytes,
            "parameters": envelope.model.parameters, "weight_bytes": envelope.weight_bytes,
            "kv_bytes": envelope.kv_bytes, "usable_kv_bytes": envelope.usable_bytes,
            "token_bytes": envelope.model.token_bytes(_each(envelope)),
            "token_bytes_beyond_window": envelope.model.far_bytes(_each(envelope)), "blocks": envelope.blocks,
            "tokens": envelope.tokens,
            "refused": [{"gpus": gpus, "reason": why} for gpus, why in advice.refused],
        },
        "plan": None if plan is None else {"context_tokens": plan.context_tokens, "sequences": plan.sequences},
        "engines": {
            engine: {
                "command": command_of(engine, flags, checkpoint_of(envelope.model)[0] if envelope else ""),
                "flags": [{"name": f.name, "value": f.value, "set": f.set, "reason": f.reason} for f in flags],
            }
            for engine, flags in (advice.flags or {}).items()
        },
        "sizes": [_size_document(choice) for choice in advice.choices],
        "not_sized": list(advice.unsized),
        "notes": list(advice.notes),
    }  # fmt: skip
    if len(advice.choices) > 1:
        best, rivals = cheapest(advice.choices)
        as_good = [choice.name for choice in (*(best if len(best) > 1 else ()), *rivals)]
        document["cheapest"] = {"name": best[0].name if len(best) == 1 else None, "as_good": as_good}
    checked: dict[str, Any] = plain_data(document)
    return checked


def _size_document(choice: SizeOption) -> dict[str, Any]:
    size = choice.size
    busy = size.busy_cost(size.output_tokens)
    return {
        "name": choice.name, "low_rps": size.rate.low_rps, "high_rps": size.rate.high_rps, "basis": size.rate.basis,
        "replicas": size.replicas, "replicas_at_best": size.replicas_at_best, "gpus": size.gpus,
        "busy_ratio": size.busy_ratio, "cost_per_hour": size.cost_per_hour,
        "cost_per_million_output_tokens": None if busy is None else {"best": busy[0], "worst": busy[1]},
        "cost_per_million_output_tokens_at_mean": size.fleet_cost(size.output_tokens),
    }  # fmt: skip


def _rate(rate: Rate) -> str:
    between = f" ({span_of(rate.low_rps, rate.high_rps)})" if rate.high_rps > rate.low_rps * 1.001 else ""
    return f"{rate.basis}: {sig(rate.low_rps)} req/s{between}"


def _formula(envelope: Envelope) -> str:
    model, each = envelope.model, _each(envelope)
    layers = model.layers + model.window_layers
    same = model.layer_size == model.window_size == 2 * model.kv_heads * model.head_dim
    if model.latent_dim:
        index = f" + {plural(model.layers, 'layer')} x {model.index_bytes:g} B to look it up" * bool(model.index_bytes)
        text = (
            f"{plural(layers, 'layer')} x {plural(model.latent_dim, 'latent number')} x "
            f"{counted(format(each, 'g'), 'byte')}{index}, on every card"
        )
    elif same or (model.layers == 0 and model.window_size == 2 * model.kv_heads * model.head_dim):
        text = (
            f"2 x {plural(layers, 'layer')} x {model.kv_heads} KV heads x {model.head_dim} x "
            f"{counted(format(each, 'g'), 'byte')}"
        )
    else:
        parts = ((model.layers, model.layer_size), (model.window_layers, model.window_size))
        sums = " + ".join(f"{plural(count, 'layer')} x {size:,.6g}" for count, size in parts if count)
        text = f"({sums} numbers) x {counted(format(each, 'g'), 'byte')}"
    if not model.window_layers:
        return text
    return f"{text}; {model.far_bytes(each):,.0f} B beyond the first {model.window:,} ({plural(model.layers, 'layer')})"


def _each(envelope: Envelope) -> float:
    return 1.0 if envelope.kv_dtype == "fp8" else 2.0


def _gb(value: float) -> str:
    return f"{sig(value / GB) or '0'} GB"


def _money(value: float) -> str:
    return sig(value) or "0"
