"""The verdict that a rollout obeys, with reasons in words. Never pass without proof."""

from dataclasses import replace

import pytest

from loadramp.judge.decide import Asked, Decision, decide
from loadramp.judge.environment import Difference, differences, fingerprint
from loadramp.judge.noninferior import Effect, Looks, Series, judge
from loadramp.judge.rollback import far_beyond_slo, too_many_failures
from loadramp.judge.sameness import Answer, Sameness, broken, compare, divergence, findings
from loadramp.judge.shares import Share
from loadramp.record.table import Table
from loadramp.record.types import Record

ASKED = Asked(primary=("itl_p99", "ttft_p50"))
FINE = [0.01, 0.03, 0.02, 0.04, 0.0]
UNCLEAR = [0.02, 0.15, -0.05, 0.12, 0.0]
BAD = [0.19, 0.21, 0.2, 0.22, 0.18]
MANY = (Share(0, 9600), Share(0, 9600))


def effects(itl: list[float], ttft: list[float] | None = None) -> list[Effect]:
    both = [
        Series("itl_p99", 8.0, itl),
        Series("ttft_p50", 8.0, FINE if ttft is None else ttft),
        Series("e2e_p99", 8.0, BAD),
    ]
    return judge(both, Looks(), margin=0.1, primary=ASKED.primary)


def decided(itl: list[float], shares: tuple[Share, Share] = MANY, **more: object) -> Decision:
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
    found = decided(FINE, (Share(0, 1200), Share(0, 1200)), block_requests=240.0)
    assert found.verdict == "inconclusive"
    assert found.reasons == (
        "an error rate below 0.1 % is not shown (0 of 1,200 requests of the candidate failed, at most 0.249 %): "
        "needs 2,995 requests without an error",
    )
    assert found.more_blocks == 8


@pytest.mark.parametrize(
    ("shares", "verdict", "words"),
    [
        ((Share(0, 1000), Share(3, 1000)), "inconclusive", "needs 7,752 requests"),  # CR-07: maybe
        ((Share(0, 1000), Share(1, 1000)), "inconclusive", "needs 4,742 requests"),
        ((Share(0, 4742), Share(1, 4742)), "pass", "1 of 4,742"),
        ((Share(0, 4800), Share(24, 4800)), "fail", "at least 0.321 %; allowed 0.1 %"),
        ((Share(0, 300), Share(8, 300)), "fail", "at least 1.16 %; allowed 0.1 %"),
        ((Share(0, 20), Share(20, 20)), "fail", "all 20 requests of the candidate failed"),
        ((Share(0, 9600), Share(0, 0)), "inconclusive", "no request has ended"),
        ((Share(0, 0), Share(0, 9600)), "inconclusive", "no request of the baseline has ended"),
        ((Share(60, 9600), Share(0, 9600)), "inconclusive", "the baseline itself fails: 60 of 9,600 requests"),
    ],
)
def test_errors_on_either_side_never_pass(shares: tuple[Share, Share], verdict: str, words: str) -> None:
    """CR-01, CR-03, CR-07."""
    found = decided(FINE, shares)
    assert (found.verdict, words in " ".join(found.reasons)) == (verdict, True), found.reasons


def test_more_errors_than_the_baseline_fail_where_the_limit_alone_is_open() -> None:
    asked = replace(ASKED, error_ratio=0.01)
    found = decide(asked, effects(FINE), (Share(0, 800), Share(9, 800)), Looks())
    assert found.verdict == "fail"
    assert found.reasons == (
        "9 of 800 requests of the candidate failed, 0 of 800 of the baseline, 0.41 % to 2.12 % more",
    )


def test_nothing_measured_never_passes() -> None:
    nothing = judge(
        [Series("itl_p99", 8.0, [None] * 5, [None] * 5, [None] * 5)], Looks(), margin=0.1, primary=("itl_p99",)
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
        found = decide(asked, effects(d), (Share(0, 10), Share(0, 10)), Looks())
        assert found.verdict == verdict, (d, found)
    assert decide(asked, effects(BAD), MANY, Looks()).reasons[0].startswith("the same version differs: p99 ITL")


def answers(*texts: str | None) -> list[Answer]:
    return [Answer(text, 8 if text else None) for text in texts]


def test_equal_answers_and_the_first_token_that_differs() -> None:
    base = answers("a b c d", "e f g h", "i j k l")
    seen = compare(base, base, answers("a b c d", "e f X h", "Y j k l"))
    assert (seen.prompts, seen.equal, seen.equal_to_itself) == (3, 1, 3)
    assert seen.diverged_at == (4, 0)  # two words of four agree, eight tokens
    assert seen.match_ratio == pytest.approx(1 / 3)
    assert divergence(Answer("a b"), Answer("a b c")) == 2


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
    assert broken(Answer(text)) == kind


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
    assert decided(FINE, sameness=garbage).verdict == "fail"
    assert decided(FINE, sameness=other).verdict == "inconclusive"


def test_an_engine_that_does_not_repeat_itself_is_no_yardstick() -> None:
    base, again = answers("a b", "c d"), answers("a x", "c y")
    assert "does not give the same answer twice" in findings(compare(base, again, base), 0.5)[1][0]
    half = compare(answers("a", "b"), answers("a", "x"), answers("a", "y"))
    assert findings(half, 0.5) == ([], [])  # half of what it repeats is asked, and it gives half
    assert findings(Sameness(), 0.5) == ([], [])


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


SCENARIO = (
    'seed = 3\n[target]\nbase_url = "http://a"\n[prompts]\nkind = "fixed"\ninput_tokens = 9\n[ramp]\nkind = "ladder"\n'
)


def test_changed_keys_are_listed_conditions_first() -> None:
    """CR-08."""
    base = {"target": {"model": "m", "version": "0.9"}, "labels": {"gpu": "A"}, "host": {"cores": 2, "load_1m": 0.3},
            "files": [{"table": "prompts", "file": "a.jsonl", "sha256": 64 * "a"}]}  # fmt: skip
    other = {"target": {"model": "m", "version": "0.10"}, "labels": {"gpu": "B", "flags": "--enforce-eager"},
             "host": {"cores": 2, "load_1m": 9.0}, "overrides": ["prompts.input_tokens=10"],
             "files": [{"table": "prompts", "file": "a.jsonl", "sha256": 64 * "b"}]}  # fmt: skip
    found = differences(fingerprint(base, SCENARIO), fingerprint(other, SCENARIO.replace("seed = 3", "seed = 4")))
    assert found == [
        Difference("gpu", "condition", "A", "B"),
        Difference("prompts file", "condition", 12 * "a", 12 * "b"),
        Difference("prompts.input_tokens", "condition", "9", "10"),
        Difference("version", "subject", "0.9", "0.10"),
        Difference("flags", "subject", "unknown", "--enforce-eager"),
        Difference("seed", "noted", "3", "4"),
    ]


def test_what_a_side_does_not_tell_is_not_certain() -> None:
    base, other = fingerprint({"labels": {"gpu": "A"}}, SCENARIO), fingerprint({}, "[prompts]\nkind = 'fixed'\n")
    told = {one.key: (one.base, one.candidate, one.certain) for one in differences(base, other)}
    assert told["gpu"] == ("A", "unknown", False)
    assert told["prompts.input_tokens"] == ("9", "default", True)
    assert differences(base, base) == []
