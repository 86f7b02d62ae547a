"""Pages of every engine to canonical values: the numbers were read off the pages by eye."""

import json
import math

import pytest
from metrics_pages import NAMES, page, read

from loadramp.metrics.canonical import points_of_query, query_url, why_not
from loadramp.metrics.dialects import CANONICAL, COMMON, DIALECTS, DialectSeries, candidates, spellings
from loadramp.metrics.prometheus_text import names

NO_METRICS_OF_VLLM = {"prefix_hit_ratio", "spec_draft_tokens", "spec_accepted_tokens", "spec_accept_ratio"}

CAPTURED = {
    "vllm-0.32-idle": {
        "running": 0.0, "waiting": 0.0, "kv_used_ratio": 0.0, "preemptions": 0.0, "prompt_tokens": 0.0,
        "output_tokens": 0.0, "requests_done": 0.0, "requests_rejected": 0.0, "ttft_s_count": 0.0,
        "kv_blocks": 16384.0, "block_size": 128.0, "gpu_memory_utilization": 0.92,
        "process_memory_bytes": 678944768.0, "process_start_s": 1795813137.13,
    },
    "vllm-0.32-early": {
        "prompt_tokens": 18.0, "output_tokens": 105.0, "requests_done": 2.0, "prefix_queries": 18.0, "prefix_hits": 0.0,
        "ttft_s_sum": 0.16621041297912598, "ttft_s_count": 2.0, "itl_s_sum": 1.1028595679999853, "itl_s_count": 103.0,
        "engine_steps": 105.0, "process_start_s": 1795812926.41,
    },
    "vllm-0.32-under-load": {
        "running": 11.0, "waiting": 3.0, "kv_used_ratio": 0.9565217391304348, "preemptions": 33.0,
        "prompt_tokens": 3866.0, "output_tokens": 14581.0, "prefix_queries": 3866.0, "prefix_hits": 640.0,
        "requests_done": 35.0, "requests_aborted": 0.0, "requests_failed": 0.0, "requests_rejected": 0.0,
        "queue_s_sum": 10.591561634000527, "queue_s_count": 35.0,
        "prefill_s_sum": 1.2197791379999217, "prefill_s_count": 35.0,
        "decode_s_sum": 149.0180697489982, "decode_s_count": 35.0,
        "ttft_s_sum": 13.74790334701538, "ttft_s_count": 49.0,
        "itl_s_sum": 166.41600210799925, "itl_s_count": 14532.0,
        "tpot_s_sum": 0.37096519135145434, "tpot_s_count": 35.0,
        "e2e_s_sum": 161.68551397323608, "e2e_s_count": 35.0,
        "engine_steps": 3000.0, "kv_blocks": 24.0, "block_size": 128.0, "gpu_memory_utilization": 0.92,
        "process_memory_bytes": 664981504.0, "process_start_s": 1795813499.58,
    },
    "vllm-0.32-after-preemption": {
        "running": 0.0, "preemptions": 33.0, "prompt_tokens": 1600.0, "output_tokens": 12500.0, "requests_done": 25.0,
        "ttft_s_count": 25.0, "itl_s_count": 12475.0, "engine_steps": 2380.0, "queue_s_sum": 10.573218312000563,
    },
    "vllm-0.32-after-rejection": {
        "preemptions": 55.0, "requests_done": 59.0, "requests_rejected": 4.0, "prompt_tokens": 4056.0,
        "output_tokens": 22820.0, "itl_s_sum": 287.47310474399865, "itl_s_count": 22761.0,
    },
    "vllm-0.32-kv24-rate1": {
        "preemptions": 0.0, "requests_done": 12.0, "prompt_tokens": 770.0, "output_tokens": 2400.0,
        "ttft_s_count": 12.0, "ttft_s_sum": 0.33072948455810547, "itl_s_count": 2388.0, "kv_blocks": 24.0,
    },
    "vllm-0.32-kv24-rate3": {
        "preemptions": 6.0, "requests_done": 48.0, "prompt_tokens": 3078.0, "output_tokens": 9600.0,
        "queue_s_sum": 1.6411031280013049, "engine_steps": 2670.0,
    },
    "vllm-0.32-kv24-rate6": {
        "preemptions": 63.0, "requests_done": 120.0, "prompt_tokens": 7692.0, "output_tokens": 24000.0,
        "queue_s_sum": 124.49040985899774, "engine_steps": 3924.0, "process_memory_bytes": 665186304.0,
    },
    "vllm-0.25-h200-seqs64": {
        "preemptions": 0.0, "requests_done": 1720.0, "prompt_tokens": 880640.0, "output_tokens": 220160.0,
        "prefix_hits": 14944.0, "ttft_s_sum": 3138.9281237125397, "ttft_s_count": 1720.0, "itl_s_count": 218440.0,
        "kv_blocks": 58244.0, "block_size": 16.0, "process_memory_bytes": 1205800960.0,
    },
    "vllm-0.25-h200-default": {
        "requests_done": 5360.0, "prompt_tokens": 2754305.0, "output_tokens": 686187.0, "prefix_queries": 2754305.0,
        "prefix_hits": 54976.0, "ttft_s_sum": 9791.845628023148, "itl_s_sum": 46894.7732081975,
        "itl_s_count": 680827.0, "engine_steps": 6575.0, "process_start_s": 1795819351.3,
    },
    "llama-server-under-load": {
        "running": 4.0, "waiting": 4.0, "prompt_tokens": 988.0 + 190.0, "output_tokens": 174.0,
        "prefix_queries": 1178.0, "prefix_hits": 190.0, "prefill_s_sum": 0.825525, "decode_s_sum": 0.262256,
        "engine_steps": 241.0, "spec_draft_tokens": 0.0, "spec_accepted_tokens": 0.0,
    },
    "llama-server-idle": {"running": 0.0, "waiting": 0.0, "prompt_tokens": 0.0, "output_tokens": 0.0},
    "xllamacpp-under-load": {
        "running": 8.0, "waiting": 0.0, "prompt_tokens": 20666.0 + 172.0, "output_tokens": 19758.0,
        "prefix_hits": 172.0, "prefill_s_sum": 1.96153, "decode_s_sum": 84.6101, "engine_steps": 6853.0,
    },
    "xllamacpp-idle": {"running": 0.0, "prompt_tokens": 19584.0, "output_tokens": 19584.0, "engine_steps": 6614.0},
}  # fmt: skip

WHOLE = {
    "vllm-v0": {
        "running": 12.0, "waiting": 5.0, "kv_used_ratio": 0.93, "preemptions": 7.0, "prompt_tokens": 51200.0,
        "output_tokens": 12800.0, "prefix_hit_ratio": 0.31, "requests_done": 100.0, "requests_aborted": 3.0,
        "queue_s_sum": 8.25, "queue_s_count": 103.0, "ttft_s_sum": 51.5, "ttft_s_count": 103.0,
        "itl_s_sum": 317.4, "itl_s_count": 12697.0, "e2e_s_sum": 402.0, "e2e_s_count": 100.0,
        "kv_blocks": 27896.0, "block_size": 16.0, "gpu_memory_utilization": 0.9,
    },
    "vllm-0.10-two-engines": {
        "running": 60.0, "waiting": 4.0, "kv_used_ratio": 0.97, "preemptions": 6.0, "prompt_tokens": 8100.0,
        "output_tokens": 1750.0, "prefix_queries": 8100.0, "prefix_hits": 2200.0, "ttft_s_sum": 5.5,
        "ttft_s_count": 42.0, "spec_draft_tokens": 600.0, "spec_accepted_tokens": 360.0, "kv_blocks": 10000.0,
        "block_size": 16.0,
    },
    "vllm-through-ray": {"running": 7.0, "kv_used_ratio": 0.5, "output_tokens": 1500.0},
    "sglang-tp2": {
        "running": 16.0, "waiting": 9.0, "kv_used_ratio": 0.915, "preemptions": 5.0, "prompt_tokens": 50000.0,
        "output_tokens": 12345.0, "prefix_queries": 50000.0, "prefix_hits": 20000.0, "prefix_hit_ratio": 0.4,
        "requests_done": 123.0, "requests_aborted": 2.0, "queue_s_sum": 6.15, "queue_s_count": 123.0,
        "ttft_s_sum": 24.6, "ttft_s_count": 123.0, "itl_s_sum": 366.66, "itl_s_count": 12222.0,
        "e2e_s_sum": 391.0, "e2e_s_count": 123.0, "spec_accept_ratio": 0.72, "kv_blocks": 262144.0, "block_size": 1.0,
    },
    "sglang-dp2-old-names": {"running": 17.0, "kv_used_ratio": 0.3, "itl_s_sum": 2.5, "itl_s_count": 100.0},
    "trtllm-1.2": {
        "running": 48.0, "waiting": 2.0, "kv_used_ratio": 0.44, "prompt_tokens": 51200.0, "output_tokens": 10000.0,
        "prefix_queries": 51200.0, "prefix_hits": 6400.0, "prefix_hit_ratio": 0.125, "requests_done": 100.0,
        "requests_failed": 1.0, "queue_s_sum": 0.75, "queue_s_count": 100.0, "prefill_s_sum": 9.0,
        "prefill_s_count": 100.0, "decode_s_sum": 150.0, "decode_s_count": 100.0, "ttft_s_sum": 12.5,
        "ttft_s_count": 100.0, "tpot_s_sum": 1.5, "tpot_s_count": 100.0, "e2e_s_sum": 162.5, "e2e_s_count": 100.0,
        "spec_draft_tokens": 900.0, "spec_accepted_tokens": 540.0, "max_num_seqs": 256.0, "kv_blocks": 9000.0,
        "block_size": 32.0,
    },
    "trtllm-1.0-no-prefix": {
        "requests_done": 9.0, "queue_s_sum": 0.045, "queue_s_count": 9.0, "ttft_s_sum": 0.9, "ttft_s_count": 9.0,
        "tpot_s_sum": 0.18, "tpot_s_count": 9.0, "e2e_s_sum": 18.0, "e2e_s_count": 9.0,
    },
    "nim": {
        "running": 6.0, "waiting": 1.0, "kv_used_ratio": 0.2, "prompt_tokens": 7000.0, "output_tokens": 3000.0,
        "requests_done": 30.0, "ttft_s_sum": 6.0, "ttft_s_count": 30.0, "itl_s_sum": 59.4, "itl_s_count": 2970.0,
        "e2e_s_sum": 66.0, "e2e_s_count": 30.0, "max_num_seqs": 256.0,
    },
    "tgi": {
        "running": 32.0, "waiting": 5.0, "prompt_tokens": 11000.0, "output_tokens": 5120.0, "requests_done": 40.0,
        "requests_failed": 4.0, "requests_rejected": 6.0, "queue_s_sum": 10.5, "queue_s_count": 40.0,
        "tpot_s_sum": 0.9, "tpot_s_count": 40.0, "e2e_s_sum": 130.0, "e2e_s_count": 40.0, "engine_steps": 1245.0,
    },
    "lmdeploy": {
        "running": 23.0, "waiting": 1.0, "kv_used_ratio": 0.75, "prefix_hit_ratio": 0.3, "prompt_tokens": 18500.0,
        "output_tokens": 4100.0, "prefix_queries": 18500.0, "requests_done": 71.0, "requests_failed": 2.0,
        "ttft_s_sum": 7.0, "ttft_s_count": 35.0, "itl_s_sum": 39.3, "itl_s_count": 1965.0, "tpot_s_sum": 0.7,
        "tpot_s_count": 35.0, "engine_steps": 400.0,
    },
    "llama-server-2024": {
        "running": 2.0, "waiting": 0.0, "kv_used_ratio": 0.375, "prompt_tokens": 640.0, "output_tokens": 128.0,
    },
    "dcgm": {
        "gpu_util_ratio": 0.75, "gpu_memory_used_bytes": 153000 * 1048576.0, "gpu_memory_free_bytes": 4000 * 1048576.0,
        "gpu_temperature_c": 87.0, "gpu_power_w": 992.75, "gpu_sm_clock_hz": 1.215e9, "gpu_xid_errors": 79.0,
    },
}  # fmt: skip

ENGINE = {"llama": "llamacpp", "xllamacpp": "llamacpp"}


def engine_of(name: str) -> str:
    first = name.split("-", maxsplit=1)[0]
    return ENGINE.get(first, first)


def test_every_page_here_has_its_numbers_written_down() -> None:
    assert sorted({*CAPTURED, *WHOLE}) == NAMES


@pytest.mark.parametrize("name", CAPTURED)
def test_a_captured_page_says_what_stands_on_it(name: str) -> None:
    dialect, values = read(page(name))
    assert dialect == engine_of(name)
    assert {key: values[key] for key in CAPTURED[name]} == CAPTURED[name]


@pytest.mark.parametrize("name", WHOLE)
def test_a_page_of_each_engine_says_this_and_nothing_else(name: str) -> None:
    dialect, values = read(page(name))
    assert dialect == engine_of(name)
    assert values == pytest.approx(WHOLE[name])


def test_a_loaded_vllm_page_says_all_that_vllm_can_say() -> None:
    _, values = read(page("vllm-0.32-under-load"))
    assert set(values) == {*DIALECTS["vllm"], *COMMON} - NO_METRICS_OF_VLLM
    assert values == CAPTURED["vllm-0.32-under-load"]


@pytest.mark.parametrize("name", NAMES)
def test_knowing_the_dialect_or_looking_for_it_is_the_same(name: str) -> None:
    assert read(page(name), engine_of(name)) == read(page(name))


def test_vllms_own_counts_agree_with_each_other() -> None:
    """N requests of M tokens: N first tokens, N(M - 1) gaps. 12 of 200 (bench), no speculation."""
    values = read(page("vllm-0.32-kv24-rate1"))[1]
    assert values["ttft_s_count"] == values["requests_done"] == 12.0
    assert values["itl_s_count"] == 12.0 * 199.0
    assert values["output_tokens"] == 12.0 * 200.0


OLD = 'vllm:gpu_cache_usage_perc{model_name="m"} 0.40\n'
NEW = 'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.40\n'


@pytest.mark.parametrize("text", [OLD, NEW, OLD + NEW, NEW + OLD], ids=["old", "new", "both", "both, other order"])
def test_sm01_the_renamed_kv_gauge_is_040_under_either_name_and_never_080(text: str) -> None:
    assert read(text) == ("vllm", {"kv_used_ratio": 0.40})


@pytest.mark.parametrize("suffix", ["_total", ""])
def test_sm02_a_counter_is_found_with_and_without_total(suffix: str) -> None:
    before, after = (read(f"vllm:prompt_tokens{suffix} {count}")[1]["prompt_tokens"] for count in (100, 350))
    assert after - before == 250.0


def test_sm02_a_counter_that_is_shown_both_ways_counts_once() -> None:
    assert read("vllm:prompt_tokens_total 350\nvllm:prompt_tokens 350\n")[1] == {"prompt_tokens": 350.0}


@pytest.mark.parametrize("name", ["llama-server-under-load", "xllamacpp-under-load"])
def test_sm06_a_gauge_that_is_gone_is_absent_and_not_zero(name: str) -> None:
    assert "kv_used_ratio" not in read(page(name))[1]


def test_sm06_no_engine_gets_a_preemption_count_it_does_not_show() -> None:
    assert "preemptions" not in read(page("tgi"))[1]
    assert "preemptions" not in read(page("trtllm-1.2"))[1]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("[]", "JSON, not metrics"),
        ('{"detail":"Not Found"}', "JSON, not metrics"),
        ("<!doctype html><html><body>Sign in</body></html>", "HTML, not metrics"),
        ("", "empty page"),
        ("go_goroutines 7\nprocess_start_time_seconds 1.7e9\n", "no known engine's metrics"),
    ],
)
def test_sm04_sm08_what_is_no_metrics_page_gives_nothing_and_says_why(body: str, reason: str) -> None:
    assert read(body) == (None, {})
    assert why_not(body) == reason


def test_nan_and_infinity_are_no_number() -> None:
    running = 'vllm:num_requests_running{engine="0"} NaN\nvllm:num_requests_running{engine="1"} 3\n'
    assert read(running + "vllm:kv_cache_usage_perc +Inf\n") == ("vllm", {"running": 3.0})


def test_a_new_name_without_a_number_lets_the_old_one_speak() -> None:
    assert read("vllm:kv_cache_usage_perc NaN\nvllm:gpu_cache_usage_perc 0.5\n")[1] == {"kv_used_ratio": 0.5}


def test_a_hit_rate_of_minus_one_means_that_the_cache_is_off() -> None:
    assert read("vllm:gpu_prefix_cache_hit_rate -1.0\nvllm:num_requests_running 1\n")[1] == {"running": 1.0}


def test_a_percentage_is_no_ratio_and_nothing_is_negative() -> None:
    page = "vllm:kv_cache_usage_perc 40\nvllm:num_requests_running -1\nvllm:num_requests_waiting 2\n"
    assert read(page)[1] == {"waiting": 2.0}


def test_the_same_series_twice_on_a_page_counts_once() -> None:
    assert read('vllm:num_requests_running{engine="0"} 4\n' * 2)[1] == {"running": 4.0}


def test_unprefixed_names_need_two_to_be_believed() -> None:
    assert candidates({"request_success_total"}) == []
    assert candidates({"request_success_total", "time_to_first_token_seconds_sum"})[0] == "trtllm"


def test_colons_may_have_become_underscores() -> None:
    text = page("sglang-tp2").replace("sglang:", "sglang_")
    assert read(text) == ("sglang", pytest.approx(WHOLE["sglang-tp2"]))


def test_dynamo_writes_trtllm_with_a_colon() -> None:
    text = page("trtllm-1.2").replace("trtllm_", "trtllm:")
    assert read(text) == ("trtllm", pytest.approx(WHOLE["trtllm-1.2"]))


def test_every_dialect_speaks_only_canonical_names() -> None:
    for dialect in (*DIALECTS.values(), COMMON):
        assert set(dialect) <= set(CANONICAL)
        assert all(sources for sources in dialect.values())


def test_no_name_stands_for_a_ratio_and_a_count() -> None:
    """A gauge of a share must join by its largest, smallest or mean: never by a sum."""
    for quantity in CANONICAL.values():
        assert not (quantity.unit == "ratio" and quantity.across == "sum")
        assert not (quantity.kind == "counter" and quantity.across != "sum")


def test_the_native_spelling_comes_first() -> None:
    assert spellings("vllm:prompt_tokens", "prompt_tokens")[:2] == ("vllm:prompt_tokens_total", "vllm:prompt_tokens")
    assert spellings("vllm:x_sum", "ttft_s_sum")[:1] == ("vllm:x_sum",)
    assert spellings("DCGM_FI_DEV_GPU_TEMP", "gpu_temperature_c") == ("DCGM_FI_DEV_GPU_TEMP",)


def test_a_new_engine_is_one_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = {"running": ("acme:busy",), "output_tokens": (DialectSeries("acme:tokens", only={"way": ("out",)}),)}
    monkeypatch.setitem(DIALECTS, "acme", mine)
    text = 'acme:busy 3\nacme:tokens_total{way="out"} 50\nacme:tokens_total{way="in"} 900\n'
    assert read(text) == ("acme", {"running": 3.0, "output_tokens": 50.0})


def test_a_prometheus_query_address_is_completed_and_others_are_left_alone() -> None:
    asked = query_url("http://prom:9090/api/v1/query?timeout=1s")
    assert asked.startswith("http://prom:9090/api/v1/query?timeout=1s&query=%7B__name__%3D~%22DCGM_FI_DEV_FB_FREE%7C")
    assert asked.endswith("%22%7D")
    for url in (
        "http://prom:9090/api/v1/query?query=up",
        "http://gpu-3:9400/metrics",
        "http://host/api/v1/query_range",
    ):
        assert query_url(url) == url


def answer(*series: tuple[dict[str, str], str]) -> str:
    result = [{"metric": metric, "value": [1795813999.1, value]} for metric, value in series]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})


def test_the_answer_of_a_prometheus_query_reads_as_the_exporters_page() -> None:
    body = answer(
        ({"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": "0", "instance": "a"}, "100"),
        ({"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": "1", "instance": "a"}, "40"),
        ({"__name__": "DCGM_FI_DEV_XID_ERRORS", "gpu": "1", "instance": "a"}, "NaN"),
    )
    assert read(body) == ("dcgm", {"gpu_util_ratio": pytest.approx(0.7)})


def test_an_empty_or_strange_query_answer_is_no_metrics() -> None:
    assert read(answer()) == (None, {})
    assert points_of_query('{"data":{"resultType":"matrix","result":[]}}') is None
    assert points_of_query('{"data":{"resultType":"vector","result":[{"metric":{}}]}}') is None
    assert points_of_query('{"status":"error","error":"bad \\"resultType\\""}') is None


def test_reading_a_page_gives_finite_numbers_only() -> None:
    for name in NAMES:
        assert all(math.isfinite(value) for value in read(page(name))[1].values())
        assert names(page(name))
