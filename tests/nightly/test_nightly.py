"""A night measured: what is written down, when it is measured again, what it comes to. One night on real sockets."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import records_and_rows
from click.testing import CliRunner
from curve_rows import changed, row_of
from history_samples import LEVELS, measured, steady, told
from report_runs import estimates, latencies, row, served
from run_in_memory import scenario_of

from loadramp.cli import cli, main
from loadramp.commands import terminal as screen
from loadramp.nightly.accept import accept
from loadramp.nightly.conditions import digest_of, fingerprint_of
from loadramp.nightly.history import History
from loadramp.nightly.night import Measuring, middle, reference_first, with_reference
from loadramp.nightly.series import METRICS, readings, reference_row
from loadramp.nightly.trend import judge_night
from loadramp.record.row import Void
from loadramp.record.table import Run
from loadramp.record.types import Estimate, Sample, Step, Stop
from loadramp.registry import CannotMeasure, Choice, ScenarioError
from loadramp.runner.finish import Finished
from loadramp.runner.scenarios import Options
from loadramp.scenario.scenario import Scenario
from loadramp.simulator.practise import simulator
from loadramp.workload.preview import most_extra_s
from loadramp.workload.ramps import ladder

TEXT = """
name = "nightly"
[ramp]
start_rps = 2
[nightly]
floors = ["ceiling_rps >= 10"]
"""
Fake = Callable[[Scenario], Finished]


def run_at(ceiling_rps: float, reference_rps: float | None, itl_p99_ms: float = 48.0, **info: Any) -> Run:
    """A judged run with a step at the reference rate."""
    made = [
        row(i, rate, **latencies(90, 200, 25, itl_p99_ms)) for i, rate in enumerate((reference_rps or 2.0, 4.0, 32.0))
    ]
    found = estimates(ceiling=Estimate("found", ceiling_rps, ceiling_rps * 0.97, ceiling_rps * 1.03))
    told = {"verdict": "pass", "target": {"model": "m", "version": "0.10.0"}, "loadramp": "0.1.0"} | info
    return served(rows=made, estimates=found, info=told, samples=[Sample(0.0, values={"kv_blocks": 4096.0})])


def night(tmp_path: Path, make: Fake, text: str = TEXT, **more: Any) -> tuple[Any, Measuring]:
    """One night whose runs are what ``make`` says of the scenario it is given."""

    async def ramp(scenario: Scenario, *_: Any, **__: Any) -> Finished:
        return make(scenario)

    measuring = Measuring(scenario_of(text), Options(), History(tmp_path / "h"), lambda _: None, ramp=ramp, **more)
    return asyncio.run(measuring.measure()), measuring


def reference_of(scenario: Scenario) -> float | None:
    rate: float | None = scenario.ramp.options.get("rate_rps")
    return rate


def good(scenario: Scenario) -> Finished:
    return Finished(run_at(16.0, reference_of(scenario)), 0)


def failing(_: Scenario) -> Finished:
    raise CannotMeasure("http://host:8000: connection refused")


def lines(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "h/history.jsonl").read_text().splitlines()]


def test_the_first_ceiling_sets_the_reference_rate_and_the_next_runs_measure_at_it(tmp_path: Path) -> None:
    asked: list[float | None] = []

    def make(scenario: Scenario) -> Finished:
        asked.append(reference_of(scenario))
        return good(scenario)

    finished, _ = night(tmp_path, make)
    assert asked == [None, 8.0, 8.0]
    written = lines(tmp_path)
    assert len(written) == 3 * len(METRICS)
    assert {line["fingerprint"]["reference_rps"] for line in written} == {"8"}
    latencies_ = [line for line in written if line["metric"] == "ref_itl_p99_s"]
    assert [line["value"] for line in latencies_] == [None, 0.048, 0.048]
    assert latencies_[0]["reason"] == "this run set the reference rate, 8 req/s: measured from the next run on"
    assert finished.exit_code == 0
    assert [line.get("sets_reference", False) for line in latencies_] == [True, False, False]
    assert finished.document["verdict"] == "pass"
    assert {path.name for path in (tmp_path / "h").iterdir()} == {
        "history.jsonl", "trend.html", "night.json", "night.md", "junit.xml", "annotations.txt",
    }  # fmt: skip


def test_one_run_a_night_has_no_baseline_on_the_first_night_and_its_reference_rate_from_the_second(
    tmp_path: Path,
) -> None:
    once = TEXT + "repeats = 1\n"
    first, _ = night(tmp_path, good, text=once, night="2099-01-01T00:00:00+00:00")
    assert (first.exit_code, first.document["verdict"]) == (0, "pass")
    assert {one.state for one in first.outcome.standings} == {"no_baseline"}
    assert first.outcome.standings[1].reason == (
        "this run set the reference rate, 8 req/s: measured from the next run on"
    )
    second, _ = night(tmp_path, good, text=once, night="2099-01-02T00:00:00+00:00")
    assert (second.exit_code, second.outcome.standings[2].value) == (0, 0.048)


def test_without_a_ceiling_there_is_no_reference_rate_and_the_night_is_open(tmp_path: Path) -> None:
    def endless(_: Scenario) -> Finished:
        run = run_at(16.0, None)
        run.estimates["ceiling"] = Estimate("not_found_up_to", 1024.0, 1024.0, reason="quiet up to 1024 req/s")
        return Finished(run, 0)

    finished, _ = night(tmp_path, endless, text=TEXT + 'repeats = 1\nmetrics = ["ref_itl_p99_s"]\n')
    assert finished.exit_code == 3  # else it would pass for ever without having judged anything
    assert finished.outcome.standings[0].state == "missing"
    (floor,) = finished.outcome.floors
    assert (floor.status, floor.low, floor.reason) == ("pass", 1024.0, "not found up to: quiet up to 1024 req/s")


def test_the_next_night_measures_at_the_same_rate_even_if_the_ceiling_moved(tmp_path: Path) -> None:
    night(tmp_path, good)
    asked: list[float | None] = []

    def slower(scenario: Scenario) -> Finished:
        asked.append(reference_of(scenario))
        return Finished(run_at(11.0, reference_of(scenario)), 0)

    night(tmp_path, slower, night="2099-01-01T00:00:00+00:00")
    assert asked == [8.0, 8.0, 8.0]
    asked.clear()
    night(tmp_path, slower, text=TEXT + "reference_rps = 3\n", night="2099-01-02T00:00:00+00:00")
    assert asked == [3.0, 3.0, 3.0]


def test_a_night_that_could_not_be_measured_is_written_down_and_no_regression(tmp_path: Path) -> None:
    tries = 0

    def make(scenario: Scenario) -> Finished:
        nonlocal tries
        tries += 1
        return failing(scenario)

    finished, _ = night(tmp_path, make)
    assert (finished.exit_code, tries) == (1, 1)
    (line,) = lines(tmp_path)
    assert (line["kind"], line["exit_code"], line["reason"]) == ("failed", 1, "http://host:8000: connection refused")
    assert "that is no regression" in finished.document["sentence"]
    assert finished.document["verdict"] == "not_measured"


def test_a_void_run_is_no_measurement_and_two_good_ones_are_a_night(tmp_path: Path) -> None:
    runs = iter([Finished(run_at(16.0, None, verdict="void"), 3), *[None] * 2])

    def make(scenario: Scenario) -> Finished:
        return next(runs) or good(scenario)

    finished, _ = night(tmp_path, make)
    assert [line["kind"] for line in lines(tmp_path)].count("failed") == 1
    assert finished.outcome.standings[0].value == pytest.approx(16.0)
    assert finished.exit_code == 0


def test_an_interrupted_night_keeps_what_it_has(tmp_path: Path) -> None:
    runs = iter([None, Finished(run_at(16.0, 8.0), 130)])
    finished, _ = night(tmp_path, lambda scenario: next(runs) or good(scenario))
    assert finished.exit_code == 130
    assert [line.get("reason") for line in lines(tmp_path) if line["kind"] == "failed"] == ["interrupted"]


@pytest.fixture
def past(tmp_path: Path) -> History:
    """Twenty quiet nights of this scenario."""
    history = History(tmp_path / "h")
    known = {
        "scenario": digest_of(TEXT), "reference_rps": "8", "model": "m", "version": "0.10.0", "client": "0.1.0",
        "kv_blocks": "4096",
    }  # fmt: skip
    for i in range(20):
        history.append(measured(i, steady, fingerprint=known))
    return history


@pytest.mark.parametrize("wrong", ["2099-01-01T03:00:00+00:00", "2026-02-01T03:00:00+00:00"])
def test_a_night_that_is_not_the_last_is_refused_before_anything_is_sent(tmp_path: Path, wrong: str) -> None:
    """A clock that was wrong once: the night that is measured would be judged by another one, and pass."""
    history = History(tmp_path / "h")
    history.append([replace(entry, night=wrong) for entry in measured(0, steady)])
    history.append([replace(measured(0, steady)[0], night="2199-01-01", scenario="another")])
    with pytest.raises(ScenarioError, match=f"holds a night of {wrong[:10]}.*put the clock right"):
        night(tmp_path, good, night="2026-02-01T03:00:00+00:00")
    night(tmp_path, good, TEXT.replace('"nightly"', '"new"'), night="2026-02-01T03:00:00+00:00")


def test_a_history_with_a_night_to_come_is_shown_with_a_note(tmp_path: Path) -> None:
    History(tmp_path).append([replace(entry, night="2099-01-01T03:00:00+00:00") for entry in measured(0, steady)])
    shown = CliRunner().invoke(cli, ["trend", str(tmp_path)])
    assert "history.jsonl: the night of 2099-01-01T03:00:00+00:00 is still to come" in shown.output


def test_the_page_of_no_scenario_replaces_none(tmp_path: Path) -> None:
    History(tmp_path).append(measured(0, steady))
    shown = CliRunner().invoke(cli, ["trend", str(tmp_path), "--scenario", "nigthly"])
    assert isinstance(shown.exception, ScenarioError)
    assert str(shown.exception).endswith("holds no 'nigthly'; it holds nightly")
    assert not (tmp_path / "trend.html").exists()


def test_a_bad_night_is_measured_again_when_that_is_asked(tmp_path: Path, past: History) -> None:
    runs = 0

    def make(scenario: Scenario) -> Finished:
        nonlocal runs
        runs += 1
        return Finished(run_at(12.0, reference_of(scenario)), 0)

    finished, _ = night(tmp_path, make, text=TEXT + "rerun = true\nrepeats = 2\n")
    assert runs == 4
    assert finished.exit_code == 99
    (alarm,) = finished.document["alarms"]
    assert (alarm["metric"], alarm["rule"], alarm["direction"]) == ("ceiling_rps", "page", "worse")
    assert [line["kind"] for line in lines(tmp_path)].count("alarm") == 1
    assert past.read()[1] == 0


def test_a_change_fails_the_night_that_finds_it_and_no_later_one(tmp_path: Path, past: History) -> None:
    def slow(scenario: Scenario) -> Finished:
        return Finished(run_at(12.0, reference_of(scenario)), 0)

    codes = [night(tmp_path, slow, night=f"2026-06-{day:02d}T00:00:00+00:00")[0].exit_code for day in range(1, 7)]
    assert codes == [0, 99, 0, 0, 0, 0]
    page = (tmp_path / "h/trend.html").read_text()
    assert "Ceiling" in page and "worse, open" in page
    entry = accept(past, ["ceiling_rps"], "smaller machine", "nightly")
    assert entry.reason == "smaller machine"
    page = (tmp_path / "h/trend.html").read_text()
    assert "worse, open" not in page and "smaller machine" in page


def test_accept_names_what_it_accepts_and_takes_metrics_and_a_reason(past: History, capsys: Any) -> None:
    known = past.read()[0][-1].fingerprint
    for i in (20, 21):
        lower = measured(i, lambda _, m: LEVELS[m] * (0.8 if m == "ceiling_rps" else 1.0), sd=0.001, fingerprint=known)
        past.append(lower)
    entries, _ = past.read()
    past.append([replace(line, fingerprint=known) for line in told(judge_night(entries))])
    assert here("accept", str(past.path), "--metric", "ceiling_rps", "--metric", "ref_itl_p50_s",
                "--reason", "two sequences fewer", "--yes") == 0  # fmt: skip
    said = capsys.readouterr()
    assert said.out == "accepted ceiling_rps, ref_itl_p50_s of nightly as of 2026-01-22 03:00\n"
    assert "Ceiling: 12.8 req/s on 2026-01-22 03:00; closes: worse since 2026-01-21 03:00, -20 % (" in said.err
    assert "p50 ITL at the reference rate: 25 ms on 2026-01-22 03:00; nothing is open" in said.err
    assert "p99" not in said.err
    written = [e for e in past.read()[0] if e.kind == "accepted"]
    assert [(e.metric, e.reason) for e in written] == [
        ("ceiling_rps", "two sequences fewer"), ("ref_itl_p50_s", "two sequences fewer"),
    ]  # fmt: skip
    assert judge_night(past.read()[0]).open == []


def test_accept_asks_on_a_terminal_and_writes_nothing_after_a_no(
    past: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen, "asks", lambda yes, as_json: not yes)
    before = past.file.read_bytes()
    refused = CliRunner().invoke(cli, ["accept", str(past.path)], input="n\n")
    assert refused.exit_code == 1
    assert "Accept these 4 levels from now on?" in refused.output
    assert past.file.read_bytes() == before
    agreed = CliRunner().invoke(cli, ["accept", str(past.path), "--metric", "ceiling_rps"], input="y\n")
    assert agreed.exit_code == 0
    assert "Accept this level from now on?" in agreed.output
    assert [e.metric for e in past.read()[0] if e.kind == "accepted"] == ["ceiling_rps"]


@pytest.mark.parametrize(("arguments", "words"), [
    (["--metric", "speed"], "--metric: no 'speed'; there are ceiling_rps,"),
    (["--metric", "knee_rps"], "knee_rps was measured on no night, so there is no level to accept"),
    (["--scenario", "chat"], "no measured night to accept of the scenario 'chat'; it holds nightly"),
])  # fmt: skip
def test_accept_of_what_is_not_there_is_a_usage_error(
    past: History, capsys: Any, arguments: list[str], words: str
) -> None:
    assert here("accept", str(past.path), *arguments) == 2
    assert words in capsys.readouterr().err


def test_a_metric_that_joins_a_change_told_before_fails_no_second_night(tmp_path: Path, past: History) -> None:
    itl = iter([48.0, 48.0, 62.0, 62.0, 62.0, 62.0])

    def slow(scenario: Scenario) -> Finished:
        return Finished(run_at(12.0, reference_of(scenario), itl_p99_ms=next(itl)), 0)

    once = TEXT + "repeats = 1\n"
    nights_ = [night(tmp_path, slow, text=once, night=f"2026-06-{day:02d}T00:00:00+00:00")[0] for day in range(1, 7)]
    assert [one.exit_code for one in nights_] == [0, 99, 0, 0, 0, 0]
    (change,) = nights_[3].document["changes"]
    assert (change["metrics"], change["told_before"]) == (["ref_itl_p99_s"], True)
    sentence = nights_[3].document["sentence"]
    assert sentence.startswith("Part of a change that an earlier night has told: Worse since 2026-06-01 00:00: p99 ITL")
    assert [a["metric"] for a in nights_[5].document["open"]] == ["ceiling_rps", "ref_itl_p99_s"]


def test_a_broken_floor_fails_every_night(tmp_path: Path) -> None:
    def low(scenario: Scenario) -> Finished:
        return Finished(run_at(9.0, reference_of(scenario)), 0)

    finished, _ = night(tmp_path, low)
    assert finished.exit_code == 99
    assert finished.document["sentence"].startswith(
        "Beyond a floor: ceiling_rps >= 10: 9 req/s, 8.73 req/s to 9.27 req/s"
    )


def test_the_runs_own_thresholds_count_by_majority(tmp_path: Path) -> None:
    codes = iter([99, 0, 0])
    assert night(tmp_path / "a", lambda s: Finished(run_at(16.0, reference_of(s)), next(codes)))[0].exit_code == 0
    codes = iter([99, 99, 0])
    assert night(tmp_path / "b", lambda s: Finished(run_at(16.0, reference_of(s)), next(codes)))[0].exit_code == 99
    assert middle(["pass", "fail", "inconclusive"]) == "inconclusive"


def test_what_cannot_be_judged_is_a_usage_error_before_anything_is_sent(tmp_path: Path) -> None:
    for wrong, words in (('metrics = ["speed"]', "no 'speed'"), ('floors = ["speed > 1"]', "no metric 'speed'")):
        text = f'name = "n"\n[nightly]\n{wrong}\n'
        with pytest.raises(ScenarioError, match=words):
            night(tmp_path, good, text=text)
    with pytest.raises(ScenarioError, match="no measured night to accept"):
        accept(History(tmp_path / "none"), [], "")
    with pytest.raises(ScenarioError, match="no 'speed'"):
        accept(History(tmp_path / "none"), ["speed"], "")
    assert not (tmp_path / "h").exists()


def test_the_reference_step_comes_first_and_the_ramp_does_not_see_it() -> None:
    inner = Choice("ladder", ladder, {"rates": [4.0, 8.0]})
    calm = row_of(overloaded=False, rate_rps=8.0)
    first = reference_first([], ramp=inner, rate_rps=8.0, measure_s=120.0)
    assert first == Step(0, rate_rps=8.0, measure_s=120.0)
    assert reference_first([calm], ramp=inner, rate_rps=8.0) == Step(0, rate_rps=4.0)
    assert isinstance(reference_first([calm] * 3, ramp=inner, rate_rps=8.0), Stop)
    again = reference_first([changed(calm, void=True)], ramp=inner, rate_rps=8.0)
    assert again == Step(1, rate_rps=8.0)
    assert reference_first([changed(calm, void=True), calm], ramp=inner, rate_rps=8.0) == Step(0, rate_rps=4.0)


def test_readings_say_why_they_are_none() -> None:
    run = run_at(16.0, 8.0)
    run.rows[0] = changed(run.rows[0], void=(Void("late", "more words"),))
    run.estimates["slo_capacity"] = Estimate("not_found_up_to", 32.0, 32.0, reason="every limit is met")
    run.estimates["ceiling"] = Estimate("below_range", 3.0, 2.5, 3.5, reason="overloaded at once")
    found = readings(run, 8.0)
    assert (found["ref_itl_p99_s"].value, found["ref_itl_p99_s"].reason) == (None, "void: late")
    bound = found["slo_capacity_rps"]
    assert (bound.value, bound.low, bound.high) == (None, 32.0, None)
    assert bound.reason == "not found up to: every limit is met"
    assert (found["ceiling_rps"].value, found["ceiling_rps"].low) == (3.0, 2.5)  # a collapse is no gap
    assert found["sustained_rps"].reason == "no soak was quiet"
    assert set(found) == set(METRICS)
    assert reference_row(run.rows, None)[1].startswith("no reference rate yet")


def test_the_fingerprint_is_what_is_known() -> None:
    run = run_at(
        16.0, 8.0, host={"cpu": "EPYC", "cores": 8}, metrics={"dialect": "vllm"}, files=[{"sha256": "ab" * 32}]
    )
    assert fingerprint_of(run, "d1", {"gpu": "H100"}, 8.0) == {
        "scenario": "d1", "corpus": "abababababab", "reference_rps": "8", "model": "m", "engine": "vllm",
        "version": "0.10.0", "kv_blocks": "4096", "client": "0.1.0", "host": "EPYC x 8", "gpu": "H100",
    }  # fmt: skip


def test_what_is_asked_is_what_is_compared() -> None:
    text = "# words\nseed = 1\n[ramp]\nstart_rps = 2\n[prompts]\ninput_tokens = 300\n"
    same = "[prompts]\ninput_tokens = 300\n[slo]\nttft_s = 9\n[ramp]\nstart_rps = 2\n[nightly]\nrepeats = 9\n"
    assert digest_of("seed = 1\n" + same) == digest_of(text)
    assert digest_of(text, ["target.base_url=http://x", "slo.itl_s=1"]) == digest_of(text)
    different = [
        digest_of(text.replace("300", "301")), digest_of(text.replace("seed = 1", "seed = 2")),
        digest_of(text, ["ramp.start_rps=4"]), digest_of(text + '[target]\napi = "completions"\n'),
    ]  # fmt: skip
    assert len({digest_of(text), *different}) == 5


def test_a_byte_order_mark_does_not_change_what_is_asked() -> None:
    text = "seed = 1\n[ramp]\nstart_rps = 2\n"
    assert digest_of("\ufeff" + text, ["ramp.factor=3"]) == digest_of(text, ["ramp.factor=3"])


QUICK = """
name = "quick"
[prompts]
kind = "fixed"
input_tokens = 20
output_tokens = 4
[ramp]
kind = "ladder"
rates = [20]
warmup_s = 0.2
measure_s = 1.2
settle_s = 0
settle_requests = 0
tail_s = 0.1
[nightly]
repeats = 1
reference_rps = 30
metrics = ["ref_ttft_p50_s"]
"""


@pytest.fixture(scope="module")
def sim() -> Iterator[str]:
    with simulator() as url:
        yield url


def test_a_night_asks_before_it_loads_another_machine_and_never_where_nobody_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "quick.toml").write_text(QUICK + "[target]\nready_timeout_s = 0\n")
    arguments = ["nightly", str(tmp_path / "quick.toml"), "--history", str(tmp_path / "h"), "--out", str(tmp_path)]
    elsewhere = [*arguments, "--base-url", "http://10.255.255.1:9"]
    assert not screen.asks(yes=False, as_json=False)  # no terminal here, and none in CI: nothing may hang
    with monkeypatch.context() as terminal:
        terminal.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
        answers = [screen.asks(yes, as_json) for yes, as_json in ((False, False), (True, False), (False, True))]
    assert answers == [True, False, False]
    monkeypatch.setattr(screen, "asks", lambda yes, as_json: not yes and not as_json)
    asked = CliRunner().invoke(cli, elsewhere, input="n\n")
    assert asked.exit_code == 1
    assert "Load 10.255.255.1 (1 run, " in asked.output
    assert not (tmp_path / "h").exists()
    silent = CliRunner().invoke(cli, [*arguments, "--base-url", "http://127.0.0.1:1"], input="n\n")
    assert "Load 127.0.0.1" not in silent.output  # a server of one's own is not asked about
    assert (tmp_path / "h").exists()


def here(*arguments: str) -> int:
    """The command line in this process: its exit code."""
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    return int(left.value.code or 0)


@pytest.mark.long
def test_a_night_on_real_sockets(sim: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario, history = tmp_path / "quick.toml", tmp_path / "history"
    scenario.write_text(QUICK)
    command = [sys.executable, "-m", "loadramp", "nightly", str(scenario), "--base-url", sim, "--history", str(history)]
    command += ["--out", str(tmp_path / "r"), "--label", "gpu=none", "--json", "--quiet"]
    command += ["--set", f"metrics.url={sim}/metrics"]  # named, not looked for: the engine is known all the same
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode in {0, 3}, done.stderr
    document = json.loads(done.stdout)
    assert (document["schema"], document["scenario"]) == ("loadramp.night/1", "quick")
    assert document["exit_code"] == done.returncode
    entries, skipped = History(history).read()
    assert skipped == 0
    (path,) = document["runs"]
    steps = json.loads((Path(path) / "run.json").read_text())["steps"]
    assert next(step["rate_rps"] for step in steps if step["role"] == "step") == 30.0
    for entry in entries:
        if entry.kind == "measured":
            told = [entry.fingerprint[key] for key in ("engine", "gpu", "reference_rps")]
            assert told == ["vllm", "none", "30"]
    capsys.readouterr()
    assert here("trend", str(history), "--json") == 0
    assert json.loads(capsys.readouterr().out)["night"] == document["night"]
    code = here("gate", path, "--slo", "error_ratio < 0.5", "--slo", "p50(ttft_s) < 60 @ rate = 20")
    assert code in {0, 3}
    assert "error_ratio < 0.5" in capsys.readouterr().out
    assert here("gate", path, "--slo", "speed > 1") == 2
    assert "no metric 'speed'" in capsys.readouterr().err
    assert here("gate", path) == 2
    assert here("export", path, "--format", "list") == 0
    assert "github-annotations" in capsys.readouterr().out
    usable = [
        step["step"] for step in json.loads((Path(path) / "verdict.json").read_text())["steps"] if not step["void"]
    ]
    assert here("export", path, "--format", "llm-d") == (1, 0, 2)[len(usable)]  # several files need a place
    assert here("alerts", path) == 0
    assert "vllm:num_requests_waiting" in capsys.readouterr().out
    assert here("accept", str(history), "--reason", "first") in {0, 2}  # 2: this machine was too busy to measure
    assert here("trend", str(tmp_path)) == 2


def test_a_reference_step_that_was_cut_short_is_none() -> None:
    part = records_and_rows.row(16.0, partial=True, window_end_s=12.0, step=2)
    assert reference_row([part], 16.0) == (None, "the step at the reference rate was cut short")


def test_a_night_that_climbs_knows_how_long_its_steps_may_become() -> None:
    climbs = scenario_of('[prompts]\nkind = "fixed"\n[ramp]\nkind = "ceiling"\nstart_rps = 4\nsoak_s = 0\n')

    assert most_extra_s(with_reference(climbs, 2.0)) == most_extra_s(climbs) > 100.0
    with pytest.raises(KeyError):
        with_reference(climbs, 2.0).ramp.option("no_such_key")
