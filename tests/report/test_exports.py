"""Every export opened by the program it is for, or by that program's own schema."""

from __future__ import annotations

import builtins
import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest
import yaml
from curve_rows import changed
from junitparser import Error, Failure, JUnitXml
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from report_runs import estimates, row, served, served_rows, served_table

from loadramp.analysis.repeats import pooled_rows
from loadramp.record.run_info import TargetInfo
from loadramp.record.table import Run
from loadramp.record.types import Check, Estimate, GateResult
from loadramp.registry import CannotMeasure, ScenarioError, options_of
from loadramp.report.exporters import EXPORTERS
from loadramp.report.exporters.ci import MOST_BYTES, clean, commands, shortened
from loadramp.runner.export import single, write
from loadramp.runner.scenarios import load
from loadramp.workload.arrivals import ARRIVALS

DATA = Path(__file__).parents[1] / "data" / "exports"
GATES = [
    GateResult("p99(ttft_s) < 0.8 @ rate <= 8", "ttft_s", "fail", 1.2, 1.1, 1.4, 0.8, "", 2),
    GateResult("ceiling_rps >= 12", "ceiling_rps", "pass", 15.9, 15.2, 16.7, 12.0),
    GateResult("error_ratio < 0.001", "error_ratio", "inconclusive", 0.0, 0.0, 0.002, 0.001, "0 of 1500 failed"),
]


def run(**more: Any) -> Run:
    """The batch-limited server of the report's tests, with thresholds, a void step and one that has no p99."""
    means = {"input_tokens_per_s": 5000.0, "ttft_mean_s": 0.1, "itl_mean_s": 0.03, "tpot_mean_s": 0.03,
             "e2e_mean_s": 4.0}  # fmt: skip
    rows = [changed(one, arrival_rps=one.rate_rps, **means) for one in served_rows()]
    rows[0] = changed(rows[0], ttft_p99_s=None, reasons={"ttft_p99_s": "60 requests cannot carry a p99"})
    rows[1] = changed(rows[1], void=True, reasons={"void": "the client was late"})
    info = replace(served().info, loadramp="0.1.0", workers=2, verdict="fail")
    return served(**({"rows": rows, "info": info, "gates": GATES} | more))


def text(form: str, found: Run | None = None) -> str:
    (content,) = EXPORTERS[form](found or run()).values()
    assert isinstance(content, str)
    return content


# -- JUnit --------------------------------------------------------------------------------------------------------


def test_junit_is_read_and_a_failed_threshold_is_a_failure_and_an_open_one_an_error() -> None:
    parsed = JUnitXml.fromstring(text("junit").encode())
    assert (parsed.tests, parsed.failures, parsed.errors) == (5, 1, 1)
    cases = {case.name: case for suite in parsed for case in suite}
    assert isinstance(cases["p99(ttft_s) < 0.8 @ rate <= 8"].result[0], Failure)
    assert "1.2 s (1.1 s to 1.4 s)" in cases["p99(ttft_s) < 0.8 @ rate <= 8"].result[0].message
    assert isinstance(cases["error_ratio < 0.001"].result[0], Error)
    assert cases["ceiling_rps >= 12"].result == []
    assert cases["check busy_client"].result == []
    assert {case.classname for case in cases.values()} == {"chat"}


def test_a_void_run_is_an_error_in_junit_never_a_pass() -> None:
    parsed = JUnitXml.fromstring(text("junit", run(info=replace(run().info, verdict="void"), gates=[])).encode())
    assert parsed.errors == 1


def test_nothing_can_break_the_xml_or_leak() -> None:
    nasty = Check("x", "warn", "bell \x07 & <b> ]]> \ud800 Authorization: Bearer sk-canary-123456", "\x00")
    found = text("junit", run(checks=[nasty]))
    assert "sk-canary" not in found
    assert JUnitXml.fromstring(found.encode()).tests == 5
    assert clean("a\x0bb\ufffe") == "a\ufffdb\ufffd"


# -- GitHub -------------------------------------------------------------------------------------------------------


def test_a_step_summary_stays_below_the_limit_at_which_all_of_it_is_refused() -> None:
    assert text("github-summary").startswith("# loadramp\n")
    long = "# a\n" + "é line of a table |\n" * 90_000
    cut = shortened(long)
    assert len(long.encode()) > 1024 * 1024 > MOST_BYTES >= len(cut.encode())
    assert cut.endswith("holds all of it.)\n")
    assert cut.split("\n\n(Cut")[0].splitlines()[-1] == "é line of a table |"


def test_annotations_are_commands_one_a_line_and_few() -> None:
    lines = text("github-annotations").splitlines()
    assert lines[0].startswith("::error title=chat::✗ fail: p99(ttft_s) < 0.8 @ rate <= 8: 1.2 s")
    assert lines[1].startswith("::warning title=chat::? inconclusive: error_ratio")
    assert all(line.startswith(("::error ", "::warning ")) for line in lines)
    assert list(commands("error", "a: b, 100 %", ["x\ny"])) == ["::error title=a%3A b%2C 100 %25::x%0Ay"]
    many = list(commands("warning", "t", [str(i) for i in range(25)]))
    assert len(many) == 10
    assert many[-1].endswith("::16 more; the report holds them all")
    quiet = text("github-annotations", run(info=replace(run().info, verdict="pass"), gates=[], checks=[]))
    assert quiet.startswith("::notice title=chat::Sustains 13.6 req/s")


class ActionEntry(msgspec.Struct, forbid_unknown_fields=True):
    """A custom benchmark of the action, as projects that use it publish theirs."""

    name: str
    unit: str
    value: float
    range: str = ""
    extra: str = ""


class HudBenchmark(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    extra_info: dict[str, Any]


class HudModel(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class HudMetric(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    benchmark_values: list[float]
    extra_info: dict[str, Any]


class HudRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A record as vLLM's own benchmarks write it for the dashboard."""

    benchmark: HudBenchmark
    model: HudModel
    metric: HudMetric


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ActionEntry, '[{"name": "a", "unit": "s", "value": "1"}]'),
        (ActionEntry, '[{"name": "a", "unit": "s", "value": null}]'),
        (ActionEntry, '[{"name": "a", "value": 1}]'),
        (ActionEntry, '[{"name": "a", "unit": "s", "value": 1, "range": 2}]'),
        (HudRecord, '[{"benchmark": {"name": "a", "extra_info": {}}, "model": {"name": "m"}}]'),
        (
            HudRecord,
            '[{"benchmark": {"name": "a", "extra_info": {}}, "model": {"name": "m"}, '
            '"metric": {"name": "x", "benchmark_values": [null], "extra_info": {}}}]',
        ),
    ],
)
def test_the_strict_readers_refuse_what_is_no_entry(kind: Any, text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=list[kind])


def test_github_action_benchmark_gets_what_should_rise_and_what_should_fall_apart() -> None:
    files = EXPORTERS["github-action-benchmark"](run())
    bigger, smaller = (json.loads(files[f"{word}-is-better.json"]) for word in ("bigger", "smaller"))
    for name in ("bigger", "smaller"):
        assert msgspec.json.decode(files[f"{name}-is-better.json"], type=list[ActionEntry])
    assert bigger[0] == {"name": "ceiling_rps", "unit": "req/s", "value": 15.9, "range": "15.2 to 16.7",
                         "extra": bigger[0]["extra"]}  # fmt: skip
    names = [entry["name"] for entry in smaller]
    assert "ttft_p99_s @ 8 req/s" in names
    assert "ttft_p99_s @ 2 req/s" not in names  # refused
    assert not any("4 req/s" in name or "28 req/s" in name for name in names)  # void; overloaded
    assert len(names) == len(set(names))


# -- small JSON formats -------------------------------------------------------------------------------------------


def test_bencher_metric_format_meets_its_schema() -> None:
    document = json.loads(text("bencher"))
    jsonschema.validate(document, json.loads((DATA / "bencher.schema.json").read_text()))
    assert document["chat"]["ceiling-rps"] == {"value": 15.9, "lower_value": 15.2, "upper_value": 16.7}
    assert set(document) == {"chat", "chat @ 2 req/s", "chat @ 8 req/s", "chat @ 12 req/s", "chat @ 13.6 req/s soak"}
    assert all(len(measure) <= 64 for benchmark in document.values() for measure in benchmark)


def test_pytorch_hud_records_have_the_shape_that_vllm_s_own_have() -> None:
    records = json.loads(text("pytorch-hud"))
    assert msgspec.json.decode(text("pytorch-hud"), type=list[HudRecord])
    for record in records:
        assert set(record) == {"benchmark", "model", "metric"}
        assert set(record["benchmark"]) == {"name", "extra_info"}
        assert "args" in record["benchmark"]["extra_info"]
        assert record["model"] == {"name": "org/name:v1 (x)"}
        assert all(isinstance(value, float) for value in record["metric"]["benchmark_values"])
    by_rate = {(r["metric"]["name"], r["benchmark"]["extra_info"]["args"]["request_rate"]) for r in records}
    assert ("itl_p99_s", 8.0) in by_rate and ("ceiling_rps", None) in by_rate


def test_vllm_bench_files_have_every_key_of_vllm_s_own_and_no_other() -> None:
    theirs = json.loads((DATA / "vllm_bench_serve.json").read_text())
    files = EXPORTERS["vllm-bench"](run())
    assert list(files) == [
        f"{rate}qps-step{i}.json" for rate, i in (("2", 0), ("8", 2), ("12", 3), ("28", 4), ("13.6", 6))
    ]
    for content in files.values():
        ours = json.loads(content)
        assert set(ours) == set(theirs)
        for key, value in theirs.items():
            if value is not None and ours[key] is not None and key != "request_rate":
                assert isinstance(ours[key], float | int if isinstance(value, float | int) else type(value)), key
        lists = [key for key, value in theirs.items() if isinstance(value, list)]
        assert {len(ours[key]) for key in lists} == {ours["num_prompts"]}
        assert ours["completed"] + ours["failed"] == ours["num_prompts"]


def repeated() -> Run:
    """Two ramps of one step each, their windows 5 to 10 and 30 to 40 s; 4 requests a second throughout."""
    ramps = [[row(k, 4.0, repeat=k, window_begin_s=begin_s, window_end_s=end_s)]
             for k, (begin_s, end_s) in enumerate(((5.0, 10.0), (30.0, 40.0)))]  # fmt: skip
    return run(rows=pooled_rows(ramps), table=served_table(60.0))


def test_requests_of_several_repeats_come_from_their_windows_and_not_from_between_them() -> None:
    from llmd_benchmark_report import load_benchmark_report

    found = json.loads(EXPORTERS["vllm-bench"](repeated())["4qps-step0.json"])
    due_s = [sent_s - 0.0003 for sent_s in found["start_times"]]
    assert found["num_prompts"] == 4 * (5 + 10)
    assert found["duration"] == pytest.approx(15.0)
    assert found["request_throughput"] == pytest.approx(4.0)
    assert [min(due_s), max(due_s)] == pytest.approx([5.0, 39.75])
    assert not any(10.0 <= at < 29.999 for at in due_s)
    stage = json.loads(EXPORTERS["llm-d"](repeated())["stage-0.json"])
    load_benchmark_report(stage)
    assert stage["run"]["time"] == {"start": "2026-01-02T03:04:10+00:00", "end": "2026-01-02T03:04:45+00:00",
                                    "duration": "PT15.000S"}  # fmt: skip
    few = stage["scenario"]["load"]["standardized"]["input_seq_len"]["value"]
    assert few == pytest.approx((57 * 512 + 3 * 2000) / 60)  # each twentieth request asks 2000 tokens


@pytest.mark.parametrize(("scenario", "overrides", "expected"), [
    ("", [], ("openai-chat", 1.0)),
    ("[arrivals]\nkind = 'gamma'\ncv = 3.0\n", [], ("openai-chat", 1 / 9)),
    ("[arrivals]\nkind = 'gamma'\n", [], ("openai-chat", 0.25)),
    ("[arrivals]\nkind = 'gamma'\n", ["arrivals.cv=0.5"], ("openai-chat", 4.0)),
    ("[target]\napi = 'completions'\n", ["arrivals.kind=constant"], ("openai", "inf")),
    ("[target]\napi = 'chat'\n", ["target.api=responses", "arrivals.kind=diurnal"], ("openai-responses", None)),
])  # fmt: skip
def test_vllm_bench_names_the_arrivals_and_the_api_that_were_used(
    scenario: str, overrides: list[str], expected: tuple[str, Any]
) -> None:
    found = run(scenario=load(scenario, overrides=overrides))
    ours = json.loads(EXPORTERS["vllm-bench"](found)["8qps-step2.json"])
    assert (ours["backend"], ours["burstiness"]) == (expected[0], pytest.approx(expected[1]))
    assert ours["endpoint_type"] == ours["backend"]


def test_gamma_arrivals_that_name_no_cv_are_those_of_the_plan() -> None:
    found = run(scenario="[arrivals]\nkind = 'gamma'\n")
    ours = json.loads(EXPORTERS["vllm-bench"](found)["8qps-step2.json"])
    assert ours["burstiness"] == pytest.approx(options_of(ARRIVALS["gamma"])["cv"][1] ** -2)


def test_vllm_bench_counts_from_sending_as_vllm_does() -> None:
    found = run()
    ours = json.loads(EXPORTERS["vllm-bench"](found)["8qps-step2.json"])
    due = found.table.select((found.table.due_s >= 65.0) & (found.table.due_s < 90.0))
    assert ours["ttfts"][0] == pytest.approx(float(due.sent_ttft_s[0]), abs=1e-6)
    assert ours["mean_e2el_ms"] == pytest.approx(1e3 * float(np.mean(due.last_s - due.sent_s)))
    assert ours["itls"][0] == pytest.approx(np.diff(due.event_s[: due.begin[1]]).tolist(), abs=1e-6)
    assert json.loads(EXPORTERS["vllm-bench"](found)["2qps-step0.json"])["p99_ttft_ms"] is None  # refused stays refused
    assert ours["generated_texts"] == [""] * len(due)


# -- llm-d --------------------------------------------------------------------------------------------------------


def test_llm_d_s_own_reader_takes_every_stage() -> None:
    from llmd_benchmark_report import load_benchmark_report

    files = EXPORTERS["llm-d"](run())
    assert list(files) == ["stage-0.json", "stage-2.json", "stage-3.json", "stage-4.json", "stage-6.json"]
    for content in files.values():
        load_benchmark_report(json.loads(content))
        load_benchmark_report(yaml.safe_load(content))  # JSON is YAML
    report = load_benchmark_report(json.loads(files["stage-2.json"]))
    assert report.version == "0.2.1"
    load = report.scenario.load.standardized
    assert (load.tool, load.rate_qps, load.stage, load.parallelism) == ("loadramp", 8.0, 2, 2)
    performance = report.results.request_performance.aggregate
    assert performance.latency.time_to_first_token.p99 == pytest.approx(0.174)
    assert performance.requests.total == 400
    first = load_benchmark_report(json.loads(files["stage-0.json"]))
    assert first.results.request_performance.aggregate.latency.time_to_first_token.p99 is None


# -- OpenMetrics --------------------------------------------------------------------------------------------------


def test_openmetrics_is_parsed_by_the_reference_parser() -> None:
    families = {family.name: family for family in text_string_to_metric_families(text("openmetrics"))}
    assert families["loadramp_verdict"].samples[0].value == -1.0
    limits = {s.labels["limit"]: s.value for s in families["loadramp_ceiling_rps"].samples}
    assert limits == {"estimate": 15.9, "low": 15.2, "high": 16.7}
    assert families["loadramp_time_to_first_token_seconds"].unit == "seconds"
    ttft = {
        (s.labels["rate"], s.labels["quantile"]): s.value
        for s in families["loadramp_time_to_first_token_seconds"].samples
    }
    assert ttft["8", "0.99"] == 0.174
    assert ("2", "0.99") not in ttft and ("4", "0.5") not in ttft
    assert families["loadramp_requests"].type == "counter"
    assert families["loadramp_last_run_timestamp_seconds"].samples[0].value == 1767323045.0


def test_labels_from_outside_cannot_break_the_page() -> None:
    info = replace(run().info, name='a"b\\c\nd', target=TargetInfo(model='m"}'))
    families = list(text_string_to_metric_families(text("openmetrics", run(info=info))))
    assert families[0].samples[0].labels == {"scenario": 'a"b\\c\nd', "model": 'm"}'}


# -- tables -------------------------------------------------------------------------------------------------------


def test_csv_has_a_line_a_step() -> None:
    lines = list(csv.DictReader(io.StringIO(text("csv"))))
    assert [line["rate_rps"] for line in lines] == ["2.0", "4.0", "8.0", "12.0", "28.0", "13.6"]
    assert lines[0]["ttft_p99_s"] == ""
    assert json.loads(lines[0]["reasons"])["ttft_p99_s"] == "60 requests cannot carry a p99"


def test_parquet_is_read_back_with_its_nulls() -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    content = EXPORTERS["parquet"](run())["curve.parquet"]
    table = pq.read_table(io.BytesIO(content))  # type: ignore[arg-type]  # bytes
    assert table.column("rate_rps").to_pylist() == [2.0, 4.0, 8.0, 12.0, 28.0, 13.6]
    assert table.column("ttft_p99_s").to_pylist()[0] is None
    assert json.loads(table.column("signals").to_pylist()[4]) == ["queue", "backlog", "ttft_trend"]
    assert table.schema.metadata[b"loadramp.scenario"] == b"chat"


def test_parquet_without_pyarrow_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ScenarioError, match=r"pip install 'loadramp\[parquet\]'"):
        EXPORTERS["parquet"](run())


# -- choosing -----------------------------------------------------------------------------------------------------


def test_one_file_goes_where_it_is_told_several_go_below_it(tmp_path: Path) -> None:
    assert write({"a.txt": "x"}, tmp_path / "deep" / "b.txt") == [tmp_path / "deep" / "b.txt"]
    assert write({"a.txt": b"x"}, tmp_path) == [tmp_path / "a.txt"]
    assert write({"a.txt": "x", "c.txt": "y"}, tmp_path / "d") == [tmp_path / "d/a.txt", tmp_path / "d/c.txt"]
    assert (tmp_path / "d/c.txt").read_text() == "y"
    assert single({"a": "x"}, "f") == "x"
    with pytest.raises(ScenarioError, match="makes 2 files"):
        single({"a": "x", "b": "y"}, "f")
    with pytest.raises(CannotMeasure, match="no step of this run may be used"):
        single({}, "f")


@pytest.mark.parametrize("form", sorted(EXPORTERS))
def test_a_run_of_which_nothing_is_known_is_exported_without_a_made_up_number(form: str) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    nothing: dict[str, Any] = {"info": {}, "samples": [], "client": [], "checks": [], "steps": []}
    unknown = estimates(ceiling=Estimate("not_measurable", reason="?"))
    bare = served(rows=[row(0, 1.0)], estimates=unknown, table=served_table(1.0), **nothing)
    for content in EXPORTERS[form](bare).values():
        assert b"NaN" not in (content if isinstance(content, bytes) else content.encode())
    assert EXPORTERS[form](served(rows=[], estimates={}, **nothing)) is not None
