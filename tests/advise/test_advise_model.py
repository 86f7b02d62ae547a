"""Weights and KV bytes of models: published parameter counts to the unit, and figures worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from loadramp.advise.gpus import GPUS, gpu_of
from loadramp.advise.model import Model, model_of
from loadramp.advise.options import config_of
from loadramp.registry import ScenarioError


def shape(
    kind: str, hidden: int, layers: int, heads: int, kv: int, mlp: int, vocab: int, **more: Any
) -> dict[str, Any]:
    """A config.json by its numbers."""
    return {"model_type": kind, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": kv, "intermediate_size": mlp, "vocab_size": vocab, "tie_word_embeddings": False,
            "max_position_embeddings": 32768, "torch_dtype": "bfloat16", **more}  # fmt: skip


LLAMA_8B = shape("llama", 4096, 32, 32, 8, 14336, 128256)
LLAMA_70B = shape("llama", 8192, 80, 64, 8, 28672, 128256)
MISTRAL_7B = shape("mistral", 4096, 32, 32, 8, 14336, 32000, sliding_window=None)
MIXTRAL = shape("mixtral", 4096, 32, 32, 8, 14336, 32000, num_local_experts=8)
QWEN25_7B = shape("qwen2", 3584, 28, 28, 4, 18944, 152064, use_sliding_window=False, sliding_window=131072)
QWEN3_8B = shape("qwen3", 4096, 36, 32, 8, 12288, 151936, head_dim=128)
QWEN3_MOE = shape("qwen3_moe", 2048, 48, 32, 4, 6144, 151936, head_dim=128, moe_intermediate_size=768, num_experts=128,
                  mlp_only_layers=[], decoder_sparse_step=1)  # fmt: skip
QWEN15_MOE = shape("qwen2_moe", 2048, 24, 16, 16, 5632, 151936, moe_intermediate_size=1408, num_experts=60,
                   shared_expert_intermediate_size=5632, decoder_sparse_step=1, use_sliding_window=False)  # fmt: skip
GEMMA2_9B = {k: v for k, v in shape("gemma2", 3584, 42, 16, 8, 14336, 256000, head_dim=256, sliding_window=4096).items()
             if k != "tie_word_embeddings"}  # fmt: skip
SMOLLM3 = {k: v for k, v in shape("smollm3", 2048, 36, 16, 4, 11008, 128256).items() if k != "tie_word_embeddings"}
PHI3_MINI = shape("phi3", 3072, 32, 32, 32, 8192, 32064)
DEEPSEEK_V3 = shape("deepseek_v3", 7168, 61, 128, 128, 18432, 129280, moe_intermediate_size=2048, n_routed_experts=256,
                    n_shared_experts=1, first_k_dense_replace=3, kv_lora_rank=512, q_lora_rank=1536,
                    qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128)  # fmt: skip


@pytest.mark.parametrize(
    ("config", "published"),
    [
        (LLAMA_8B, 8_030_261_248), (LLAMA_70B, 70_553_706_496), (MISTRAL_7B, 7_241_732_096), (MIXTRAL, 46_702_792_704),
        (QWEN25_7B, 7_615_616_512), (QWEN3_8B, 8_190_735_360), (QWEN3_MOE, 30_532_122_624),
        (QWEN15_MOE, 14_315_784_192), (GEMMA2_9B, 9_241_705_984), (PHI3_MINI, 3_821_079_552),
        (DEEPSEEK_V3, 671_026_419_200), (SMOLLM3, 3_075_098_624),
    ],
)  # fmt: skip
def test_parameters_counted_from_the_shapes_are_those_that_were_published(
    config: dict[str, Any], published: int
) -> None:
    assert model_of({}, config).parameters == published


def test_a_token_of_a_70b_model_takes_327680_bytes_and_64_contexts_of_4096_take_80_gib() -> None:
    model = Model(parameters=70e9, layers=80, kv_heads=8, head_dim=128)
    assert model.token_bytes() == 327_680
    assert 64 * model.context_bytes(4096) == 80 * 2**30 == 85_899_345_920
    assert model_of({}, LLAMA_70B).token_bytes() == 327_680
    assert model.token_bytes(1.0) == 163_840  # 8 bit


def test_weights_take_2_1_or_half_a_byte_and_quantized_files_keep_embeddings_in_16_bit() -> None:
    plain = {name: Model(7e9, 32, 8, 128, weights=name).weight_bytes for name in ("bf16", "fp8", "int4")}
    assert plain == {"bf16": 14e9, "fp8": 7e9, "int4": 3.5e9}
    awq = model_of({}, {**LLAMA_8B, "quantization_config": {"quant_method": "awq", "bits": 4}})
    embedding = 2 * 128256 * 4096
    assert awq.weights == "int4"
    assert awq.weight_bytes == (8_030_261_248 - embedding) * 0.5 + embedding * 2


@pytest.mark.parametrize(
    ("told", "weights"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "mxfp4"}, "fp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "fp4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4}}}}, "int4"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float"}}}},
         "fp8"),
    ],
)  # fmt: skip
def test_how_a_checkpoint_is_quantized_is_read_from_its_config(told: dict[str, Any], weights: str) -> None:
    assert model_of({}, {**LLAMA_8B, "quantization_config": told}).weights == weights


def test_kv_heads_default_to_the_attention_heads_and_head_dim_to_their_share() -> None:
    config = {k: v for k, v in LLAMA_8B.items() if k != "num_key_value_heads"}
    assert model_of({}, config).token_bytes() == 2 * 32 * 32 * 128 * 2
    assert model_of({}, {**QWEN3_8B, "head_dim": 96}).head_dim == 96
    assert model_of({}, {**MISTRAL_7B, "head_dim": None}).head_dim == 128


def test_layers_with_a_window_keep_no_more_than_it() -> None:
    gemma = model_of({}, GEMMA2_9B)
    assert (gemma.layers, gemma.window_layers, gemma.window) == (21, 21, 4096)
    each = 2 * 8 * 256 * 2
    assert gemma.context_bytes(4096) == 42 * 4096 * each
    assert gemma.context_bytes(8192) == 21 * 8192 * each + 21 * 4096 * each
    listed = {**QWEN3_8B, "layer_types": ["sliding_attention"] * 30 + ["full_attention"] * 6, "sliding_window": 128}
    assert model_of({}, listed).context_bytes(1280) == (6 * 1280 + 30 * 128) * 2 * 8 * 128 * 2
    assert model_of({}, QWEN25_7B).window_layers == 0  # a window that is not used


def test_layers_of_a_fixed_state_cost_no_token() -> None:
    mixed = {**QWEN3_8B, "layer_types": ["linear_attention"] * 27 + ["full_attention"] * 9}
    assert model_of({}, mixed).token_bytes() == 2 * 9 * 8 * 128 * 2


def test_latent_attention_keeps_one_vector_a_layer_on_every_gpu() -> None:
    model = model_of({}, DEEPSEEK_V3)
    assert model.token_bytes() == 61 * (512 + 64) * 2
    assert model.share(8) == 1.0
    assert model.divides(8)


def test_what_is_given_wins_over_the_config() -> None:
    model = model_of({"parameters": 9e9, "weights": "fp8", "kv_heads": 4}, LLAMA_8B)
    assert (model.parameters, model.weights, model.kv_heads) == (9e9, "fp8", 4)
    assert not any("computed" in note for note in model.notes)


def test_a_model_of_an_unknown_build_needs_its_parameters_said() -> None:
    odd = {**LLAMA_8B, "model_type": "brand_new"}
    with pytest.raises(ScenarioError, match="give --parameters"):
        model_of({}, odd)
    assert model_of({"parameters": 8e9}, odd).parameters == 8e9
    several = {"text_config": LLAMA_8B, "vision_config": {}, "model_type": "llava"}
    with pytest.raises(ScenarioError, match="give --parameters"):
        model_of({}, several)
    assert model_of({"parameters": 11e9}, several).token_bytes() == 131_072


@pytest.mark.parametrize(
    ("facts", "config", "words"),
    [
        ({"parameters": 7e9, "kv_heads": 8, "head_dim": 128}, None, "its number of layers is not known: give --layers"),
        ({"parameters": 7e9, "layers": 32, "kv_heads": 0, "head_dim": 128}, None, "KV heads must be at least 1; got 0"),
        ({"parameters": 7, "layers": 32, "kv_heads": 8, "head_dim": 128}, None, "7 parameters is no model"),
        ({"parameters": 7e9, "layers": 32, "kv_heads": 7, "head_dim": 128, "heads": 32}, None, "cannot share 7 KV"),
        ({}, {}, "no num_hidden_layers: is this the config of a decoder model"),
        ({}, {**LLAMA_8B, "num_hidden_layers": "32"}, "num_hidden_layers: expected a whole number; got '32'"),
        ({}, {**LLAMA_8B, "num_attention_heads": 0}, "num_attention_heads: expected at least 1"),
        ({}, {**LLAMA_8B, "hidden_size": 4097}, "no multiple of 32 heads"),
        ({}, {**LLAMA_8B, "quantization_config": {"quant_method": "magic"}}, "method 'magic': give --weights"),
        ({}, [1], "expected an object"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_clear_error(facts: dict[str, Any], config: Any, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        model_of(facts, config)


def test_a_config_that_is_no_json_names_its_file() -> None:
    with pytest.raises(ScenarioError, match=r"c\.json: not JSON"):
        config_of("{", "c.json")
    with pytest.raises(ScenarioError, match=r"c\.json: expected an object"):
        config_of("[]", "c.json")


@pytest.mark.parametrize(
    ("written", "known"),
    [("L40S", "L40S"), ("l40s", "L40S"), ("NVIDIA A100-SXM4-80GB", "A100-80"), ("NVIDIA H100 80GB HBM3", "H100"),
     ("Tesla T4", "T4"), ("NVIDIA GeForce RTX 4090", "RTX-4090"), ("AMD Instinct MI300X", "MI300X"),
     ("h100-nvl", "H100-NVL"), ("GH200-144", "GH200-144")],
)  # fmt: skip
def test_a_card_is_found_as_drivers_and_people_write_it(written: str, known: str) -> None:
    assert gpu_of(written).name == known
    assert gpu_of(written).memory_bytes == GPUS[known] * 1e9


def test_a_card_that_is_not_known_or_not_one_is_refused_with_what_would_do() -> None:
    with pytest.raises(ScenarioError, match="which of A100-40, A100-80"):
        gpu_of("A100")
    with pytest.raises(ScenarioError, match="give its memory"):
        gpu_of("Z9000")
    with pytest.raises(ScenarioError, match="give its memory"):
        gpu_of("")
    with pytest.raises(ScenarioError, match=r"0\.5 GB is no card's"):
        gpu_of("", 0.5)
    assert gpu_of("Z9000", 64).memory_bytes == 64e9
