"""The judge on real ramps: vLLM 0.25 on one H200, every token of the default limits, summaries of 64 sequences."""

import numpy as np
import pytest
from records_and_rows import H200_RATES, answer, h200, overload, row, window

from loadramp.analysis.curve import fold
from loadramp.analysis.itl_knee import completed, estimate
from loadramp.analysis.latency import families, stalls, window_view
from loadramp.record.row import Row
from loadramp.record.table import Table
from loadramp.record.types import Step
from loadramp.scenario.scenario import Slo


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """One row a rate, 20 s each from an idle engine (no warm-up: that is how they were captured)."""
    out: list[Row] = []
    for k, rate in enumerate(H200_RATES):
        base_s = out[0].of("ttft").p50.value if out else None
        step = Step(k, rate_rps=float(rate), warmup_s=0.0, measure_s=20.0)
        out.append(fold(step, Table.of(h200(rate)), base_ttft_p50_s=base_s, slo=Slo(itl_s=0.06)))
    return out


def test_the_table_of_the_engine_is_reproduced(rows: list[Row]) -> None:
    table = {row.rate_rps: row for row in rows}
    ttft_ms = {4: 55, 8: 53, 16: 55, 32: 79, 48: 126, 64: 351, 96: 3432}
    for rate, expected in ttft_ms.items():
        assert 1000 * table[rate].number("ttft_p50_s") == pytest.approx(expected, rel=0.03)
    for rate, expected in {16: 101, 32: 132, 48: 212, 64: 833, 96: 11703}.items():
        assert 1000 * table[rate].number("ttft_p99_s") == pytest.approx(expected, rel=0.03)
    for rate, expected in {16: 30.4, 32: 42.1, 48: 80.8, 64: 216.6}.items():
        assert 1000 * table[rate].number("itl_p99_s") == pytest.approx(
            expected, rel=0.05
        )  # within the 20 s, not the drain
    for rate, expected in {32: 72, 48: 101, 64: 238, 96: 383}.items():
        assert 1000 * table[rate].number("longest_gap_p99_s") == pytest.approx(expected, rel=0.03)


def test_a_p99_of_ttft_is_refused_where_the_step_was_too_short(rows: list[Row]) -> None:
    assert rows[0].of("ttft").p99.value is None
    assert rows[0].reasons["ttft_p99_s"] == "80 requests cannot carry a p99: needs about 288 more"


def test_overload_is_seen_at_64_and_96_and_not_below(rows: list[Row]) -> None:
    assert [row.saturated for row in rows] == [False] * 5 + [True] * 2
    assert set(rows[-1].signals) == {"queue", "backlog", "ttft_trend"}
    assert not any(row.void for row in rows)


def test_p99_itl_bends_well_before_the_ceiling(rows: list[Row]) -> None:
    found = estimate(completed(rows))["p99_itl_knee"]
    assert (found.status, found.rate_rps, found.high_rps) == ("found", 32.0, 48.0)
    assert found.cause == "capacity"  # the median follows


def test_the_ceiling_is_close_to_52_although_the_batch_was_still_filling_up(rows: list[Row]) -> None:
    found = estimate(completed(rows))["ceiling"]
    assert found.status == "found"
    assert found.rate_rps is not None
    assert found.low_rps is not None
    assert found.high_rps is not None
    assert found.rate_rps == pytest.approx(52.0, rel=0.1)
    assert found.low_rps < 52.0 < found.high_rps
    assert rows[-1].throughput_rps < 40.0  # what the plain throughput of those 20 s would have said


def test_the_slo_is_met_up_to_a_rate_between_the_knee_and_the_ceiling(rows: list[Row]) -> None:
    found = estimate(completed(rows), slo=Slo(itl_s=0.06))["slo_capacity"]
    assert (found.status, found.limit) == ("found", "itl")
    assert found.rate_rps is not None
    assert 34.0 < found.rate_rps < 46.0


def test_limited_to_64_sequences_the_ceiling_shows_in_ttft_and_p99_itl_stays_flat() -> None:
    # summaries of `bench` at each rate: TTFT p50 and p99, ITL p50 and p99 in ms
    table = {2.0: (78, 211, 26.1, 40.6), 8.0: (93, 174, 29.2, 55.1), 12.0: (88, 315, 25.0, 47.8),
             16.0: (91, 986, 25.5, 48.4), 20.0: (2625, 3700, 26.2, 52.6), 28.0: (3833, 10596, 28.5, 36.5)}  # fmt: skip
    seen = []
    for rate, (ttft50, ttft99, itl50, itl99) in table.items():
        values = {"ttft_p50_s": ttft50 / 1e3, "ttft_p99_s": ttft99 / 1e3, "slo_ttft_s": ttft99 / 1e3,
                  "itl_p50_s": itl50 / 1e3, "itl_p99_s": itl99 / 1e3}  # fmt: skip
        more = {"signals": ["queue", "server_queue"], "deficit": rate > 20.0}
        seen.append(row(rate, **values) if rate < 20.0 else overload(rate, 16.9, **values, **more))
    found = estimate(completed(seen), slo=Slo(ttft_s=1.0))
    assert found["p99_itl_knee"].status == "not_found_up_to"
    assert found["ceiling"].rate_rps == pytest.approx(16.9, rel=0.03)
    assert "the server's own queue grows" in found["ceiling"].reason
    assert found["slo_capacity"].limit == "ttft"
    assert found["slo_capacity"].rate_rps == pytest.approx(16.0, rel=0.02)


def test_limited_by_kv_blocks_p99_itl_stays_flat_while_every_request_stalls() -> None:
    # a preemption is one gap in a request: pooled p99 does not see it, the longest gap does
    rng = np.random.default_rng(1)
    records = []
    for i in range(480):
        gaps = list(0.017 * rng.lognormal(0, 0.15, 127))
        if i % 6 == 0:
            gaps[60] = 0.4  # preempted once, recomputed
        records.append(answer(i, i * 0.04, i * 0.04 + 0.1, gaps))
    seen = window_view(Table.of(records), window(20.0, 24.0).window_s)
    pooled, found = families(seen)["itl"], stalls(Row(), seen, families(seen)["gap"])[0]
    assert float(np.quantile(pooled.values, 0.99)) < 0.03
    assert found.longest_gap_p99.value == pytest.approx(0.4)
    assert found.stalled_ratio == pytest.approx(1 / 6, abs=0.01)
