"""What ``loadramp plan`` shows of a canary: the blocks that ``loadramp canary`` would send."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_offered import LADDER, trace
from test_preview import COMMON, RAMP, levels, planned

from loadramp.cli import main
from loadramp.comparison.judge import outlook
from loadramp.comparison.preview import foresee_canary
from loadramp.comparison.table import Canary, block_rates, climb_rates
from loadramp.runner.scenarios import load
from loadramp.workload.preview import settle_s


def test_a_canary_shows_its_blocks_and_says_when_it_may_end(tmp_path: Path) -> None:
    document, words = planned(
        "[canary]\nrates = [4, 8]\nblock_s = 30\nblocks = 6\nlooks = [3]\nwarmup_s = 2\n", tmp_path
    )
    (part,) = document["canary"]
    found = levels(part["steps"])
    assert found[:5] == [
        ("settle", 4.0, 0.0, 30.0), ("step", 4.0, 2.0, 30.0), ("step", 8.0, 2.0, 30.0), ("step", 4.0, 2.0, 30.0),
        ("step", 8.0, 2.0, 30.0),
    ]  # fmt: skip
    assert len(found) == 1 + 6 * 2
    assert part["total"]["minutes"] == pytest.approx((30 + 12 * 32) / 60, abs=0.01)
    assert part["total"]["requests"] == pytest.approx(30 * 4 + 6 * 32 * (4 + 8), rel=0.15)
    assert "== loadramp canary: both endpoints at once, each with these requests (6.9 min in all)" in words
    assert "It ends after 3 blocks where that settles it." in words
    assert "prefix reuse: 0 % of the prompt tokens" in words


def notes_of(text: str, tmp_path: Path) -> list[str]:
    return [note for note in planned(text + RAMP, tmp_path)[0]["canary"][0]["notes"] if note.startswith("It can")]


def test_a_canary_with_too_few_requests_says_so_before_it_starts(tmp_path: Path) -> None:
    (note,) = notes_of("[canary]\nrates = [2]\n", tmp_path)
    assert note == (
        "It cannot be expected to pass: an error rate below 0.1 % takes 2,995 requests without an error, and 20 blocks "
        "have about 2,400 of each version; it would take 25 blocks, or more requests in each ([canary] rates, block_s)."
    )
    assert note in planned("[canary]\nrates = [2]\n" + RAMP, tmp_path)[1]
    (note,) = notes_of("[canary]\nrates = [1, 1.5]\n", tmp_path)  # 3,000 of both rates together
    assert note.startswith("It can pass after 20 blocks at the earliest: ")
    assert notes_of("[canary]\nrates = [2]\nerror_ratio = 0.01\n", tmp_path) == []


def test_a_canary_that_can_pass_only_at_a_later_look_says_which(tmp_path: Path) -> None:
    assert notes_of("[canary]\n", tmp_path) == [
        "It can pass after 10 blocks at the earliest: an error rate below 0.1 % takes 2,995 requests without an error, "
        "and 5 blocks have about 2,400 of each version."
    ]
    assert notes_of("[canary]\nrates = [10]\n", tmp_path) == []


def test_a_primary_quantile_that_no_block_can_carry_is_named_with_its_rate(tmp_path: Path) -> None:
    (note,) = notes_of('[canary]\nrates = [20, 1]\nprimary = ["ttft_p99", "ttft_p50", "tpot_mean"]\n', tmp_path)
    assert note == (
        "It cannot be expected to pass: p99 TTFT is primary and needs 100 requests in a block, which has about 60 at "
        "1 req/s ([canary] primary, block_s, rates)."
    )
    short = "[canary]\nrates = [1]\nblock_s = 10\nblocks = 4\nerror_ratio = 0.1\n"
    (note,) = notes_of(short, tmp_path)
    assert "p99 ITL is primary and needs 100 gaps between tokens in a block, which has about 90" in note
    assert notes_of(short + "[arrivals]\nkind = 'constant'\n", tmp_path) == [note]


def test_good_requests_need_a_limit_and_one_run_of_each_a_wider_margin(tmp_path: Path) -> None:
    good = "[canary]\nrates = [20]\nprimary = ['good_rps']\n"
    assert notes_of(good, tmp_path) == ["It cannot pass: good_rps is primary, and the scenario sets no [slo] limit."]
    assert notes_of(good + "[slo]\nttft_s = 1\n", tmp_path) == []
    (note,) = notes_of("[canary]\nrates = [20]\ndesign = 'a_then_b'\n", tmp_path)
    assert note.endswith("([canary] run_sd), equal versions are not shown to be within 10 %.")
    assert notes_of("[canary]\nrates = [20]\ndesign = 'a_then_b'\nrun_sd = 0.01\n", tmp_path) == []


def test_hosts_that_are_swapped_are_looked_at_only_at_the_end() -> None:
    scenario = load(COMMON + "[canary]\n")
    assert (len(outlook(scenario)), outlook(scenario, swap=True)) == (1, [])


def test_blocks_alike_that_follow_one_another_are_one_line(tmp_path: Path) -> None:
    _, words = planned("[canary]\nrates = [8]\nblock_s = 60\nblocks = 20\n", tmp_path)
    (line,) = [line for line in words.splitlines() if " x " in line]
    assert line.split()[:4] == ["20", "x", "8", "req/s"]
    assert line.endswith("0 + 60 s      20 min")


def test_versions_in_turn_are_shown_with_the_blocks_of_both_and_a_climb_with_its_rates(tmp_path: Path) -> None:
    document, _ = planned('[canary]\ndesign = "abba"\nrates = [2]\nblock_s = 10\nblocks = 3\nwarmup_s = 1\n', tmp_path)
    assert levels(document["canary"][0]["steps"]) == [("step", 2.0, 1.0, 10.0)] * 6
    climb = "[canary]\nrates = [2]\nblock_s = 10\nblocks = 2\nceiling = true\nceiling_max_rps = 16\n"
    document, _ = planned(climb + "[ramp]\nmeasure_s = 7\nwarmup_s = 3\nsettle_s = 0\nsettle_requests = 0\n", tmp_path)
    assert levels(document["canary"][0]["steps"]) == [
        ("step", 2.0, 3.0, 10.0), ("step", 2.0, 0.0, 10.0),
        ("step", 2.0, 3.0, 7.0), ("step", 4.0, 3.0, 7.0), ("step", 8.0, 3.0, 7.0), ("step", 16.0, 3.0, 7.0),
    ]  # fmt: skip


def test_a_block_is_warmed_up_where_the_rate_changes() -> None:
    assert block_rates(Canary(rates=(4.0, 8.0)), 0, 4.0) == [(4.0, False), (8.0, True)]
    assert block_rates(Canary(rates=(4.0,), warmup_s=3.0), 0, 4.0) == [(4.0, True)]
    assert block_rates(Canary(rates=(4.0,)), 1, None) == [(4.0, True)]
    assert climb_rates(Canary(rates=(3.0, 5.0), ceiling_max_rps=20.0)) == [5.0, 10.0, 20.0]


def test_the_ramp_of_run_stays_where_programs_read_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document, words = planned(RAMP + "[canary]\nblocks = 2\n", tmp_path)
    assert [step["rate_rps"] for step in document["steps"]] == [1.0, 1.0, 2.0]
    assert words.endswith("loadramp run would ramp as [ramp] says: 3 steps, 60 s (--json lists them).")
    plain, _ = planned(RAMP, tmp_path)
    assert set(document) - set(plain) == {"canary"}
    with pytest.raises(SystemExit) as left:
        main(["plan", "canary", "--json"])
    assert left.value.code == 0
    assert len(json.loads(capsys.readouterr().out)["canary"][0]["steps"]) == 21


def test_requests_of_blocks_alike_are_counted_once() -> None:
    scenario = load(COMMON + "[canary]\nblocks = 200\nrates = [50]\n")
    steps = list(foresee_canary(scenario))
    assert len(steps) == 201
    assert len({seen.requests for seen in steps[1:]}) == 1
    assert steps[-1].cumulative_s == pytest.approx(settle_s(scenario, 50.0) + 200 * 60.0)


def test_the_steps_of_a_canary_say_what_they_offer(tmp_path: Path) -> None:
    trace(tmp_path)
    document, _ = planned(
        f'[arrivals]\nkind = "replay"\nfile = "trace.csv"\n{LADDER}[canary]\nrates = [8]\nblock_s = 30\n', tmp_path
    )
    assert any("8" in note and "offered" in note for note in document["canary"][0]["notes"])
