"""``loadramp import``: results of other load generators become runs."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import in_process

import loadramp
from loadramp.importers.build import _beside
from loadramp.importers.formats import FORMATS, read_levels
from loadramp.registry import ScenarioError

DATA = Path(__file__).parents[1] / "data" / "imports"
VLLM = [DATA / f"vllm-bench-rate{rate}.json" for rate in (1, 3, 6)]


@pytest.mark.long
def test_a_real_vllm_bench_sweep_is_a_run_with_a_ceiling(tmp_path: Path) -> None:
    files = map(str, VLLM)
    code, out, _ = in_process(
        "import", *files, "--slo", "ttft_s=1", "--slo", "quantile=0.9", "--out", str(tmp_path), "--json"
    )
    document = json.loads(out)
    assert (code, document["verdict"]) == (0, "pass")
    assert [step["rate_rps"] for step in document["steps"]] == [1.0, 3.0, 6.0]
    assert document["ceiling"]["status"] == "found"
    assert 3.0 < document["ceiling"]["rate_rps"] < 4.5
    assert [step["requests"] for step in document["steps"]] == [11, 23, 47]
    run = loadramp.read(document["run_dir"])
    assert len(run.requests) == 12 + 36 + 72
    assert run.requests.output_tokens.eq(200).all()
    assert run.requests.ttft_s.iloc[0] == pytest.approx(0.06033 + 0.000173, abs=2e-5)
    assert run.requests.sent_ttft_s.iloc[0] == pytest.approx(0.06033, abs=2e-5)
    assert run.info["target"] == {"model": "tiny"}
    (note,) = [check for check in run.checks if check.code == "imported"]
    assert "vllm-bench" in note.message


def test_medians_are_those_that_vllm_prints() -> None:
    told = json.loads(VLLM[2].read_text())
    (level,) = read_levels(VLLM[2].read_text(), "rate6")[1]
    ttft_ms = sorted(1e3 * (record.sent_ttft_s or 0.0) for record in level.records)
    assert (ttft_ms[35] + ttft_ms[36]) / 2 == pytest.approx(told["median_ttft_ms"])
    gaps_ms = sorted(
        1e3 * (b - a) for record in level.records for a, b in zip(record.event_s, record.event_s[1:], strict=False)
    )
    assert gaps_ms[len(gaps_ms) // 2] == pytest.approx(told["median_itl_ms"], rel=0.01)


GUIDELLM: dict[str, Any] = {
    "benchmarks": [
        {
            "config": {"strategy": {"type_": "poisson", "rate": 2.0}},
            "requests": {
                "successful": [
                    {
                        "prompt_tokens": 64,
                        "output_tokens": 11,
                        "info": {
                            "timings": {
                                "targeted_start": 1000.0,
                                "request_start": 1000.1,
                                "first_token_iteration": 1000.5,
                                "last_token_iteration": 1001.5,
                                "request_end": 1001.6,
                            }
                        },
                    }
                ],
                "errored": [
                    {
                        "prompt_tokens": 64,
                        "output_tokens": None,
                        "info": {
                            "error": "HTTP 503 Service Unavailable",
                            "timings": {"targeted_start": 1000.4, "request_start": 1000.4, "request_end": 1000.5},
                        },
                    }
                ],
                "incomplete": [],
            },
        }
    ]
}
AIPERF = {
    "metadata": {"request_start_ns": 1759813207532900363, "request_end_ns": 1759813207838764604,
                 "benchmark_phase": "profiling"},
    "metrics": {
        "input_sequence_length": {"value": 550, "unit": "tokens"},
        "time_to_first_token": {"value": 255.0, "unit": "ms"},
        "request_latency": {"value": 265.0, "unit": "ms"},
        "inter_chunk_latency": {"value": [4.0, 6.0], "unit": "ms"},
        "output_sequence_length": {"value": 3, "unit": "tokens"},
    },
    "error": None,
}  # fmt: skip
AIPERF_FAILED = {
    "metadata": {"request_start_ns": 1759813208532900363, "request_end_ns": 1759813208539000000,
                 "benchmark_phase": "profiling"},
    "metrics": None,
    "error": {"code": 429, "type": "TooManyRequests", "message": "slow down"},
}  # fmt: skip


def lifecycle(at_s: float, **answer: Any) -> dict[str, Any]:
    """One entry of inference-perf's per-request file, as its release 0.7 writes it."""
    metrics = {"output_tokens": 3, "server_usage": None, "chunk_times": [], "output_token_times": []} | answer
    info = {"request_metrics": {"text": {"input_tokens": 30}}, "input_tokens": 30, "response_metrics": metrics}
    return {"start_time": at_s, "end_time": at_s + 0.5, "request": "{}", "response": "", "info": info, "error": None}


LIFECYCLE = [
    lifecycle(70.0, output_token_times=[70.2, 70.4, 70.4]),  # in the order in which they ended
    lifecycle(10.0, output_token_times=[10.2, 10.3, 10.4]),
    lifecycle(11.0, chunk_times=[11.2, 11.4], server_usage={"prompt_tokens": 31, "completion_tokens": 4}),
    lifecycle(71.0) | {"error": {"error_type": "ServerDisconnectedError", "error_msg": "Server disconnected"}},
]
STAGES = [
    {"load_summary": {"count": 2, "schedule_delay": {}, "send_duration": 1.0, "requested_rate": 1.5}},
    {"load_summary": {"count": 2, "schedule_delay": {}, "send_duration": 1.0, "requested_rate": 0.0, "concurrency": 8}},
]


def test_guidellm_tells_first_and_last_token_and_the_plan() -> None:
    form, (level,) = read_levels(json.dumps(GUIDELLM), "g.json")
    assert form.name == "guidellm"
    assert (level.rate_rps, level.users, level.arrivals) == (2.0, None, 'kind = "poisson"')
    ok, failed = level.records
    assert (ok.due_s, ok.sent_s, ok.event_s, ok.event_tokens) == (1000.0, 1000.1, [1000.5, 1001.5], [1, 10])
    assert (ok.token_source, ok.output_tokens, ok.prompt_tokens) == ("ends", 11, 64)
    assert (failed.status, failed.error, failed.error_detail) == ("error", "http_5xx", "HTTP 503 Service Unavailable")


def test_aiperf_tells_every_chunk_to_the_nanosecond() -> None:
    form, (level,) = read_levels("\n".join(map(json.dumps, (AIPERF, AIPERF_FAILED))), "profile_export.jsonl")
    assert form.name == "aiperf"
    ok, failed = level.records
    assert ok.event_s == pytest.approx([0.255, 0.259, 0.265])
    assert (ok.sent_s, ok.output_tokens, ok.token_source) == (0.0, 3, "usage")
    assert ok.stream_end_s == pytest.approx(0.305864241)
    assert failed.due_s == pytest.approx(1.0)
    assert (failed.error, failed.http_status, failed.error_detail) == ("http_429", 429, "TooManyRequests: slow down")


def test_a_real_aiperf_export_has_the_medians_that_aiperf_printed() -> None:
    form, (level,) = read_levels((DATA / "aiperf-rate5.jsonl").read_text(), "profile_export.jsonl")
    told = [json.loads(line) for line in (DATA / "aiperf-rate5.jsonl").read_text().splitlines()]
    assert form.name == "aiperf"
    assert [record.status for record in level.records] == ["ok"] * 12
    assert [record.output_tokens for record in level.records] == [10] * 12
    for record, line in zip(level.records, told, strict=True):
        metadata, metrics = line["metadata"], line["metrics"]
        waited_s = (metadata["request_start_ns"] - metadata["credit_issued_ns"]) / 1e9
        assert record.lag_s == pytest.approx(waited_s, abs=1e-9)
        assert record.sent_ttft_s == pytest.approx(metrics["time_to_first_token"]["value"] / 1e3)
        assert record.event_s[-1] - record.event_s[0] == pytest.approx(
            9 * metrics["inter_token_latency"]["value"] / 1e3
        )


def test_each_profiling_phase_of_aiperf_is_a_level_and_a_warm_up_is_none() -> None:
    lines = [
        AIPERF | {"metadata": AIPERF["metadata"] | more}
        for more in (
            {"benchmark_phase": "warmup", "profiling_index": None},
            {"profiling_index": 0, "credit_issued_ns": 1759813207532000000},
            {"profiling_index": 1, "request_start_ns": 1759813217532000000, "request_end_ns": 1759813217838000000},
        )
    ]
    _, levels = read_levels("\n".join(map(json.dumps, lines)), "profile_export.jsonl")
    assert [[record.due_s for record in level.records] for level in levels] == [[0.0], [10.0]]


@pytest.mark.parametrize(("kind", "due_s"), [("poisson", 1000.0), ("throughput", 1000.1), ("concurrent", 1000.1)])
def test_only_a_strategy_with_a_schedule_says_when_a_request_was_due(kind: str, due_s: float) -> None:
    (benchmark,) = GUIDELLM["benchmarks"]
    document = {"benchmarks": [benchmark | {"config": {"strategy": {"type_": kind, "rate": 2.0, "streams": 4}}}]}
    (level,) = read_levels(json.dumps(document), "g.json")[1]
    assert level.records[0].due_s == due_s


def test_inference_perf_has_a_level_for_each_stage_whose_summary_lies_beside_it(tmp_path: Path) -> None:
    for number, stage in ((10, STAGES[1]), (9, STAGES[0])):
        (tmp_path / f"stage_{number}_lifecycle_metrics.json").write_text(json.dumps(stage))
    path = tmp_path / "per_request_lifecycle_metrics.json"
    form, levels = read_levels(json.dumps(LIFECYCLE), path.name, beside=partial(_beside, path))
    assert form.name == "inference-perf"
    assert [[record.due_s for record in level.records] for level in levels] == [[10.0, 11.0], [70.0, 71.0]]
    assert [(level.rate_rps, level.users) for level in levels] == [(1.5, None), (None, 8)]
    whole, chunks = levels[0].records
    assert (whole.event_s, whole.output_tokens, whole.prompt_tokens) == ([10.2, 10.3, 10.4], 3, 30)
    assert (chunks.event_s, chunks.output_tokens) == ([11.2, 11.4], 4)
    together, failed = levels[1].records
    assert (together.event_s, together.event_tokens) == ([70.2, 70.4], [1, 2])
    assert (failed.status, failed.error) == ("error", "reset")


def test_a_real_result_of_inference_perf_is_a_run_with_its_stages(tmp_path: Path) -> None:
    path = DATA / "inference-perf" / "per_request_lifecycle_metrics.json"
    code, out, err = in_process("import", str(path), "--out", str(tmp_path), "--json")
    assert code in {0, 3}, err
    document = json.loads(out)
    assert [step["rate_rps"] for step in document["steps"]] == [2.0, 4.0]
    run = loadramp.read(document["run_dir"])
    assert run.requests.status.eq("ok").all()
    told = [json.loads((path.parent / f"stage_{n}_lifecycle_metrics.json").read_text()) for n in (0, 1)]
    for step, stage in enumerate(told):
        own = run.requests[run.requests.step == step]
        assert len(own) == stage["load_summary"]["count"]
        median_s = stage["successes"]["latency"]["time_to_first_token"]["median"]
        assert own.sent_ttft_s.median() == pytest.approx(median_s, abs=2e-6)  # records hold microseconds
    written = json.loads(path.read_text())
    usage = [one["info"]["response_metrics"]["server_usage"]["completion_tokens"] for one in written]
    assert sorted(run.requests.output_tokens) == sorted(usage)
    assert len(run.tokens) == sum(usage)  # its own tokenizer had counted three times as many


@pytest.mark.parametrize("stages", [[], STAGES[:1]])
def test_without_all_summaries_inference_perf_is_one_level(stages: list[Any]) -> None:
    (level,) = read_levels(json.dumps(LIFECYCLE), "p.json", beside=lambda _: list(map(json.dumps, stages)))[1]
    assert [record.due_s for record in level.records] == [10.0, 11.0, 70.0, 71.0]
    assert level.rate_rps is None


def test_csv_has_the_columns_of_the_page() -> None:
    head = "step,rate_rps,due_s,token_s,output_tokens,error\n"
    text = f"{head}0,2,0.0,0.1 0.2 0.3,3,\n0,2,0.5,,,timeout\n1,4,9.0,9.1 9.2,2,\n"
    form, levels = read_levels(text, "log.csv")
    assert form.name == "csv"
    assert [level.rate_rps for level in levels] == [2.0, 4.0]
    ok, failed = levels[0].records
    assert ok.event_s == [0.1, 0.2, 0.3]
    assert (failed.status, failed.error) == ("error", "timeout_total")


@pytest.mark.parametrize(
    ("text", "wanted", "said"),
    [
        ("{}", "auto", "no format that is known"),
        ("not json", "auto", "no format that is known"),
        ('{"ttfts": [0.1], "itls": [[]]}', "auto", "no start_times"),
        ('{"benchmarks": []}', "auto", "holds no request"),
        ('{"benchmarks": [{}]}', "guidellm", "not a result of guidellm: KeyError: 'requests'"),
        ("a,b\n1,2\n", "csv", "no column due_s or sent_s"),
        ("due_s,colour\n1,red\n", "csv", "colour: no such column"),
        ("due_s\nsoon\n", "csv", "result.json: line 2: due_s: expected a number; got 'soon'"),
        ("due_s,end_s\n1,2,3\n", "auto", "line 2: expected 2 cells, as in the header; got 3"),
        ("sent_s,due_s\n,\n1,1\n3,\nnan,\n", "auto", "line 5: no due_s and no sent_s"),
        ("due_s,sent_s\n9.0,1.0\n", "auto", r"line 2: request due at 9.0: sent_s \(1.0\) lies before due_s"),
        ("due_s,first_token_s\n1700000000,0.1\n", "auto", r"first_token_s \(0.1\) lies before sent_s"),
        ("due_s,first_token_s,last_token_s\n1,3,2\n", "auto", r"last_token_s \(2.0\) lies before first_token_s"),
        ("due_s,token_s\n1,1.1 1.3 1.2\n", "auto", r"token_s \(1.2\) lies before token_s \(1.3\)"),
        ("due_s\n1.7e12\n", "auto", "due_s: expected seconds; got 1700000000000.0"),
        ("due_s,output_tokens\n1,-2\n", "auto", "output_tokens: expected a number from 0 on; got -2"),
        ("due_s,output_tokens\n1,2.5\n", "auto", "output_tokens: expected a whole number; got '2.5'"),
        ("due_s,rate_rps,users\n1,2,3\n", "auto", "rate_rps = 2 and users = 3 of one level"),
        ("due_s,rate_rps\n1,0\n", "auto", "rate_rps: expected a number above 0; got 0"),
        ("due_s,due_s\n1,2\n", "auto", "due_s: two columns of this name"),
        ('{"ttfts": [0.1', "auto", "result.json: line 1: no JSON from here on"),
        ('{"metadata": {}}\n{"metadata"', "auto", "result.json: line 2: no JSON"),
    ],
)
def test_what_is_no_result_is_one_error_that_names_the_file(text: str, wanted: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        read_levels(text, "result.json", wanted)


def test_a_cell_without_a_value_is_one_however_the_program_wrote_it() -> None:
    head = "due_s; first_token_s;last_token_s;output_tokens;error;label\n"
    text = f"{head}1;1.1;1.2;10.0;None;a\n2;2.1;2.2;NaN;nan;b\n3;null;;;timeout;c\n"
    (level,) = read_levels(text, "log.csv")[1]
    assert [record.status for record in level.records] == ["ok", "ok", "error"]
    assert [record.output_tokens for record in level.records] == [10, None, None]
    assert [record.label for record in level.records] == ["a", "b", "c"]


def test_a_status_that_refuses_is_a_failure_also_without_words() -> None:
    (level,) = read_levels("due_s,first_token_s,http_status\n1,1.1,200\n2,2.1,503\n3,3.1,429\n", "log.csv")[1]
    assert [(record.status, record.error) for record in level.records] == [
        ("ok", None), ("error", "http_5xx"), ("error", "http_429"),
    ]  # fmt: skip


def test_a_success_of_vllm_bench_without_a_token_is_an_empty_answer() -> None:
    document = {"ttfts": [0.1, 0.0], "itls": [[], []], "start_times": [1.0, 2.0], "errors": ["", ""],
                "output_lens": [1, 0], "input_lens": [8, 8], "request_rate": 2.0, "burstiness": "inf"}  # fmt: skip
    (level,) = read_levels(json.dumps(document), "v.json")[1]
    assert [record.status for record in level.records] == ["ok", "empty"]
    assert level.arrivals == 'kind = "constant"'


def imported(tmp_path: Path, text: str, *options: str, encoding: str = "utf-8") -> tuple[int, str, str]:
    (tmp_path / "log.csv").write_text(text, encoding=encoding)
    return in_process("import", str(tmp_path / "log.csv"), "--out", str(tmp_path), *options)


def test_of_answers_with_an_end_alone_the_end_to_end_time_is_judged(tmp_path: Path) -> None:
    rows = [f"{i / 4},{i / 4 + 0.5},{'timeout' if i % 20 == 7 else ''}\n" for i in range(100)]
    text = "sent_s,end_s,error\n" + "".join(rows)
    code, out, _ = imported(tmp_path, text, "--json", "--name", "gateway 🚀", encoding="utf-16")
    assert code == 3  # 5 of 100 failed at the only rate: more than 1 % beyond doubt
    row = json.loads(out)["steps"][0]
    assert row["errors"] == {"timeout_total": 5}
    assert (row["ttft_p50_s"], row["e2e_p50_s"]) == (None, pytest.approx(0.5))
    assert loadramp.read(json.loads(out)["run_dir"]).scenario.name == "gateway 🚀"
    code, _, err = imported(tmp_path, text, "--slo", "ttft_s=1")
    assert code == 2
    assert "ttft_s cannot be judged: only the end of each answer is known" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sent_s\n1\n2\n", "no answer has an instant: expected token_s, first_token_s, last_token_s or end_s"),
        ("sent_s,end_s\n1,2\n", "a level of one request has no rate"),
        ("sent_s,end_s\n1,2\n1700000000,1700000001\n", "one level of load lasts 19,676 days"),
        ("sent_s,first_token_s,output_tokens\n1,2,3\n2,,3\n3,,\n", "1 request of 3 with output_tokens, but without"),
    ],
)
def test_what_cannot_be_judged_makes_no_run(tmp_path: Path, text: str, said: str) -> None:
    code, _, err = imported(tmp_path, text)
    assert code == 2
    assert said in err
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


def test_results_that_are_given_twice_count_once(tmp_path: Path) -> None:
    code, _, err = in_process("import", str(VLLM[0]), str(VLLM[1]), str(VLLM[0]), "--out", str(tmp_path))
    assert code == 2
    assert f"{VLLM[0]}: the same results as" in err


def test_levels_of_different_kinds_are_not_mixed(tmp_path: Path) -> None:
    closed = json.loads(VLLM[0].read_text()) | {"request_rate": "inf", "max_concurrency": 4}
    (tmp_path / "closed.json").write_text(json.dumps(closed))
    code, _, err = in_process("import", str(VLLM[0]), str(tmp_path / "closed.json"), "--out", str(tmp_path / "out"))
    assert code == 2
    assert "import them apart" in err


def test_the_command_names_every_format() -> None:
    from loadramp.importers.commands import NAMES

    assert set(NAMES) == {"auto", *FORMATS}
