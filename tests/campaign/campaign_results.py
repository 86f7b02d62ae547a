"""A campaign written down by hand: every phase, a scorecard with every state, hostile text."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace as changed
from records_and_rows import answer, failure, row
from test_scorecard import ITEMS

from loadramp.campaign import judge
from loadramp.campaign.criteria import PhaseView, Strike
from loadramp.campaign.evidence import Facts
from loadramp.campaign.recovery import HealthSample
from loadramp.campaign.scorecard import ItemAnswer, score
from loadramp.campaign.state import CampaignState, PhaseState
from loadramp.campaign.table import PHASES, OverloadPhase, SustainedPhase
from loadramp.campaign.text import CampaignView
from loadramp.record.run_info import MetricsInfo, RunInfo, TargetInfo
from loadramp.record.table import Run, Table
from loadramp.record.types import Estimate, Sample, Step
from loadramp.runner.scenarios import load
from loadramp.scenario.scenario import Slo

HOSTILE = "<script>alert(1)</script> | `x` [y](http://z)"


def _run(rows: list[Any], records: list[Any], samples: list[Sample] | None = None) -> Run:
    target = TargetInfo("http://10.0.0.7:8000/v1", "meta-llama/Llama-3.1-8B-Instruct")
    windows = [(one.rate_rps, one.window_begin_s, one.window_end_s) for one in rows]
    steps = [Step(k, rate_rps=rate, begin_s=a, measure_s=b - a) for k, (rate, a, b) in enumerate(windows)]
    info = RunInfo(target=target, ending="", metrics=MetricsInfo("vllm"))
    return Run(info, load(""), steps, Table.of(records), samples=samples or [], rows=rows)


def _health(end_s: float, down: tuple[float, float] = (0.0, 0.0)) -> list[HealthSample]:
    return [
        HealthSample(t, not down[0] <= t < down[1], 0.01, "http 503" if down[0] <= t < down[1] else None)
        for t in np.arange(end_s).tolist()
    ]


def _soak() -> PhaseView:
    rng = np.random.default_rng(7)
    due_s = np.arange(0.0, 1200.0, 0.25)
    ttft_s, gap_s = (scale * np.exp(0.1 * rng.standard_normal(len(due_s))) for scale in (0.12, 0.02))
    records = [
        answer(k, float(due_s[k]), float(due_s[k] + ttft_s[k]), [float(gap_s[k])] * 4) for k in range(len(due_s))
    ]
    url = "http://10.0.0.7:8000/metrics"
    samples = [Sample(float(t), url, {"process_memory_bytes": 1.4e9 + 4e5 * t}) for t in range(1200)]
    slo = {"slo_ttft_s": 0.2, "slo_ttft_low_s": 0.19, "slo_ttft_high_s": 0.22, "stationary": True}
    one = row(4.0, window_end_s=1200.0, requests=4800, ok=4800, server_restarted=False, **slo)
    return PhaseView(_run([one], records, samples), 4.0, _health(1200.0), slo=Slo(ttft_s=1.0))


def _overload() -> PhaseView:
    """Refuses every fifth request at twice the target, and is slow for 40 s after it."""
    rates = (4.0, 4.8, 8.0, 4.0)
    due_s = np.concatenate([np.arange(100.0 * i, 100.0 * (i + 1), 1.0 / rate) for i, rate in enumerate(rates)])
    records = [
        failure(k, t, kind="http_429")
        if 200 <= t < 300 and k % 5 == 0
        else answer(k, t, t + (4.0 if 200 <= t < 340 else 0.1), [0.02])
        for k, t in enumerate(due_s.tolist())
    ]
    rows = []
    for i, rate in enumerate(rates):
        begin_s = 100.0 * i
        rows.append(row(rate, step=i, begin_s=begin_s, window_begin_s=begin_s + 5, window_end_s=begin_s + 100))
    return PhaseView(_run(rows, records), 4.0, _health(400.0), slo=Slo())


def _chaos() -> PhaseView:
    records = [failure(k, t, kind="connect") if 40 <= t < 63 else answer(k, t, t + 0.1, [0.02])
               for k, t in enumerate(np.arange(0.0, 180.0, 0.25).tolist())]  # fmt: skip
    rows = [row(4.0, begin_s=0.0, window_end_s=180.0)]
    return PhaseView(_run(rows, records), 4.0, _health(180.0, (41.0, 63.0)), Strike(40.0, 42.0, 0, HOSTILE))


def told(answers: dict[str, ItemAnswer] | None = None, **state: Any) -> CampaignView:
    """All five phases; memory grows, so without a waiver it is no go."""
    ramp = PhaseView(_run([row(1.0), row(2.0)], [answer(0, 0.0, 0.1)]))
    ramp.run.estimates = {"ceiling": Estimate("found", 6.1, 5.8, 6.4, sustained_rps=5.2)}
    seen = {"baseline": PhaseView(_run([row(1.0, users=1)], [answer(0, 0.0, 0.1)])), "ramp": ramp, "sustained": _soak(),
            "overload": _overload(), "chaos": _chaos()}  # fmt: skip
    criteria = {
        "baseline": judge.baseline(seen["baseline"]),
        "ramp": judge.ramp(ramp, asked_rps=4.0),
        "sustained": judge.sustained(seen["sustained"], SustainedPhase()),
        "overload": judge.overload(seen["overload"], OverloadPhase()),
        "chaos": judge.chaos(seen["chaos"], recovery_limit_s=60.0),
    }
    facts = Facts(criteria, seen, {"factor": 2.0, "check_factor": 1.2, "sustained_s": 1200.0}, 131072)
    phases = {phase: PhaseState(state="done", run=f"20260102-030405-chat-{phase}", target_rps=4.0) for phase in PHASES}
    about = CampaignState(
        name="chat", began_at="2026-01-02T03:04:05+00:00", target_rps=4.0, phases=phases, state="complete"
    )
    return CampaignView(
        "campaign",
        changed(about, **state),
        seen,
        criteria,
        score(ITEMS, answers or {}, facts),
        "name = 'chat'\n",
        "campaign",
        PHASES,
    )
