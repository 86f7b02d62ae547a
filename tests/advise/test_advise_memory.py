"""The memory envelope and the flags that follow, by literal figures."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from loadramp.advise.advice import advise
from loadramp.advise.demand import UNMEASURED, Demand, Rate, overruled
from loadramp.advise.flags import ENGINES, command_of, context_of, plan_of, sequences_of
from loadramp.advise.gpus import Gpu, gpu_of
from loadramp.advise.memory import BLOCK_TOKENS, Envelope, smallest_group
from loadramp.advise.model import Model
from loadramp.advise.options import AdviceOptions, EngineFacts, GpuFacts, ModelFacts, TrafficFacts, asked_of
from loadramp.registry import ScenarioError

FLAGS = Path(__file__).parents[1] / "data" / "flags"
MISTRAL = Model(7_241_732_096, 32, 8, 128, heads=32, name="mistralai/Mistral-7B-Instruct-v0.3", max_context=32768)
LLAMA_70B = Model(70e9, 80, 8, 128, heads=64)
MEASURED = Demand(input_tokens=400, output_tokens=150, context_p95=1000, context_max=1100, beyond_p95=50, requests=1000)


def test_mistral_7b_on_an_l40s_at_090_leaves_29_gb_for_the_kv_cache() -> None:
    envelope = Envelope(MISTRAL, gpu_of("L40S"), utilization=0.90)
    assert envelope.kv_bytes == pytest.approx(0.9 * 46068 * 2**20 - 2 * 7_241_732_096)
    assert round(envelope.kv_bytes / 1e9) == 29
    assert envelope.blocks == int(envelope.kv_bytes * 0.9 / (16 * 131_072))
    assert envelope.tokens == envelope.blocks * 16


def test_sequences_take_whole_blocks() -> None:
    envelope = Envelope(MISTRAL, gpu_of("L40S"), reserve_ratio=0.0)
    assert envelope.sequence_bytes(1) == envelope.sequence_bytes(16) == 16 * 131_072
    assert envelope.sequence_bytes(17) == 32 * 131_072
    assert envelope.sequences(1024) == int(envelope.kv_bytes / (1024 * 131_072))


def test_a_group_of_gpus_shares_weights_and_kv_heads_and_copies_them_beyond_their_number() -> None:
    gpu = gpu_of("H100")
    two, eight, sixteen = (Envelope(LLAMA_70B, gpu, n) for n in (2, 8, 16))
    assert two.weight_bytes == 70e9
    assert (two.token_bytes, eight.token_bytes, sixteen.token_bytes) == (163_840, 40_960, 40_960)


def test_the_fewest_gpus_that_divide_the_heads_and_hold_it_are_taken_and_the_others_say_why_not() -> None:
    found, refused = smallest_group(Envelope(LLAMA_70B, gpu_of("H100")), 4096, 64, 8)
    assert found.gpus == 4
    assert found.sequences(4096) == 112
    assert [gpus for gpus, _ in refused] == [1, 2, 3]
    assert "the weights alone take 63 GB more" in refused[0][1]
    assert "room for 9 of the 64 sequences of 4,096 tokens" in refused[1][1]
    assert "cannot be divided" in refused[2][1]


def test_where_nothing_holds_so_many_sequences_the_largest_group_that_holds_one_is_taken() -> None:
    found, refused = smallest_group(Envelope(LLAMA_70B, gpu_of("H100")), 4096, 10_000, 8)
    assert found.gpus == 8
    assert refused[-1] == (8, f"room for {found.sequences(4096)} of the 10,000 sequences of 4,096 tokens")


def test_a_model_that_fits_nowhere_is_an_error_that_says_what_would_help() -> None:
    with pytest.raises(ScenarioError, match=r"does not fit 2 x T4: with 2, .* more GPUs \(--max-gpus\)"):
        smallest_group(Envelope(LLAMA_70B, gpu_of("T4")), 4096, 1, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"utilization": 1.0}, "utilization: 1 of the GPU's memory; expected 0.1 to 0.99"),
        ({"reserve_ratio": 0.9}, "reserve: 0.9"),
        ({"gpus": 3}, "tensor parallel over 3 GPUs: 32 attention and 8 KV heads cannot be divided so"),
        ({"gpus": 0}, "tensor parallel over 0 GPUs"),
    ],
)
def test_an_impossible_envelope_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        replace(Envelope(MISTRAL, gpu_of("L40S")), **change)  # type: ignore[arg-type]  # wrong on purpose


@drawn(st.integers(1, 200_000), st.sampled_from([1, 2, 4, 8]), st.floats(0.3, 0.99), st.floats(0.0, 0.5))
def test_what_is_said_to_fit_fits_and_one_more_does_not(tokens: int, gpus: int, share: float, reserve: float) -> None:
    envelope = Envelope(LLAMA_70B, gpu_of("H200"), gpus, share, reserve)
    count = envelope.sequences(tokens)
    each = envelope.sequence_bytes(tokens) / gpus
    assert count * each <= envelope.usable_bytes * (1 + 1e-9)
    assert (count + 1) * each > envelope.usable_bytes * (1 - 1e-9)
    assert envelope.blocks * BLOCK_TOKENS == envelope.tokens


def test_the_context_cap_is_the_p95_rounded_up_or_the_longest_where_that_is_near() -> None:
    near = context_of(MEASURED, 32768)
    assert near is not None
    assert near[0] == 1280  # the longest request, 1,100, is beyond 1,024 but near
    far = context_of(replace(MEASURED, context_max=9000), 32768)
    assert far is not None
    assert far[0] == 1024
    assert "50 of 1,000 were longer (up to 9,000)" in far[1]
    assert context_of(replace(MEASURED, context_p95=5000, context_max=5000), 4096) == (
        4096, "95 of 100 requests have at most 5,000 tokens, input and output together; the model itself ends at 4,096"
    )  # fmt: skip
    assert context_of(Demand(), 4096) is None


def test_sequences_are_those_that_fit_at_the_p95_but_no_more_than_the_itl_limit_bears() -> None:
    envelope = Envelope(MISTRAL, gpu_of("L40S"))
    count, why = sequences_of(envelope, MEASURED, 1280)
    assert count == envelope.sequences(1000) // 8 * 8
    assert "sequences of 1,000 tokens" in why
    assert (
        "more than 40 at once was not measured" in sequences_of(envelope, replace(MEASURED, largest_batch=40), 1280)[1]
    )
    fewer, why = sequences_of(envelope, replace(MEASURED, slo_running=100), 1280)
    assert fewer == 96
    assert "with more than 100 at once p99 ITL was beyond its limit" in why


@pytest.mark.parametrize(
    ("reuse", "vllm", "sglang"),
    [(0.35, "--enable-prefix-caching", None), (0.34, "--no-enable-prefix-caching", "--disable-radix-cache"),
     (None, None, None)],
)  # fmt: skip
def test_prefix_caching_pays_from_35_percent_of_reuse_on(
    reuse: float | None, vllm: str | None, sglang: str | None
) -> None:
    demand = replace(MEASURED, reuse_ratio=reuse, reuse_reason="" if reuse else "not measured")
    envelope = Envelope(MISTRAL, gpu_of("L40S"))
    plan = plan_of(envelope, demand, (1280, "p95"))
    for engine, wanted in (("vllm", vllm), ("sglang", sglang)):
        command = command_of(engine, ENGINES[engine][1](plan, demand), "m")
        found = re.findall(r"--(?:no-)?enable-prefix-caching|--disable-radix-cache", command)
        assert found == ([wanted] if wanted else [])


@pytest.mark.parametrize(
    ("change", "count", "words"),
    [
        ({}, 256, "128 to 256 is usual, more risks running out of memory; the KV cache holds 790 sequences"),
        ({"in_flight": 3.0}, 128, "128 to 256 is usual, and at most 3 were seen at once; the KV cache holds 790"),
        ({"in_flight": 150.0, "largest_batch": 180}, 184, "180 were seen at once, within the usual 128 to 256"),
        ({"in_flight": 400.0}, 400, "400 were seen at once, more than the usual 128 to 256"),
        ({"in_flight": 3000.0}, 784, "the KV cache holds 790 sequences of 1,000 tokens; rounded down"),
        ({"slo_running": 60, "largest_batch": 150}, 56, "with more than 60 at once p99 ITL was beyond its limit"),
    ],
)
def test_sequences_at_once_are_128_to_256_unless_measured_need_says_otherwise(
    change: dict[str, Any], count: int, words: str
) -> None:
    envelope = Envelope(MISTRAL, Gpu("big", 145e9))
    got, why = sequences_of(envelope, replace(MEASURED, **change), 1280)
    assert (got, words in why) == (count, True), why


def every_flag() -> dict[str, list[str]]:
    """Flags of both engines when everything that can be advised is."""
    model = replace(MISTRAL, weights="fp8")
    envelope = Envelope(model, gpu_of("L40S"), 2, kv_dtype="fp8")
    found: dict[str, list[str]] = {engine: [] for engine in ENGINES}
    for reuse in (0.1, 0.9):
        demand = replace(
            MEASURED, reuse_ratio=reuse, ttft_s=1.0, rate=Rate(5, 6, "ceiling"), findings=("prefill_contention",)
        )
        for engine, (_, make) in ENGINES.items():
            flags = make(plan_of(envelope, demand, (1280, "p95")), demand)
            assert all(flag.reason for flag in flags)
            found[engine] += [word for word in shlex.split(command_of(engine, flags, "m")) if word.startswith("--")]
    return found


@pytest.mark.parametrize(("engine", "file"), [("vllm", "vllm-0.32.txt"), ("sglang", "sglang.txt")])
def test_every_flag_exists(engine: str, file: str) -> None:
    known = set((FLAGS / file).read_text().split())
    flags = every_flag()[engine]
    assert len(set(flags)) >= 9
    assert set(flags) <= known


def test_the_queue_limit_is_what_is_worked_off_within_the_ttft_limit() -> None:
    demand = replace(MEASURED, ttft_s=2.0, rate=Rate(5.0, 6.0, "ceiling"))
    plan = plan_of(Envelope(MISTRAL, gpu_of("L40S")), demand, (1280, "p95"))
    values = {
        engine: next(flag for flag in ENGINES[engine][1](plan, demand) if "queued" in flag.name) for engine in ENGINES
    }
    assert int(values["vllm"].value) == plan.sequences + 10  # vLLM counts those that run, too
    assert int(values["sglang"].value) == 10
    assert "refused at once" in values["vllm"].reason


def test_sglang_gets_weights_and_cache_as_one_share_of_the_card() -> None:
    envelope = Envelope(MISTRAL, gpu_of("L40S"))
    flags = ENGINES["sglang"][1](plan_of(envelope, MEASURED, (1280, "p95")), MEASURED)
    value = next(flag.value for flag in flags if flag.name == "--mem-fraction-static")
    assert float(value) == pytest.approx((envelope.weight_bytes + envelope.usable_bytes) / (46068 * 2**20), abs=0.01)


def test_a_model_name_cannot_break_out_of_the_command() -> None:
    plan = plan_of(Envelope(MISTRAL, gpu_of("L40S")), MEASURED, (1280, "p95"))
    command = command_of("vllm", ENGINES["vllm"][1](plan, MEASURED), "x; rm -rf ~")
    assert shlex.split(command)[2] == "x; rm -rf ~"


def test_a_group_that_is_asked_for_but_too_small_is_an_error() -> None:
    model = ModelFacts(parameters=70e9, layers=80, kv_heads=8, head_dim=128)
    asked = AdviceOptions(
        GpuFacts(gpu="H100"), model, EngineFacts(tensor_parallel=1), TrafficFacts(context_tokens=4096)
    )
    with pytest.raises(ScenarioError, match="1 x H100: the weights do not fit"):
        advise(asked, [])


def test_numbers_given_must_make_sense() -> None:
    with pytest.raises(ScenarioError, match=r"output_tokens.*> 0"):
        asked_of({"input_tokens": 1, "output_tokens": -1})
    with pytest.raises(ScenarioError, match="prefix_reuse"):
        asked_of({"prefix_reuse": 1.5})
    assert overruled(UNMEASURED, TrafficFacts(100.5, 20)).context_p95 == 121
