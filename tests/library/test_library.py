"""What notebooks and scripts see: ``import loadramp``."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadramp

EXAMPLE = Path(__file__).parents[2] / "reports" / "example"


@cache
def example() -> loadramp.RunResult:
    return loadramp.read(EXAMPLE)


def test_a_stored_run_is_read_with_its_three_numbers() -> None:
    run = example()
    assert (run.verdict, run.exit_code, run.path) == ("pass", 0, EXAMPLE)
    assert run.ceiling.status == "found"
    assert run.ceiling.rate_rps == pytest.approx(27.64, abs=0.01)
    assert run.p99_itl_knee.status == "not_found_up_to"
    assert run.slo_capacity.rate_rps == pytest.approx(16.26, abs=0.01)
    assert [finding.code for finding in run.findings] == ["scheduler_oversubscription"]
    assert run.scenario.name == "demo"
    assert run.sentence.startswith("Sustains 23.8 req/s")
    assert "27.6" in run._repr_html_()
    assert "<script" not in run._repr_html_()


def test_the_library_offers_its_own_names_and_no_others() -> None:
    offered = {"CannotMeasure", "RunResult", "ScenarioError", "judge", "read", "run", "run_async", "compare", "history"}
    assert {name for name in dir(loadramp) if not name.startswith("__")} == offered


def test_requests_are_a_frame_with_a_row_each() -> None:
    requests = example().requests
    first = requests.iloc[0]
    assert (first.seq, first.step, first.prompt_tokens, first.output_tokens) == (0, 0, 331, 40)
    assert first.due_s == 0.222488
    assert first.ttft_s == pytest.approx(0.036364)
    assert first.e2e_s == pytest.approx(1.011058)
    assert first.status == "ok"
    assert requests.seq.is_unique
    assert requests.due_s.is_monotonic_increasing


def test_tokens_are_a_frame_with_a_row_an_event() -> None:
    run = example()
    own = run.tokens[run.tokens.seq == 0]
    assert len(own) == 40
    assert np.isnan(own.gap_s.iloc[0])
    assert own.gap_s.iloc[1] == pytest.approx(0.021395)
    assert own.itl_s.iloc[1] == pytest.approx(0.021395)
    assert own.tokens.sum() == 40
    assert len(run.tokens) == run.requests.events.sum()


def test_steps_are_the_rows_of_the_curve() -> None:
    run = example()
    assert run.steps.rate_rps.round(1).tolist() == [4.0, 8.0, 16.0, 32.0, 23.8]
    assert run.steps.iloc[0].to_dict()["requests"] == run.to_dict()["steps"][0]["requests"]
    assert set(run.server.columns) >= {"t_s", "url", "running", "waiting"}
    assert run.client.cpu_ratio.between(0, 4).all()


@pytest.mark.parametrize("name", ["ttft", "itl", "tpot", "e2e", "throughput", "goodput", "timeline"])
def test_a_figure_of_the_report_is_a_plotly_figure(name: str) -> None:
    figure = example().figure(name)
    assert figure.data
    assert "var(--" not in figure.to_json()
    assert any(trace.showlegend is not False for trace in figure.data)


def test_a_figure_that_is_none_names_those_that_are() -> None:
    with pytest.raises(loadramp.ScenarioError, match=r"figure\('itll'\): no such figure.*itl"):
        example().figure("itll")


def test_stored_runs_are_compared_without_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = loadramp.compare(EXAMPLE, EXAMPLE)
    assert found.verdict == "inconclusive"
    ratio = found.effects.set_index(["metric", "rate_rps"]).value
    assert ratio.dropna().round(6).eq(1.0).all()
    assert found.to_dict()["verdict"] == "inconclusive"
    assert list(tmp_path.iterdir()) == []


def test_a_history_is_a_frame(tmp_path: Path) -> None:
    with pytest.raises(loadramp.ScenarioError, match=r"no history\.jsonl here"):
        loadramp.history(tmp_path)
    measured = {"kind": "measured", "metric": "ceiling_rps", "value": 54.3, "low": 52.9, "high": 55.7}
    failed = {"kind": "failed", "value": None, "reason": "refused"}
    lines = [
        {"night": f"2026-11-0{day}T02:00:00+00:00", "scenario": "chat", "schema": 1, **told}
        for day, told in ((1, measured), (2, failed))
    ]
    (tmp_path / "history.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    nights = loadramp.history(tmp_path)
    assert nights.value.tolist()[0] == 54.3
    assert np.isnan(nights.value.iloc[1])
    assert nights.night.iloc[1].isoformat() == "2026-11-02T02:00:00+00:00"


def test_a_directory_that_is_no_run_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(loadramp.ScenarioError, match=r"no run\.json here"):
        loadramp.read(tmp_path)


def test_the_package_imports_nothing_heavy_before_it_is_used() -> None:
    heavy = "{'numpy', 'pandas', 'plotly', 'scipy', 'httpx', 'openai', 'jinja2'} & set(sys.modules)"
    code = f"import sys, loadramp; assert 'judge' in dir(loadramp); print({heavy} or 'none')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "none"
    with pytest.raises(AttributeError, match="no attribute 'ramp_up'"):
        _ = loadramp.ramp_up


def test_unreachable_is_an_exception_that_names_the_endpoint(tmp_path: Path) -> None:
    asked = {"target.ready_timeout_s": 0, "ramp.max_rps": 2}
    with pytest.raises(loadramp.CannotMeasure, match=r"127\.0\.0\.1:9.*Connection refused"):
        loadramp.run("chat", base_url="http://127.0.0.1:9", overrides=asked, out=tmp_path)

    async def within() -> None:
        with pytest.raises(loadramp.CannotMeasure):
            await loadramp.run_async("chat", base_url="http://127.0.0.1:9", overrides=asked, out=tmp_path)
        with pytest.raises(loadramp.CannotMeasure):
            loadramp.run("chat", base_url="http://127.0.0.1:9", overrides=asked, out=tmp_path)

    asyncio.run(within())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"repeats": 0}, "repeats: expected a whole number from 1 to 50; got 0"),
        ({"repeats": "2"}, "repeats: expected a whole number from 1 to 50; got '2'"),
        ({"label": "gpu"}, "--label gpu: expected NAME=VALUE"),
        ({"header": "x-a"}, "--header x-a: expected NAME=VALUE"),
        ({"overrides": "ramp.nope=1"}, r"\[ramp\] nope: unknown key"),
    ],
)
def test_an_option_that_cannot_be_is_named_and_one_word_is_a_list_of_one(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(loadramp.ScenarioError, match=said):
        loadramp.run("chat", base_url="http://127.0.0.1:9", out=tmp_path, **options)
