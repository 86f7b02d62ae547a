"""Paired blocks against a margin: literal numbers in and out, and what chance does to them."""

from dataclasses import replace
from math import exp, inf, log, sqrt

import numpy as np
import pytest

from loadramp.analysis.quantiles import fewest_values
from loadramp.comparison.block_spread import Missing, Noise, PairSpread, more_blocks, spread
from loadramp.comparison.blocks import failures_of, measure, pair_log
from loadramp.comparison.info import Round
from loadramp.comparison.noninferior import Effect, Looks, PairedSeries, judge
from loadramp.comparison.pairs import Pair, series
from loadramp.record.table import Table
from loadramp.record.types import Record
from loadramp.scenario.scenario import Slo

PRIMARY = ("itl_p99", "output_tokens_per_s")
TEN_PERCENT = log(1.1)


def one(d: list[float | None], metric: str = "itl_p99", looks: Looks | None = None, **more: object) -> Effect:
    return judge([PairedSeries(metric, 8.0, d, **more)], looks or Looks(), margin=0.1, primary=PRIMARY)[0]  # type: ignore[arg-type]  # literal fields of a Series


def test_the_mean_of_paired_logs_with_student_s_interval() -> None:
    found = spread([0.01, 0.03, 0.02, 0.04, 0.0])
    assert found is not None
    assert (found.mean, found.n, found.df) == (pytest.approx(0.02), 5, 4.0)
    assert found.sd == pytest.approx(0.0158114)
    assert found.se == pytest.approx(0.0158114 / sqrt(5))
    assert spread([0.1]) is None


def test_within_the_margin_passes_by_the_whole_interval() -> None:
    seen = one([0.01, 0.03, 0.02, 0.04, 0.0])
    assert seen.status == "within"
    assert (seen.low, seen.high) == (
        pytest.approx(0.02 - 2.7764 * 0.0070711, abs=1e-5),
        pytest.approx(0.02 + 2.7764 * 0.0070711, abs=1e-5),
    )
    assert seen.ratio() == pytest.approx(exp(0.02))
    assert seen.more is None


def test_an_early_look_is_not_enough_for_what_the_last_one_would_pass() -> None:
    d = [0.02, 0.05, 0.0, 0.06, 0.02]
    assert one(d).status == "within"
    early = one(d, looks=Looks.at(5, (5, 10, 15), 20))
    assert early.status == "open"
    assert early.high is not None and early.high > TEN_PERCENT
    assert early.more is not None and early.more.low >= 1


def test_beyond_the_margin_fails_and_a_regression_below_it_is_worse() -> None:
    assert one([0.19, 0.21, 0.2, 0.22, 0.18]).status == "beyond"
    worse = one([0.03, 0.15, 0.05, 0.14, 0.08])
    assert worse.status == "worse"
    assert worse.p is not None and worse.p < 0.025
    assert one([0.012, 0.013, 0.011, 0.012, 0.014]).status == "within"  # sure, small, allowed


def test_less_is_worse_for_rates_and_the_ratio_turns_round() -> None:
    seen = one([0.19, 0.21, 0.2, 0.22, 0.18], "output_tokens_per_s")
    assert seen.status == "beyond"
    assert seen.ratio() == pytest.approx(exp(-0.2))
    low, high = seen.ratio("low"), seen.ratio("high")
    assert low is not None and high is not None and low < exp(-0.2) < high
    assert seen.allowed_ratio == pytest.approx(1 / 1.1)


def test_equal_blocks_have_no_spread_and_pass() -> None:
    seen = one([0.0] * 5)
    assert (seen.status, seen.low, seen.high, seen.p) == ("within", 0.0, 0.0, 1.0)
    assert one([0.2] * 5).status == "beyond"


@pytest.mark.parametrize(
    ("base", "candidate", "words"),
    [
        ([1.0] * 5, [1.0, 1.0, None, 1.0, 1.0], "the candidate has no p99 ITL in 1 of 5 blocks (why)"),
        ([1.0, None, 1.0, 1.0, 1.0], [1.0] * 5, "the baseline has no p99 ITL in 1 of 5 blocks (why)"),
        ([None] * 5, [None] * 5, "no p99 ITL to compare: 0 of 5 blocks have one (why)"),
        ([1.0, 1.0, None, None, None], [1.0, 1.0, None, None, None], "only 2 of 5 blocks have a p99 ITL (why)"),
    ],
)
def test_no_data_never_passes(base: list[float | None], candidate: list[float | None], words: str) -> None:
    """CR-03: what is missing on one side is missing, not equal."""
    d = [pair_log("itl_p99", b, c, 60.0) for b, c in zip(base, candidate, strict=True)]
    seen = one(d, base=base, candidate=candidate, reason="why")
    assert (seen.status, seen.reason) == ("no_data", words)


@pytest.mark.parametrize("bad", [float("nan"), inf, None])
def test_nan_and_infinity_are_no_data(bad: float | None) -> None:
    assert pair_log("itl_p99", 0.02, bad, 60.0) is None
    assert pair_log("itl_p99", bad, 0.02, 60.0) is None
    assert pair_log("output_tokens_per_s", 0.0, 100.0, 60.0) is None


def test_zero_latency_and_zero_good_requests_have_a_floor() -> None:
    assert pair_log("itl_p50", 0.0, 0.0, 60.0) == 0.0
    assert pair_log("itl_p50", 1e-5, 0.0, 60.0) == 0.0
    d = pair_log("good_rps", 8.0, 0.0, 60.0)
    assert d is not None and d == pytest.approx(log(480.5 / 0.5))


def test_several_measures_are_corrected_for_being_several() -> None:
    d = [0.03, 0.13, 0.04, 0.15, 0.09]
    alone = one(d)
    beside = judge(
        [
            PairedSeries("itl_p99", 8.0, d),
            *(PairedSeries("itl_p99", r, [0.0, 0.01, -0.01, 0.02, -0.02]) for r in (1.0, 2.0, 4.0)),
        ],
        Looks(), margin=0.1, primary=PRIMARY,
    )  # fmt: skip
    assert alone.p is not None
    assert beside[0].p == pytest.approx(4 * alone.p)
    other = judge(
        [PairedSeries("itl_p99", 8.0, d), PairedSeries("e2e_p99", 8.0, d)], Looks(), margin=0.1, primary=PRIMARY
    )
    assert (other[0].p, other[0].primary, other[1].primary) == (pytest.approx(alone.p), True, False)


def test_hosts_that_were_swapped_cancel() -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(0.0, 0.005, 10)
    d = [0.15 + e if i < 5 else -0.15 + e for i, e in enumerate(noise)]
    whole, swapped = spread(d), spread(d, [0] * 5 + [1] * 5)
    assert whole is not None and swapped is not None
    assert swapped.mean == pytest.approx(float(noise.mean()))
    assert swapped.se < 0.003 < 0.03 < whole.se
    assert swapped.df == 8.0
    assert spread([0.1, 0.2, 0.1], [0, 0, 1]) is None


def test_one_run_of_each_is_widened_by_what_runs_differ() -> None:
    found = PairSpread(0.0, 0.02, 9.0, 10, 0.06).widened(0.05)
    assert found.se == pytest.approx(sqrt(0.02**2 + 2 * 0.05**2))
    assert found.df > 100
    seen = judge(
        [PairedSeries("itl_p99", 8.0, [0.01, -0.01, 0.0, 0.02, -0.02])],
        Looks(),
        margin=0.1,
        primary=PRIMARY,
        run_sd=0.05,
    )
    assert seen[0].status == "open"  # one run of each cannot show 10 %


@pytest.mark.parametrize(
    ("mean", "sd", "n", "more"),
    [
        (0.0, 0.10, 5, 6),  # (2.8 sd / ln 1.1)^2 = 8.6 blocks, 2 more for t
        (0.0, 0.03, 5, 1),
        (0.0, 0.15, 5, 17),
        (0.09, 0.15, 5, 17),  # not shown to differ: as many as equal versions take
        (0.09, 0.04, 2, 3),  # shown, and too close to the margin: as many as show it to be worse at all
        (0.0, 0.50, 5, 213),  # 5 blocks are no proof that it takes more than 200: the range begins at 50
        (0.0, 1.00, 5, None),  # it begins at 212
        (0.2, 0.10, 5, 5),
    ],
)
def test_how_many_blocks_more(mean: float, sd: float, n: int, more: int | None) -> None:
    found = more_blocks(PairSpread(mean, sd / sqrt(n), n - 1.0, n, sd), TEN_PERCENT)
    assert (found and found.blocks) == more


@pytest.mark.parametrize(
    ("sd", "n", "earlier", "more"),
    [
        (0.20, 20, None, Missing(17, 1, 54)),  # 36.5 in all, known to a factor of 4: 18.3 to 73.0
        (0.20, 10, None, Missing(27, 3, 94)),  # ... of 8
        (0.20, 80, None, Missing(1, 1, 1)),
        (0.34, 80, None, Missing(22, 22, 22)),  # 101.8
        (0.20, 20, Noise("itl_p50", 8.0, 0.20, 20), Missing(17, 3, 40)),  # of 2.7: 22.3 to 59.6
        (0.20, 20, Noise("itl_p50", 8.0, 0.20, 60), Missing(17, 9, 27)),  # of 1.6
        (0.20, 20, Noise("itl_p50", 8.0, 0.20, 120), Missing(17, 17, 17)),
        (0.20, 20, Noise("itl_p50", 8.0, 0.30, 20), Missing(39, 16, 75)),  # sd^2: the mean of both, 0.255^2
        (0.20, 20, Noise("itl_p50", 8.0, 0.50, 20), Missing(17, 1, 54)),  # other machines, or another day
    ],
)
def test_how_many_blocks_more_is_a_range_until_the_noise_is_known(
    sd: float, n: int, earlier: Noise | None, more: Missing
) -> None:
    assert more_blocks(PairSpread(0.0, sd / sqrt(n), n - 1.0, n, sd), TEN_PERCENT, earlier) == more


def test_a_candidate_10_percent_slower_beside_a_neighbour_is_told_what_it_takes() -> None:
    """Two engines that are slow, by half, in 7 of 20 blocks, each at its own: about 124 blocks in all."""
    base = np.array([15, 15, 22, 23, 15, 15, 15, 22, 15, 15, 15, 15, 23, 23, 22, 15, 15, 15, 15, 22]) * 1e-3
    candidate = np.array([16, 24, 25, 16, 16, 16, 16, 16, 25, 24, 16, 16, 16, 16, 16, 25, 25, 16, 16, 16]) * 1e-3
    d = np.log(candidate / base).tolist()
    found = judge([PairedSeries("itl_p50", 8.0, d, base.tolist(), candidate.tolist())], Looks(), margin=0.1,
                  primary=("itl_p50",))[0]  # fmt: skip
    assert (found.status, found.ratio()) == ("open", pytest.approx(1.055, abs=0.001))
    assert found.noise == pytest.approx(0.376, abs=0.001)
    assert found.more == Missing(105, 43, 229)  # 124.1 in all, known to a factor of 4


def test_earlier_noise_counts_for_its_own_measure_and_rate_and_never_for_the_verdict() -> None:
    d = [0.2, -0.2] * 5
    both = [PairedSeries("itl_p50", 8.0, d), PairedSeries("itl_p50", 16.0, d), PairedSeries("ttft_p50", 8.0, d)]
    alone = judge(both, Looks(), margin=0.1, primary=PRIMARY)
    found = judge(both, Looks(), margin=0.1, primary=PRIMARY, noise=[Noise("itl_p50", 8.0, 0.25, 140)])
    assert alone[0].more is not None and alone[0].more.low < alone[0].more.high
    assert found[0].more is not None and found[0].more.low == found[0].more.high
    assert [one.more for one in found[1:]] == [one.more for one in alone[1:]]
    assert [replace(one, more=None) for one in found] == [replace(one, more=None) for one in alone]


@pytest.mark.long
def test_equal_arms_are_rarely_called_worse_and_an_arm_at_the_margin_rarely_passes() -> None:
    rng = np.random.default_rng(7)
    plan = (5, 10, 15)
    alarms = passes = 0
    for _ in range(400):
        for true, kind in ((0.0, "alarm"), (TEN_PERCENT, "pass")):
            d = rng.normal(true, 0.05, 20).tolist()
            for done in (5, 10, 15, 20):
                seen = one(d[:done], looks=Looks.at(done, plan, 20))
                if kind == "alarm" and seen.status in ("beyond", "worse") and (seen.status == "beyond" or done == 20):
                    alarms += 1
                    break
                if kind == "pass" and seen.status == "within":
                    passes += 1
                    break
    assert alarms <= 20  # 2.5 % of 400 are 10
    assert passes <= 34  # 5 % of 400 are 20


def requests(n: int, ttft_s: float = 0.1, gap_s: float = 0.02, tokens: int = 5, begin_s: float = 0.0) -> list[Record]:
    found = []
    for i in range(n):
        due_s = begin_s + i * 0.5
        event_s = [due_s + ttft_s + gap_s * k for k in range(tokens)]
        found.append(Record(i, 0, due_s, sent_s=due_s, event_s=event_s, stream_end_s=event_s[-1], status="ok",
                            output_tokens=tokens))  # fmt: skip
    return found


def test_a_block_measures_what_its_values_can_carry() -> None:
    block = measure(Table.of(requests(40)), (0.0, 20.0), Slo(ttft_s=0.05))
    assert block.values["ttft_p50"] == pytest.approx(0.1)
    assert block.values["ttft_p95"] == pytest.approx(0.1)
    assert block.values["ttft_p99"] is None
    assert block.reasons["ttft_p99"] == "40 requests in a block cannot carry a p99: it needs 100"
    assert block.values["itl_p99"] == pytest.approx(0.02)
    assert block.values["output_tokens_per_s"] == pytest.approx(10.0)
    assert block.values["good_rps"] == 0.0
    assert (block.failures.failed, block.failures.requests, block.pending) == (0, 40, 0)
    assert [fewest_values(q) for q in (0.5, 0.95, 0.99)] == [3, 20, 100]


def test_half_a_good_request_is_half_a_one_in_blocks_of_any_length() -> None:
    good = measure(Table.of(requests(40)), (0.0, 20.0), Slo(ttft_s=0.2))
    bad = measure(Table.of(requests(40)), (0.0, 20.0), Slo(ttft_s=0.05))
    (compared,) = [one for one in series([Pair(Round(0, 2.0, 0, 0), good, bad)]) if one.metric == "good_rps"]
    assert compared.worse_log == [pytest.approx(log(40.5 / 0.5))]


def test_an_empty_block_has_no_numbers_and_says_so() -> None:
    block = measure(Table.of([]), (0.0, 20.0))
    assert all(value is None for value in block.values.values())
    assert set(block.reasons) == set(block.values)


def test_failed_and_unfinished_requests_are_counted_apart() -> None:
    some = requests(10)
    some[3].status, some[3].error = "error", "http_5xx"
    some[9].status = "in_flight"
    block = measure(Table.of(some), (0.0, 20.0))
    assert (block.failures.failed, block.failures.requests, block.pending) == (1, 9, 1)


def test_a_request_that_the_client_cut_off_is_no_failure_and_has_not_ended() -> None:
    ends = [("ok", None), ("error", "reset"), ("unfinished", None)]
    table = Table.of([Record(i, 0, 0.0, stream_end_s=1.0, status=s, error=e) for i, (s, e) in enumerate(ends)])
    assert (failures_of(table).failed, failures_of(table).requests) == (1, 2)
