"""The race: what is measured next, who is out, how the last two are confirmed. Literal numbers in and out."""

from dataclasses import replace
from math import exp

import pytest
from visits import M64, M256, M1024, on_a_gpu, played, rules_of, visit

from loadramp.tune.candidates import Search, descend, grid_of
from loadramp.tune.noise import LogRatio, VisitNoise, confirmed, levels_of, noise_of, rounds_needed
from loadramp.tune.race import NextVisit, RaceOver, RaceRules, next_of, standing
from loadramp.tune.verdict import verdict_of
from loadramp.tune.visit import Proposal, Visit

A, B, C, D = "--a 1", "--b 1", "--c 1", "--d 1"


def order(visits: list[Visit]) -> list[tuple[str, str, int]]:
    return [(one.flags, one.purpose, one.round) for one in visits]


def test_the_baseline_is_first_and_then_each_candidate_on_its_own() -> None:
    visits = played(rules_of(A, B), {"": 10.0, A: 10.0, B: 10.0}, most=3)
    assert order(visits) == [("", "race", 0), (A, "race", 0), (B, "race", 0)]


def test_all_that_does_not_hurt_is_tried_at_once_and_then_without_what_did_not_help_alone() -> None:
    both, all_three = f"{A} {B}", f"{A} {B} {C}"
    truth = {"": 10.0, A: 20.0, B: 14.0, C: 10.0, both: 28.0, all_three: 40.0, D: 5.0}
    visits = played(rules_of(A, B, C, D), truth)
    tried = list(dict.fromkeys(one.flags for one in visits))
    assert tried == ["", A, B, C, D, all_three, both]
    assert verdict_of(rules_of(A, B, C, D), visits).best == all_three


def test_the_baseline_is_measured_again_after_every_third_candidate() -> None:
    visits = played(rules_of(A, B, C, D), {"": 10.0, A: 10.0, B: 10.0, C: 10.0, D: 10.0}, most=6)
    assert order(visits)[4] == ("", "return", 0)


def test_a_candidate_whose_interval_lies_below_the_best_is_out() -> None:
    visits = [visit("", 10.0), visit(A, 30.0), visit(B, 29.0)]
    now = standing(rules_of(A, B), visits)
    assert now.out == {"": "shown to be below the best"}
    assert now.alive == [A, B]
    assert now.best == A


UNSTEADY = (1.004, 0.998, 1, 1.003, 0.997)


def test_a_small_gain_is_built_on_once_it_is_confirmed() -> None:
    rules, both = RaceRules(Search(), same_ratio=0.02), f"{A} {B}"
    visits = played(rules, {"": 10.0, A: 10.4, both: 20.0}, factors=UNSTEADY, cures={"": A, A: B})
    turns = [(one.flags, one.purpose) for one in visits]
    assert (A, "confirm") in turns[: turns.index((both, "race"))]
    found = verdict_of(rules, visits)
    assert (found.word, found.best, found.confirmed) == ("best", both, True)


def test_no_pair_is_confirmed_twice() -> None:
    rules, both = RaceRules(Search(), same_ratio=0.02), f"{A} {B}"
    visits = played(rules, {"": 10.0, A: 10.4, both: 5.0}, factors=UNSTEADY, cures={"": A, A: B})
    assert (visits[-1].flags, visits[-1].purpose) == (both, "race")
    assert {one.rival for one in visits if one.purpose == "confirm"} == {"", A}
    found = verdict_of(rules, visits)
    assert (found.word, found.best, found.confirmed) == ("best", A, True)


def test_what_was_confirmed_stands_when_time_is_up_while_it_is_built_on() -> None:
    confirming = [visit(A, 12.0, "confirm", 2, rival=""), visit("", 10.0, "confirm", 2, rival=A)]
    quad = [*confirming, *reversed(confirming)]
    visits = [visit("", 10.0), visit(A, 12.0), visit(B, 9.9), *quad, *quad, visit(f"{A} {B}", 20.0)]
    found = verdict_of(rules_of(A, B), visits, "time is up")
    assert (found.word, found.best, found.confirmed, found.why) == ("best", A, True, "time is up")


def test_who_is_out_stays_out_whatever_is_measured_of_others() -> None:
    visits = [visit("", 14.0), visit(A, 20.0)]
    assert standing(rules_of(A, B), visits).out == {"": "shown to be below the best"}
    later = [*visits, *(visit(B, value) for value in (8.0, 12.0, 9.0))]  # by now the scatter is known to be larger
    now = standing(rules_of(A, B), later)
    assert now.levels[""].high > now.levels[A].low
    assert now.out[""] == "shown to be below the best"


def test_survivors_get_longer_steps_until_two_are_left() -> None:
    tries = (A, B, C)
    visits = [visit("", 10.0), visit(A, 30.0), visit(B, 29.0), visit(C, 28.0)]
    follow = standing(rules_of(*tries), visits).descent.next
    assert follow is not None  # combinations come first
    rules = RaceRules(Search(tries=tries, most=3))
    assert next_of(rules, visits) == NextVisit("", "return", 1)
    visits.append(visit("", 10.0, "return", 1))
    assert next_of(rules, visits) == NextVisit(A, "race", 1)


def test_flags_that_help_together_only_are_found_and_those_that_add_nothing_are_taken_out() -> None:
    truth = {"": 10.0, A: 10.0, B: 10.0, C: 10.0, f"{A} {B}": 10.0, f"{A} {C}": 20.0, f"{B} {C}": 10.0}
    rules = rules_of(A, B, C)
    visits = played(rules, {**truth, f"{A} {B} {C}": 20.0})
    assert [one.flags for one in visits[:6]] == ["", A, B, C, "", f"{A} {B} {C}"]
    found = verdict_of(rules, visits)
    assert (found.word, found.best, found.rival) == ("best", f"{A} {C}", f"{A} {B} {C}")


def test_a_flag_that_adds_nothing_is_not_in_the_answer() -> None:
    both = f"{A} {B}"
    visits = played(rules_of(A, B), {"": 10.0, A: 30.0, B: 10.0, both: 30.2})
    found = verdict_of(rules_of(A, B), visits)
    assert (found.word, found.best, found.rival) == ("best", A, both)


def test_gains_that_are_too_small_to_be_shown_are_added_up() -> None:
    truth = {"": 10.0, A: 10.4, B: 10.4, C: 10.4, f"{A} {B}": 10.8, f"{A} {C}": 10.8, f"{B} {C}": 10.8}
    rules, all_three = rules_of(A, B, C), f"{A} {B} {C}"
    visits = played(rules, {**truth, all_three: 11.3}, factors=(1.03, 0.98, 1, 1.02, 0.97))
    assert verdict_of(rules, visits).best == all_three


def test_another_value_of_a_flag_that_looks_as_good_is_tried_with_all_others_too() -> None:
    more = "--a 2"
    truth = {"": 10.0, A: 20.5, more: 20.0, B: 10.0, f"{A} {B}": 20.5, f"{more} {B}": 30.0}
    visits = played(rules_of(A, more, B), truth)
    assert [one.flags for one in visits][5:7] == [f"{A} {B}", f"{more} {B}"]
    assert verdict_of(rules_of(A, more, B), visits).best == f"{more} {B}"


def test_another_value_of_a_flag_is_tried_on_top_too() -> None:
    more = "--a 2"
    truth = {"": 10.0, A: 20.0, more: 21.0, B: 10.0, f"{A} {B}": 24.0, f"{more} {B}": 40.0}
    visits = played(rules_of(A, more, B), truth)
    assert verdict_of(rules_of(A, more, B), visits).best == f"{more} {B}"


def test_two_that_are_close_are_confirmed_with_the_longest_steps() -> None:
    visits = played(rules_of(A), {"": 10.0, A: 12.0})
    assert {one.round for one in visits if one.purpose == "confirm"} == {2}


def test_the_last_two_are_measured_in_abba_order_beginning_with_what_runs() -> None:
    rules = RaceRules(Search(tries=(A,)))
    visits = [visit("", 10.0), visit(A, 30.0)]
    turns = []
    for _ in range(4):
        action = next_of(rules, visits)
        assert isinstance(action, NextVisit)
        turns.append((action.flags, action.purpose, action.round))
        value = 30.0 if action.flags == A else 10.0
        visits.append(visit(action.flags, value, action.purpose, action.round, rival=action.rival))
    assert turns == [(A, "confirm", 0), ("", "confirm", 0), ("", "confirm", 0), (A, "confirm", 0)]
    assert isinstance(next_of(rules, visits), RaceOver)
    found = verdict_of(rules, visits)
    assert (found.word, found.best, found.confirmed) == ("best", A, True)


def test_the_baseline_is_measured_twice_before_two_others_are_confirmed() -> None:
    visits = played(rules_of(A, B), {"": 10.0, A: 30.0, B: 29.0}, most=20)
    first = next(k for k, one in enumerate(visits) if one.purpose == "confirm")
    assert [(one.flags, one.purpose) for one in visits[:first]].count(("", "return")) == 1


def test_three_times_the_baseline_is_shown_with_one_quad() -> None:
    visits = played(rules_of(A), {"": 18.0, A: 54.0})
    found = verdict_of(rules_of(A), visits)
    assert found.over_baseline is not None
    assert [one.purpose for one in visits].count("confirm") == 4
    assert found.over_baseline.mean == pytest.approx(1.0986, abs=1e-4)  # ln 3
    assert found.over_baseline.low > 0.5


def test_equal_configurations_end_without_a_difference() -> None:
    visits = played(rules_of(A), {"": 10.0, A: 10.0}, factors=(1.0, 1.01, 0.99))
    found = verdict_of(rules_of(A), visits)
    assert found.word == "no_difference"
    assert found.tie is not None
    assert found.tie < 0.15
    assert [one.purpose for one in visits].count("confirm") == 4


def test_where_all_candidates_are_worse_the_baseline_is_the_best() -> None:
    visits = played(rules_of(A, B), {"": 30.0, A: 10.0, B: 12.0})
    found = verdict_of(rules_of(A, B), visits)
    assert (found.word, found.best, found.over_baseline) == ("best", "", None)
    assert len(visits) == 3


def test_a_candidate_without_a_number_leaves_it_undecided() -> None:
    visits = [visit("", 10.0), *(visit(A, None, number=number) for number in (0, 1, 2))]
    assert isinstance(next_of(rules_of(A), visits), RaceOver)
    found = verdict_of(rules_of(A), visits)
    assert (found.word, found.best, found.why) == ("undecided", "", "no number was found of --a 1")


def test_a_candidate_without_a_number_gets_longer_steps_while_it_runs() -> None:
    visits = [visit("", 10.0), visit(A, None)]
    assert next_of(rules_of(A, B), visits) == NextVisit(A, "race", 1)
    assert next_of(rules_of(A, B), [*visits, visit(A, 12.0, number=1)]) == NextVisit(B, "race", 0)


def test_a_confirmation_has_no_shorter_steps_than_gave_numbers_of_both() -> None:
    visits = [visit("", 10.0), visit(A, None), visit(A, 30.0, number=1)]
    assert next_of(rules_of(A), visits) == NextVisit(A, "confirm", 1, "")


def test_two_far_above_the_baseline_are_confirmed_with_one_round_less() -> None:
    truth, unsteady = {"": 10.0, A: 30.0, B: 28.0}, (1.05, 0.95, 1.0, 1.04, 0.96)
    for rules, quads in (
        (RaceRules(Search(tries=(A, B), most=2)), 1),
        (RaceRules(Search(tries=(A, B), most=2), confirmations=3, same_ratio=0.01), 2),
    ):
        visits = played(rules, truth, factors=unsteady)
        assert [one.purpose for one in visits].count("confirm") == 4 * quads


def test_a_candidate_that_does_not_start_is_out_and_the_race_goes_on() -> None:
    visits = played(rules_of(A, B), {"": 10.0, B: 30.0})
    assert standing(rules_of(A, B), visits).out[A] == "no number"
    assert verdict_of(rules_of(A, B), visits).best == B


def test_a_baseline_that_does_not_start_ends_it() -> None:
    visits = [visit("", None, state="did_not_start")]
    assert isinstance(next_of(rules_of(A), visits), RaceOver)
    assert verdict_of(rules_of(A), visits).word == "not_measurable"


def test_a_baseline_without_a_number_gets_longer_steps_before_it_is_given_up() -> None:
    visits: list[Visit] = []
    rounds = []
    while isinstance(action := next_of(rules_of(A), visits), NextVisit):
        rounds.append(action.round)
        visits.append(visit("", None))
    assert rounds == [0, 1, 2]
    assert verdict_of(rules_of(A), visits).word == "not_measurable"


def test_time_that_is_up_before_the_confirmation_leaves_it_undecided() -> None:
    found = verdict_of(rules_of(A), [visit("", 18.0), visit(A, 54.0)], "time is up")
    assert (found.word, found.best, found.why) == ("undecided", A, "time is up")
    assert found.over_baseline is not None
    assert found.over_baseline.low > 0.0


def test_one_that_dies_while_it_is_confirmed_leaves_the_next_two() -> None:
    rules = RaceRules(Search(tries=(A, B), most=2))
    visits = [visit("", 10.0), visit(A, 30.0), visit(B, 29.0)]
    visits += [visit(B, 29.0, "confirm", 2, rival=A), visit(A, None, "confirm", 2, "died", B)]
    assert next_of(rules, visits) == NextVisit(B, "confirm", 0, "")


def test_a_cost_is_better_when_it_is_lower() -> None:
    rules = rules_of(A, sign=-1)
    found = verdict_of(rules, played(rules, {"": 3.0, A: 1.0}))
    assert found.best == A
    assert found.level is not None
    value, low, high = found.level.values(-1)
    assert value == pytest.approx(1.0)
    assert high is not None
    assert low < 1.0 < high


def test_the_race_is_a_function_of_its_visits() -> None:
    rules = rules_of(A, B, C)
    visits = played(rules, {"": 10.0, A: 20.0, B: 21.0, C: 9.0, f"{B} {A}": 22.0})
    for k in range(len(visits)):
        action = next_of(rules, visits[:k])
        assert isinstance(action, NextVisit)
        assert (action.flags, action.purpose, action.round) == order(visits)[k]


def test_a_grid_is_tried_only_where_it_is_asked_for() -> None:
    assert grid_of("--z 0", [A, "--a 2", B]) == [
        "--b 1 --z 0", "--a 1 --z 0", "--a 1 --b 1 --z 0", "--a 2 --z 0", "--a 2 --b 1 --z 0",
    ]  # fmt: skip
    visits = played(RaceRules(Search(tries=(A, B), grid=True)), {"": 10.0, A: 5.0, B: 5.0, f"{A} {B}": 30.0})
    assert next(one.flags for one in visits if one.purpose == "confirm") in {"", f"{A} {B}"}


def test_the_cures_of_each_better_configuration_are_tried_next() -> None:
    more = {64: 128, 128: 256, 256: 512}
    rates = {64: 18.0, 128: 33.0, 256: 50.0, 512: 50.0}

    def seen(count: int) -> Visit:
        cures = [Proposal(f"--n {more[count]}", "more_sequences")] if count in more else []
        return Visit(f"--n {count}", value=rates[count], low=rates[count] / 1.04, high=rates[count] * 1.04, cures=cures)

    rules = RaceRules(Search("--n 64"))
    visits = [seen(64)]
    for expected in (128, 256, 512):
        assert next_of(rules, visits) == NextVisit(f"--n {expected}", "race", 0)
        visits.append(seen(expected))
    assert standing(rules, visits).best == "--n 256"


def test_what_is_not_tried_is_told_with_why() -> None:
    cures = (
        Proposal("--q fp8", "quantized_weights"),
        Proposal("", "replicas", not_tried="it needs more GPUs or hosts"),
    )
    search = Search(skip=("quantized_weights",), cures=cures)
    assert descend(search, [visit("", 10.0)], {}).left == [
        ("--q fp8", "[tune] skip"),
        ("replicas", "it needs more GPUs or hosts"),
    ]


def test_until_there_are_replicates_the_scatter_is_what_the_runs_state() -> None:
    wide = [replace(visit(flags, 50.0), low=1.0, high=2500.0) for flags in ("", A)]  # blocks too few to know
    noise = noise_of(wide, 1, 0.05)
    assert (noise.sd, noise.df) == (pytest.approx(0.15), 3.0)
    narrow = noise_of([visit("", 100.0), visit(A, 50.0)], 1, 0.05)  # each states 2 %
    assert (narrow.sd, narrow.df) == (pytest.approx(0.05), 3.0)


def test_replicates_take_the_place_of_what_is_assumed() -> None:
    visits = [visit("", 100.0), visit("", 110.0), visit(A, 50.0)]
    noise = noise_of(visits, 1, 0.05)
    assert noise.df == 3.0
    assert noise.sd == pytest.approx(0.0564, abs=1e-4)  # sqrt((2 * 0.05**2 + ln(1.1)**2 / 2) / 3)
    level = levels_of(visits, 1, noise)[A]
    assert (level.mean, level.se) == (pytest.approx(3.912, abs=1e-3), pytest.approx(0.0564, abs=1e-4))
    many = noise_of([*visits, *visits], 1, 0.05)
    assert many.df == 5.0
    assert many.sd == pytest.approx(0.0481, abs=1e-4)  # sqrt((0.05**2 + ln(1.1)**2) / 5)


def test_what_a_run_states_does_not_widen_what_replicates_show() -> None:
    visits = [visit(flags, value) for flags in ("", A) for value in (10.0, 10.5, 10.0, 10.5)]
    wide = [replace(one, low=0.1, high=1000.0) for one in visits]
    assert noise_of(wide, 1, 0.05) == noise_of(visits, 1, 0.05)


def test_an_early_look_needs_more_than_the_last_one() -> None:
    pairs = [(visit(A, 11.0), visit("", 10.0)), (visit(A, 11.0), visit("", 10.0))]
    first, last = (confirmed(pairs, 1, VisitNoise(0.05, 8.0), look, 3) for look in (1, 3))
    assert first is not None
    assert last is not None
    assert first.mean == last.mean == pytest.approx(0.0953, abs=1e-4)
    assert (round(first.half, 3), round(last.half, 3)) == (0.279, 0.119)


def test_visits_of_a_real_gpu_whose_runs_state_little_are_judged_by_their_scatter() -> None:
    rules, visits = on_a_gpu()
    assert isinstance(next_of(rules, visits), RaceOver)
    found = verdict_of(rules, visits)
    assert (found.word, found.best, found.rival) == ("best", M1024, M256)
    assert (round(found.now.noise.sd, 3), found.now.noise.df) == (0.052, 9.0)
    assert found.now.confirmation is not None
    between = found.now.confirmation.ratio
    assert between is not None
    assert (round(-between.high, 2), round(-between.low, 2)) == (-0.03, 0.14)
    assert found.over_baseline is not None
    ratio = found.over_baseline
    assert [round(exp(one), 2) for one in (ratio.mean, ratio.low, ratio.high)] == [2.29, 1.99, 2.63]
    assert found.tie == pytest.approx(0.1466, abs=1e-3)
    assert standing(rules, visits[:4]).out == {M64: "shown to be below the best"}


def test_two_that_may_differ_by_more_than_half_are_undecided_and_how_many_rounds_would_do_is_told() -> None:
    rules = RaceRules(Search(tries=(A,)), rounds=1, confirmations=2)
    visits = played(rules, {"": 10.0, A: 10.0}, factors=(1.0, 1.5, 0.7, 1.2, 0.8))
    found = verdict_of(rules, visits)
    assert (found.word, found.tie is not None and found.tie > 0.5) == ("undecided", True)
    assert found.why == (
        "the last two may still differ by 60 %: measure them in about 3 rounds of four, [tune] confirmations = 3"
    )


def test_rounds_that_are_needed_follow_from_the_scatter() -> None:
    noise, far = VisitNoise(0.1, 10.0), 0.4055  # ln 1.5
    assert rounds_needed(LogRatio(0.0, 0.2, 4), noise, far) == 1
    assert rounds_needed(LogRatio(0.2, 0.2, 4), noise, far) == 2
    assert rounds_needed(LogRatio(0.0, 0.2, 4), VisitNoise(0.5, 10.0), far) == 7
    assert rounds_needed(LogRatio(0.0, 0.2, 4), VisitNoise(5.0, 10.0), far) == 100
