"""Whose numbers a metrics page shows: field case 06 and its kind, from pages in memory and from a scraper's process."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from metrics_pages import NAMES, page, read
from records_and_rows import answer
from simulated_ramps import ladder
from test_checks import found, run_of
from test_scraper import Server, scraping, server, wait_for
from test_scraper import answer as served

from benchmarks.engine_population import Lengths
from loadramp.analysis.diagnosis.diagnose import diagnose
from loadramp.analysis.server_window import deltas, with_server
from loadramp.metrics.canonical import PageReading, read_for
from loadramp.metrics.model_series import ModelChoice, ModelSelection, asked_of
from loadramp.metrics.scraper import find_metrics
from loadramp.record.row import Row
from loadramp.record.run_info import MetricsInfo
from loadramp.record.types import Sample
from loadramp.simulator.profiles import PROFILES

__all__ = ["server"]
M = ModelSelection(("m",))


def vllm(label: str = "model_name", preempted: int = 7, **models: tuple[int, int]) -> str:
    """A vLLM page of several models: name to requests waiting and output tokens."""
    lines = []
    for name, (waiting, tokens) in models.items():
        labels = f'engine="0",{label}="{name}"'
        lines += [
            f"vllm:num_requests_waiting{{{labels}}} {waiting}",
            f"vllm:kv_cache_usage_perc{{{labels}}} {0.99 if waiting else 0.05}",
            f"vllm:generation_tokens_total{{{labels}}} {tokens}",
            f"vllm:num_preemptions_total{{{labels}}} {preempted * waiting}",
            f'vllm:request_success_total{{{labels},finished_reason="stop"}} {tokens // 10}',
            f"vllm:time_to_first_token_seconds_sum{{{labels}}} {tokens / 100}",
            f"vllm:time_to_first_token_seconds_count{{{labels}}} {tokens // 10}",
        ]
    return "\n".join(lines) + "\n"


OURS = {
    "waiting": 0.0, "kv_used_ratio": 0.05, "preemptions": 0.0, "output_tokens": 120.0, "requests_done": 12.0,
    "ttft_s_sum": 1.2, "ttft_s_count": 12.0,
}  # fmt: skip


@pytest.mark.parametrize(
    "label", ["model_name", "model", "model_id", "served_model_name", "exported_model_name", "target_model_name"]
)
def test_of_a_page_of_two_models_only_the_asked_one_counts(label: str) -> None:
    got = read_for(M, vllm(label, m=(0, 120), busy=(400, 9000)))
    assert (got.dialect, got.values) == ("vllm", OURS)
    assert (got.choice.left_out, got.choice.unasked) == (("busy",), ())


def test_nothing_asked_or_one_model_alone_is_read_as_ever() -> None:
    both = vllm(m=(1, 120), busy=(400, 9000))
    assert read_for(ModelSelection(), both).values["waiting"] == read(both)[1]["waiting"] == 401.0
    alone = read_for(M, vllm(m=(0, 120)))
    assert (alone.values, alone.choice.left_out, alone.choice.unasked) == (OURS, (), ())


@pytest.mark.parametrize("name", NAMES)
def test_pages_of_real_engines_read_the_same_whoever_is_asked(name: str) -> None:
    """Each shows one model, so whatever it is called, all of it counts."""
    assert (read_for(M, page(name)).dialect, dict(read_for(M, page(name)).values)) == read(page(name))


def test_an_alias_that_nobody_can_know_counts_and_is_told() -> None:
    got = read_for(ModelSelection(("gpt-best",)), vllm(m=(1, 120), busy=(400, 9000)))
    assert (got.values["waiting"], got.choice.unasked, got.choice.left_out) == (401.0, ("m", "busy"), ())


@pytest.mark.parametrize("undefined", ["undefined", "", "None"])
def test_a_placeholder_is_no_model(undefined: str) -> None:
    got = read_for(M, vllm(**{undefined: (3, 120)}))
    assert (got.values["waiting"], got.choice) == (3.0, ModelChoice())


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("qwen3-8b", "Qwen/Qwen3-8B"),
        ("Qwen3-8B", "/models/Qwen3-8B/"),
        ("LLAMA", "llama"),
    ],
)
def test_a_name_with_another_path_or_case_is_the_same_where_only_one_is_like_it(asked: str, shown: str) -> None:
    got = read_for(ModelSelection((asked,)), vllm(busy=(400, 9), **{shown: (0, 120)}))
    assert (got.values["waiting"], got.choice.left_out) == (0.0, ("busy",))


def test_a_name_like_two_others_is_neither() -> None:
    got = read_for(ModelSelection(("m",)), vllm(**{"a/m": (1, 9), "b/m": (2, 9)}))
    assert (got.values["waiting"], got.choice.unasked) == (3.0, ("a/m", "b/m"))


# -- what the list of models says


CARDS: list[dict[str, Any]] = [
    {"id": "first", "root": "/w/llama", "parent": None},
    {"id": "second", "root": "/w/llama", "parent": None},
    {"id": "billing", "root": "/w/lora1", "parent": "first"},
    {"id": "busy", "root": "/w/other", "parent": None},
]


def test_another_name_of_the_same_weights_is_known_from_the_list_of_models() -> None:
    asked = asked_of(["second"], CARDS)
    assert asked == ModelSelection(("second",), {"second": ("first", "/w/llama")})
    assert read_for(asked, vllm(first=(1, 9), busy=(400, 9))).values["waiting"] == 1.0
    assert read_for(asked, vllm(busy=(400, 9), **{"/w/llama": (2, 9)})).values["waiting"] == 2.0


def test_an_adapter_whose_page_names_the_base_model_counts_with_it() -> None:
    asked = asked_of(["billing"], CARDS)
    assert asked.bases == {"billing": ("first", "second", "/w/llama")}
    got = read_for(asked, vllm(first=(3, 90), busy=(400, 9000)))
    assert (got.values["waiting"], got.values["output_tokens"], got.choice.left_out) == (3.0, 90.0, ("busy",))


def test_an_adapter_with_counters_of_its_own_has_queue_and_cache_from_its_base_model() -> None:
    own = 'vllm:generation_tokens_total{engine="0",model_name="billing"} 40\n'
    got = read_for(asked_of(["billing"], CARDS), own + vllm(first=(3, 90), busy=(400, 9000), preempted=1))
    assert got.values == {"output_tokens": 40.0, "waiting": 3.0, "kv_used_ratio": 0.99, "preemptions": 3.0}
    assert got.choice.left_out == ("busy",)


def test_several_asked_models_count_together_and_no_other() -> None:
    got = read_for(ModelSelection(("a", "b")), vllm(a=(1, 10), b=(2, 20), c=(4, 40)))
    assert (got.values["waiting"], got.values["output_tokens"], got.choice.left_out) == (3.0, 30.0, ("c",))


# -- ranks, routers, queries


def test_all_ranks_of_the_asked_model_count_and_no_rank_of_another() -> None:
    text = "".join(
        f'sglang:num_queue_reqs{{model_name="{name}",engine_type="unified",tp_rank="{tp}",dp_rank="{dp}"}} {queue}\n'
        f'sglang:token_usage{{model_name="{name}",engine_type="unified",tp_rank="{tp}",dp_rank="{dp}"}} {used}\n'
        for name, dp, queue, used in (("m", 0, 2, 0.2), ("m", 1, 5, 0.6), ("busy", 0, 70, 0.9), ("busy", 1, 80, 1.0))
        for tp in (0, 1)
    )
    got = read_for(M, text)
    assert got.values == {"waiting": 7.0, "kv_used_ratio": 0.6}
    assert got.choice.left_out == ("busy",)


def test_a_series_without_a_model_is_its_server_s() -> None:
    """A router that counts by model, and shows the queues of its servers without one."""
    text = (
        'vllm:input_tokens_total{server="http://a",model="m"} 5\n'
        'vllm:input_tokens_total{server="http://b",model="busy"} 5\n'
        'vllm:input_tokens_total{server="http://c",model="m"} 5\n'
        'vllm:num_requests_waiting{server="http://a"} 1\n'
        'vllm:num_requests_waiting{server="http://b"} 400\n'
        'vllm:num_requests_waiting{server="http://c"} 2\n'
        'vllm:num_requests_waiting{server="http://new"} 4\n'
    )
    got = read_for(M, text)
    assert (got.values, got.choice.left_out) == ({"waiting": 7.0}, ("busy",))


def test_a_query_s_answer_is_sorted_by_model_and_by_pod() -> None:
    def series(name: str, value: float, **labels: str) -> dict[str, Any]:
        return {"metric": {"__name__": name, **labels}, "value": [0, str(value)]}

    body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": [
        series("vllm:num_requests_waiting", 1, model_name="m", pod="m-0"),
        series("vllm:num_requests_waiting", 2, model_name="m", pod="m-1"),
        series("vllm:num_requests_waiting", 400, model_name="busy", pod="busy-0"),
        series("vllm:cache_config_info", 1, pod="m-0", num_gpu_blocks="10", block_size="16"),
        series("vllm:cache_config_info", 1, pod="m-1", num_gpu_blocks="10", block_size="16"),
        series("vllm:cache_config_info", 1, pod="busy-0", num_gpu_blocks="999", block_size="32"),
        series("process_start_time_seconds", 100, pod="m-0"),
        series("process_start_time_seconds", 900, pod="busy-0"),
    ]}})  # fmt: skip
    got = read_for(M, body)
    assert got.values == {"waiting": 3.0, "kv_blocks": 20.0, "block_size": 16.0, "process_start_s": 100.0}


def test_what_two_engines_of_one_number_say_of_themselves_is_unknown() -> None:
    text = vllm(m=(0, 1), busy=(1, 1)) + (
        'vllm:cache_config_info{engine="0",num_gpu_blocks="10"} 1\n'
        'vllm:cache_config_info{engine="0",num_gpu_blocks="9"} 1\n'
    )
    assert "kv_blocks" not in read_for(M, text).values
    once = vllm(m=(0, 1)) + 'vllm:cache_config_info{engine="0",num_gpu_blocks="10"} 1\n'
    assert read_for(M, once).values["kv_blocks"] == 10.0


def test_of_two_engines_on_a_page_the_one_with_the_asked_model_is_read() -> None:
    mine = 'sglang:num_queue_reqs{model_name="m"} 2\nsglang:token_usage{model_name="m"} 0.5\n'
    text = vllm(busy=(400, 9000)) + mine
    assert read(text)[0] == "vllm"
    assert (read_for(M, text).dialect, read_for(M, text).values) == ("sglang", {"waiting": 2.0, "kv_used_ratio": 0.5})
    assert read_for(M, text).choice.left_out == ("busy",)
    again = read_for(M, text, "sglang", read_for(M, text).choice)
    assert (again.values["waiting"], again.choice.left_out) == (2.0, ("busy",))


def test_a_gpu_exporter_names_no_model_whatever_its_labels_say() -> None:
    text = 'DCGM_FI_DEV_GPU_TEMP{gpu="0",modelName="NVIDIA H100",model="H100"} 66\n'
    assert read_for(M, text) == PageReading("dcgm", {"gpu_temperature_c": 66.0})


def test_a_quantity_that_only_others_show_is_unknown_and_not_theirs() -> None:
    text = vllm(m=(0, 120)) + 'vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="busy"} 50\n'
    assert "spec_draft_tokens" not in read_for(M, text).values


# -- from scrape to scrape


def test_what_was_chosen_stays_chosen() -> None:
    first = read_for(M, vllm(m=(0, 120), busy=(400, 9000)))
    gone = read_for(M, vllm(busy=(400, 9100)), "vllm", first.choice)
    assert (dict(gone.values), gone.choice) == ({}, first.choice)
    back = read_for(M, vllm(m=(0, 130), busy=(1, 1), new=(3, 3)), "vllm", gone.choice)
    assert (back.values["output_tokens"], back.choice.left_out) == (130.0, ("busy", "new"))


def test_an_adapter_found_by_its_base_model_is_not_looked_for_anew_when_its_own_series_come() -> None:
    asked = asked_of(["billing"], CARDS)
    before = read_for(asked, vllm(first=(3, 90)))
    after = read_for(asked, vllm(first=(3, 95), billing=(1, 1)), "vllm", before.choice)
    assert (before.values["output_tokens"], after.values["output_tokens"]) == (90.0, 95.0)


def test_a_second_asked_model_that_comes_later_is_added() -> None:
    both = ModelSelection(("a", "b"))
    before = read_for(both, vllm(a=(1, 10), c=(4, 40)))
    after = read_for(both, vllm(a=(1, 11), b=(2, 5), c=(4, 40)), "vllm", before.choice)
    assert (before.values["output_tokens"], after.values["output_tokens"]) == (10.0, 16.0)


def test_counters_across_the_scrape_at_which_the_asked_model_came_are_unknown_and_no_restart() -> None:
    def sample(t_s: float, tokens: float, unasked: bool) -> Sample:
        return Sample(t_s, "a", {"output_tokens": tokens, "waiting": 1.0}, unasked=unasked)

    samples = [sample(t, 9000.0 + t, True) for t in range(10)] + [sample(t, float(t), False) for t in range(10, 30)]
    assert deltas(samples, 0.0, 20.0).get("output_tokens") is None
    assert not with_server(Row(window_end_s=20.0), samples).server_restarted
    assert deltas(samples, 0.0, 9.0).get("output_tokens") == 9.0
    assert deltas(samples, 12.0, 29.0).get("output_tokens") == 17.0


# -- through the scraper's own process


def test_a_scraper_counts_the_asked_model_and_says_whom_it_left_out(server: Server, tmp_path: Path) -> None:
    said: list[str] = []
    server.answers = {"/metrics": [served(vllm(m=(0, 120), busy=(400, 9000)))]}
    scraper = scraping([f"{server.base}/metrics"], tmp_path / "server.jsonl", asked=M, say=said.append)
    samples = wait_for(scraper, 2)
    asyncio.run(scraper.stop())
    assert all(s.values == OURS and not s.unasked for s in samples if s.values)
    assert said == ["note: metrics: series of 1 other model left out: busy"]
    assert scraper.info == MetricsInfo("vllm", ["busy"])


def test_a_page_of_other_models_counts_only_where_no_page_has_the_asked_one(server: Server, tmp_path: Path) -> None:
    said: list[str] = []
    server.answers = {
        "/a/metrics": [served(vllm(m=(0, 120)))],
        "/b/metrics": [served(vllm(busy=(400, 9000)))],
        "/gpu": [served('DCGM_FI_DEV_GPU_TEMP{gpu="0"} 66\n')],
    }
    pages = [f"{server.base}{path}" for path in ("/b/metrics", "/a/metrics", "/gpu")]
    scraper = scraping(pages, tmp_path / "both.jsonl", asked=M, say=said.append)
    samples = wait_for(scraper, 6)
    asyncio.run(scraper.stop())
    assert {s.values["waiting"] for s in samples if "/a/" in s.url and s.values} == {0.0}
    assert {s.values["gpu_temperature_c"] for s in samples if "/gpu" in s.url and s.values} == {66.0}
    others = [s for s in [*samples, *scraper.read()] if "/b/" in s.url]
    assert all(
        s.unasked for s in others if s.values
    )  # none, unless this machine was too busy to look at the other page
    assert "only models that nobody asked for" in {s.error for s in others}
    assert scraper.info.left_out == ["busy"]
    alone = scraping(pages[:1], tmp_path / "alone.jsonl", asked=M, say=said.append)
    lone = wait_for(alone, 1)
    asyncio.run(alone.stop())
    assert all(s.unasked and s.values["waiting"] == 400.0 for s in lone if s.values)
    assert said[-1] == (
        "note: metrics: no series has the name of the model that is asked, so the series of all models count: busy"
    )


def test_a_router_that_shows_one_model_at_a_time_is_asked_for_it(server: Server) -> None:
    """llama.cpp's router mode refuses ``/metrics`` without a model."""
    server.answers = {
        "/metrics": [served("model is required", 400)],
        "/metrics?model=org%2Fm": [served(page("xllamacpp-under-load"))],
    }
    got = asyncio.run(find_metrics(server.base, asked=ModelSelection(("org/m",))))
    assert got == (f"{server.base}/metrics?model=org%2Fm", "llamacpp")
    assert asyncio.run(find_metrics(server.base)) is None


# -- what is said of it


def test_the_report_says_whose_series_were_left_out_or_counted() -> None:
    run = run_of([answer(i, i * 0.1, i * 0.1 + 0.2, [0.02] * 9) for i in range(100)])
    run.info.metrics = MetricsInfo("vllm", left_out=["busy", "other"])
    assert found(run, "other_models").level == "note"
    assert found(run, "other_models").message == "series of 2 other models left out: busy, other"
    run.info.metrics = MetricsInfo("vllm", unasked=["alias"])
    assert found(run, "unasked_models").level == "note"
    run.info.metrics = MetricsInfo("vllm", unasked=["x", "y"])
    assert found(run, "unasked_models").level == "warn"
    assert "so the series of all models count: x, y" in found(run, "unasked_models").message


def test_what_the_metrics_of_several_unasked_models_show_is_never_certain() -> None:
    run = ladder(PROFILES["kv-limited"], [4, 16, 24], Lengths(512, 0.0, 128, 0.0))
    run.info.metrics = MetricsInfo("vllm", unasked=["busy"])
    assert next(one for one in diagnose(run) if one.code == "kv_eviction").confidence == "certain"
    run.info.metrics = MetricsInfo("vllm", unasked=["busy", "other"])
    doubted = next(one for one in diagnose(run) if one.code == "kv_eviction")
    assert doubted.confidence == "possible"
    assert doubted.evidence[-1].startswith("the metrics are of 2 models, none of them by the name that is asked")
