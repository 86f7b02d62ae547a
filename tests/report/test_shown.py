"""What was known and is shown: malformed events, answers without a stream, partial steps, labels, stalls."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from records_and_rows import answer, failure, row, window
from run_in_memory import ramp_in_memory, scenario_of
from simulated_ramps import codes, ladder

from loadramp.analysis.ceiling import ceiling
from loadramp.analysis.checks import labels
from loadramp.analysis.checks.run_checks import run_checks
from loadramp.analysis.curve import fold
from loadramp.analysis.itl_knee import completed, estimate
from loadramp.analysis.latency import NOT_STREAMED
from loadramp.analysis.repeats import pooled_rows
from loadramp.analysis.slo_capacity import slo_capacity
from loadramp.analysis.thresholds import judge_gates
from loadramp.cli import main
from loadramp.record.row import Row
from loadramp.record.run_info import read_info
from loadramp.record.table import Run, Table
from loadramp.record.types import Sample
from loadramp.registry import ScenarioError
from loadramp.report import curve_csv, summary_markdown, verdict_document
from loadramp.report.diagnosis import TITLES
from loadramp.report.exporters.openmetrics import openmetrics
from loadramp.report.exporters.points import points
from loadramp.report.exporters.vllm_bench import result
from loadramp.report.verdict_text import verdict, verdict_sentence
from loadramp.runner.finish import judge, write_report
from loadramp.runner.preview import of_scenario
from loadramp.runner.scenarios import load
from loadramp.scenario.scenario import Slo
from loadramp.simulator.faults import Faults
from loadramp.simulator.profiles import PROFILES

SHORT = """
seed = 5
[prompts]
kind = "fixed"
input_tokens = 50
output_tokens = 12
[ramp]
kind = "ladder"
rates = [4, 8]
warmup_s = 3
measure_s = 20
settle_s = 0
settle_requests = 0
tail_s = 1
"""


def run_of(*rows: Row, info: dict[str, Any] | None = None, samples: list[Sample] | None = None) -> Run:
    run = Run(read_info(info or {}), load(""), [], Table.of([]), rows=list(rows), samples=samples or [])
    run.estimates = estimate(completed(run.rows))
    return run


def check(run: Run, code: str) -> Any:
    return next((one for one in run_checks(run) if one.code == code), None)


# -- malformed events


def spoilt(every: int, n: int = 400) -> Row:
    """A step in which every so many answers have two events that cannot be read."""
    records = [answer(i, 60.0 * i / n, 60.0 * i / n + 0.1, [0.01] * 5) for i in range(n)]
    for record in records[::every]:
        record.malformed_events = 2
    return fold(window(60.0, n / 60), Table.of([*records, failure(n, 59.0)]))


def test_malformed_events_are_counted_with_the_share_of_the_answers_that_had_them() -> None:
    found = spoilt(20)
    assert (found.malformed_events, found.malformed_answers) == (40, 20)
    assert found.malformed_ratio == pytest.approx(20 / 401)
    assert fold(window(60.0), Table.of([])).malformed_ratio is None


def test_malformed_events_stand_in_the_checks_the_summary_and_the_table() -> None:
    run = run_of(spoilt(20))
    run.checks = run_checks(run)
    found = check(run, "malformed_events")
    assert found.level == "warn"
    assert found.message == "40 events that cannot be read (malformed) in 20 of 401 answers, 4.99 %"
    summary = summary_markdown(run)
    assert "40 events that cannot be read" in summary
    assert "| Malformed |" in summary and "5 %" in summary
    assert check(run_of(row(8.0)), "malformed_events") is None
    assert "Malformed" not in summary_markdown(run_of(row(8.0)))


@pytest.mark.parametrize(
    ("every", "rule", "status"),
    [
        (20, "malformed_ratio < 0.01", "fail"),
        (20, "malformed_ratio < 1 % @ rate <= 8", "fail"),
        (20, "malformed_ratio < 0.2", "pass"),
        (200, "malformed_ratio < 0.01", "inconclusive"),
        (400, "malformed_ratio < 0.001", "inconclusive"),
    ],
)
def test_a_threshold_on_malformed_events(every: int, rule: str, status: str) -> None:
    found = judge_gates(run_of(spoilt(every)), [rule])[0]
    assert found.status == status
    assert found.reason.startswith(f"{400 // every} of 401 had malformed events: between ") == (status != "pass")


def test_no_malformed_event_says_how_many_requests_the_limit_takes() -> None:
    one = judge_gates(run_of(row(8.0, malformed_answers=0)), ["malformed_ratio < 0.001"])[0]
    assert one.status == "inconclusive"
    assert "takes 2,995 requests" in one.reason


def test_a_service_level_is_missed_by_malformed_events() -> None:
    rows = [row(4.0, malformed_ratio=0.0), row(8.0, malformed_ratio=0.001), row(16.0, malformed_ratio=0.2)]
    found = slo_capacity(rows, Slo(malformed_ratio=0.01))
    assert (found.status, found.limit) == ("found", "malformed_ratio")
    assert found.rate_rps is not None and 8.0 < found.rate_rps < 16.0
    assert slo_capacity(rows[2:], Slo(malformed_ratio=0.01)).status == "below_range"
    assert slo_capacity(rows, Slo()).status == "not_measurable"


def test_a_run_that_misses_its_level_by_malformed_events_fails() -> None:
    run = run_of(spoilt(20))
    run.scenario = scenario_of("[slo]\nmalformed_ratio = 0.01\n")
    run.estimates = estimate(completed(run.rows), slo=run.scenario.slo)
    assert verdict(run) == "fail"
    assert "malformed events in at most 1 % of the answers" in verdict_sentence(run)


# -- answers without a stream


WHOLE = "[target]\nstream = false\n"


def test_answers_that_come_whole_have_no_first_token_and_say_so(tmp_path: Path) -> None:
    run = ramp_in_memory(scenario_of(SHORT + WHOLE), tmp_path)
    for one in run.rows:
        assert one.ok > 50
        for name in ("ttft", "sent_ttft", "itl", "gap", "tpot", "all_ttft"):
            for column in (f"{name}_p50_s", f"{name}_p99_s"):
                assert (one.number(column), one.reasons[column]) == (None, NOT_STREAMED)
        assert one.of("e2e").p50.value is not None
    assert run.estimates["ceiling"].status == "not_found_up_to"
    assert (run.estimates["p99_itl_knee"].status, run.estimates["p99_itl_knee"].reason) == (
        "not_measurable",
        NOT_STREAMED,
    )
    assert not any("TTFT" in one.message or "ITL" in one.message for one in run.checks)
    finished = write_report(Path(run.path), scenario_of(SHORT + WHOLE))
    assert finished.exit_code == 0
    assert "stream = false" in (Path(run.path) / "summary.md").read_text()


@pytest.mark.long
def test_overload_of_answers_that_come_whole_is_found_still(tmp_path: Path) -> None:
    text = SHORT.replace("output_tokens = 12", "output_tokens = 60").replace("[4, 8]", "[4, 60]")
    run = ramp_in_memory(scenario_of(text + WHOLE), tmp_path)
    assert [one.saturated for one in run.rows] == [False, True]
    assert run.estimates["ceiling"].status == "found"


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ("[slo]\nttft_s = 1\n", "[slo] ttft_s"),
        ("[slo]\nitl_s = 0.1\n", "[slo] itl_s"),
        ("[slo]\ntpot_s = 0.1\n", "[slo] tpot_s"),
        ('[gates]\nrules = ["p99(ttft_s) < 1 @ rate = 4"]\n', "[gates] rules"),
        ('[gates]\nrules = ["p50(itl_s) < 1 @ rate = 4"]\n', "[gates] rules"),
        ('[gates]\nrules = ["knee_rps > 2"]\n', "[gates] rules"),
    ],
)
def test_a_limit_on_what_only_a_stream_can_tell_is_an_error_in_plan(
    table: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.toml"
    path.write_text(SHORT + WHOLE + table)
    with pytest.raises(ScenarioError, match=re.escape(named) + ".*stream = false"):
        of_scenario(path)
    with pytest.raises(SystemExit, match="2"):
        main(["plan", str(path)])
    assert "stream = true" in capsys.readouterr().err
    path.write_text(SHORT + table)
    of_scenario(path)


def test_a_limit_on_whole_answers_needs_no_stream(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(SHORT + WHOLE + '[slo]\ne2e_s = 3\n[gates]\nrules = ["p50(e2e_s) < 2 @ rate = 4"]\n')
    of_scenario(path)


# -- steps that were cut short


def cut(rate_rps: float, **more: Any) -> Row:
    return row(rate_rps, **{"partial": True, "window_end_s": 12.0, "step": 2, **more})


def test_an_interrupted_step_is_partial_and_counts_for_nothing(tmp_path: Path) -> None:
    run = ramp_in_memory(scenario_of(SHORT.replace("[4, 8]", "[4, 8, 16]")), tmp_path, stop_at_s=60.0)
    assert [one.partial for one in run.rows] == [False, False, True]
    assert run.steps[-1].partial and run.steps[-1].end_s == pytest.approx(60.0, abs=0.1)
    assert run.rows[-1].load_rps == 16.0
    assert (run.estimates["ceiling"].status, run.estimates["ceiling"].rate_rps) == ("not_found_up_to", 8.0)
    sentence = verdict_sentence(run)
    assert "every whole step" in sentence
    assert "this rests on 2 finished steps; the step at 16 req/s was cut short" in sentence
    assert check(run, "partial_step").message.startswith("the step at 16 req/s was cut short after 11 s")


def test_a_run_that_was_killed_has_a_partial_last_step_too(tmp_path: Path) -> None:
    run = ramp_in_memory(scenario_of(SHORT), tmp_path, stop_at_s=35.0)
    path = Path(run.path) / "run.json"
    info = json.loads(path.read_text()) | {"state": "running", "ending": None}
    info["steps"][-1] |= {"partial": False, "measure_s": 20.0}  # as it stood when the step began
    path.write_text(json.dumps(info))
    again = judge(Path(run.path)).run
    assert [one.partial for one in again.rows] == [False, True]
    assert again.rows[-1].window_end_s == pytest.approx(35.0, abs=1.5)
    assert again.estimates["ceiling"].rate_rps == 4.0
    assert again.rows[-1].arrival_rps == pytest.approx(8.0, rel=0.5)


def test_a_run_directory_of_before_has_no_partial_steps(tmp_path: Path) -> None:
    run = ramp_in_memory(scenario_of(SHORT), tmp_path)
    path = Path(run.path) / "run.json"
    info = json.loads(path.read_text())
    for step in info["steps"]:
        del step["partial"]
    path.write_text(json.dumps(info))
    assert [one.partial for one in judge(Path(run.path)).run.rows] == [False, False]


def test_a_partial_step_is_marked_wherever_it_is_shown() -> None:
    run = run_of(row(8.0), cut(16.0), info={"state": "stopped"})
    table = list(csv.DictReader(io.StringIO(curve_csv(run))))
    assert [line["partial"] for line in table] == ["false", "true"]
    assert [one["partial"] for one in verdict_document(run)["steps"]] == [False, True]
    summary = summary_markdown(run)
    assert "16 (partial)" in summary and "partial: cut short" in summary
    (exposition,) = openmetrics(run).values()
    marked = [line for line in exposition.splitlines() if "partial=" in line]
    assert marked
    for label in ('step="2"', 'role="step"', 'rate="16"', 'partial="true"'):
        assert all(label in line for line in marked)
    assert result(run, run.rows[1])["partial"] is True
    assert "partial" not in result(run, run.rows[0])
    assert {point.row.rate_rps for point in points(run) if point.row} == {8.0}


def test_a_partial_step_is_no_full_step_for_any_judge() -> None:
    whole, part = row(8.0), cut(16.0)
    assert ceiling([part]).reason == "the first step was cut short"
    assert ceiling([whole, cut(16.0, saturated=True, deficit=True, signals=["queue"])]).rate_rps == 8.0
    assert ceiling([row(8.0), row(16.0, saturated=True, deficit=True), cut(6.0, role="soak")]).sustained_rps is None
    gate = judge_gates(run_of(whole, part), ["p50(ttft_s) < 1 @ rate <= 16", "error_ratio < 0.5 @ rate = 16"])
    assert [one.status for one in gate] == ["inconclusive", "inconclusive"]
    assert gate[1].reason.startswith("the step was cut short")
    assert pooled_rows([[whole], [cut(8.0, requests=10)]])[0].requests == 480


def test_an_endpoint_that_went_away_in_a_step_is_told_from_that_step() -> None:
    gone = cut(16.0, ok=0, errors={"connect": 90}, error_ratio=1.0, overloaded=True, requests=90)
    found = ceiling([row(8.0), gone])
    assert (found.status, found.low_rps, found.high_rps) == ("inconclusive", 8.0, 16.0)
    assert "it broke down or went away" in found.reason
    assert judge_gates(run_of(row(8.0), gone), ["error_ratio < 0.5 @ rate = 16"])[0].status == "fail"
    few = cut(16.0, ok=50, errors={"connect": 1}, error_ratio=0.02, requests=51)
    assert (ceiling([row(8.0), few]).status, ceiling([row(8.0), few]).rate_rps) == ("not_found_up_to", 8.0)


# -- labels


def told(given: dict[str, str], target: dict[str, Any] | None = None, **values: float) -> list[str]:
    samples = [Sample(1.0, "u", values)] if values else []
    run = run_of(row(8.0), info={"labels": given, "target": target or {}}, samples=samples)
    return [one.message for one in labels.contradictions(run)]


@pytest.mark.parametrize(
    ("given", "target", "values", "said"),
    [
        ({"max_num_seqs": "256"}, {}, {"max_num_seqs": 100.0}, "max_num_seqs = 256, the server says 100"),
        ({"max-num-seqs": "64"}, {}, {"max_num_seqs": 128.0}, "the server says 128 (right only where 2 engines"),
        ({"flags": "--max-num-seqs 64 --tp 2"}, {}, {"max_num_seqs": 48.0}, "--max-num-seqs = 64, the server says 48"),
        ({"flags": "--max_num_seqs=64"}, {}, {"running": 90.0}, "had 90 requests running at once"),
        ({"block_size": "16"}, {}, {"block_size": 32.0}, "block_size = 16, the server says 32"),
        ({"model": "Llama-3.1-70B"}, {"model": "Qwen/Qwen3-8B"}, {}, "model = Llama-3.1-70B, the server says Qwen"),
        ({"context_length": "8k"}, {"max_model_len": 4096}, {}, "context_length = 8k, the server says 4096"),
        ({"version": "0.9.1"}, {"version": "0.10.0"}, {}, "version = 0.9.1, the server says 0.10.0"),
    ],
)
def test_labels_that_the_server_contradicts_are_a_warning(
    given: dict[str, str], target: dict[str, Any], values: dict[str, float], said: str
) -> None:
    (message,) = told(given, target, **values)
    assert said in message


@pytest.mark.parametrize(
    ("given", "target", "values"),
    [
        ({"max_num_seqs": "256"}, {}, {"max_num_seqs": 256.0}),
        ({"max_num_seqs": "256"}, {}, {"running": 200.0}),
        ({"max_num_seqs": "256"}, {}, {}),
        ({"max_num_seqs": "default"}, {}, {"max_num_seqs": 256.0}),
        ({"model": "Llama-3.1-8B"}, {"model": "meta-llama/Llama-3.1-8B-Instruct"}, {}),
        ({"model": "/models/Qwen3-8B/"}, {"model": "qwen3_8b"}, {}),
        ({"context_length": "8k"}, {"max_model_len": 8192}, {}),
        ({"version": "v0.10.0"}, {"version": "0.10.0"}, {}),
        ({"gpu": "H100", "flags": "--enforce-eager"}, {"model": "m"}, {"max_num_seqs": 256.0}),
        ({}, {"model": "m"}, {"max_num_seqs": 256.0}),
    ],
)
def test_labels_that_agree_or_that_nothing_speaks_against_are_left_alone(
    given: dict[str, str], target: dict[str, Any], values: dict[str, float]
) -> None:
    assert told(given, target, **values) == []


def test_a_contradicted_label_is_among_the_checks_of_a_run() -> None:
    info = {"labels": {"model": "a-model"}, "target": {"model": "b-model"}}
    assert check(run_of(row(8.0), info=info), "labels").level == "warn"


# -- stalls


def test_nothing_gave_way_is_said_where_hardly_a_request_stalls() -> None:
    run = ladder(PROFILES["small"], [2, 4, 8])
    assert codes(run) == ["healthy"]
    assert all(one.stalled_ratio <= 0.02 for one in run.rows)


@pytest.mark.parametrize(("ratio", "stall_s"), [(0.05, 1.0), (0.3, 0.6)])
def test_requests_that_stall_are_named_instead(ratio: float, stall_s: float, tmp_path: Path) -> None:
    run = ramp_in_memory(scenario_of(SHORT), tmp_path, faults=Faults(stall_ratio=ratio, stall_s=stall_s))
    assert max(one.stalled_ratio for one in run.rows) > 0.02
    found = {one.code for one in run.findings}
    assert "healthy" not in found
    assert found & {"stalls", "stream_stall"}
    assert " of the requests stalled at " in verdict_sentence(run)


def test_a_few_stalls_that_no_rule_explains_are_a_finding_of_their_own(tmp_path: Path) -> None:
    """One stream at a time: nobody else is there to stand still or to go on."""
    text = SHORT.replace("[4, 8]", "[0.5]").replace("measure_s = 20", "measure_s = 200")
    run = ramp_in_memory(scenario_of(text), tmp_path, faults=Faults(stall_ratio=0.05, stall_s=1.0))
    assert run.rows[0].stalled_ratio > 0.02
    assert [one.code for one in run.findings] == ["stalls"]
    assert "of the requests at 0.5 req/s stalled" in run.findings[0].evidence[0]
    assert TITLES["stalls"].startswith("Requests stalled")
    assert run.findings[0].cures
