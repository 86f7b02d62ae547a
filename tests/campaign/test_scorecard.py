"""The scorecard: evidence before answers, waivers with a reason, critical gaps are no go."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from curve_rows import changed
from records_and_rows import row

from loadramp.campaign.criteria import Criterion, PhaseView
from loadramp.campaign.evidence import EVIDENCE, Facts
from loadramp.campaign.scorecard import (
    Item,
    ItemAnswer,
    Scorecard,
    answers_text,
    questionnaire,
    read_answers,
    read_items,
    score,
)
from loadramp.record.preparation import Alerts, Rollback, Sized
from loadramp.record.run_info import read_info
from loadramp.record.table import Run, Table
from loadramp.record.types import Sample
from loadramp.registry import ScenarioError
from loadramp.runner.scenarios import load
from loadramp.scenario.scenario import Slo

SHIPPED = Path(__file__).parents[2] / "loadramp" / "campaign" / "scorecard.toml"
ITEMS = read_items(SHIPPED.read_text(), "scorecard.toml")


def criterion(code: str, status: str = "pass", said: str = "") -> Criterion:
    return Criterion(code, f"asked {code}", status, said or f"said {code}")  # type: ignore[arg-type]  # literals


def facts(seconds: float = 3600.0, factor: float = 2.0, **phases: list[Criterion]) -> Facts:
    lengths = {"sustained": (seconds, 3000), "overload": (900.0, 1000)}
    return Facts(phases, {}, {"factor": factor, "check_factor": 1.2}, lengths=lengths)


def state_of(card: Scorecard, item: str) -> tuple[str, str]:
    line = next(one for one in card.lines if one.item.id == item)
    return line.state, line.words


def run_with(rows: list[dict[str, Any]] = [], samples: list[Sample] = [], **info: Any) -> PhaseView:  # noqa: B006 (read only)
    return PhaseView(Run(read_info(info), load(""), [], Table.of([]), samples=samples, rows=rows), slo=Slo(ttft_s=1.0))


def test_twenty_items_ship_seventeen_of_them_critical_and_every_proof_is_used() -> None:
    assert len(ITEMS) == 29
    assert sum(not item.additional for item in ITEMS) == 20
    areas = list(dict.fromkeys(item.area for item in ITEMS))
    assert areas == ["infrastructure", "configuration", "monitoring", "testing", "operations", "additional"]
    assert [item.id for item in ITEMS if not item.critical and not item.additional] == [
        "fast_storage", "logs", "chaos_recovery",
    ]  # fmt: skip
    assert sum(item.critical for item in ITEMS) == 17
    assert {item.evidence for item in ITEMS if item.evidence} == set(EVIDENCE)
    assert all(item.question for item in ITEMS if not item.evidence)


def test_without_a_campaign_and_without_answers_everything_is_open() -> None:
    card = score(ITEMS, {}, Facts())
    assert card.verdict == "open"
    assert card.count("open") == 29


def test_a_gap_in_a_critical_item_is_no_go_and_in_a_wanted_one_is_not() -> None:
    yes = {item.id: ItemAnswer("yes") for item in ITEMS}
    assert score(ITEMS, yes, Facts()).verdict == "go"
    assert score(ITEMS, {**yes, "rollback": ItemAnswer("no")}, Facts()).verdict == "no-go"
    assert score(ITEMS, {**yes, "logs": ItemAnswer("no")}, Facts()).verdict == "go"
    del yes["rollback"]
    assert score(ITEMS, yes, Facts()).verdict == "open"


def test_evidence_wins_over_an_answer_and_a_waiver_over_both_but_not_in_silence() -> None:
    bad = facts(sustained=[criterion("memory", "fail", "grew by a third")])
    assert state_of(score(ITEMS, {"memory": ItemAnswer("yes")}, bad), "memory") == (
        "gap",
        "asked memory: grew by a third",
    )
    waived = score(ITEMS, {"memory": ItemAnswer("waived", "restarts nightly")}, bad)
    assert state_of(waived, "memory") == ("waived", "restarts nightly (despite: asked memory: grew by a third)")
    good = facts(24.0, sustained=[criterion("memory")])
    assert state_of(score(ITEMS, {"memory": ItemAnswer("no", "never looked")}, good), "memory") == (
        "gap",
        "never looked",
    )
    long = Facts(good.criteria, lengths={"sustained": (3600.0, 2995)})
    assert state_of(score(ITEMS, {"memory": ItemAnswer("no", "never looked")}, long), "memory") == (
        "shown",
        "said memory",
    )


def test_an_answer_fills_what_the_campaign_left_open() -> None:
    short = facts(600.0, sustained=[criterion("errors"), criterion("steady")])
    assert state_of(score(ITEMS, {}, short), "sustained_hour") == (
        "open",
        "not shown: measured for 10 min of 60 min (said errors; said steady)",
    )
    told = score(ITEMS, {"sustained_hour": ItemAnswer("yes", "night run of last week")}, short)
    assert state_of(told, "sustained_hour") == ("said", "night run of last week")
    assert state_of(score(ITEMS, {"sustained_hour": ItemAnswer("no")}, short), "sustained_hour")[0] == "gap"


def test_an_hour_at_the_target_is_shown_by_an_hour() -> None:
    found = score(
        ITEMS, {}, facts(3600.0, sustained=[criterion("delivered"), criterion("errors"), criterion("drift_itl")])
    )
    assert state_of(found, "sustained_hour") == ("shown", "said errors; said drift_itl")
    unsure = facts(3600.0, sustained=[criterion("errors", "inconclusive", "too few")])
    assert state_of(score(ITEMS, {}, unsure), "sustained_hour") == ("open", "asked errors: too few")


def test_twice_the_load_is_shown_by_twice_the_load() -> None:
    parts = [criterion("no_crash"), criterion("refusals"), criterion("recovery")]
    assert state_of(score(ITEMS, {}, facts(overload=parts)), "double_load")[0] == "shown"
    less = score(ITEMS, {}, facts(factor=1.5, overload=parts))
    assert state_of(less, "double_load") == ("open", "only 1.5 times the target was tried")
    broke = [criterion("no_crash"), criterion("refusals", "fail", "12 broke")]
    assert state_of(score(ITEMS, {}, facts(overload=broke)), "double_load") == ("gap", "asked refusals: 12 broke")


def test_a_context_cap_is_shown_where_it_is_below_what_the_model_has() -> None:
    seen = {"ramp": run_with(target={"max_model_len": 4096})}
    for longest, state in ((131072, "shown"), (4096, "open"), (None, "open")):
        card = score(ITEMS, {}, Facts({}, seen, {}, longest))
        assert state_of(card, "max_model_len")[0] == state
    silent = Facts({}, {"ramp": run_with()}, {}, 131072)
    assert state_of(score(ITEMS, {}, silent), "max_model_len") == (
        "open",
        "the server does not tell its longest context",
    )


def test_the_batch_limit_is_shown_where_it_stood_while_others_waited() -> None:
    stood = row(8.0, running_max=48.0, running_mean=47.0, waiting_max=30.0, preemptions=0.0)
    passing = row(8.0, running_max=7.0, running_mean=2.0, waiting_max=2.0, preemptions=0.0)
    thrash = changed(stood, preemptions=300.0)
    for rows, state in (([passing, stood], "shown"), ([passing], "open"), ([thrash], "gap"), ([row(8.0)], "open")):
        card = score(ITEMS, {}, Facts({}, {"ramp": run_with(rows)}, lengths={"ramp": (60.0, 100)}))
        assert state_of(card, "max_num_seqs")[0] == state


def test_metrics_are_shown_by_scrapes_that_were_read() -> None:
    good = [Sample(float(t), "u", {"running": 1.0}) for t in range(100)]
    bad = [*good[:90], *(Sample(float(t), "u", error="timeout") for t in range(10))]
    for samples, state in ((good, "shown"), (bad, "gap"), ([], "gap")):
        card = score(
            ITEMS, {}, Facts({}, {"sustained": run_with(samples=samples)}, lengths={"sustained": (300.0, 100)})
        )
        assert state_of(card, "metrics")[0] == state


def test_what_was_too_short_or_interrupted_or_rehearsed_is_never_shown_nor_missing() -> None:
    fine, bad = {"sustained": [criterion("memory")]}, {"sustained": [criterion("memory", "fail")]}
    for seconds, requests, state in (
        (3600.0, 2995, "shown"), (3500.0, 9000, "open"), (3600.0, 2994, "open"), (24.0, 400, "open"),
    ):  # fmt: skip
        card = score(ITEMS, {}, Facts(fine, lengths={"sustained": (seconds, requests)}))
        assert state_of(card, "memory")[0] == state
    for criteria in (fine, bad):
        long = {"sustained": (3600.0, 9000)}
        cut = Facts(criteria, lengths=long, unfinished=frozenset({"sustained"}))
        for found in (cut, Facts(criteria, lengths=long, rehearsal=True)):
            assert state_of(score(ITEMS, {}, found), "memory")[0] == "open"


def test_a_launch_whose_load_tests_are_all_waived_is_no_go_ahead() -> None:
    yes = {item.id: ItemAnswer("yes") for item in ITEMS}
    waived = ItemAnswer("waived", "no time left before the launch")
    tests = {item.id: waived for item in ITEMS if item.area == "testing"}
    assert score(ITEMS, {**yes, **tests}, Facts()).verdict == "open"
    assert score(ITEMS, {**yes, "double_load": waived}, Facts()).verdict == "go"
    assert score(ITEMS, {**yes, "double_load": waived}, Facts()).ordered[0].item.id == "double_load"


def test_utilization_and_size_are_shown_by_what_the_engine_and_the_ramp_say() -> None:
    for value, state in ((0.9, "shown"), (0.92, "gap")):
        seen = {"ramp": run_with(samples=[Sample(1.0, "u", {"gpu_memory_utilization": value})])}
        assert state_of(score(ITEMS, {}, Facts({}, seen)), "gpu_memory_utilization")[0] == state
    for needed, seconds, state in ((1, 300.0, "shown"), (2, 300.0, "open"), (None, 300.0, "open"), (1, 200.0, "open")):
        found = Facts(sized=Sized(10.0, 13.0, 13.5, needed), lengths={"ramp": (seconds, 300)})
        assert state_of(score(ITEMS, {}, found), "gpus_sized")[0] == state
    two = Facts(sized=Sized(10.0, 13.0, 7.0, 2), lengths={"ramp": (300.0, 300)})
    assert state_of(score(ITEMS, {}, two), "gpus_sized")[1] == (
        "the endpoint as measured takes at least 7 req/s; the peak of 10 req/s plus 30 % is 13: "
        "it takes 2 of what was measured; whether they are there was not seen"
    )


@pytest.mark.parametrize(("alerts", "state", "words"), [
    (None, "open", "nothing was run under load"),
    (Alerts("ramp", 14, "vllm"), "shown", "14 rules made and valid, in vllm's names (alerts.yml); that they"),
    (Alerts("ramp", 10, "vllm", ["GPU health"]), "open", "none for GPU health"),
    (Alerts("ramp", refused="the run saw no metrics"), "open", "no rules can be made: the run saw no metrics"),
    (Alerts("sustained", 14, "vllm"), "open", "not shown: measured for 0 s of 5 min, 0 of 100 requests"),
])  # fmt: skip
def test_alerts_are_shown_by_valid_rules_for_all_three(alerts: Alerts | None, state: str, words: str) -> None:
    found = state_of(score(ITEMS, {}, Facts(alerts=alerts, lengths={"ramp": (300.0, 100)})), "alerts")
    assert found[0] == state
    assert words in found[1]


def test_a_rollback_is_shown_by_a_canary_that_timed_one() -> None:
    timed = Rollback("c", [4.2, 31.0], [3.9, 30.5], 0, 120.0, 960, 2)
    for rollback, tried, took in (
        (timed, "shown", "shown"),
        (None, "open", "open"),
        (Rollback("c"), "open", "open"),
        (Rollback("c", [60.0], [59.0], 0, 120.0, 960, 2), "shown", "gap"),
        (Rollback("c", [4.2], [3.9], 0, 120.0, 960, 10), "gap", "shown"),
        (Rollback("c", [], [3.9], 1, 120.0, 960, 960), "gap", "open"),
        (Rollback("c", [4.2], [3.9], 0, 45.0, 960, 0), "open", "open"),
        (Rollback("c", [4.2], [3.9], 0, 60.0, 99, 0), "open", "open"),
    ):
        lengths = {} if rollback is None else {"rollback": (rollback.measured_s, rollback.requests)}
        card = score(ITEMS, {}, Facts(rollback=rollback, lengths=lengths))
        assert (state_of(card, "rollback")[0], state_of(card, "rollback_time")[0]) == (tried, took), rollback
    card = score(ITEMS, {}, Facts(rollback=timed, lengths={"rollback": (120.0, 960)}))
    assert state_of(card, "rollback_time")[1] == ("c: 31 s to the first request that succeeded, the command 30 s of it")


def test_answers_are_written_so_that_they_read_back() -> None:
    given = {"rollback": ItemAnswer("waived", 'told "twice",\nand \\ so on'), "on_call": ItemAnswer("yes", "\x7f é 😀")}
    assert read_answers(answers_text(given), ITEMS, "answers.toml") == given


def test_no_promise_is_a_gap() -> None:
    seen = run_with()
    seen.slo = Slo()
    assert state_of(score(ITEMS, {}, Facts({}, {"sustained": seen})), "slo")[0] == "gap"


def test_the_questionnaire_asks_for_what_is_open_and_reads_back() -> None:
    card = score(ITEMS, {item.id: ItemAnswer("yes") for item in ITEMS[:15]}, Facts())
    text = questionnaire(card.lines)
    assert set(tomllib.loads(text)["answers"]) == {item.id for item in ITEMS[15:]}
    assert read_answers(text, ITEMS, "answers.toml") == {}  # empty answers are none
    filled = text.replace('answer = ""\nreason = ""', 'answer = "yes"\nreason = "done"', 1)
    assert list(read_answers(filled, ITEMS, "answers.toml").values()) == [ItemAnswer("yes", "done")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[answers.rollbak]\nanswer = 'yes'\n", r"\[answers.rollbak\]: no such item; there are access"),
        ("[answers.rollback]\nanswer = 'maybe'\n", r"\[answers.rollback\] answer: Invalid enum value 'maybe'"),
        ("[answers.rollback]\nanswer = 'waived'\n", "a waiver needs one"),
        ("[answers.rollback]\nanswer = 'waived'\nreason = 'later'\n", "at least two words and 15 characters"),
        ("[answers.rollback]\nanswer = 'yes'\nname = 'x'\n", "name: unknown key"),
        ("[answers]\nrollback = 1\n", "expected a table with answer and reason"),
        ("[", "not TOML"),
    ],
)
def test_answers_that_cannot_be_are_named(text: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        read_answers(text, ITEMS, "answers.toml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"expected a list of \[\[item\]\]"),
        ("[[items]]\n", "items: no such table"),
        ("[[item]]\nid = 'a'\n", "missing; this table needs"),
        ("[[item]]\nid = 'a'\narea = 'x'\ntext = 't'\nevidence = 'magic'\n", "no 'magic'; there are alerts"),
        ("[[item]]\nid = 'a'\narea = 'x'\ntext = 't'\n" * 2, "'a' comes twice"),
    ],
)
def test_scorecards_that_cannot_be_are_named(text: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        read_items(text, "card.toml")


def test_a_scorecard_of_one_s_own_is_as_good() -> None:
    own = read_items('[[item]]\nid = "a"\narea = "x"\ntext = "A thing"\n', "card.toml")
    assert own == [Item("a", "x", "A thing")]
    assert score(own, {"a": ItemAnswer("yes")}, Facts()).verdict == "go"
