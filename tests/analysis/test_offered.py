"""A step speaks for the load that it offered: what is clearly less (or more) than asked, and what claims rest on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from curve_rows import changed
from records_and_rows import answer, overload, row, window
from run_in_memory import ramp_in_memory, scenario_of

from loadramp.analysis import offered_load
from loadramp.analysis.ceiling import ceiling
from loadramp.analysis.curve import fold
from loadramp.analysis.itl_knee import completed, estimate
from loadramp.analysis.overload import climb
from loadramp.analysis.repeats import pooled_rows
from loadramp.analysis.slo_capacity import slo_capacity
from loadramp.analysis.thresholds import judge_gates
from loadramp.record.row import Row
from loadramp.record.run_info import RunInfo, read_info
from loadramp.record.table import Run, Table
from loadramp.record.types import Step, Stop
from loadramp.registry import Choice
from loadramp.report import rows as r
from loadramp.report.sections import steps_section
from loadramp.report.verdict_text import verdict_sentence
from loadramp.runner.preview import of_scenario
from loadramp.scenario.scenario import Slo
from loadramp.workload.arrivals import ARRIVALS, share_of
from loadramp.workload.ramps import ceiling as ceiling_ramp
from loadramp.workload.schedule import Offer, offer_of, plan_step

PROMPTS = 'seed = 5\n[prompts]\nkind = "fixed"\ninput_tokens = 50\noutput_tokens = 12\n'
LADDER = (
    '[ramp]\nkind = "ladder"\nrates = [2, 8]\nwarmup_s = 5\nmeasure_s = 60\n'
    "settle_s = 0\nsettle_requests = 0\ntail_s = 1\n"
)


# -- the rule


@pytest.mark.parametrize(
    ("arrivals", "share", "gap_cv", "load_rps"),
    [
        (480, 1.0, 1.0, 8.0),
        (432, 1.0, 0.0, 8.0),  # 10 % less are not told apart
        (430, 1.0, 0.0, 430 / 60),  # a replay: no matter of chance
        (420, 1.0, 1.0, 8.0),  # Poisson: 12 % less, 2.7 standard deviations
        (410, 1.0, 1.0, 410 / 60),  # 3.2 of them
        (300, 1.0, 3.0, 8.0),  # bursts: 2.7 of theirs
        (280, 1.0, 3.0, 280 / 60),
        (420, 0.8, 1.0, 7.0),  # the plan's own shape leaves a fifth out
        (540, 0.8, 1.0, 8.0),  # and that does not explain more
        (560, 1.0, 1.0, 560 / 60),
        (540, 1.2, 1.0, 9.0),
        (0, 1.0, 1.0, 0.0),
    ],
)
def test_only_what_neither_chance_nor_a_trifle_explains_is_another_load(
    arrivals: int, share: float, gap_cv: float, load_rps: float
) -> None:
    assert offered_load.load_rps(8.0, arrivals, 60.0, share=share, gap_cv=gap_cv) == pytest.approx(load_rps)


def test_one_arrival_at_the_edge_of_a_short_step_is_no_difference() -> None:
    assert offered_load.load_rps(1.0, 4, 5.0, gap_cv=0.0) == 1.0
    assert offered_load.load_rps(1.0, 3, 5.0, gap_cv=0.0) == 0.6
    assert offered_load.load_rps(1.0, 0, 0.0) == 1.0


@pytest.mark.parametrize(
    ("kind", "text"), [("constant", ""), ("poisson", ""), ("gamma", "cv = 3"), ("gamma", "cv = 0.5")]
)
def test_random_steps_are_hardly_ever_called_short(kind: str, text: str) -> None:
    called = 0
    base = scenario_of(f'[arrivals]\nkind = "{kind}"\n{text}\n')
    for seed in range(200):
        scenario = replace(base, seed=seed)
        for rate_rps in (1.0, 8.0):
            step = Step(1, rate_rps=rate_rps, begin_s=0.0, warmup_s=10.0, measure_s=60.0)
            due_s = plan_step(scenario, step).due_s
            offer = offer_of(scenario, step)
            assert offer.gap_cv is not None
            n = int(np.count_nonzero(due_s >= 10.0))
            called += offered_load.load_rps(rate_rps, n, 60.0, share=offer.share, gap_cv=offer.gap_cv) != rate_rps
    assert called <= 6  # of 400; by the rule about 1


def test_a_process_from_outside_scatters_as_it_is_seen_to() -> None:
    bursts = [answer(i, 4.0 * (i // 10), 4.0 * (i // 10) + 0.1) for i in range(150)]
    step = window(60.0, 5.0)
    assert fold(step, Table.of(bursts), gap_cv=None).load_rps == 5.0
    assert fold(step, Table.of(bursts), gap_cv=1.0).load_rps == 2.5


@pytest.mark.parametrize(
    ("kind", "options", "begin_s", "end_s", "share"),
    [
        ("diurnal", {"shape": [0.0, 2.0], "period_s": 100.0}, 0.0, 25.0, 0.5),
        ("diurnal", {"shape": [0.0, 2.0], "period_s": 100.0}, 25.0, 75.0, 1.5),
        ("diurnal", {"shape": [0.0, 2.0], "period_s": 100.0}, 30.0, 230.0, 1.0),
        ("diurnal", {"period_s": 600.0, "swing": 0.5}, 300.0, 600.0, 1.0 - 1.0 / np.pi),
        ("spike", {"every_s": 100.0, "spike_s": 10.0, "factor": 11.0}, 0.0, 60.0, 0.5),
        ("spike", {"every_s": 100.0, "spike_s": 10.0, "factor": 11.0}, 90.0, 100.0, 5.5),
        ("spike", {}, 10.0, 70.0, 1.0),
        ("poisson", {}, 0.0, 60.0, 1.0),
        ("gamma", {"cv": 3.0}, 0.0, 60.0, 1.0),
        ("diurnal", {}, 5.0, 5.0, 1.0),
    ],
)
def test_what_a_changing_rate_offers_in_a_window_is_the_integral_of_it(
    kind: str, options: dict[str, Any], begin_s: float, end_s: float, share: float
) -> None:
    arrivals = Choice(kind, ARRIVALS[kind], options)
    assert share_of(arrivals, begin_s, end_s) == pytest.approx(share, rel=1e-3)


def test_what_a_step_offers_needs_no_file() -> None:
    scenario = scenario_of('[arrivals]\nkind = "replay"\nfile = "gone.csv"\n')
    assert offer_of(scenario, window(60.0, 2.0)) == Offer(1.0, 0.0)


# -- claims


def quiet(asked: float, load: float, **more: Any) -> Row:
    return row(asked, arrival_rps=load, load_rps=load, requests=round(60 * load), throughput_rps=load, **more)


def test_no_ceiling_is_found_up_to_what_was_offered() -> None:
    found = ceiling([quiet(2.0, 1.0), quiet(8.0, 3.0)])
    assert (found.status, found.rate_rps, found.low_rps) == ("not_found_up_to", 3.0, 3.0)
    assert found.reason == "quiet up to 3 req/s (8 asked), the highest rate tried"


def test_a_quiet_step_that_offered_little_does_not_refute_an_alarm_below_what_it_asked() -> None:
    rows = [quiet(4.0, 4.0), overload(8.0, 5.0), quiet(16.0, 3.0)]
    assert [one.rate_rps for one in climb(rows).rows] == [16.0, 4.0, 8.0]
    found = ceiling(rows)
    assert (found.status, found.rate_rps) == ("found", pytest.approx(5.0, rel=0.01))
    assert "quiet up to 4 req/s" in found.reason


def test_an_overload_by_a_burst_is_at_the_rate_that_came() -> None:
    rows = [quiet(4.0, 4.0), overload(8.0, 10.0, arrival_rps=20.0, load_rps=20.0)]
    found = ceiling(rows)
    assert found.rate_rps == pytest.approx(10.0, rel=0.01)
    assert "from 20 req/s (8 asked) on" in found.reason
    slow = quiet(8.0, 20.0, ttft_p99_s=2.0, slo_ttft_s=2.0)
    fast = quiet(4.0, 4.0, ttft_p99_s=0.1, slo_ttft_s=0.1)
    capacity = slo_capacity([fast, slow], Slo(ttft_s=0.5))
    assert capacity.rate_rps is not None and 4.0 < capacity.rate_rps < 20.0
    assert capacity.rate_rps > 8.0  # the straight line in logarithms, between 4 and 20 and not between 4 and 8


def test_the_slo_capacity_and_the_knee_reach_as_far_as_was_offered() -> None:
    rows = [quiet(4.0, 2.0, slo_ttft_s=0.1), quiet(8.0, 3.0, slo_ttft_s=0.1), quiet(16.0, 5.0, slo_ttft_s=0.1)]
    found = estimate(completed(rows), slo=Slo(ttft_s=0.5))
    assert found["slo_capacity"].status == found["p99_itl_knee"].status == "not_found_up_to"
    assert found["slo_capacity"].rate_rps == found["p99_itl_knee"].rate_rps == 5.0


def test_a_soak_sustains_what_it_was_offered() -> None:
    rows = [quiet(8.0, 8.0), overload(16.0, 10.0), quiet(8.5, 6.0, role="soak")]
    assert ceiling(rows).sustained_rps == 6.0
    done = ceiling_ramp([changed(rows[1], overloaded=False, ceiling_rps=10.0), changed(rows[2], overloaded=False)])
    assert done == Stop("6 req/s held for 300 s")


RULES = [
    # rule, less than asked, as asked, more than asked
    ("p50(ttft_s) < 0.2 @ rate = 8", "inconclusive", "pass", "pass"),
    ("p50(ttft_s) < 0.01 @ rate = 8", "fail", "fail", "inconclusive"),
    ("error_ratio < 0.05 @ rate <= 8", "inconclusive", "pass", "pass"),
    ("good_ratio > 0.9 @ rate = 8", "inconclusive", "pass", "pass"),
    ("output_tokens_per_s > 1000 @ rate = 8", "inconclusive", "fail", "fail"),
    ("output_tokens_per_s > 10 @ rate = 8", "pass", "pass", "inconclusive"),
    ("p50(ttft_s) < 0.2 @ step 0", "pass", "pass", "pass"),
]


@pytest.mark.parametrize(("rule", "less", "same", "more"), RULES)
def test_a_threshold_at_a_rate_is_shown_by_that_rate_only(rule: str, less: str, same: str, more: str) -> None:
    for load, status in ((5.0, less), (8.0, same), (14.0, more)):
        one = quiet(8.0, load, ttft_p50_low_s=0.04, ttft_p50_high_s=0.06, stationary=True, output_tokens_per_s=500.0)
        run = Run(RunInfo(), scenario_of(""), [], Table.of([]), rows=[one])
        (result,) = judge_gates(run, [rule])
        assert result.status == status, (rule, load)
        if status == "inconclusive":
            assert result.reason.startswith(f"8 req/s asked, {load:.3g} offered")
            assert [judge_gates(run, [rule], how)[0].status for how in ("pass", "point")] == ["inconclusive"] * 2


def test_what_is_too_few_to_say_at_another_rate_is_no_point_to_judge_either() -> None:
    one = quiet(8.0, 7.0, stationary=True, ttft_p99_low_s=0.09, ttft_p99_high_s=None, reasons={})
    run = Run(RunInfo(), scenario_of(""), [], Table.of([]), rows=[one])
    assert judge_gates(run, ["p99(ttft_s) < 0.5 @ rate = 8"], "point")[0].status == "inconclusive"


@pytest.mark.parametrize(
    ("info", "way"),
    [
        ({"arrivals": "replay"}, "window_s"),
        ({"arrivals": "diurnal"}, "period_s"),
        ({"arrivals": "spike"}, "every_s"),
        ({}, "ramp.measure_s"),
    ],
)
def test_one_check_names_asked_offered_and_the_way_out(info: dict[str, str], way: str) -> None:
    rows = [quiet(2.0, 2.0), quiet(4.0, 1.3), quiet(8.0, 2.5), quiet(16.0, 30.0), quiet(32.0, 1.0, void=True)]
    less, more = offered_load.offered(Run(read_info(info), scenario_of(""), [], Table.of([]), rows=rows))
    assert less.message.startswith("4 req/s asked, 1.3 offered; 8 asked, 2.5 offered: ")
    assert more.message.startswith("16 req/s asked, 30 offered: ")
    assert (less.code, less.level, less.step) == ("offered", "warn", None)
    assert way in less.advice and "ramp.measure_s" in less.advice


def test_the_report_says_what_was_offered_wherever_it_says_what_was_asked() -> None:
    run = Run(RunInfo(), scenario_of(""), [], Table.of([]), rows=[quiet(4.0, 4.0), quiet(8.0, 5.2, step=1)])
    run.estimates = estimate(completed(run.rows))
    assert verdict_sentence(run).startswith("No ceiling found up to 5.2 req/s (8 asked): ")
    assert [r.state_words(one) for one in run.rows] == ["keeps up", "keeps up with 5.2 req/s"]
    assert [one.axis_load for one in run.rows] == [4.0, 5.2]
    assert "Offered req/s" in steps_section(run)
    same = Run(RunInfo(), scenario_of(""), [], Table.of([]), rows=[quiet(4.0, 4.0)], estimates=run.estimates)
    assert "Offered req/s" not in steps_section(same)


def test_repeats_speak_for_the_mean_of_what_they_offered() -> None:
    (pooled,) = pooled_rows([[quiet(8.0, 3.0)], [quiet(8.0, 5.0)]])
    assert pooled.load_rps == 4.0
    assert offered_load.less(pooled)


# -- sessions


def turns(asked: float, came: int, **more: Any) -> Row:
    """A step of sessions of which ``came`` turns were due in its minute."""
    records = [
        answer(i, 60.0 * i / came, 60.0 * i / came + 0.1, session=i // 4, turn=i % 4, turns=4) for i in range(came)
    ]
    return changed(fold(window(60.0, asked), Table.of(records)), **more)


def test_sessions_that_had_not_filled_up_offer_the_turns_that_came() -> None:
    assert turns(8.0, 240).load_rps == 4.0
    assert turns(8.0, 450).load_rps == 8.0


def test_turns_that_wait_for_a_server_that_falls_behind_are_its_own_doing() -> None:
    slow = [
        answer(i, 60.0 * i / 240, 60.0 * i / 240 + 0.2 * i, session=i // 4, turn=i % 4, turns=4) for i in range(240)
    ]
    behind = fold(window(60.0, 8.0), Table.of(slow), now_s=60.0)
    assert behind.saturated
    assert (behind.arrival_rps, behind.load_rps) == (4.0, 8.0)


# -- whole runs and plans


def trace(tmp_path: Path, quiet_s: float = 600.0) -> None:
    """A request every 5 s for ``quiet_s``, then ten a second for ten minutes."""
    times = [*np.arange(0.0, quiet_s, 5.0), *(quiet_s + np.arange(6000) / 10.0)]
    lines = "\n".join(f"{t:.3f},50,12" for t in times)
    (tmp_path / "trace.csv").write_text(f"time,input_tokens,output_tokens\n{lines}\n")


SHORT = [
    ('kind = "replay"\nfile = "trace.csv"\n', [0.0833, 0.317], "window_s"),
    ('kind = "diurnal"\nshape = [0.2, 0.2, 1.8, 1.8]\nperiod_s = 1200\n', None, "period_s"),
    ('kind = "spike"\nevery_s = 600\nspike_s = 60\nfactor = 10\n', None, "every_s"),
]


@pytest.mark.parametrize(("arrivals", "rates", "way"), SHORT)
def test_a_plan_says_before_the_run_what_a_short_step_offers(
    arrivals: str, rates: list[float] | None, way: str, tmp_path: Path
) -> None:
    trace(tmp_path)
    path = tmp_path / "own.toml"
    path.write_text(f"{PROMPTS}[arrivals]\n{arrivals}{LADDER}")
    document, words = of_scenario(path)
    (note,) = [note for note in document["notes"] if "offered" in note]
    assert note in words.splitlines()
    assert note.startswith("2 req/s asked, ") and "; 8 asked, " in note and way in note
    listed = [step["offered_rps"] for step in document["steps"]]
    if rates:
        assert listed == pytest.approx(rates, rel=0.01)
    assert all(rate < 0.7 * step["rate_rps"] for rate, step in zip(listed, document["steps"], strict=True))


@pytest.mark.parametrize(
    "arrivals",
    [
        'kind = "replay"\nfile = "trace.csv"\nwindow_s = [600, 1200]\n',
        'kind = "diurnal"\nperiod_s = 30\n',
        'kind = "spike"\nevery_s = 30\n',
        'kind = "gamma"\ncv = 4\n',
        'kind = "poisson"\n',
        'kind = "constant"\n',
    ],
)
def test_a_plan_whose_steps_offer_what_they_ask_says_nothing(arrivals: str, tmp_path: Path) -> None:
    trace(tmp_path)
    path = tmp_path / "own.toml"
    path.write_text(f"{PROMPTS}[arrivals]\n{arrivals}{LADDER}")
    document, _ = of_scenario(path)
    assert [note for note in document["notes"] if "offered" in note] == []


def test_a_plan_of_a_burst_at_the_head_says_that_more_is_offered(tmp_path: Path) -> None:
    times = [*(np.arange(600) / 10.0), *np.arange(60.0, 1200.0, 5.0)]
    lines = "\n".join(f"{t:.3f},50,12" for t in times)
    (tmp_path / "trace.csv").write_text(f"time,input_tokens,output_tokens\n{lines}\n")
    path = tmp_path / "own.toml"
    path.write_text(PROMPTS + '[arrivals]\nkind = "replay"\nfile = "trace.csv"\n' + LADDER.replace("[2, 8]", "[0.5]"))
    (note,) = [note for note in of_scenario(path)[0]["notes"] if "offered" in note]
    assert note.startswith("0.5 req/s asked, 7")


@pytest.mark.parametrize(("warmup", "told"), [("warmup_s = 5", True), ("warmup_s = 400", False)])
def test_a_plan_of_sessions_counts_the_turns_that_can_come(warmup: str, told: bool, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    text = 'seed = 5\n[prompts]\nkind = "sessions"\nturns = 8\nthink_s = 30\n' + LADDER.replace("warmup_s = 5", warmup)
    path.write_text(text.replace("[2, 8]", "[8]").replace("measure_s = 60", "measure_s = 300"))
    document, _ = of_scenario(path)
    notes = [note for note in document["notes"] if "offered" in note]
    assert bool(notes) == told
    assert all("ramp.warmup_s" in note for note in notes)


def test_a_replay_with_a_quiet_head_claims_what_it_offered_on_every_page(tmp_path: Path) -> None:
    trace(tmp_path)
    scenario = scenario_of(f'{PROMPTS}[arrivals]\nkind = "replay"\nfile = "trace.csv"\n{LADDER}')
    run = ramp_in_memory(replace(scenario, folder=str(tmp_path)), tmp_path / "run")
    assert [one.load_rps for one in run.rows] == pytest.approx([5 / 60, 19 / 60])
    assert run.estimates["ceiling"].status == "not_found_up_to"
    assert run.estimates["ceiling"].rate_rps == pytest.approx(19 / 60)
    assert "offered" in {check.code for check in run.checks}
    (healthy,) = [one for one in run.findings if one.code == "healthy"]
    assert healthy.evidence[0] == "every step up to 0.317 req/s kept up, none failed"


def test_a_ramp_of_random_arrivals_claims_what_it_asked(tmp_path: Path) -> None:
    run = ramp_in_memory(scenario_of(PROMPTS + LADDER), tmp_path)
    assert [one.load_rps for one in run.rows] == [2.0, 8.0]
    assert run.estimates["ceiling"].rate_rps == 8.0
    assert "offered" not in {check.code for check in run.checks}
