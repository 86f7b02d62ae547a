"""Nights judged: what raises an alarm, what does not, and that a change is told once."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from history_samples import FINGERPRINT, LEVELS, failed, live, measured, night_of, steady, told

from loadramp.analysis.threshold_rules import parse
from loadramp.nightly.change_points import SeriesSpread, compare
from loadramp.nightly.history import Alarm, Entry
from loadramp.nightly.levels import spread_before
from loadramp.nightly.series import JUDGED, METRICS, Night, differences, of_series, series
from loadramp.nightly.text import terminal_lines
from loadramp.nightly.trend import judge_night
from loadramp.registry import ScenarioError
from loadramp.simulator.regimes import REGIMES, RegimePath


def exact(i: int, values: Mapping[str, float], runs: int = 3, **more: object) -> list[Entry]:
    """A night on which every run gives exactly these values."""
    fields = {"fingerprint": FINGERPRINT} | more
    return [
        Entry(night_of(i), "nightly", "measured", metric, value, value * 0.97, value * 1.03, repeat, **fields)  # type: ignore[arg-type]  # by name
        for metric, value in values.items()
        for repeat in range(runs)
    ]


def wobble(i: int, metric: str = "ceiling_rps", sd: float = 0.02) -> float:
    """A level that scatters by about 2 % in a fixed pattern."""
    return LEVELS[metric] * math.exp(sd * (0.0, 1.1, -0.9, 0.4, -1.2, 0.8, -0.3)[i % 7])


def quiet(n: int, metric: str = "ceiling_rps") -> list[Entry]:
    return [entry for i in range(n) for entry in exact(i, {metric: wobble(i, metric)})]


def states(entries: list[Entry], metric: str = "ceiling_rps") -> tuple[str, list[Alarm]]:
    outcome = judge_night(entries, metrics=[metric])
    return outcome.standings[0].state, outcome.alarms


def test_a_night_is_the_median_of_its_runs() -> None:
    lines = [
        Entry(night_of(0), "s", "measured", "ceiling_rps", v, v - 1, v + 1, k) for k, v in enumerate((16.0, 9.0, 15.0))
    ]
    (night,) = series(lines, "ceiling_rps")
    assert (night.value, night.low, night.high, night.runs) == (pytest.approx(15.0), 14.0, 16.0, 3)
    assert night.spread_ratio == pytest.approx(0.284, abs=1e-3)


def test_fourteen_nights_are_the_least_baseline() -> None:
    assert states(quiet(14))[0] == "no_baseline"
    assert states(quiet(15))[0] == "steady"


def test_one_bad_night_is_a_suspicion_and_two_are_an_alarm() -> None:
    bad = {"ceiling_rps": 13.5}
    one = [*quiet(20), *exact(20, bad)]
    assert states(one) == ("suspect", [])
    state, (alarm,) = states([*one, *exact(21, bad)])
    assert state == "worse"
    assert (alarm.rule, alarm.direction) == ("page", "worse")
    assert (alarm.raised, alarm.since) == (night_of(21), night_of(20))
    assert alarm.before == pytest.approx(16.0, rel=0.01)
    assert alarm.after == pytest.approx(13.5, rel=0.01)
    assert alarm.change_ratio == pytest.approx(-0.156, abs=0.005)
    assert -0.20 < alarm.low_ratio < alarm.change_ratio < alarm.high_ratio < -0.11
    assert alarm.changed == {}


def test_a_bad_night_that_is_measured_again_and_bad_again_is_an_alarm_at_once() -> None:
    again = exact(20, {"ceiling_rps": 13.4}, rerun=True)
    state, alarms = states([*quiet(20), *exact(20, {"ceiling_rps": 13.6}), *again])
    assert state == "worse"
    assert [a.since for a in alarms] == [night_of(20)]


def test_a_bad_night_that_is_fine_when_measured_again_is_none_and_does_not_count_for_the_next() -> None:
    again = exact(20, {"ceiling_rps": 16.4}, rerun=True)
    entries = [*quiet(20), *exact(20, {"ceiling_rps": 14.9}), *again]
    assert states(entries) == ("steady", [])
    assert states([*entries, *exact(21, {"ceiling_rps": 14.0})]) == ("suspect", [])


def test_a_change_below_five_percent_is_none_however_steady_the_nights() -> None:
    level = [entry for i in range(30) for entry in exact(i, {"ceiling_rps": 16.0})]
    slower = [entry for i in range(30, 40) for entry in exact(i, {"ceiling_rps": 15.4})]
    assert states([*level, *slower]) == ("steady", [])


@pytest.mark.parametrize(("metric", "factor", "direction"), [
    ("ceiling_rps", 0.85, "worse"), ("ceiling_rps", 1.2, "better"),
    ("ref_itl_p99_s", 1.2, "worse"), ("ref_ttft_p50_s", 0.8, "better"),
])  # fmt: skip
def test_each_metric_knows_which_way_is_worse(metric: str, factor: float, direction: str) -> None:
    changed = [e for i in (20, 21) for e in exact(i, {metric: LEVELS[metric] * factor})]
    assert [a.direction for a in states([*quiet(20, metric), *changed], metric)[1]] == [direction]


def test_a_change_is_told_once_and_stays_open() -> None:
    def level(i: int, metric: str) -> float:
        return wobble(i, metric) * (0.85 if i >= 30 and metric == "ceiling_rps" else 1.0)

    entries, alarms = live(60, lambda i: exact(i, {m: level(i, m) for m in JUDGED}))
    assert [(a.metric, a.direction, a.since) for a in alarms] == [("ceiling_rps", "worse", night_of(30))]
    outcome = judge_night(entries)
    assert [a.since for a in outcome.open] == [night_of(30)]
    assert {one.state for one in outcome.standings} == {"steady"}


def test_an_accepted_level_is_the_new_level() -> None:
    def level(i: int) -> float:
        return wobble(i) * (0.85 if i >= 30 else 1.0)

    entries, alarms = live(
        50, lambda i: exact(i, {"ceiling_rps": level(i)}), {35: "ceiling_rps"}, metrics=["ceiling_rps"]
    )
    assert len(alarms) == 1
    outcome = judge_night(entries, metrics=["ceiling_rps"])
    assert outcome.open == []
    assert outcome.standings[0].baseline == pytest.approx(13.6, rel=0.02)


def test_a_level_that_is_accepted_beforehand_raises_nothing() -> None:
    """The switch is known: accepted on its first night, before the second would have raised an alarm."""
    entries, alarms = live(60, lambda i: exact(i, {"ceiling_rps": wobble(i) * (0.8 if i >= 30 else 1.0)}), {30: ""},
                           metrics=["ceiling_rps"])  # fmt: skip
    assert alarms == []
    assert judge_night(entries, metrics=["ceiling_rps"]).open == []


def test_a_change_that_is_made_up_for_is_no_longer_open() -> None:
    def level(i: int) -> float:
        return wobble(i) * (0.85 if 30 <= i < 60 else 1.0)

    entries, alarms = live(80, lambda i: exact(i, {"ceiling_rps": level(i)}), metrics=["ceiling_rps"])
    assert [a.direction for a in alarms] == ["worse", "better"]
    assert judge_night(entries, metrics=["ceiling_rps"]).open == []


def test_nights_without_a_measurement_are_no_regression_and_no_night() -> None:
    entries = [*quiet(20), *failed(20), *failed(21)]
    outcome = judge_night(entries, metrics=["ceiling_rps"])
    assert (outcome.night, outcome.alarms) == (night_of(21), [])
    assert outcome.standings[0].state == "missing"
    assert "connection refused" in outcome.standings[0].reason
    bad = {"ceiling_rps": 13.0}
    assert states([*quiet(20), *exact(20, bad), *failed(21), *exact(22, bad)])[0] == "worse"


def test_one_run_of_three_is_a_night() -> None:
    one = exact(20, {"ceiling_rps": 16.1}, runs=1)
    assert states([*quiet(20), *failed(20), *one])[0] == "steady"


def test_another_version_begins_a_baseline_of_its_own_and_a_lasting_change_names_it() -> None:
    newer = FINGERPRINT | {"version": "0.11.0", "kv_blocks": "27100"}

    def make(i: int) -> list[Entry]:
        return exact(
            i, {"ceiling_rps": wobble(i) * (0.9 if i >= 30 else 1.0)}, fingerprint=newer if i >= 30 else FINGERPRINT
        )

    entries, alarms = live(33, make, metrics=["ceiling_rps"])
    assert judge_night(entries[:-3], metrics=["ceiling_rps"]).standings[0].nights <= 2
    (alarm,) = alarms
    assert (alarm.rule, alarm.since, alarm.raised) == ("ticket", night_of(30), night_of(32))
    assert alarm.changed == {"version": ("0.10.0", "0.11.0"), "kv_blocks": ("-", "27100")}


def test_going_back_to_a_version_goes_back_to_its_baseline() -> None:
    newer = FINGERPRINT | {"version": "0.11.0"}
    entries = [*quiet(20), *exact(20, {"ceiling_rps": 16.0}, fingerprint=newer), *exact(21, {"ceiling_rps": 16.0})]
    outcome = judge_night(entries, metrics=["ceiling_rps"])
    assert (outcome.standings[0].state, outcome.standings[0].nights) == ("steady", 20)


def test_another_machine_for_the_client_is_told_but_no_new_baseline() -> None:
    other = FINGERPRINT | {"host": "another x 8"}
    entries = [*quiet(20), *exact(20, {"ceiling_rps": 16.0}, fingerprint=other)]
    assert states(entries)[0] == "steady"


def test_another_scenario_or_model_is_another_series() -> None:
    other = FINGERPRINT | {"model": "larger"}
    entries = [*quiet(30), *exact(30, {"ceiling_rps": 4.0}, fingerprint=other)]
    outcome = judge_night(entries, metrics=["ceiling_rps"])
    assert outcome.standings[0].state == "no_baseline"
    assert len(series(of_series(entries), "ceiling_rps")) == 1


def test_a_floor_is_judged_from_the_first_night_by_the_end_of_the_interval() -> None:
    floors = ["ceiling_rps >= 12", "ceiling_rps >= 11", "ref_ttft_p50_s <= 0.1", "ref_itl_p50_s < 1"]
    outcome = judge_night(exact(0, {"ceiling_rps": 12.2, "ref_ttft_p50_s": 0.09}), floors=floors)
    assert [floor.status for floor in outcome.floors] == ["fail", "pass", "pass", "inconclusive"]
    assert outcome.floors[0].reason == "the lower end of its interval counts"
    assert outcome.floors[0].low == pytest.approx(12.2 * 0.97)


def one_line(metric: str, value: float | None, low: float | None, high: float | None, repeat: int = 0) -> Entry:
    return Entry(night_of(0), "nightly", "measured", metric, value, low, high, repeat,
                 reason="" if value else "not found up to: quiet", fingerprint=FINGERPRINT)  # fmt: skip


def floors_of(entries: list[Entry], *floors: str) -> list[str]:
    return [floor.status for floor in judge_night(entries, metrics=[], floors=floors).floors]


def test_a_floor_whose_deciding_end_is_not_known_is_open_unless_the_value_is_beyond_it() -> None:
    entries = [one_line("ref_ttft_p99_s", 0.79, 0.6, None)]
    assert floors_of(entries, "ref_ttft_p99_s <= 0.8", "ref_ttft_p99_s <= 0.7") == ["inconclusive", "fail"]
    (floor,) = judge_night(entries, metrics=[], floors=["ref_ttft_p99_s <= 0.8"]).floors
    assert floor.reason == "the upper end of its interval counts, and is not known"
    assert (floor.value, floor.low, floor.high) == (0.79, 0.6, None)
    vague = [one_line("slo_capacity_rps", 12.5, None, 14.0)]
    assert floors_of(vague, "slo_capacity_rps >= 12", "slo_capacity_rps >= 13", "slo_capacity_rps <= 15") == [
        "inconclusive", "fail", "pass",
    ]  # fmt: skip
    most = [one_line("ceiling_rps", 13.0, low, 14.0, k) for k, low in enumerate((12.5, None, 12.4))]
    assert floors_of(most, "ceiling_rps >= 12") == ["pass"]  # the median of 12.5, unknown, 12.4
    assert floors_of(most[1:], "ceiling_rps >= 12") == ["inconclusive"]
    held = [one_line("sustained_rps", 12.0, None, None)]
    assert floors_of(held, "sustained_rps >= 12") == ["pass"]  # a rate that was held has no interval


def test_a_floor_holds_for_a_ceiling_that_was_not_found_up_to_a_higher_rate() -> None:
    entries = [one_line("ceiling_rps", None, 1024.0, None)]
    assert floors_of(entries, "ceiling_rps >= 12", "ceiling_rps >= 2000", "ceiling_rps <= 2000") == [
        "pass", "inconclusive", "inconclusive",
    ]  # fmt: skip
    outcome = judge_night(entries, metrics=["ceiling_rps"], floors=["ceiling_rps >= 12"])
    assert (outcome.floors[0].value, outcome.floors[0].low) == (None, 1024.0)
    assert outcome.standings[0].state == "missing"  # a bound is no value that a trend could be told by
    assert series(entries, "ceiling_rps") == []
    assert "✓ floor ceiling_rps >= 12" in "\n".join(terminal_lines(outcome))
    mixed = [*entries, one_line("ceiling_rps", None, 1024.0, None, 1), one_line("ceiling_rps", 11.0, 10.0, 12.0, 2)]
    assert floors_of(mixed, "ceiling_rps >= 12") == ["pass"]
    (night,) = series(mixed, "ceiling_rps")
    assert (night.value, night.low, night.runs) == (pytest.approx(11.0), 10.0, 1)
    missed = [one_line("slo_capacity_rps", None, None, 2.0)]
    assert floors_of(missed, "slo_capacity_rps >= 12", "slo_capacity_rps >= 1") == ["fail", "inconclusive"]


def test_two_scenarios_share_a_history() -> None:
    other = [Entry(night_of(i), "other", "measured", "ceiling_rps", 4.0, fingerprint=FINGERPRINT) for i in range(40)]
    entries = sorted([*quiet(40), *other], key=lambda entry: entry.night)
    assert judge_night(entries, scenario="nightly", metrics=["ceiling_rps"]).standings[0].value == pytest.approx(
        wobble(39)
    )
    assert judge_night(entries, scenario="other", metrics=["ceiling_rps"]).standings[0].value == 4.0


def test_what_differs_between_two_nights() -> None:
    assert differences({"a": "1", "b": "2"}, {"b": "3", "c": "4"}) == {
        "a": ("1", "-"),
        "b": ("2", "3"),
        "c": ("-", "4"),
    }


def test_nothing_measured_yet() -> None:
    outcome = judge_night([])
    assert (outcome.night, outcome.alarms, outcome.open) == ("", [], [])


CHANGES = {
    120: ("0.11.0", {"ceiling_rps": 0.88, "ref_itl_p50_s": 1.12, "ref_itl_p99_s": 1.12}),
    200: ("0.11.1", {"ceiling_rps": 1 / 0.88, "ref_itl_p50_s": 1 / 1.12, "ref_itl_p99_s": 1 / 1.12}),
    280: ("0.11.1", {"ref_itl_p99_s": 1.25}),
    320: ("0.12.0", {"ref_ttft_p50_s": 0.8}),
}
DOWN = (50, 51, 240)


@pytest.mark.long
@pytest.mark.parametrize("nights", [220, pytest.param(365, marks=pytest.mark.slow)])
def test_a_year_of_nights_with_four_changes_in_it(nights: int) -> None:
    """A release that costs 12 %, its fix, a tail that grows by itself, a release that is better; three nights down.

    The first 220 nights hold the first two of them.
    """

    def level(i: int, metric: str) -> float:
        return steady(i, metric) * math.prod(c.get(metric, 1.0) for at, (_, c) in CHANGES.items() if i >= at)

    def make(i: int) -> list[Entry]:
        version = next((v for at, (v, _) in reversed(CHANGES.items()) if i >= at), "0.10.0")
        return failed(i) if i in DOWN else measured(i, level, fingerprint=FINGERPRINT | {"version": version})

    entries, alarms = live(nights, make)
    planted = {
        (metric, at): ("better" if (factor > 1) == (metric == "ceiling_rps") else "worse", factor - 1.0)
        for at, (_, changes) in CHANGES.items()
        if at < nights
        for metric, factor in changes.items()
    }
    days = {night_of(i): i for i in range(nights)}
    found = {(a.metric, days[a.since]): (a.direction, a.change_ratio) for a in alarms}
    assert set(found) == set(planted)  # none missed, none false, each told once and placed on its night
    for key, (direction, size) in planted.items():
        assert found[key][0] == direction
        assert found[key][1] == pytest.approx(size, abs=0.06)
    assert max(days[a.raised] - days[a.since] for a in alarms) <= 6
    assert all(a.low_ratio < a.change_ratio < a.high_ratio for a in alarms)
    named = {days[a.since]: a.changed.get("version") for a in alarms}
    told_of = {120: ("0.10.0", "0.11.0"), 200: ("0.11.0", "0.11.1"), 280: None, 320: ("0.11.1", "0.12.0")}
    assert named == {at: versions for at, versions in told_of.items() if at < nights}
    assert [a.metric for a in judge_night(entries).open] == (["ref_itl_p99_s"] if nights > 280 else [])


@pytest.mark.long
def test_quiet_nights_raise_hardly_an_alarm() -> None:
    """800 nights of a metric, 2.4 % from night to night; benchmarks/trend.py says how rare alarms are meant to be."""
    alarms = [a for seed in range(2) for a in live(
        200, lambda i, s=seed: measured(i, steady, np.random.default_rng(9000 * s + i), metrics=JUDGED[:2])
    )[1]]  # fmt: skip
    assert [a.direction for a in alarms if a.direction == "worse"] == []
    assert len(alarms) <= 2


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_engine_that_is_slow_at_times_and_returns_raises_no_alarm(seed: int) -> None:
    """Three runs of a minute a night, with the slow stretches that a real engine had."""

    def make(i: int) -> list[Entry]:
        paths = [RegimePath(REGIMES["captured"], rng) for rng in np.random.default_rng([seed, i]).spawn(3)]
        pace = [np.mean([path.factor(t_s) for t_s in np.arange(0.0, 60.0, 1.0)]) for path in paths]
        return [exact(i, {"ref_itl_p50_s": wobble(i, "ref_itl_p50_s") * own}, runs=1)[0] for own in pace]

    _, alarms = live(70, make, metrics=["ref_itl_p50_s"])
    assert [one for one in alarms if one.direction == "worse"] == []


@pytest.mark.parametrize("nights", [1, 2, 6])
def test_a_return_from_slow_nights_is_no_change_for_the_worse(nights: int) -> None:
    entries, alarms = live(
        60, steps((30, 1.4), (30 + nights, 1 / 1.4), metric="ref_itl_p99_s"), metrics=["ref_itl_p99_s"]
    )
    assert [(one.direction, one.since) for one in alarms if one.raised >= night_of(30 + nights)] == (
        [("better", night_of(30 + nights))] if nights > 1 else []
    )
    assert judge_night(entries, metrics=["ref_itl_p99_s"]).open == []


def test_alarms_come_back_from_the_history_as_they_were() -> None:
    bad = [e for i in (20, 21) for e in exact(i, {"ceiling_rps": 13.5})]
    outcome = judge_night([*quiet(20), *bad], metrics=["ceiling_rps"])
    again = judge_night([*quiet(20), *bad, *told(outcome)], metrics=["ceiling_rps"])
    assert again.alarms == []
    assert again.open == outcome.alarms


def steps(*levels: tuple[int, float], sd: float = 0.02, metric: str = "ceiling_rps") -> Callable[[int], list[Entry]]:
    """Nights whose level is multiplied by a factor from a night on."""

    def make(i: int) -> list[Entry]:
        factor = math.prod(factor for at, factor in levels if i >= at)
        return exact(i, {metric: wobble(i, metric, sd) * factor})

    return make


def found(alarms: list[Alarm]) -> list[tuple[str, int, int]]:
    """Direction, first night of the change and night of the alarm."""
    days = {night_of(i): i for i in range(400)}
    return [(alarm.direction, days[alarm.since], days[alarm.raised]) for alarm in alarms]


@pytest.mark.parametrize("after", [3, 5, 8, 13, 20])
def test_a_second_change_is_found_as_soon_as_the_first(after: int) -> None:
    make = steps((30, 0.85), (30 + after, 0.8))
    _, alarms = live(30 + after + 4, make, metrics=["ceiling_rps"])
    assert found(alarms) == [("worse", 30, 31), ("worse", 30 + after, 31 + after)]
    assert alarms[1].before == pytest.approx(16.0 * 0.85, rel=0.03)


@pytest.mark.parametrize("accepted", [30, 31, 33, 36])
def test_a_change_after_an_accepted_one_is_found_as_soon(accepted: int) -> None:
    make = steps((30, 0.85), (39, 0.8))
    entries, alarms = live(42, make, {accepted: "ceiling_rps"}, metrics=["ceiling_rps"])
    assert found(alarms)[-1] == ("worse", 39, 40)
    assert len(alarms) == (1 if accepted == 30 else 2)
    assert [a.since for a in judge_night(entries, metrics=["ceiling_rps"]).open] == [night_of(39)]


def test_nights_since_an_alarm_are_of_the_level_that_is_accepted() -> None:
    entries, _ = live(38, steps((30, 0.85)), {37: "ceiling_rps"}, metrics=["ceiling_rps"])
    (standing,) = judge_night([*entries, *steps((30, 0.85))(38)], metrics=["ceiling_rps"]).standings
    assert (standing.state, standing.nights) == ("steady", 8)


def test_the_scatter_that_is_known_is_that_of_the_nights_before() -> None:
    """Nights that scatter widely raise no alarm after a change either; steady ones do at once."""
    wild = steps((30, 0.6), (40, 0.9), sd=0.06)
    calm = steps((30, 0.6), (40, 0.9), sd=0.01)
    assert found(live(43, wild, metrics=["ceiling_rps"])[1]) == [("worse", 30, 31)]
    assert found(live(43, calm, metrics=["ceiling_rps"])[1]) == [("worse", 30, 31), ("worse", 40, 41)]


def one_series(logs: list[float]) -> list[Night]:
    return [Night(f"{i:03d}", math.exp(log), None, None, 1, None, False, {}) for i, log in enumerate(logs)]


def test_nights_that_resemble_their_neighbours_widen_what_is_known_of_the_scatter() -> None:
    """Slow waves: a correlation near 0.8. Alternating nights and noise below its standard error widen nothing."""
    wave = [0.02 * math.sin(i / 2.0) for i in range(40)]
    found = spread_before(one_series([*wave, 0.0]), ["040"], 50)
    assert found.freedom == 39
    assert found.correlation == pytest.approx(0.8)
    assert found.of_mean(1) == 1.0
    assert found.of_mean(3) == pytest.approx((1 + 2 * (2 / 3 * 0.8 + 1 / 3 * 0.64)) / 3)
    for logs in ([0.02 * (-1) ** i for i in range(40)], list(np.random.default_rng(1).normal(0.0, 0.02, 40))):
        assert spread_before(one_series([*logs, 0.0]), ["040"], 50).correlation == 0.0


def test_a_wider_scatter_takes_a_larger_change() -> None:
    before, after = np.full(20, 0.0), np.full(3, 0.1)
    p = [compare(before, after, spread=SeriesSpread(0.06, 40, r)).p for r in (0.0, 0.4)]
    assert p == pytest.approx([2.95e-6, 2.18e-4], rel=0.01)  # the limit is 1e-4


def test_a_new_version_that_changes_nothing_leaves_no_blind_fortnight() -> None:
    newer = FINGERPRINT | {"version": "0.11.0"}

    def make(i: int) -> list[Entry]:
        level = wobble(i) * (0.8 if i >= 26 else 1.0)
        return exact(i, {"ceiling_rps": level}, fingerprint=newer if i >= 20 else FINGERPRINT)

    assert found(live(30, make, metrics=["ceiling_rps"])[1]) == [("worse", 26, 27)]


def test_two_bad_nights_that_pass_are_told_and_told_to_be_over() -> None:
    entries, alarms = live(40, steps((30, 0.7), (32, 1 / 0.7)), metrics=["ceiling_rps"])
    assert found(alarms) == [("worse", 30, 31), ("better", 32, 33)]
    assert judge_night(entries, metrics=["ceiling_rps"]).open == []


@pytest.mark.parametrize("nights", [2, 4])
def test_the_end_of_a_few_better_nights_is_no_change_for_the_worse(nights: int) -> None:
    _, alarms = live(60, steps((30, 1.3), (30 + nights, 1 / 1.3)), metrics=["ceiling_rps"])
    assert found(alarms) == [("better", 30, 31)]
    _, lasting = live(60, steps((30, 1.3), (42, 1 / 1.3)), metrics=["ceiling_rps"])
    assert found(lasting) == [("better", 30, 31), ("worse", 42, 43)]


def test_a_change_that_goes_on_is_told_again() -> None:
    _, alarms = live(40, steps((30, 0.85), (34, 0.7)), metrics=["ceiling_rps"])
    assert found(alarms) == [("worse", 30, 31), ("worse", 34, 35)]


def moved(at: Mapping[str, tuple[int, float]], **fingerprints: object) -> Callable[[int], list[Entry]]:
    """Nights on which each metric changes on its own night."""

    def make(i: int) -> list[Entry]:
        values = {m: wobble(i, m) * (at[m][1] if m in at and i >= at[m][0] else 1.0) for m in JUDGED}
        return exact(i, values, **fingerprints)

    return make


def failing_nights(nights: int, make: Callable[[int], list[Entry]]) -> list[int]:
    """The nights that found a new change for the worse, which are those that fail."""
    entries: list[Entry] = []
    failed_on = []
    for i in range(nights):
        entries += make(i)
        outcome = judge_night(entries)
        entries += told(outcome)
        failed_on += [i] if any(change.fails for change in outcome.changes) else []
    return failed_on


def test_one_change_is_one_alarm_over_all_metrics() -> None:
    together = moved({"ceiling_rps": (30, 0.8), "ref_itl_p50_s": (30, 1.3), "ref_itl_p99_s": (30, 1.3)})
    assert failing_nights(45, together) == [31]
    entries, _ = live(31, together)
    outcome = judge_night([*entries, *together(31)])
    (change,) = outcome.changes
    assert [alarm.metric for alarm in change.alarms] == ["ceiling_rps", "ref_itl_p50_s", "ref_itl_p99_s"]
    assert (change.direction, change.since, change.known_before) == ("worse", night_of(30), False)
    assert len(outcome.open) == 3


def test_a_metric_that_shows_the_change_some_nights_later_joins_it() -> None:
    late = moved({"ceiling_rps": (30, 0.8), "ref_itl_p99_s": (33, 1.3)})
    assert failing_nights(45, late) == [31]
    entries, alarms = live(45, late)
    assert [(a.metric, a.joins, a.change) for a in alarms] == [
        ("ceiling_rps", False, night_of(30)), ("ref_itl_p99_s", True, night_of(30)),
    ]  # fmt: skip
    assert [a.metric for a in judge_night(entries).open] == ["ceiling_rps", "ref_itl_p99_s"]


def test_what_is_another_change_fails_another_night() -> None:
    apart = moved({"ceiling_rps": (30, 0.8), "ref_itl_p99_s": (37, 1.3)})
    assert failing_nights(45, apart) == [31, 38]
    other_way = moved({"ceiling_rps": (30, 1.3), "ref_itl_p99_s": (32, 1.3)})
    assert failing_nights(45, other_way) == [33]  # better throughput first, a longer tail after it

    def released(i: int) -> list[Entry]:
        version = "0.11.0" if i >= 33 else "0.10.0"
        return moved(
            {"ceiling_rps": (30, 0.8), "ref_itl_p99_s": (33, 1.4)}, fingerprint=FINGERPRINT | {"version": version}
        )(i)

    assert failing_nights(45, released) == [31, 35]  # a release of its own: the ticket, three nights on


def test_an_alarm_of_an_older_history_is_read() -> None:
    bad = [e for i in (20, 21) for e in exact(i, {"ceiling_rps": 13.5})]
    lines = told(judge_night([*quiet(20), *bad], metrics=["ceiling_rps"]))
    old = [replace(line, alarm=replace(line.alarm, change="", joins=False) if line.alarm else None) for line in lines]
    outcome = judge_night([*quiet(20), *bad, *old], metrics=["ceiling_rps"])
    assert (outcome.alarms, [a.since for a in outcome.open]) == ([], [night_of(20)])


def test_floors_speak_of_the_history_s_metrics() -> None:
    assert parse("ref_ttft_p50_s <= 90ms", METRICS).limit == pytest.approx(0.09)
    with pytest.raises(ScenarioError, match="no metric 'error_ratio'"):
        parse("error_ratio < 1", METRICS)
    with pytest.raises(ScenarioError, match="expected one of ceiling_rps"):
        parse("p99(ttft_s) < 1", METRICS)
