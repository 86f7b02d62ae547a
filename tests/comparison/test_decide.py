"""The verdict that a rollout obeys, with reasons in words. Never pass without proof."""

from dataclasses import replace
from typing import Any

import pytest

from loadramp.analysis.proportions import Proportion
from loadramp.comparison.answer_match import AnswerMatch, GreedyAnswer, broken, compare, divergence, findings
from loadramp.comparison.decide import Decision, DecisionRules, decide
from loadramp.comparison.environment import Difference, Kind, differences, fingerprint
from loadramp.comparison.guard import far_beyond_slo, one_fails_more, too_many_failures
from loadramp.comparison.noninferior import Effect, Looks, PairedSeries, judge
from loadramp.record.run_info import read_info
from loadramp.record.table import Run, Table
from loadramp.record.types import Record
from loadramp.runner.scenarios import load

ASKED = DecisionRules(primary=("itl_p99", "ttft_p50"))
FINE = [0.01, 0.03, 0.02, 0.04, 0.0]
UNCLEAR = [0.02, 0.15, -0.05, 0.12, 0.0]
BAD = [0.19, 0.21, 0.2, 0.22, 0.18]
MANY = (Proportion(0, 9600), Proportion(0, 9600))


def effects(itl: list[float], ttft: list[float] | None = None) -> list[Effect]:
    both = [
        PairedSeries("itl_p99", 8.0, itl),
        PairedSeries("ttft_p50", 8.0, FINE if ttft is None else ttft),
        PairedSeries("e2e_p99", 8.0, BAD),
    ]
    return judge(both, Looks(), margin=0.1, primary=ASKED.primary)


def decided(itl: list[float], shares: tuple[Proportion, Proportion] = MANY, **more: object) -> Decision:
    return decide(ASKED, effects(itl), shares, Looks(), **more)  # type: ignore[arg-type]  # options of decide


def test_all_primary_measures_within_the_margin_and_few_errors_pass() -> None:
    found = decided(FINE)
    assert found.verdict == "pass"
    assert found.reasons[0].startswith("no primary measure is worse by 10 %: the least certain, p99 ITL")
    assert found.reasons[1] == "0 of 9,600 requests failed, at most 0.0312 %"


def test_one_measure_beyond_the_margin_fails_whatever_the_others_do() -> None:
    found = decided(BAD)
    assert found.verdict == "fail"
    assert found.reasons == ("p99 ITL at 8 req/s is 1.22 times the baseline's (1.2 to 1.25); allowed 1.1",)


def test_a_measure_that_is_not_primary_decides_nothing() -> None:
    assert decided(FINE).verdict == "pass"  # e2e_p99 is beyond


def test_neither_shown_is_inconclusive_and_says_how_many_blocks_more() -> None:
    found = decided(UNCLEAR, final=False)
    assert found.verdict == "inconclusive"
    assert "not shown to stay within 1.1" in found.reasons[0]
    assert found.more_blocks is not None and 1 <= found.more_blocks < 60


def test_too_few_requests_cannot_show_the_error_rate() -> None:
    found = decided(FINE, (Proportion(0, 1200), Proportion(0, 1200)), block_requests=240.0)
    assert found.verdict == "inconclusive"
    assert found.reasons == (
        "an error rate below 0.1 % is not shown (0 of 1,200 requests of the candidate failed, at most 0.249 %): "
        "needs 2,995 requests without an error",
    )
    assert found.more_blocks == 8


@pytest.mark.parametrize(
    ("shares", "verdict", "words"),
    [
        ((Proportion(0, 1000), Proportion(3, 1000)), "inconclusive", "needs 7,752 requests"),  # CR-07: maybe
        ((Proportion(0, 1000), Proportion(1, 1000)), "inconclusive", "needs 4,742 requests"),
        ((Proportion(0, 4742), Proportion(1, 4742)), "pass", "1 of 4,742"),
        ((Proportion(0, 4800), Proportion(24, 4800)), "fail", "at least 0.321 %; allowed 0.1 %"),
        ((Proportion(0, 300), Proportion(8, 300)), "fail", "at least 1.16 %; allowed 0.1 %"),
        ((Proportion(0, 20), Proportion(20, 20)), "fail", "all 20 requests of the candidate failed"),
        ((Proportion(0, 9600), Proportion(0, 0)), "inconclusive", "no request of the candidate has ended"),
        ((Proportion(0, 0), Proportion(0, 9600)), "inconclusive", "no request of the baseline has ended"),
        (
            (Proportion(60, 9600), Proportion(0, 9600)),
            "inconclusive",
            "the baseline itself fails: 60 of 9,600 requests",
        ),
        (
            (Proportion(24, 4800), Proportion(30, 4800)),
            "inconclusive",
            "not shown to fail more: 30 of 4,800 requests of the candidate failed, 24 of 4,800 of the baseline",
        ),
        (
            (Proportion(20, 20), Proportion(20, 20)),
            "inconclusive",
            "both fail, and the candidate is not shown to fail more",
        ),
        ((Proportion(24, 4800), Proportion(60, 4800)), "fail", "at least 0.955 %; allowed 0.1 %"),
    ],
)
def test_errors_on_either_side_never_pass(shares: tuple[Proportion, Proportion], verdict: str, words: str) -> None:
    """CR-01, CR-03, CR-07."""
    found = decided(FINE, shares)
    assert (found.verdict, words in " ".join(found.reasons)) == (verdict, True), found.reasons


def test_more_errors_than_the_baseline_fail_where_the_limit_alone_is_open() -> None:
    asked = replace(ASKED, error_ratio=0.01)
    found = decide(asked, effects(FINE), (Proportion(0, 800), Proportion(9, 800)), Looks())
    assert found.verdict == "fail"
    assert found.reasons == (
        "9 of 800 requests of the candidate failed, 0 of 800 of the baseline, 0.41 % to 2.12 % more",
    )


def test_nothing_measured_never_passes() -> None:
    nothing = judge(
        [PairedSeries("itl_p99", 8.0, [None] * 5, [None] * 5, [None] * 5)], Looks(), margin=0.1, primary=("itl_p99",)
    )
    assert decide(ASKED, nothing, MANY, Looks()).verdict == "inconclusive"
    assert decide(ASKED, [], MANY, Looks()).reasons == ("no primary measure was measured",)


def test_a_rollback_fails_and_an_interruption_does_not_pass() -> None:
    assert decided(FINE, rollback="12 % failed").reasons[0] == "12 % failed"
    assert decided(FINE, rollback="12 % failed").verdict == "fail"
    assert decided(FINE, stopped="interrupted") == Decision("inconclusive", ("interrupted",))


def test_a_regression_within_reach_of_the_margin_fails_only_at_the_end() -> None:
    worse = [0.03, 0.15, 0.05, 0.14, 0.08]
    assert decided(worse, final=False).verdict == "inconclusive"
    found = decided(worse)
    assert found.verdict == "fail"
    assert "worse, and not shown to stay within 1.1" in found.reasons[0]


def test_the_same_version_must_be_equal_both_ways() -> None:
    asked = replace(ASKED, same_version=True)
    for d, verdict in ((FINE, "pass"), (BAD, "fail"), ([-x for x in BAD], "fail"), (UNCLEAR, "inconclusive")):
        found = decide(asked, effects(d), MANY, Looks())
        assert found.verdict == verdict, (d, found)
    assert decide(asked, effects(BAD), MANY, Looks()).reasons[0].startswith("the same version differs: p99 ITL")
    assert decide(asked, effects(FINE), MANY, Looks()).reasons == (
        "the two are equal within 10 % in every primary measure",
        "0 of 9,600 requests of the baseline and 0 of 9,600 of the candidate failed, at most 0.0312 %",
    )


@pytest.mark.parametrize(
    ("shares", "verdict", "words"),
    [
        (
            (Proportion(0, 9600), Proportion(1900, 9600)), "fail",
            "the same version differs: 1,900 of 9,600 requests of the candidate failed, 0 of 9,600 of the baseline",
        ),
        (
            (Proportion(1900, 9600), Proportion(0, 9600)), "fail",
            "0 of 9,600 requests of the candidate failed, 1,900 of 9,600",
        ),
        ((Proportion(288, 9600), Proportion(0, 9600)), "fail", "the same version differs"),
        (
            (Proportion(288, 9600), Proportion(288, 9600)), "inconclusive",
            "the baseline itself fails: 288 of 9,600 requests",
        ),
        (
            (Proportion(2, 2400), Proportion(0, 9600)), "inconclusive",
            "2 of 2,400 requests of the baseline failed, at most 0.262",
        ),
        ((Proportion(0, 10), Proportion(0, 10)), "inconclusive", "needs 2,995 requests without an error"),
        ((Proportion(0, 0), Proportion(0, 9600)), "inconclusive", "no request of the baseline has ended"),
        ((Proportion(0, 9600), Proportion(0, 0)), "inconclusive", "no request of the candidate has ended"),
        ((Proportion(0, 100_000), Proportion(20, 100_000)), "pass", "0 of 100,000"),  # both far below what is allowed
    ],
)  # fmt: skip
def test_hosts_that_fail_never_pass_for_equal(shares: tuple[Proportion, Proportion], verdict: str, words: str) -> None:
    found = decide(replace(ASKED, same_version=True), effects(FINE), shares, Looks())
    assert (found.verdict, words in " ".join(found.reasons)) == (verdict, True), found.reasons


def test_the_same_version_needs_blocks_for_its_failures_where_blocks_help() -> None:
    asked = replace(ASKED, same_version=True)
    found = decide(asked, effects(FINE), (Proportion(0, 1200), Proportion(0, 1200)), Looks(), block_requests=240.0)
    assert found.more_blocks == 8
    found = decide(asked, effects(FINE), (Proportion(72, 2400), Proportion(0, 1200)), Looks(), block_requests=240.0)
    assert (found.verdict, found.more_blocks) == ("fail", None)
    found = decide(asked, effects(FINE), (Proportion(72, 2400), Proportion(72, 2400)), Looks(), block_requests=240.0)
    assert (found.verdict, found.more_blocks) == ("inconclusive", None)


def test_the_same_version_is_held_to_its_answers_and_to_what_stopped_it() -> None:
    asked = replace(ASKED, same_version=True)

    def of(**more: object) -> tuple[str, str]:
        found = decide(asked, effects(FINE), MANY, Looks(), **more)  # type: ignore[arg-type]  # options of decide
        return found.verdict, found.reasons[0]

    base = answers(*(f"answer {i}" for i in range(10)))
    garbage = compare(base, base, answers(*["!" * 40] * 3, *(f"answer {i}" for i in range(3, 10))))
    other = compare(base, base, answers(*(f"other {i}" for i in range(10))))
    assert of(answers=garbage) == ("fail", "3 of 10 answers are broken (3 garbage)")
    assert of(answers=other)[0] == "inconclusive"
    assert of(answers=compare(base, base, base))[0] == "pass"
    assert of(rollback="12 % failed") == ("fail", "12 % failed")
    assert of(stopped="interrupted") == ("inconclusive", "interrupted")


def answers(*texts: str | None) -> list[GreedyAnswer]:
    return [GreedyAnswer(text, 8 if text else None) for text in texts]


def test_equal_answers_and_the_first_token_that_differs() -> None:
    base = answers("a b c d", "e f g h", "i j k l")
    seen = compare(base, base, answers("a b c d", "e f X h", "Y j k l"))
    assert (seen.prompts, seen.equal, seen.equal_to_itself) == (3, 1, 3)
    assert seen.diverged_at == (4, 0)  # two words of four agree, eight tokens
    assert seen.match_ratio == pytest.approx(1 / 3)
    assert divergence(GreedyAnswer("a b"), GreedyAnswer("a b c")) == 2


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (None, "error"),
        ("", "empty"),
        (" \n ", "empty"),
        ("!!!!!!!!!!!!!!!!!!!!!!!!", "garbage"),
        ("nan nan nan", "garbage"),
        ("\ufffd\ufffd ab \ufffd", "garbage"),
        ("the cat sat. " * 20, "repeating"),
        ("no " * 24, "repeating"),
        ("a fine answer of some words that goes on and ends", ""),
        ("| a | b |\n|----------------------|---|\n| 1 | 2 |", ""),
        (" ".join(f"word{i}" for i in range(60)), ""),
    ],
)
def test_answers_that_no_healthy_model_gives(text: str | None, kind: str) -> None:
    assert broken(GreedyAnswer(text)) == kind


def test_broken_answers_fail_and_other_answers_do_not_pass() -> None:
    base = answers(*(f"answer {i}" for i in range(10)))
    garbage = compare(base, base, answers(*["!" * 40] * 3, *(f"answer {i}" for i in range(3, 10))))
    fails, doubts = findings(garbage, 0.5)
    assert fails == ["3 of 10 answers are broken (3 garbage)"]
    other = compare(base, base, answers(*(f"other {i}" for i in range(10))))
    fails, doubts = findings(other, 0.5)
    assert fails == []
    assert doubts[0].startswith("the answers differ: 0 of 10 are equal, from token 0 on")
    assert findings(other, 0.0) == ([], [])
    assert decided(FINE, answers=garbage).verdict == "fail"
    assert decided(FINE, answers=other).verdict == "inconclusive"


def test_an_engine_that_does_not_repeat_itself_is_no_yardstick() -> None:
    base, again = answers("a b", "c d"), answers("a x", "c y")
    assert "does not give the same answer twice" in findings(compare(base, again, base), 0.5)[1][0]
    half = compare(answers("a", "b"), answers("a", "x"), answers("a", "y"))
    assert findings(half, 0.5) == ([], [])  # half of what it repeats is asked, and it gives half
    assert findings(AnswerMatch(), 0.5) == ([], [])


def test_answers_that_are_meant_to_differ_need_no_baseline_that_repeats_itself() -> None:
    base, again = answers("a b", "c d"), answers("a x", "c y")
    assert findings(compare(base, again, answers("e f", "g h")), 0.0) == ([], [])
    assert len(findings(compare(base, again, answers("e f", "")), 0.0)[1]) == 1  # broken ones count all the same


def test_few_broken_answers_are_a_doubt_and_more_than_the_baseline_s_a_fail() -> None:
    def broken_of(prompts: int, candidate: int, base: int = 0) -> tuple[list[str], list[str]]:
        kinds = {"empty": candidate}, {"empty": base} if base else {}
        return findings(AnswerMatch(prompts, prompts, prompts, (), kinds[1], kinds[0]), 0.5)

    assert broken_of(16, 1) == ([], ["1 of 16 answers is broken (1 empty): ask more prompts ([canary] answers)"])
    assert broken_of(16, 2) == (["2 of 16 answers are broken (2 empty)"], [])
    assert broken_of(16, 2, 1) == ([], ["2 of 16 answers are broken (2 empty): ask more prompts ([canary] answers)"])
    assert broken_of(64, 6) == ([], ["6 of 64 answers are broken (6 empty): ask more prompts ([canary] answers)"])
    assert broken_of(64, 7) == (["7 of 64 answers are broken (7 empty)"], [])
    assert broken_of(16, 2, 2) == ([], [])


def records(n: int, failed: int = 0, ttft_s: float = 0.1, waiting: int = 0) -> Table:
    out = []
    for i in range(n):
        due_s = i * 0.1
        first_s = due_s + ttft_s
        event_s = [first_s, first_s + 0.02]
        one = Record(i, 0, due_s, sent_s=due_s, event_s=event_s, stream_end_s=event_s[1], status="ok", output_tokens=2)
        if i < failed:
            one.status, one.error, one.event_s = "error", "http_5xx", []
        if i >= n - waiting:
            one.status, one.event_s, one.stream_end_s = "in_flight", [], None
        out.append(one)
    return Table.of(out)


def test_too_many_failures_are_told_when_they_are_beyond_doubt() -> None:
    assert too_many_failures(records(200, failed=1), 0.01) == ""
    assert too_many_failures(records(200, failed=3), 0.01) == ""
    assert too_many_failures(records(200, failed=20), 0.01).startswith("20 of 200 requests failed")
    assert too_many_failures(records(200, failed=20), 0.01, since_s=5.0) == ""
    assert too_many_failures(Table.of([]), 0.01) == ""


def test_latency_far_beyond_the_slo_of_the_last_minute() -> None:
    slow = records(200, ttft_s=0.5)
    words = far_beyond_slo(slow, 20.0, {"ttft": 0.2}, 0.99, 2.0)
    assert words == "p99 TTFT of the last minute is 500 ms, more than 2 times the limit of 200 ms"
    assert far_beyond_slo(slow, 20.0, {"ttft": 0.26}, 0.99, 2.0) == ""
    assert far_beyond_slo(records(50, ttft_s=0.5), 20.0, {"ttft": 0.2}, 0.99, 2.0) == ""  # too few for a p99
    assert far_beyond_slo(slow, 200.0, {"ttft": 0.2}, 0.99, 2.0) == ""  # long ago
    assert far_beyond_slo(slow, 20.0, {"itl": 0.005}, 0.99, 2.0).startswith("p99 ITL")


def test_a_server_that_answers_nothing_any_more_is_late_by_the_age_of_its_requests() -> None:
    assert far_beyond_slo(records(200, waiting=100), 20.0, {"ttft": 1.0}, 0.9, 2.0).startswith("p90 TTFT")
    assert far_beyond_slo(Table.of([]), 20.0, {"ttft": 1.0, "itl": 1.0}, 0.9, 2.0) == ""


def unanswered(n: int, rate_rps: float) -> Table:
    return Table.of([Record(i, 0, i / rate_rps, sent_s=i / rate_rps, status="in_flight") for i in range(n)])


@pytest.mark.parametrize(
    ("limits", "q", "words"),
    [
        ({"ttft": 10.0}, 0.99, "p99 TTFT of the last minute is 59"),
        ({"ttft": 30.0}, 0.99, "p99 TTFT of the last 2 min is 120 s, more than 2 times the limit of 30 s"),
        ({"e2e": 40.0}, 0.99, "p99 E2E of the last 2.7 min is 160 s, more than 2 times the limit of 40 s"),
        ({"ttft": 30.0}, 0.5, "p50 TTFT of the last 4 min is 120 s, more than 2 times the limit of 30 s"),
    ],
)
def test_a_server_that_answers_nothing_is_beyond_a_long_limit_too(
    limits: dict[str, float], q: float, words: str
) -> None:
    assert far_beyond_slo(unanswered(600, 2.0), 300.0, limits, q, 2.0).startswith(words)
    assert far_beyond_slo(unanswered(100, 2.0), 50.0, {"ttft": 30.0}, q, 2.0) == ""  # none is that late yet


def test_a_limit_of_half_a_minute_is_exceeded_as_soon_as_a_hundredth_of_the_requests_is_that_late() -> None:
    fine = [Record(i, 0, i / 2, sent_s=i / 2, event_s=[i / 2 + 1.0], stream_end_s=i / 2 + 1.0, status="ok")
            for i in range(600)]  # fmt: skip

    def at(waited_s: float) -> str:
        waiting = [Record(600 + i, 0, 300 + i / 2, sent_s=300 + i / 2, status="in_flight")
                   for i in range(round(waited_s * 2))]  # fmt: skip
        return far_beyond_slo(Table.of([*fine, *waiting]), 300.0 + waited_s, {"ttft": 30.0}, 0.99, 2.0)

    assert at(60.0) == ""
    assert at(63.0).startswith("p99 TTFT of the last 2 min is 6")


def test_failures_that_differ_beyond_doubt_are_told_both_ways() -> None:
    assert one_fails_more(records(200), records(200, failed=20))
    assert one_fails_more(records(200, failed=20), records(200))
    assert not one_fails_more(records(200, failed=20), records(200, failed=20))
    assert not one_fails_more(records(200, failed=20), records(200), since_s=5.0)
    assert not one_fails_more(records(200, failed=20), Table.of([]))


SCENARIO = (
    'seed = 3\n[target]\nbase_url = "http://a"\n[prompts]\nkind = "fixed"\ninput_tokens = 9\n'
    '[ramp]\nkind = "ladder"\nrates = [1]\n'
)


def fingerprint_of(info: dict[str, Any], text: str = SCENARIO) -> dict[str, tuple[Kind, str]]:
    return fingerprint(Run(read_info(info), load(text, overrides=info.get("overrides", [])), [], Table.of([])))


def test_changed_keys_are_listed_conditions_first() -> None:
    """CR-08."""
    base = {"target": {"model": "m", "version": "0.9"}, "labels": {"gpu": "A"}, "host": {"cores": 2, "load_1m": 0.3},
            "files": [{"table": "prompts", "file": "a.jsonl", "sha256": 64 * "a"}]}  # fmt: skip
    other = {"target": {"model": "m", "version": "0.10"}, "labels": {"gpu": "B", "flags": "--enforce-eager"},
             "host": {"cores": 2, "load_1m": 9.0}, "overrides": ["prompts.input_tokens=10"],
             "files": [{"table": "prompts", "file": "a.jsonl", "sha256": 64 * "b"}]}  # fmt: skip
    found = differences(fingerprint_of(base), fingerprint_of(other, SCENARIO.replace("seed = 3", "seed = 4")))
    assert found == [
        Difference("gpu", "condition", "A", "B"),
        Difference("prompts file", "condition", 12 * "a", 12 * "b"),
        Difference("prompts.input_tokens", "condition", "9", "10"),
        Difference("version", "subject", "0.9", "0.10"),
        Difference("flags", "subject", "unknown", "--enforce-eager"),
        Difference("seed", "noted", "3", "4"),
    ]


def test_a_byte_order_mark_is_no_difference() -> None:
    assert differences(fingerprint_of({}), fingerprint_of({}, "\ufeff" + SCENARIO)) == []


def test_what_a_side_does_not_tell_is_not_certain() -> None:
    base, other = fingerprint_of({"labels": {"gpu": "A"}}), fingerprint_of({}, "[prompts]\nkind = 'fixed'\n")
    told = {one.key: (one.base, one.candidate, one.breaks) for one in differences(base, other)}
    assert told["gpu"] == ("A", "unknown", False)
    assert told["prompts.input_tokens"] == ("9", "default", True)
    assert differences(base, base) == []
