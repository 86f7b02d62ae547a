import pytest
from records_and_rows import overload, row

from benchmarks import detectors
from loadramp.record.row import Row

RATES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


def curve(column: str, values: list[float], **more: object) -> list[Row]:
    return [row(rate, **{column: value}, **more) for rate, value in zip(RATES, values, strict=False)]


def test_elasticity_brackets_the_first_super_linear_octave() -> None:
    rows = curve("itl_p99_s", [0.010, 0.012, 0.014, 0.05, 0.2])
    found = detectors.elasticity(rows)
    assert (found.low_rps, found.high_rps) == (4.0, 8.0)
    assert found.rate_rps == pytest.approx(32**0.5)
    assert detectors.elasticity(rows, in_a_row=3).status == "not_found_up_to"
    assert detectors.elasticity(rows, sure=True).low_rps == 4.0
    assert (
        detectors.elasticity(
            curve("itl_p99_s", [0.010, 0.012, 0.014, 0.035, 0.2], itl_p99_log_se=0.3), sure=True
        ).low_rps
        == 8.0
    )


def test_elasticity_of_the_median_ttft_above_two() -> None:
    rows = curve("ttft_p50_s", [0.05, 0.06, 0.10, 0.30, 6.0])
    assert detectors.elasticity(rows, metric="ttft_p50", threshold=2.0).low_rps == 8.0


def test_extrapolation_fires_where_the_curve_leaves_its_line() -> None:
    assert detectors.extrapolation(curve("itl_p99_s", [0.011, 0.012, 0.014, 0.018, 0.05])).low_rps == 8.0
    assert detectors.extrapolation(curve("itl_p99_s", [0.011, 0.012, 0.014, 0.018, 0.026])).status == "not_found_up_to"


def test_broken_stick_finds_the_break_of_two_power_laws() -> None:
    values = [0.01, 0.01, 0.01, 0.01, 0.04, 0.16]
    assert detectors.broken_stick(curve("itl_p99_s", values)).rate_rps == pytest.approx(8.0, rel=0.05)
    assert detectors.broken_stick(curve("itl_p99_s", [0.01, 0.02, 0.04, 0.08, 0.16, 0.32])).status == "not_found_up_to"


def test_kneedle_finds_the_bend_of_latency_and_of_throughput() -> None:
    assert detectors.kneedle(curve("itl_p99_s", [0.01, 0.011, 0.012, 0.014, 0.02, 0.2])).rate_rps == 16.0
    assert detectors.kneedle(curve("throughput_rps", [1, 2, 4, 8, 9, 9]), metric="throughput").rate_rps == 8.0


def test_hyperbola_finds_the_pole() -> None:
    values = [0.01 + 0.002 / (1 - r / 50.0) for r in RATES]
    assert detectors.hyperbola(curve("itl_p99_s", values)).rate_rps == pytest.approx(50.0, rel=0.05)


def test_usl_finds_the_peak_of_throughput() -> None:
    rows = [
        row(rate, in_flight_mean=n, throughput_rps=20 * n / (n + 10))
        for rate, n in zip(RATES, (1, 2, 5, 10, 50, 200), strict=True)
    ]
    assert detectors.usl(rows).rate_rps == pytest.approx(20.0, rel=0.05)


def test_completions_below_nine_tenths_of_arrivals() -> None:
    rows = [row(2.0), row(4.0), row(8.0, done_rps=7.0)]
    found = detectors.completions(rows)
    assert (found.low_rps, found.high_rps) == (4.0, 8.0)
    assert detectors.completions(rows, ratio=0.8).status == "not_found_up_to"
    assert detectors.completions([row(8.0, done_rps=2.0)]).status == "below_range"


def test_signals_by_name() -> None:
    figures = {"backlog": {"p": 0.001, "slope_rps": 2.0, "rise": 3.0, "limit": 20.0}}
    rows = [row(2.0), row(4.0, evidence=figures), overload(8.0, 5.0, signals=["queue"])]
    assert detectors.signal(rows).low_rps == 4.0
    assert detectors.signal(rows, name="queue").low_rps == 4.0
    assert detectors.signal(rows, name="backlog").status == "not_found_up_to"
    assert detectors.signal(rows, name="backlog_slope").low_rps == 2.0
    assert detectors.signal(rows, name="backlog_size").status == "not_found_up_to"


def test_throughput_fit_asks_for_no_queue() -> None:
    rows = [row(2.0), row(4.0), row(8.0, throughput_rps=5.0)]
    assert detectors.throughput_fit(rows).rate_rps == pytest.approx(5.0, rel=0.01)
    assert detectors.throughput_fit(rows[:2]).status == "not_found_up_to"
