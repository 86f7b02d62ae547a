"""The command that is advised starts: checkpoints, number formats of cards, versions of engines, and near misses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loadramp.advise.advice import Measured, advise
from loadramp.advise.demand import Demand, Rate
from loadramp.advise.gpus import gpu_of
from loadramp.advise.memory import Envelope, smallest_group
from loadramp.advise.model import Model
from loadramp.advise.options import AdviceOptions, EngineFacts, GpuFacts, ModelFacts, TrafficFacts
from loadramp.advise.text import advice_document
from loadramp.analysis.diagnosis.cures import met_version
from loadramp.record.run_info import RunInfo, TargetInfo, read_info
from loadramp.record.table import Run, Table
from loadramp.registry import ScenarioError
from loadramp.runner.scenarios import load

LLAMA_70B = Model(70e9, 80, 8, 128, heads=64)
MEASURED = Demand(input_tokens=400, output_tokens=150, context_p95=1000, context_max=1100, beyond_p95=50, requests=1000)


def serve(gpu: str, weights: str | None = None, config: dict[str, Any] | None = None, **engine: Any) -> tuple[str, str]:
    """(vLLM's command, its reasons and the notes) for a model of 8 billion parameters."""
    chosen: Any = weights
    model = ModelFacts(
        model="org/m",
        parameters=8e9,
        layers=None if config else 32,
        kv_heads=8,
        head_dim=128,
        model_config="c.json" if config else "",
        weights=chosen,
    )
    traffic = TrafficFacts(input_tokens=400, output_tokens=100)
    asked = AdviceOptions(GpuFacts(gpu=gpu), model, EngineFacts(engine="vllm", **engine), traffic)
    advice = advise(asked, [Measured("r", replace(MEASURED, ttft_s=1.0, rate=Rate(5, 6, "ceiling")))], config)
    assert advice.flags is not None
    reasons = [f"{flag.name}: {flag.reason}" for flag in advice.flags["vllm"]]
    return str(advice_document(advice)["engines"]["vllm"]["command"]), "\n".join([*reasons, *advice.notes])


LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}


def test_weights_of_4_bits_need_a_checkpoint_that_is_quantized() -> None:
    for config in (None, LLAMA):
        command, said = serve("L40S", "int4", config)
        assert command.startswith("vllm serve org/m-AWQ ")
        assert "--quantization" not in command
        assert "--weights int4 needs a checkpoint that is quantized with AWQ or GPTQ" in said
    awq = {**LLAMA, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    command, said = serve("L40S", "int4", awq)
    assert command.startswith("vllm serve org/m ")
    assert "needs a checkpoint" not in said
    assert serve("L40S", "int8")[0].startswith("vllm serve org/m-W8A8 ")
    assert serve("L40S", "fp4")[0].startswith("vllm serve org/m-NVFP4 ")


def test_a_flag_that_contradicts_the_checkpoint_is_refused() -> None:
    awq = {**LLAMA, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    with pytest.raises(ScenarioError, match=r"--weights fp8: config\.json is that of a checkpoint quantized to int4"):
        serve("L40S", "fp8", awq)
    fp8 = {**LLAMA, "quantization_config": {"quant_method": "fp8"}}
    assert "--quantization" not in serve("H100", "fp8", fp8)[0]
    assert "--quantization fp8" in serve("H100", "fp8", LLAMA)[0]


@pytest.mark.parametrize(
    ("gpu", "words"),
    [("H100", "native on Hopper"), ("B200", "native on Blackwell"), ("A100-80", "emulated on Ampere"),
     ("L40S", "emulated on Ada"), ("MI300X", "native on CDNA 3")],
)  # fmt: skip
def test_an_fp8_kv_cache_is_native_from_hopper_on_and_says_so(gpu: str, words: str) -> None:
    command, said = serve(gpu, kv_dtype="fp8")
    assert "--kv-cache-dtype fp8" in command
    assert words in said


@pytest.mark.parametrize(("gpu", "wide"), [("L40S", ""), ("H100", ""), ("A100-80", "Ampere computes in 16 bit")])
def test_fp8_weights_are_native_from_ada_on(gpu: str, wide: str) -> None:
    command, said = serve(gpu, "fp8")
    assert "--quantization fp8" in command
    assert ("computes in 16 bit" in said) == bool(wide)
    assert wide in said


def test_bfloat16_is_not_offered_where_the_card_has_none() -> None:
    command, said = serve("T4", "int8")
    assert "--dtype half" in command
    assert "T4 (Turing) has no bfloat16" in said
    small = {**LLAMA, "num_hidden_layers": 8, "torch_dtype": "bfloat16"}
    with pytest.raises(ScenarioError, match=r"--weights bf16: V100-32 \(Volta\) has no bfloat16; give fp16"):
        serve("V100-32", "bf16", small)
    with pytest.raises(ScenarioError, match=r"--kv-dtype bf16: V100-32"):
        serve("V100-32", None, small, kv_dtype="bf16")
    assert "served in float16" in serve("V100-32", None, small)[1]
    assert "--dtype" not in serve("A10G", "int8")[0]


@pytest.mark.parametrize(
    ("version", "there"),
    [("0.28.1", False), ("v0.11.0rc1", False), ("0.29.0", True), ("0.32.1+cu129", True), ("1.0", True), ("", True),
     ("0.1.dev1+g12ab", True)],
)  # fmt: skip
def test_the_version_of_the_engine_decides_which_flags_exist(version: str, there: bool) -> None:
    command, said = serve("L40S", engine_version=version)
    assert ("--max-num-queued-reqs" in command) == there
    assert "0.29" in said or version not in {"", "0.28.1"}


def test_the_version_that_the_run_met_counts_where_none_is_given() -> None:
    met = Run(RunInfo(target=TargetInfo(version="0.28.0", engine="vllm")), load(""), [], Table.of([]))
    assert met_version(met) == (0, 28)
    for other in ({"version": "0.5.2", "engine": "sglang"}, {"version": "nightly", "engine": "vllm"}):
        assert met_version(replace(met, info=read_info({"target": other}))) is None
    asked = AdviceOptions(GpuFacts(gpu="L40S"), ModelFacts(parameters=8e9, layers=32, kv_heads=8, head_dim=128))
    demand = replace(MEASURED, ttft_s=1.0, rate=Rate(5, 6, "x"), vllm_version=(0, 28))
    flags = (advise(asked, [Measured("r", demand)]).flags or {})["vllm"]
    queue = next(flag for flag in flags if flag.name == "--max-num-queued-reqs")
    assert (queue.set, "vLLM 0.28 has no such flag, 0.29 is the first" in queue.reason) == (False, True)
    newer = replace(asked, engine=EngineFacts(engine_version="0.29"))
    flags = (advise(newer, [Measured("r", demand)]).flags or {})["vllm"]
    assert next(flag for flag in flags if flag.name == "--max-num-queued-reqs").set
    with pytest.raises(ScenarioError, match=r"engine version 'new': expected one like 0\.29\.1"):
        advise(replace(asked, engine=EngineFacts(engine_version="new")), [Measured("r", demand)])


def test_the_error_of_a_near_miss_names_the_cards_own_memory() -> None:
    nearly = replace(LLAMA_70B, parameters=39.5e9)
    with pytest.raises(ScenarioError, match=r"near miss of 3\.\d GB: 85\.52 GB .* with --gpu-memory-gb"):
        smallest_group(Envelope(nearly, gpu_of("H100")), 4096, 1, 1)
    with pytest.raises(ScenarioError, match="does not fit") as far:
        smallest_group(Envelope(LLAMA_70B, gpu_of("H100")), 4096, 1, 1)
    assert "near miss" not in str(far.value)
