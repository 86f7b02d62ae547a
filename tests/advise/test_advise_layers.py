"""Bytes a token of real models, worked out by hand, and what is asked for instead of guessed.

Sources: the config.json of each model on the Hugging Face Hub; a config that leaves out what its class has by default
is given as it is published (Gemma 3 4B).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadramp.advise.model import Model, model_of
from loadramp.cli import cli
from loadramp.registry import ScenarioError

BIG = {"parameters": 30e9}


def config(hidden: int, layers: int | None, heads: int, kv: int | None, **more: Any) -> dict[str, Any]:
    """A config.json by its numbers; what is None is left out."""
    told = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": kv, "torch_dtype": "bfloat16"}  # fmt: skip
    return {key: value for key, value in told.items() if value is not None} | more


def kinds(word: str, other: str, places: list[int], count: int) -> list[str]:
    return [word if i in places else other for i in range(count)]


NEMOTRON_H_8B = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
MIMO = [0, 1, 1, 1, 1, 0, *([1, 1, 1, 1, 1, 0] * 7)]

MODELS: dict[str, tuple[dict[str, Any], int, int]] = {
    # name: config, bytes a token in 16 bit, of it beyond the window
    "Llama 3.1 8B": (config(4096, 32, 32, 8, model_type="llama"), 131_072, 131_072),
    "Llama 3.3 70B": (config(8192, 80, 64, 8, model_type="llama"), 327_680, 327_680),
    "Llama 3.1 405B": (config(16384, 126, 128, 8, model_type="llama"), 516_096, 516_096),
    "Qwen2.5 7B": (config(3584, 28, 28, 4, model_type="qwen2", use_sliding_window=False, sliding_window=131072,
                          max_window_layers=28), 57_344, 57_344),
    "Qwen3 8B": (config(4096, 36, 32, 8, model_type="qwen3", head_dim=128, use_sliding_window=False,
                        sliding_window=None, max_window_layers=36), 147_456, 147_456),
    "Qwen3 30B A3B": (config(2048, 48, 32, 4, model_type="qwen3_moe", head_dim=128, num_experts=128,
                             decoder_sparse_step=1, mlp_only_layers=[], moe_intermediate_size=768), 98_304, 98_304),
    "Qwen3-Next 80B": (config(2048, 48, 16, 2, model_type="qwen3_next", head_dim=256, full_attention_interval=4,
                              linear_num_key_heads=16, linear_key_head_dim=128, linear_conv_kernel_dim=4,
                              decoder_sparse_step=1, mlp_only_layers=[]), 24_576, 24_576),
    "Qwen3.5 9B": ({"model_type": "qwen3_5", "text_config": config(
        4096, 32, 16, 4, model_type="qwen3_5_text", head_dim=256, full_attention_interval=4, linear_num_key_heads=16,
        layer_types=(["linear_attention"] * 3 + ["full_attention"]) * 8, mtp_num_hidden_layers=1)}, 32_768, 32_768),
    "Mistral 7B v0.3": (config(4096, 32, 32, 8, model_type="mistral", sliding_window=None), 131_072, 131_072),
    "Mistral 7B v0.1": (config(4096, 32, 32, 8, model_type="mistral", sliding_window=4096,
                               max_position_embeddings=32768), 131_072, 0),
    "Mixtral 8x7B": (config(4096, 32, 32, 8, model_type="mixtral", num_local_experts=8, sliding_window=None),
                     131_072, 131_072),
    "DeepSeek V2 Lite": (config(2048, 27, 16, 16, model_type="deepseek_v2", kv_lora_rank=512, qk_rope_head_dim=64,
                                v_head_dim=128, qk_nope_head_dim=128, moe_layer_freq=1), 31_104, 31_104),
    "DeepSeek V3": (config(7168, 61, 128, 128, model_type="deepseek_v3", kv_lora_rank=512, qk_rope_head_dim=64,
                           v_head_dim=128, moe_layer_freq=1, num_nextn_predict_layers=1), 70_272, 70_272),
    "Gemma 2 9B": (config(3584, 42, 16, 8, model_type="gemma2", head_dim=256, sliding_window=4096), 344_064, 172_032),
    "Gemma 3 27B": ({"model_type": "gemma3", "text_config": config(
        5376, 62, 32, 16, model_type="gemma3_text", head_dim=128, sliding_window=1024)}, 507_904, 81_920),
    "Gemma 3 4B": ({"model_type": "gemma3", "text_config": {
        "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}}, 139_264, 20_480),
    "Gemma 3n E4B": (config(2048, 35, 8, 2, model_type="gemma3n_text", head_dim=256, sliding_window=512,
                            num_kv_shared_layers=15,
                            layer_types=(["sliding_attention"] * 4 + ["full_attention"]) * 7), 40_960, 8_192),
    "gpt-oss 20B": (config(2880, 24, 64, 8, model_type="gpt_oss", head_dim=64, sliding_window=128,
                           layer_types=["sliding_attention", "full_attention"] * 12), 49_152, 24_576),
    "gpt-oss 120B": (config(2880, 36, 64, 8, model_type="gpt_oss", head_dim=64, sliding_window=128),
                              73_728, 36_864),
    "Phi-3 mini 128k": (config(3072, 32, 32, 32, model_type="phi3", sliding_window=262144,
                               max_position_embeddings=131072), 393_216, 393_216),
    "Phi-4": (config(5120, 40, 40, 10, model_type="phi3", sliding_window=None), 204_800, 204_800),
    "Phi-4 mini flash": (config(2560, 32, 40, 20, model_type="phi4flash", mb_per_layer=2, sliding_window=512,
                                mamba_d_state=16, mamba_expand=2), 46_080, 5_120),
    "Nemotron-H 8B": (config(4096, 52, 32, 8, model_type="nemotron_h", attention_head_dim=128,
                             hybrid_override_pattern=NEMOTRON_H_8B, ssm_state_size=128, mamba_num_heads=128),
                      16_384, 16_384),
    "Jamba v0.1": (config(4096, 32, 32, 8, model_type="jamba", attn_layer_period=8, attn_layer_offset=4,
                          expert_layer_period=2, expert_layer_offset=1, mamba_d_state=16), 16_384, 16_384),
    "LFM2 1.2B": (config(2048, 16, 32, 8, model_type="lfm2", conv_L_cache=3, conv_bias=False,
                         full_attn_idxs=[2, 5, 8, 10, 12, 14]), 12_288, 12_288),
    "LFM2 1.2B, listed": (config(2048, 16, 32, 8, model_type="lfm2", conv_L_cache=3, layer_types=kinds(
        "full_attention", "conv", [2, 5, 8, 10, 12, 14], 16)), 12_288, 12_288),
    "Kimi Linear 48B": (config(2304, 27, 32, 32, model_type="kimi_linear", kv_lora_rank=512, qk_rope_head_dim=64,
                               v_head_dim=128, linear_attn_config={
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4,
        "kda_layers": [i for i in range(1, 27) if i % 4]}), 8_064, 8_064),
    "Bamba 9B": (config(4096, 32, 32, 8, model_type="bamba", attn_layer_indices=[9, 18, 27], mamba_n_heads=128),
                 12_288, 12_288),
    "Granite 4.0 H Small": (config(4096, 40, 32, 8, model_type="granitemoehybrid", mamba_n_heads=128,
                                   layer_types=kinds("attention", "mamba", [5, 15, 25, 35], 40)), 16_384, 16_384),
    "Zamba2 7B": (config(3584, 81, 32, 32, model_type="zamba2", attention_head_dim=224, mamba_d_state=64,
                         num_mem_blocks=2, layers_block_type=kinds(
        "hybrid", "mamba", [6, 11, 17, 23, 29, 35, 41, 47, 53, 59, 65, 71, 77], 81)), 372_736, 372_736),
    "Zamba 7B v1": (config(3712, 76, 16, 16, model_type="zamba", attn_layer_period=6, attn_layer_offset=4,
                           mamba_d_state=16), 386_048, 386_048),
    "Falcon-H1 7B": (config(3072, 44, 12, 2, model_type="falcon_h1", head_dim=128, mamba_d_ssm=3072), 45_056, 45_056),
    "RecurrentGemma 2B": (config(2560, 26, 10, 1, model_type="recurrent_gemma", head_dim=256, lru_width=2560,
                                 conv1d_width=4, attention_window_size=2048,
                                 block_types=["recurrent", "recurrent", "attention"]), 8_192, 0),
    "MiniMax-Text-01": (config(6144, 80, 64, 8, model_type="minimax_text_01", head_dim=128,
                               attn_type_list=[0, 0, 0, 0, 0, 0, 0, 1] * 10, layernorm_linear_attention_alpha=3.5),
                        40_960, 40_960),
    "Llama 4 Scout": ({"model_type": "llama4", "text_config": config(
        5120, 48, 40, 8, model_type="llama4_text", head_dim=128, attention_chunk_size=8192, no_rope_layers=[],
        interleave_moe_layer_step=1, max_position_embeddings=10485760)}, 196_608, 49_152),
    "Command R7B": (config(4096, 32, 32, 8, model_type="cohere2", sliding_window=4096, layer_switch=4,
                           order_of_interleaved_layers="local_attn_first", rotary_pct=1.0), 131_072, 32_768),
    "EXAONE 4 32B": (config(5120, 64, 40, 8, model_type="exaone4", head_dim=128, sliding_window=4096,
                            sliding_window_pattern="LLLG"), 262_144, 65_536),
    "MiMo-V2 Flash": (config(4096, 48, 64, 4, model_type="mimo_v2_flash", head_dim=192, v_head_dim=128,
                             hybrid_layer_pattern=MIMO, sliding_window=128, swa_num_key_value_heads=8, swa_head_dim=192,
                             swa_v_head_dim=128), 222_720, 23_040),
    "Ring mini linear": (config(2048, 20, 16, 4, model_type="bailing_moe_linear", head_dim=128, layer_group_size=5),
                         8_192, 8_192),
    "PLaMo 2 8B": (config(4096, 32, 32, 4, model_type="plamo2", hidden_size_per_head=128, mamba_step=2,
                          mamba_d_state=64), 32_768, 32_768),
    "OpenELM": ({"model_type": "openelm", "num_transformer_layers": 4, "model_dim": 1280, "head_dim": 64,
                 "num_kv_heads": [3, 3, 4, 5], "num_query_heads": [12, 12, 16, 20]}, 3_840, 3_840),
    "Falcon 7B": (config(4544, 32, 71, None, model_type="falcon", multi_query=True), 8_192, 8_192),
    "LongCat Flash": ({"model_type": "longcat_flash", "num_layers": 28, "hidden_size": 6144, "num_attention_heads": 64,
                       "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128}, 64_512, 64_512),
    "MPT 30B": ({"model_type": "mpt", "n_layers": 48, "n_heads": 64, "d_model": 7168,
                 "attn_config": {"attn_type": "multihead_attention"}}, 1_376_256, 1_376_256),
    "Hunyuan Large": (config(6400, 64, 80, 8, model_type="hunyuan", attention_head_dim=128, use_cla=True,
                             cla_share_factor=2), 131_072, 131_072),
    "GLM-4.5": (config(5120, 92, 96, 8, model_type="glm4_moe", head_dim=128, first_k_dense_replace=3,
                       num_nextn_predict_layers=1), 376_832, 376_832),
    "MiniMax-M2": (config(3072, 62, 48, 8, model_type="minimax_m2", head_dim=128, attn_type_list=[1] * 62,
                          mtp_transformer_layers=1, num_mtp_modules=3), 253_952, 253_952),
    "Command A": (config(12288, 64, 96, 8, model_type="cohere2", head_dim=128, sliding_window=4096, layer_switch=4,
                         sliding_window_pattern=4), 262_144, 65_536),
    "OLMo 2 7B": (config(4096, 32, 32, 32, model_type="olmo2"), 524_288, 524_288),
    "OLMo 3 7B": (config(4096, 32, 32, 32, model_type="olmo3", sliding_window=4096,
                         layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 8), 524_288, 131_072),
    "Qwen2.5-VL 7B": (config(3584, 28, 28, 4, model_type="qwen2_5_vl", max_window_layers=28, sliding_window=32768,
                             use_sliding_window=False, vision_config={"fullatt_block_indexes": [7, 15, 23, 31]}),
                      57_344, 57_344),
    "Qwen3-VL 8B": ({"model_type": "qwen3_vl", "vision_config": {"deepstack_visual_indexes": [8, 16, 24], "depth": 27},
                     "text_config": config(4096, 36, 32, 8, model_type="qwen3_vl_text", head_dim=128)},
                    147_456, 147_456),
    "Llama 3.2 11B Vision": ({"model_type": "mllama", "text_config": config(
        4096, 40, 32, 8, model_type="mllama_text_model", cross_attention_layers=[3, 8, 13, 18, 23, 28, 33, 38])},
        131_072, 131_072),
    "ERNIE 4.5 21B A3B": (config(2560, 28, 20, 4, model_type="ernie4_5_moe", head_dim=128, moe_layer_start_index=1,
                                 moe_layer_end_index=27, moe_layer_interval=1, moe_capacity=[64, 64, 64]),
                          57_344, 57_344),
    "SmolLM3 3B": (config(2048, 36, 16, 4, model_type="smollm3", no_rope_layers=[1, 1, 1, 0] * 9,
                          use_sliding_window=False, no_rope_layer_interval=4, layer_types=["full_attention"] * 36),
                   73_728, 73_728),
    "Step3": ({"model_type": "step3_vl", "text_config": config(
        7168, 61, 64, None, model_type="step3_text", num_attention_groups=1, head_dim=256, share_q_dim=2048,
        moe_layers_enum="4,5,6,7")}, 62_464, 62_464),
    "DeepSeek V3.2": (config(7168, 61, 128, 128, model_type="deepseek_v32", kv_lora_rank=512, qk_rope_head_dim=64,
                             v_head_dim=128, index_head_dim=128, index_n_heads=64, index_topk=2048), 78_324, 78_324),
    "GLM-5": (config(6144, 78, 64, 64, model_type="glm_moe_dsa", kv_lora_rank=512, qk_rope_head_dim=64, v_head_dim=256,
                     index_head_dim=128, index_n_heads=32, mlp_layer_types=["dense"] * 3 + ["sparse"] * 75),
              100_152, 100_152),
    "Mistral Small 3 (params.json)": ({"dim": 5120, "n_layers": 40, "head_dim": 128, "hidden_dim": 32768, "n_heads": 32,
                                       "n_kv_heads": 8, "vocab_size": 131072}, 163_840, 163_840),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_token_takes_what_the_layers_that_keep_it_take(name: str) -> None:
    told, token, far = MODELS[name]
    model = model_of(BIG, told)
    assert (model.token_bytes(), model.far_bytes()) == (token, far)


def test_what_looks_tokens_up_takes_the_same_whatever_the_format_of_the_cache() -> None:
    model = model_of(BIG, MODELS["DeepSeek V3.2"][0])
    assert model.token_bytes(1.0) == 61 * 576 + 61 * 132
    assert model.context_bytes(1000) == 1000 * 78_324


def test_every_line_of_the_documented_table_is_a_test() -> None:
    page = (Path(__file__).parents[2] / "docs" / "advise.md").read_text()
    table = page.partition("| model | taken from |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(table) >= 50
    for line in table:
        name, _, _, token, beyond = (cell.strip() for cell in line.strip("|").split("|"))
        told = int(token.replace(",", ""))
        far = told if beyond == "the same" else int(beyond.replace(",", ""))
        assert MODELS[name.partition(",")[0]][1:] == (told, far), name


def test_block_configs_tell_the_attention_of_each_layer() -> None:
    blocks: list[dict[str, Any]] = [{"attention": {"n_heads_in_group": 8, "no_op": False}}] * 3
    blocks += [{"attention": {"n_heads_in_group": None, "no_op": True}}] * 4
    blocks += [{"attention": {"n_heads_in_group": None, "no_op": False, "replace_with_linear": True}}]
    blocks += [{"attention": {"n_heads_in_group": 16, "no_op": False}}] * 2
    model = model_of(BIG, config(8192, 10, 64, None, model_type="nemotron-nas", block_configs=blocks))
    assert model.token_bytes() == (3 * 8 + 2 * 4) * 2 * 128 * 2 == 16_384
    assert model.layers == 5
    assert model.kv_heads == 4  # the fewest: what more cards can share
    short = config(8192, 10, 64, None, block_configs=blocks[:3])
    with pytest.raises(ScenarioError, match="block_configs: expected an object for each of the 10 layers"):
        model_of(BIG, short)


def test_the_deci_list_of_kv_heads_counts_layer_by_layer() -> None:
    deci = config(4096, 4, 32, None, model_type="deci", num_key_value_heads_per_layer=[4, 2, 1, 1])
    assert model_of(BIG, deci).token_bytes() == 8 * 2 * 128 * 2


@pytest.mark.parametrize(
    ("kind", "keeps"),
    [("conv", 0), ("recurrent", 0), ("kda", 0), ("moe", 0), ("mlp", 0), ("linear_attention", 0), ("mamba2", 0),
     ("lightning_attention", 0), ("gated_deltanet", 0), ("something new", 0), ("attention", 1), ("hybrid", 1),
     ("Full_Attention", 1), ("sliding_attention", 1)],
)  # fmt: skip
def test_a_kind_of_layer_that_is_not_known_to_be_attention_keeps_nothing(kind: str, keeps: int) -> None:
    model = model_of(BIG, config(2048, 4, 16, 2, sliding_window=512, layer_types=[kind] * 3 + ["full_attention"]))
    assert model.layers + model.window_layers == 1 + 3 * keeps


@pytest.mark.parametrize(
    "key",
    [
        {"attention_layout": ["a", "m", "m", "a"]},
        {"attn_every": 3},
        {"mamba_layer_ids": [0, 1]},
        {"layer_pattern": "XMXM"},
        {"hybrid_override_pattern": "MZ*-"},
        {"ssm_state_size": 128},
        {"mamba_d_state": 16},
        {"linear_num_key_heads": 16},
        {"decay_low_rank_dim": 128},
        {"use_short_conv": True},
        {"conv_L_cache": 3},
        {"num_mamba_layers": 2},
        {"global_attn_every_n_layers": 3},
        {"ssm_cfg": {"layer": "Mamba2"}},
        {"attn_layer_idx": [1]},
        {"mixer": ["a", "b", "b", "a"]},
        {"use_yoco": True},
        {"share_kv": True},
        {"kv_reuse_group": [[1, 2]]},
        {"layer_types": ["full_attention"] * 3},
        {"layer_types": ["full_attention"] * 3 + ["odd_attention"]},
        {"full_attention_interval": 0},
        {"attn_layer_period": 2, "attn_layer_offset": 2},
        {"attn_layer_indices": [9]},
        {"linear_attn_config": {"full_attn_layers": [1], "kda_layers": [2, 3]}},
        {"attn_type_list": [0, 1, 2, 1]},
        {"layer_types": ["mamba"] * 4},
    ],
    ids=lambda key: json.dumps(key)[:40],
)
def test_what_tells_of_layers_and_is_not_understood_is_asked_for(key: dict[str, Any]) -> None:
    told = config(2048, 4, 16, 2, model_type="brand_new", **key)
    with pytest.raises(ScenarioError, match=r"config\.json: .*(--layers|no layer keeps)"):
        model_of(BIG, told)
    assert model_of({**BIG, "layers": 2, "kv_heads": 2}, told).token_bytes() == 2 * 2 * 2 * 128 * 2


@pytest.mark.parametrize(
    "key",
    [{"moe_layer_freq": 2}, {"expert_layer_period": 2}, {"mlp_layer_types": ["dense", "sparse"] * 2},
     {"no_rope_layers": [1, 1, 1, 0]}, {"attn_implementation": "sdpa"}, {"attention_bias": True},
     {"attention_dropout": 0.1}, {"hidden_size_per_layer_input": 256}, {"layer_norm_eps": 1e-6},
     {"attn_every": None}, {"mamba_layer_ids": []}, {"num_nextn_predict_layers": 1}, {"layer_scale_init": 1.0},
     {"intermediate_sizes": [1, 2, 2, 1]}],
    ids=lambda key: next(iter(key)),
)  # fmt: skip
def test_what_tells_of_something_else_is_not_asked_about(key: dict[str, Any]) -> None:
    assert model_of(BIG, config(2048, 4, 16, 2, model_type="brand_new", **key)).layers == 4


def test_a_window_of_which_it_is_not_told_where_it_is_used_saves_nothing() -> None:
    odd = model_of(BIG, config(2048, 4, 16, 2, model_type="brand_new", sliding_window=512))
    assert (odd.layers, odd.window_layers) == (4, 0)
    assert any("all are counted whole" in note for note in odd.notes)


def test_a_list_of_layers_wins_over_keys_beside_it() -> None:
    both = config(2048, 4, 16, 2, full_attention_interval=2, linear_key_head_dim=128, ssm_state_size=3,
                  layer_types=["linear_attention"] * 3 + ["full_attention"])  # fmt: skip
    assert model_of(BIG, both).layers == 1


def test_layers_of_several_tokens_ahead_are_not_loaded() -> None:
    assert model_of(BIG, config(2048, 4, 16, 2, hybrid_override_pattern="M*|M*/*M")).layers == 2
    padded = config(2048, 4, 16, 2, num_nextn_predict_layers=1, layer_types=["full_attention"] * 5)
    assert model_of(BIG, padded).layers == 4


def test_a_list_alone_tells_how_many_layers_there_are() -> None:
    assert model_of(BIG, config(2048, None, 16, 2, hybrid_override_pattern="M*M-")).layers == 1
    assert model_of(BIG, config(2048, None, 16, 2, layers_block_type=["mamba", "attention"])).layers == 1


@pytest.mark.parametrize("place", ["text_config", "llm_config", "language_config", "decoder"])
def test_the_decoder_of_a_model_of_several_inputs_is_found_where_it_is_nested(place: str) -> None:
    inner = config(2048, 48, 16, 2, model_type="qwen3_next", head_dim=256)
    assert model_of(BIG, {place: inner, "vision_config": {"num_hidden_layers": 3}}).token_bytes() == 24_576
    outside = {place: config(2048, 48, 16, 2, head_dim=256), "full_attention_interval": 4}
    assert model_of(BIG, outside).token_bytes() == 24_576
    omni = {"thinker_config": {"text_config": inner}}
    assert model_of(BIG, omni).token_bytes() == 24_576


@pytest.mark.parametrize(
    ("name", "more", "gpus", "token"),
    [
        ("interval", {"model_type": "qwen3_next", "num_hidden_layers": 48, "full_attention_interval": 4,
                      "linear_num_key_heads": 16, "linear_key_head_dim": 128}, 1, 24_576),
        ("conv", {"model_type": "lfm2", "num_hidden_layers": 16,
                  "layer_types": kinds("full_attention", "conv", [2, 6, 10, 14], 16)}, 1, 8_192),
        ("plain", {"model_type": "qwen3", "num_hidden_layers": 48}, 2, 98_304),
    ],
)  # fmt: skip
def test_the_command_gives_hybrids_the_memory_that_they_need(
    name: str, more: dict[str, Any], gpus: int, token: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hybrid of which a quarter of the layers keeps keys and values was counted whole, and given two cards."""
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(config(2048, None, 16, 2, head_dim=256, vocab_size=1000, intermediate_size=5120,
                                      max_position_embeddings=262144, **more)))  # fmt: skip
    words = ["advise", "--model-config", str(path), "--parameters", "30e9", "--gpu", "H100", "--context-tokens",
             "32768", "--input-tokens", "30000", "--output-tokens", "500", "--concurrency", "8", "--replica-rps", "1",
             "--peak-rps", "1", "--json"]  # fmt: skip
    assert cli.main(words, standalone_mode=False) == 0
    memory = json.loads(capsys.readouterr().out)["memory"]
    assert (memory["token_bytes"], memory["gpus"]) == (token, gpus)


GPT_OSS_20B = config(2880, 24, 64, 8, model_type="gpt_oss", head_dim=64, sliding_window=128, vocab_size=201088,
                     intermediate_size=2880, num_local_experts=32, tie_word_embeddings=False,
                     quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": [
                         "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
                         "lm_head"]})  # fmt: skip


def test_gpt_oss_keeps_attention_and_embeddings_in_16_bit() -> None:
    """20.9 billion parameters; its files have 13.8 GB: experts at 4.25 bits, the rest at 16."""
    model = model_of({}, GPT_OSS_20B)
    assert model.parameters == 20_914_757_184
    experts = 24 * 32 * (3 * 2880 * 2880 + 3 * 2880)
    assert model.weight_bytes == pytest.approx(experts * 4.25 / 8 + (20_914_757_184 - experts) * 2, rel=1e-4)
    assert 13.7e9 < model.weight_bytes < 13.9e9


def llama(**quantization: Any) -> Model:
    told = config(4096, 32, 32, 8, model_type="llama", intermediate_size=14336, vocab_size=128256,
                  tie_word_embeddings=False, quantization_config=quantization)  # fmt: skip
    return model_of({}, told)


EMBEDDED, ALL = 1_050_673_152, 8_030_261_248
ATTENTION = 32 * (4096 * 128 * 48 + 4096 * 4096)


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, (ALL - EMBEDDED) * (0.5 + 2.5 / 128) + EMBEDDED * 2),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, (ALL - EMBEDDED) + EMBEDDED * 2),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, (ALL - EMBEDDED) * 0.5625 + EMBEDDED * 2),
        ({"quant_method": "fp8", "ignored_layers": [f"model.layers.{i}.self_attn.q_proj" for i in range(32)]},
         (ALL - EMBEDDED - ATTENTION) + (EMBEDDED + ATTENTION) * 2),
        ({"quant_method": "compressed-tensors", "ignore": ["re:.*self_attn.*", "lm_head"],
          "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}}},
         (ALL - EMBEDDED - ATTENTION) + (EMBEDDED + ATTENTION) * 2),
        ({"quant_method": "compressed-tensors",
          "config_groups": {"g": {"targets": ["re:.*mlp.*"], "weights": {"num_bits": 8, "type": "float"}}}},
         (ALL - EMBEDDED - ATTENTION) + (EMBEDDED + ATTENTION) * 2),
    ],
)  # fmt: skip
def test_weights_take_what_the_checkpoint_stores(quantization: dict[str, Any], expected: float) -> None:
    assert llama(**quantization).weight_bytes == pytest.approx(expected, rel=1e-6)


def test_how_params_json_stores_weights_is_asked_for() -> None:
    told = MODELS["Mistral Small 3 (params.json)"][0] | {"quantization": {"qformat_weight": "fp8_e4m3"}}
    with pytest.raises(ScenarioError, match="quantization: Mistral's own form is not read: give --weights fp8"):
        model_of(BIG, told)
    assert model_of(BIG | {"weights": "fp8"}, told).weights == "fp8"


def test_weights_that_are_said_end_the_question_how_they_are_stored() -> None:
    told = config(4096, 32, 32, 8, model_type="llama", quantization_config={"quant_method": "magic"})
    with pytest.raises(ScenarioError, match="method 'magic': give --weights"):
        model_of({"parameters": 8e9}, told)
    assert model_of({"parameters": 8e9, "weights": "fp8"}, told).weight_bytes == 8e9
