"""The answer in all its forms: sentence, table, document, page, CSV."""

from __future__ import annotations

import csv
from io import StringIO

import pytest
from visits import on_a_gpu, played, visit

from loadramp.tune.candidates import Search
from loadramp.tune.configurations import configurations_csv, table_of, tuning_csv, tuning_markdown
from loadramp.tune.page import _course, tuning_html
from loadramp.tune.race import RaceRules
from loadramp.tune.state import TuneState
from loadramp.tune.text import (
    JudgedTuning,
    cautions,
    drift_words,
    lines_of,
    sentence,
    tuning_document,
)
from loadramp.tune.verdict import verdict_of
from loadramp.tune.visit import Proposal, Visit

A, B, C = "--max-num-seqs 256", "--kv-cache-dtype fp8", "--bogus 1"
SERVER = "vllm serve m --port {port} {flags}"


def tuning(truth: dict[str, float], ended: str = "", most: int = 100, **more: object) -> JudgedTuning:
    rules = RaceRules(Search(tries=(A, B, C)))
    return of_visits(rules, played(rules, truth, most), ended, **more)


def of_visits(rules: RaceRules, visits: list[Visit], ended: str = "", **more: object) -> JudgedTuning:
    state = TuneState("chat", "2026-01-02T03:04:05+00:00", "ceiling", server=SERVER, visits=visits, spent_s=3600.0,
                      ended=ended, **more)  # type: ignore[arg-type]  # fmt: skip
    return JudgedTuning("out/tune", state, rules, verdict_of(rules, visits, ended), SERVER)


BEST = {"": 18.0, A: 50.0, B: 50.0}


def test_the_best_is_told_with_by_how_much_and_its_interval() -> None:
    assert sentence(tuning({"": 18.0, A: 54.0})) == (
        "The best is --max-num-seqs 256: ceiling 54 req/s (51.8-56.2), 3 times the baseline's (2.7 to 3.34)."
    )


def test_a_rival_that_is_as_good_is_told_with_how_far_it_may_differ() -> None:
    words = sentence(tuning(BEST))
    assert words.startswith("--max-num-seqs 256: ceiling 50 req/s")
    assert "by the race alone" in words
    assert words.endswith("--kv-cache-dtype fp8 is not shown to differ from it (at most 3.6 %).")


def test_what_the_race_did_not_tell_apart_is_named_too() -> None:
    rules, more = RaceRules(Search(tries=(A, B, C))), f"{B} {A}"
    visits = played(rules, {**BEST, more: 51.0, C: 30.0})
    found = of_visits(rules, visits)
    assert found.verdict.rival is not None
    assert sentence(found).endswith(f"Not told apart from it by the race: {B}.")
    assert tuning_document(found)["not_told_apart"] == [B]
    assert next(row for row in table_of(found) if row[0] == B)[-1] == "not told apart from the best"


def test_the_answer_of_a_real_gpu_is_told_as_a_tie_far_above_the_baseline() -> None:
    rules, visits = on_a_gpu()
    assert sentence(of_visits(rules, visits)) == (
        "--max-num-seqs 1024: ceiling 52.7 req/s (48.9-56.8), 2.29 times the baseline's (1.99 to 2.63, by the race "
        "alone). --max-num-seqs 256 is not shown to differ from it (at most 15 %)."
    )


def test_a_baseline_that_is_not_what_the_run_of_from_measured_is_told() -> None:
    found = tuning(BEST, of_run="reports/night", of_run_value=7.5)
    assert cautions(found) == [
        "The ceiling of the baseline is 18 req/s, that of reports/night 7.5: other flags, another load or another "
        "machine. Its cures may not fit; --baseline takes the flags that its server ran with."
    ]
    assert cautions(found)[0] in tuning_markdown(found)
    assert cautions(tuning(BEST, of_run="reports/night", of_run_value=17.0)) == []


def test_the_baseline_is_among_the_measurements_over_time_however_low_it_ranks() -> None:
    tries = [f"--max-num-seqs {n}" for n in (128, 256, 512, 1024, 2048, 4096)]
    visits = [visit("", 10.0), *(visit(flags, 30.0 + k) for k, flags in enumerate(tries))]
    found = of_visits(RaceRules(Search(tries=tries)), visits, "time is up")
    assert [key.name for key in _course(found, lines_of(found)).key][-1] == "baseline"


def test_a_configuration_without_a_number_says_why() -> None:
    visits = [visit("", 10.0), visit(A, None)]
    assert table_of(of_visits(RaceRules(Search(tries=(A,))), visits, "time is up"))[1][-1] == "no number: no number"


def test_a_candidate_without_a_number_is_named_in_the_answer() -> None:
    rules = RaceRules(Search(tries=(A, B)), rounds=1)
    visits = [visit("", 18.0), visit(A, 54.0), visit(B, None), visit(B, None)]
    turns = (("", 18.0), (A, 54.0), (A, 54.0), ("", 18.0))
    visits += [visit(flags, value, "confirm", rival="" if flags else A) for flags, value in turns]
    assert sentence(of_visits(rules, visits)).endswith(f"(2.7 to 3.34). No number was found of {B}.")


def test_no_difference_is_told_with_how_large_one_may_be() -> None:
    assert sentence(tuning({"": 18.0, A: 18.0})) == (
        "No difference shown larger than 6.3 % between the baseline and --max-num-seqs 256."
    )


def test_where_nothing_helps_the_baseline_is_the_best() -> None:
    assert sentence(tuning({"": 18.0, A: 9.0, B: 10.0})) == (
        "No candidate is better than the baseline: ceiling 18 req/s (15.4-21.1)."
    )


def test_what_is_undecided_says_why_and_what_it_looks_like_so_far() -> None:
    assert sentence(tuning({"": 18.0, A: 54.0}, "time is up", most=4)) == (
        "Undecided (time is up). So far the best is --max-num-seqs 256: ceiling 54 req/s (46.1-63.3), 3 times the "
        "baseline's (2.4 to 3.76, by the race alone), not confirmed."
    )


def test_a_baseline_that_does_not_start_says_why() -> None:
    rules = RaceRules(Search(tries=(A,)))
    gone = Visit("", state="did_not_start", reason="did not start: out of memory (exit code 1)", exit_code=1)
    found = of_visits(rules, [gone])
    assert sentence(found) == ("The baseline could not be measured: did not start: out of memory (exit code 1).")
    assert tuning_document(found)["best"] is None


def test_the_document_has_the_keys_that_programs_rely_on() -> None:
    document = tuning_document(tuning({"": 18.0, A: 54.0, B: 18.0}))
    assert document["verdict"] == "best"
    assert document["command"] == "vllm serve m --port 8000 --max-num-seqs 256"
    assert [round(document["best"][name], 1) for name in ("objective", "low", "high")] == [54.0, 52.1, 55.9]
    assert document["baseline"]["flags"] == ""
    states = [(one["flags"], one["state"]) for one in document["candidates"]]
    assert states[0] == (A, "measured")
    assert (B, "out") in states
    assert (C, "did_not_start") in states


def test_each_flag_is_told_with_what_it_did_on_its_own_and_why_it_is_there() -> None:
    rules = RaceRules(
        Search(cures=(Proposal(A, "more_sequences", "scheduler_oversubscription: when the batch is full"),))
    )
    visits = [visit("", 18.0), visit(A, 54.0), visit(B, 18.0)]
    found = of_visits(rules, visits, "time is up", cures=list(rules.search.cures))
    assert [(one.flag, one.words(1)) for one in found.effects] == [
        (A, "3 times (2.4 to 3.76)"), (B, "no difference shown (0.798 to 1.25)"),
    ]  # fmt: skip
    assert found.reasons == [
        (A, "on its own 3 times (2.4 to 3.76); scheduler_oversubscription: when the batch is full")
    ]


def test_configurations_are_ranked_and_those_without_a_number_come_last() -> None:
    assert [line.flags for line in lines_of(tuning({"": 18.0, A: 54.0, B: 20.0}, most=4))] == [A, B, "", C]


def test_the_page_tells_everything_and_reaches_nothing() -> None:
    page = tuning_html(tuning(BEST))
    for words in (
        "Configurations",
        "What each flag did on its own",
        "The command line",
        "What did not serve",
        "--bogus",
    ):
        assert words in page
    assert "connect-src &#39;none&#39;" in page


def test_the_summary_and_the_tables_hold_every_configuration_and_every_measurement() -> None:
    found = tuning({"": 18.0, A: 54.0})
    summary = tuning_markdown(found)
    assert "| --max-num-seqs 256 | 1 | 54 req/s (52.2-55.8) |" in summary
    assert len(list(csv.reader(StringIO(tuning_csv(found))))) == 1 + len(found.state.visits)
    rows = list(csv.DictReader(StringIO(configurations_csv(found))))
    assert [row["state"] for row in rows] == ["measured", "out", "did_not_start", "did_not_start"]


def test_a_baseline_that_moves_is_told_as_the_host_s_drift() -> None:
    rules = RaceRules(Search(tries=(A,)))
    steady = of_visits(rules, [visit("", 18.0), visit(A, 54.0), visit("", 18.5, "return")], "time is up")
    assert drift_words(steady) == ""
    found = of_visits(rules, [visit("", 18.0), visit(A, 54.0), visit("", 15.0, "return")], "time is up")
    assert drift_words(found) == (
        "The baseline moved from 18 to 15 req/s (-17 %) between its first and its last measurement: the host drifts, "
        "or one start of the server differs from another. The intervals count this as scatter."
    )
    assert drift_words(found) in tuning_markdown(found)


def test_a_cost_is_told_as_one() -> None:
    rules = RaceRules(Search(tries=(A,)), sign=-1)
    visits = played(rules, {"": 3.0, A: 1.0})
    state = TuneState("chat", "2026", "cost", visits=visits, price_per_hour=2.0)
    found = JudgedTuning("out", state, rules, verdict_of(rules, visits))
    assert sentence(found).startswith(
        "The best is --max-num-seqs 256: cost 1 per million output tokens (0.96-1.04), 0.333 times"
    )
    assert found.verdict.over_baseline is not None
    assert found.verdict.over_baseline.mean == pytest.approx(1.0986, abs=1e-4)
