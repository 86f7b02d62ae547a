"""What each phase has to show, from literal rows, records and health checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from curve_rows import changed
from records_and_rows import answer, failure, overload, row
from test_offered import quiet

from loadramp.analysis.slo_capacity import slo_capacity
from loadramp.campaign import judge
from loadramp.campaign.criteria import Criterion, PhaseView, Strike, verdict_of
from loadramp.campaign.evidence import EVIDENCE, Facts
from loadramp.campaign.judge import absorbed
from loadramp.campaign.phases import lowest_rps
from loadramp.campaign.recovery import HealthSample
from loadramp.campaign.table import OverloadPhase, SustainedPhase
from loadramp.record.row import Row, Void
from loadramp.record.run_info import RunInfo, read_info
from loadramp.record.table import Run, Table
from loadramp.record.types import GONE, Estimate, GateResult, Record, Sample
from loadramp.runner.scenarios import load
from loadramp.scenario.scenario import Slo

SUSTAINED = SustainedPhase(
    error_ratio=0.001, drift_ratio=0.05, drift_unseen_ratio=0.5, memory_ratio=0.05, availability_ratio=0.999
)
OVERLOAD = OverloadPhase(factor=2.0, check_factor=1.2, broken_ratio=0.001, recovery_s=30.0)


def seen(rows: list[Row], records: list[Record] = [], **more: Any) -> PhaseView:  # noqa: B006 (read only)
    ending = more.pop("ending", "")
    info = read_info({"ending": ending, "stop_cause": "gone" if ending == GONE else None})
    run = Run(info, load(""), [], Table.of(records), samples=more.pop("samples", []), rows=rows)
    run.estimates, run.gates = more.pop("estimates", {}), more.pop("gates", [])
    return PhaseView(run, more.pop("target_rps", 2.0), **more)


def by_code(criteria: list[Criterion]) -> dict[str, str]:
    return {one.code: one.status for one in criteria}


def said(criteria: list[Criterion], code: str) -> str:
    return next(one.observed for one in criteria if one.code == code)


def checks(
    begin_s: float, end_s: float, down: tuple[float, float] = (0.0, 0.0), error: str = "http 503"
) -> list[HealthSample]:
    return [
        HealthSample(t, not down[0] <= t < down[1], 0.01, error if down[0] <= t < down[1] else None)
        for t in np.arange(begin_s, end_s).tolist()
    ]


def test_a_phase_fails_with_one_criterion_and_passes_with_all() -> None:
    fine, bad, open_ = (Criterion("c", "", status, "") for status in ("pass", "fail", "inconclusive"))  # type: ignore[arg-type]  # literals
    assert verdict_of([fine, fine]) == "pass"
    assert verdict_of([fine, open_]) == "inconclusive"
    assert verdict_of([fine, open_, bad]) == "fail"
    assert verdict_of([]) == "inconclusive"


def test_the_baseline_passes_without_a_failure_and_with_medians_within_their_limits() -> None:
    slo = Slo(ttft_s=0.2, itl_s=0.05)
    good = judge.baseline(seen([row(1.0, ttft_p50_s=0.1, itl_p50_s=0.02)], slo=slo))
    assert by_code(good) == {"delivered": "pass", "no_errors": "pass", "slo_ttft": "pass", "slo_itl": "pass"}
    slow = judge.baseline(seen([row(1.0, ttft_p50_s=0.3, itl_p50_s=None, errors={"reset": 1})], slo=slo))
    assert by_code(slow)["slo_ttft"] == "fail"
    assert by_code(slow)["slo_itl"] == "inconclusive"
    assert by_code(slow)["no_errors"] == "fail"


def test_a_load_that_the_client_could_not_deliver_shows_nothing() -> None:
    void = row(1.0, void=(Void("requests left late: p99 40 ms", "more workers"),))
    found = judge.baseline(seen([void]))
    assert by_code(found)["delivered"] == "inconclusive"
    assert said(found, "delivered") == "requests left late: p99 40 ms"


def test_a_phase_without_a_row_is_open_and_failed_where_nobody_answered_any_more() -> None:
    for phase in (judge.baseline, lambda s: judge.sustained(s, SUSTAINED), lambda s: judge.overload(s, OVERLOAD)):
        assert verdict_of(phase(seen([]))) == "inconclusive"
        assert verdict_of(phase(seen([], ending=GONE))) == "fail"


@pytest.mark.parametrize(
    ("estimate", "status"),
    [
        (Estimate("found", 12.0, 11.0, 13.0), "pass"),
        (Estimate("found", 10.0, 9.0, 11.5), "inconclusive"),
        (Estimate("found", 8.0, 7.5, 8.5), "fail"),
        (Estimate("not_found_up_to", 16.0), "pass"),
        (Estimate("not_found_up_to", 8.0), "inconclusive"),
        (Estimate("below_range", None, None, 1.0), "fail"),
        (Estimate("found", 10.7, None, 14.8), "inconclusive"),
        (Estimate("found", 10.7, None, None), "inconclusive"),
        (Estimate("found", 8.0, None, None), "inconclusive"),
        (Estimate("found", 8.0, None, 9.5), "fail"),
        (Estimate("found", 10.7, None, None, sustained_rps=10.2), "pass"),
        (Estimate("inconclusive", reason="two steps"), "inconclusive"),
    ],
)
def test_a_target_that_was_asked_for_is_compared_with_the_interval(estimate: Estimate, status: str) -> None:
    found = judge.ramp(seen([row(1.0)], estimates={"ceiling": estimate}), asked_rps=10.0)
    assert by_code(found)["capacity"] == status


def test_a_ramp_that_the_client_could_not_carry_further_does_not_pass() -> None:
    why = (Void("23 reads came more than 5 ms after the data", "keep this machine free"),)
    lost = [row(1.0), *(row(2.0, step=k, void=why) for k in (1, 2))]
    found = judge.ramp(seen(lost, estimates={"ceiling": Estimate("not_found_up_to", 1.0)}), asked_rps=None)
    assert by_code(found) == {"delivered": "inconclusive", "ceiling": "inconclusive"}
    assert said(found, "delivered") == "not at 2 req/s: 23 reads came more than 5 ms after the data"
    assert verdict_of(found) == "inconclusive"
    soak = [row(1.0), *(row(0.85, step=k, role="soak", void=why) for k in (1, 2))]
    found = judge.ramp(seen(soak, estimates={"ceiling": Estimate("found", 1.0, 0.9, 1.1)}), asked_rps=None)
    assert by_code(found) == {"delivered": "inconclusive", "ceiling": "pass"}
    again = [row(1.0), row(2.0, step=1, void=why), row(2.0, step=2)]
    found = judge.ramp(seen(again, estimates={"ceiling": Estimate("not_found_up_to", 2.0)}), asked_rps=None)
    assert by_code(found) == {"ceiling": "pass"}
    users = [row(1.0, users=1), changed(row(4.0, users=8, void=why), rate_rps=None)]
    found = judge.ramp(seen(users, estimates={"ceiling": Estimate("not_found_up_to", 1.0)}), asked_rps=None)
    assert said(found, "delivered") == "not at 8 users: 23 reads came more than 5 ms after the data"


def test_an_interval_that_reaches_below_the_lowest_rate_shows_no_target() -> None:
    """p99 TTFT of 0.5 (0.2 to 1.5), 0.6 (0.3 to 1.4), 2.0 (1.8 to 2.2) s against 1 s: it may be missed at 4 req/s."""
    measured = ((4.0, 0.5, 0.2, 1.5), (8.0, 0.6, 0.3, 1.4), (16.0, 2.0, 1.8, 2.2))
    rows = [row(rate, slo_ttft_s=value, slo_ttft_low_s=low, slo_ttft_high_s=high, error_ratio=0.0)
            for rate, value, low, high in measured]  # fmt: skip
    slo = slo_capacity(rows, Slo(ttft_s=1.0))
    assert (slo.status, slo.rate_rps, slo.low_rps) == ("found", pytest.approx(10.7, abs=0.1), None)
    estimates = {"ceiling": Estimate("not_found_up_to", 16.0), "slo_capacity": slo}
    found = judge.ramp(seen(rows, estimates=estimates, slo=Slo(ttft_s=1.0)), asked_rps=9.0)
    assert by_code(found)["slo_capacity"] == "inconclusive"
    assert said(found, "slo_capacity") == "10.7 req/s (its lower end is not known; at most 14.8)"


def test_thresholds_of_the_scenario_count_in_the_ramp() -> None:
    gates = [GateResult("ceiling_rps >= 20", "ceiling_rps", "fail", 12.0, 11.0, 13.0, 20.0, "12")]
    found = judge.ramp(seen([row(1.0)], estimates={"ceiling": Estimate("found", 12.0)}, gates=gates), asked_rps=None)
    assert by_code(found) == {"ceiling": "pass", "gate": "fail"}
    missed = {"ceiling": Estimate("found", 12.0), "slo_capacity": Estimate("below_range", reason="missed at 1 req/s")}
    found = judge.ramp(seen([row(1.0)], estimates=missed, slo=Slo(ttft_s=1.0)), asked_rps=None)
    assert by_code(found)["slo_capacity"] == "fail"


def soak_row(**more: Any) -> Row:
    return row(10.0, window_end_s=400.0, requests=4000, ok=4000, **more)


def soak(**more: Any) -> PhaseView:
    rng = np.random.default_rng(3)
    ttft_s = 0.1 * np.exp(0.1 * rng.standard_normal(4000))
    gaps_s = 0.02 * np.exp(0.1 * rng.standard_normal((4000, 5)))
    records = [answer(k, 0.1 * k, 0.1 * k + float(ttft_s[k]), gaps_s[k].tolist()) for k in range(4000)]
    samples = [Sample(float(t), "u", {"process_memory_bytes": 1e9, "process_start_s": 5.0}) for t in range(400)]
    plain: dict[str, Any] = {"samples": samples, "health": checks(0, 400), "target_rps": 10.0}
    return seen([more.pop("row", soak_row(server_restarted=False))], records, **{**plain, **more})


def test_a_good_soak_passes_every_criterion() -> None:
    found = judge.sustained(soak(), SUSTAINED)
    assert set(by_code(found).values()) == {"pass"}
    assert set(by_code(found)) == {"delivered", "to_the_end", "errors", "steady", "drift_ttft", "drift_itl", "memory",
                                   "availability", "no_restart"}  # fmt: skip
    assert "0 of 4,000 failed: below 0.0749 %" in said(found, "errors")


def test_errors_are_judged_by_exact_limits_and_say_how_many_requests_are_missing() -> None:
    few = judge.sustained(soak(row=row(10.0, window_end_s=400.0, requests=1000)), SUSTAINED)
    assert by_code(few)["errors"] == "inconclusive"
    assert "1,995 more requests" in said(few, "errors")
    many = judge.sustained(soak(row=soak_row(errors={"http_5xx": 40}, error_ratio=0.01)), SUSTAINED)
    assert by_code(many)["errors"] == "fail"


def test_a_soak_names_each_thing_that_went_wrong() -> None:
    bad = soak(
        row=soak_row(saturated=True, signals=["queue"], server_restarted=True),
        samples=[Sample(float(t), "u", {"process_memory_bytes": 1e9 + 1e6 * t}) for t in range(400)],
        health=checks(0, 400, (100.0, 130.0)),
    )
    status = by_code(judge.sustained(bad, SUSTAINED))
    assert {code for code, one in status.items() if one == "fail"} == {"steady", "memory", "availability", "no_restart"}


def test_a_soak_in_parts_is_judged_as_a_whole_and_names_the_part_that_broke() -> None:
    rows = [row(10.0, step=k, window_begin_s=100.0 * k, window_end_s=100.0 * (k + 1), requests=1000, ok=1000,
                server_restarted=False) for k in range(4)]  # fmt: skip
    whole = soak()
    whole.run.rows = rows
    found = judge.sustained(whole, SUSTAINED)
    assert set(by_code(found).values()) == {"pass"}
    assert "0 of 4,000 failed" in said(found, "errors")
    rows[2] = changed(rows[2], saturated=True, signals=["backlog"])
    assert said(judge.sustained(whole, SUSTAINED), "steady") == "requests in flight pile up in part 3 of 4"


def test_what_was_not_seen_is_open() -> None:
    status = by_code(judge.sustained(soak(samples=[], health=[], row=soak_row()), SUSTAINED))
    assert {code for code, one in status.items() if one == "inconclusive"} == {"memory", "availability", "no_restart"}


@pytest.mark.parametrize(
    ("value", "low", "high", "status"),
    [(0.5, 0.4, 0.9, "pass"), (0.9, 0.7, 1.2, "inconclusive"), (1.5, 1.2, 1.9, "fail"),
     (0.9, None, None, "inconclusive"), (None, None, None, "inconclusive")],
)  # fmt: skip
def test_the_service_level_is_judged_by_its_interval(value: Any, low: Any, high: Any, status: str) -> None:
    columns = {"slo_ttft_s": value, "slo_ttft_low_s": low, "slo_ttft_high_s": high, "stationary": True}
    found = judge.sustained(soak(row=soak_row(**columns), slo=Slo(ttft_s=1.0)), SUSTAINED)
    assert by_code(found)["slo_ttft"] == status


def test_a_step_too_short_for_an_interval_is_judged_by_none_being_beyond_the_limit() -> None:
    columns: dict[str, Any] = {"slo_ttft_s": 0.1, "slo_ttft_low_s": None, "slo_ttft_high_s": None, "stationary": True}
    for n, over, status in ((400, 0.0, "pass"), (200, 0.0, "inconclusive"), (400, 0.0025, "inconclusive")):
        more = {**columns, "ttft_n": n, "slo_ttft_over_ratio": over}
        found = judge.sustained(soak(row=soak_row(**more), slo=Slo(ttft_s=1.0)), SUSTAINED)
        assert by_code(found)["slo_ttft"] == status


def stage(k: int, rate: float, **more: Any) -> Row:
    return row(rate, step=k, begin_s=50.0 * k, window_begin_s=50.0 * k + 5.0, window_end_s=50.0 * (k + 1), **more)


def stages(backlog_s: float = 0.0, kind: str = "http_429", **over: Any) -> PhaseView:
    """Four stages of 50 s at 2, 2.4, 4 and 2 req/s; in the third every tenth request fails; slow for ``backlog_s``."""
    records: list[Record] = []
    for k, due in enumerate(np.arange(0.0, 200.0, 0.5).tolist()):
        late = 100.0 <= due < 150.0 + backlog_s
        if 100.0 <= due < 150.0 and k % 10 == 0:
            one = failure(k, due, kind=kind)
            one.http_status = 429 if kind == "http_429" else 500
        else:
            one = answer(k, due, due + (5.0 if late else 0.1), [0.02])
        records.append(one)
    rows = [stage(0, 2.0), stage(1, 2.4), overload(4.0, 3.0, **stage_columns(2)), stage(3, 2.0)]
    return seen(rows, records, health=over.pop("health", checks(0, 200)), **over)


def stage_columns(k: int) -> dict[str, float]:
    return {"step": k, "begin_s": 50.0 * k, "window_begin_s": 50.0 * k + 5.0, "window_end_s": 50.0 * (k + 1)}


def test_an_overload_that_refuses_and_recovers_passes() -> None:
    found = judge.overload(stages(backlog_s=12.0), OVERLOAD)
    assert set(by_code(found).values()) == {"pass"}
    assert "10 were refused, 0 timed out, 0 broke" in said(found, "refusals")
    assert said(found, "recovery").startswith("after 11 s")


def test_an_overload_that_answers_500_or_stays_slow_fails() -> None:
    assert by_code(judge.overload(stages(kind="http_5xx"), OVERLOAD))["refusals"] == "fail"
    slow = judge.overload(stages(backlog_s=45.0), OVERLOAD)
    assert by_code(slow)["recovery"] == "fail"
    assert "requests were in flight when it fell" in said(slow, "recovery")


def test_a_crash_is_seen_by_health_check_restart_or_silence() -> None:
    gone = judge.overload(stages(health=checks(0, 200, (120.0, 125.0))), OVERLOAD)
    assert by_code(gone)["no_crash"] == "fail"
    assert "at 120 s for 5 s (http 503)" in said(gone, "no_crash")
    late = judge.overload(stages(health=checks(0, 200, (120.0, 125.0), "timeout")), OVERLOAD)
    assert by_code(late)["no_crash"] == "pass"
    assert "1 health check was late" in said(late, "no_crash")
    cut = stages(ending=GONE)
    cut.run.rows = cut.run.rows[:3]
    status = by_code(judge.overload(cut, OVERLOAD))
    assert (status["no_crash"], status["recovery"]) == ("fail", "fail")
    blind = judge.overload(stages(health=[]), OVERLOAD)
    assert by_code(blind)["no_crash"] == "inconclusive"


def test_the_check_above_the_target_fails_with_errors_or_a_queue_without_end() -> None:
    base = stages()
    base.run.rows[1] = overload(2.4, 1.0, **stage_columns(1))
    assert by_code(judge.overload(base, OVERLOAD))["headroom"] == "fail"
    for failed, status in ((1, "pass"), (3, "fail")):
        base.run.rows[1] = stage(1, 2.4, errors={"reset": failed}, requests=1200)
        assert by_code(judge.overload(base, OVERLOAD))["headroom"] == status


def killed(down_s: float, strike: Strike | None, kind: str = "connect", **more: Any) -> PhaseView:
    """2 req/s for 150 s; from 40 s on every request fails for ``down_s``."""
    records = [
        failure(k, due, kind=kind) if 40.0 <= due < 40.0 + down_s else answer(k, due, due + 0.1, [0.02])
        for k, due in enumerate(np.arange(0.0, 150.0, 0.5).tolist())
    ]
    rows = [row(2.0, window_begin_s=0.0, window_end_s=150.0, requests=300)]
    health = more.pop("health", checks(0, 150, (40.0, 40.0 + down_s)))
    return seen(rows, records, strike=strike, health=health, **more)


STRUCK = Strike(40.0, 41.0, 0)


def test_a_kill_with_a_recovery_in_time_and_every_caller_told_passes() -> None:
    found = judge.chaos(killed(20.0, STRUCK), recovery_limit_s=60.0)
    assert {code for code, status in by_code(found).items() if status != "pass"} == {"retried", "absorbed"}
    assert said(found, "absorbed") == "not seen: name the metrics page of every replica in [metrics] urls"
    assert said(found, "recovery").startswith("after 20 s")
    assert "40 of 40 requests failed (connect 40)" in said(found, "felt")
    assert "the health check failed for 20 s" in said(found, "felt")


@pytest.mark.parametrize(
    ("failed", "rate_rps", "retried", "taken"),
    [(0, 10.0, "pass", "pass"), (7, 10.0, "fail", "pass"), (0, 5.0, "pass", "fail")],
)
def test_what_the_replicas_pages_say_of_a_killed_one(failed: int, rate_rps: float, retried: str, taken: str) -> None:
    alive = [Sample(float(t), "a", {"requests_done": 5.0 * min(t, 40) + rate_rps * max(t - 40, 0)}) for t in range(100)]
    dead = [Sample(float(t), "b", {"requests_done": 5.0 * t, "running": 3.0} if t < 40 else {},
                   error=None if t < 40 else "refused") for t in range(100)]  # fmt: skip
    found = by_code(absorbed([*alive, *dead], 40.0, 60.0, 10.0, failed))
    assert found == {"retried": retried, "absorbed": taken}
    both_well = absorbed([*alive, *(Sample(s.t_s, "c", s.values) for s in alive)], 40.0, 60.0, 10.0, failed)
    assert set(by_code(both_well).values()) == {"inconclusive"}


def test_a_late_recovery_fails_and_so_does_none() -> None:
    assert by_code(judge.chaos(killed(70.0, STRUCK), recovery_limit_s=60.0))["recovery"] == "fail"
    never = judge.chaos(killed(200.0, STRUCK), recovery_limit_s=60.0)
    assert "not within the 110 s that were watched" in said(never, "recovery")
    assert [one.outcome for one in never if one.code == "recovery"] == [
        "it did not recover: not within the 110 s that were watched"
    ]


def test_a_phase_that_ended_before_the_limit_was_over_has_shown_no_failure_to_recover() -> None:
    late = Strike(100.0, 101.0, 0)
    found = judge.chaos(killed(200.0, late), recovery_limit_s=60.0)
    assert by_code(found)["recovery"] == "inconclusive"
    assert "not within the 50 s that were watched" in said(found, "recovery")


def test_a_kill_without_successes_before_it_proves_nothing() -> None:
    early = killed(5.0, Strike(1.0, 2.0, 0))
    found = judge.chaos(early, recovery_limit_s=60.0)
    states = by_code(found)
    assert (states["struck"], states["recovery"], states["felt"], states["nothing_lost"]) == (
        "pass", "inconclusive", "inconclusive", "inconclusive",
    )  # fmt: skip
    assert EVIDENCE["nothing_lost"](Facts({"chaos": found})).proof == "open"


def test_a_request_that_nobody_ever_answered_is_lost_silently() -> None:
    found = judge.chaos(killed(5.0, STRUCK, "timeout_first"), recovery_limit_s=60.0)
    assert by_code(found)["nothing_lost"] == "fail"
    assert "10 requests never got an answer nor an error" in said(found, "nothing_lost")
    holes = killed(5.0, STRUCK)
    holes.run.table = holes.run.table.select(holes.run.table.seq != 200)
    assert "1 planned request has no record" in said(judge.chaos(holes, recovery_limit_s=60.0), "nothing_lost")


def test_a_command_that_failed_or_that_nobody_felt_proves_nothing() -> None:
    wrong = judge.chaos(killed(0.0, Strike(40.0, 40.2, 3, "no such pod"), health=checks(0, 150)), recovery_limit_s=60.0)
    assert by_code(wrong)["struck"] == "inconclusive"
    assert said(wrong, "struck") == "exit code 3 after 0.2 s: no such pod"
    assert by_code(wrong)["felt"] == "inconclusive"
    assert verdict_of(judge.chaos(killed(0.0, None), recovery_limit_s=60.0)) == "inconclusive"
    slow = judge.chaos(killed(5.0, Strike(40.0, 70.0, None, "took longer than 30 s")), recovery_limit_s=60.0)
    assert said(slow, "struck") == "took longer than 30 s"


@pytest.mark.parametrize(
    ("ceiling", "slo", "rate", "which"),
    [
        (Estimate("found", 12.0, 11.0, 13.0), Estimate("found", 10.0, 9.0, 11.0), 9.0, "the low end"),
        (Estimate("found", 12.0, 11.0, 13.0), Estimate("found", 10.0, None, 11.0), 10.0,
         "an estimate whose low end is not known"),
        (Estimate("found", 12.0, None, None, sustained_rps=10.2), Estimate("inconclusive"), 12.0,
         "an estimate whose low end is not known"),
        (Estimate("found", 12.0, 9.0, 13.0, sustained_rps=10.2), Estimate("not_measurable"), 10.2, "the low end"),
        (Estimate("found", 12.0, 9.0, 13.0), Estimate("below_range", high_rps=1.0), None, ""),
        (Estimate("inconclusive"), Estimate("not_measurable"), None, ""),
    ],
)  # fmt: skip
def test_the_target_is_a_share_of_a_low_end_or_says_that_it_is_not(
    ceiling: Estimate, slo: Estimate, rate: float | None, which: str
) -> None:
    run = Run(RunInfo(), load(""), [], Table.of([]))
    run.estimates = {"ceiling": ceiling, "slo_capacity": slo}
    assert lowest_rps(run) == (rate, which)


def test_a_phase_before_a_launch_is_open_where_less_was_offered_than_its_target() -> None:
    short = judge.baseline(PhaseView(Run(RunInfo(), load(""), [], Table.of([]), rows=[quiet(8.0, 3.0)]), 8.0))
    said = {one.code: (one.status, one.observed) for one in short}
    assert said["delivered"] == ("inconclusive", "8 req/s asked, 3 offered")
    full = judge.baseline(PhaseView(Run(RunInfo(), load(""), [], Table.of([]), rows=[quiet(8.0, 8.0)]), 8.0))
    assert {one.code: one.status for one in full}["delivered"] == "pass"
