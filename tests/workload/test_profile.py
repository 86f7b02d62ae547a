"""The shape of a workload in figures: of a plan, of a recorded run, in words and as data."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from run_in_memory import ramp_in_memory, scenario_of

from loadramp.cli import cli
from loadramp.client import input_files
from loadramp.record.types import Prompt, Step
from loadramp.runner import preview
from loadramp.workload.prefix_reuse import PrefixHistory
from loadramp.workload.preview import preview_steps
from loadramp.workload.profile import WorkloadProfile, burstiness, profile_of_plan, profile_of_run

STEPS = [Step(1, rate_rps=20.0, begin_s=0.0, warmup_s=0.0, measure_s=100.0)]


def profile(text: str, steps: list[Step] = STEPS) -> WorkloadProfile:
    return profile_of_plan(input_files.ready(scenario_of(f"seed = 3\n{text}")), steps)


def test_lengths_are_those_of_the_requests_that_will_be_sent() -> None:
    found = profile(
        '[prompts]\nkind = "lognormal"\ninput_tokens = 200\ninput_cv = 0.5\noutput_tokens = 50\noutput_cv = 0'
    )
    assert found.input_tokens.p50 == pytest.approx(200, rel=0.05)
    assert found.input_tokens.p95 == pytest.approx(200 * np.exp(1.645 * np.sqrt(np.log(1.25))), rel=0.08)
    assert (found.output_tokens.p50, found.output_tokens.p99) == (50, 50)
    assert found.prefix_reuse_ratio == 0.0
    assert (found.turns_mean, found.classes, found.models) == (1.0, {}, {})


@pytest.mark.parametrize(("arrivals", "cv"), [("constant", 0.0), ("poisson", 1.0), ("gamma", 2.0)])
def test_burstiness_is_the_variation_of_the_gaps(arrivals: str, cv: float) -> None:
    assert profile(f'[arrivals]\nkind = "{arrivals}"').gap_cv == pytest.approx(cv, abs=0.12)


def test_steps_of_different_rates_do_not_look_like_bursts() -> None:
    rng = np.random.default_rng(1)
    steps = [np.cumsum(rng.exponential(1 / rate, 3000)) for rate in (1.0, 64.0)]
    assert burstiness(steps) == pytest.approx(1.0, abs=0.04)
    assert burstiness([]) is None
    assert burstiness([np.array([1.0, 2.0])]) is None


def test_reuse_counts_what_began_an_earlier_prompt() -> None:
    seen = PrefixHistory()
    first, second, third, fourth = (
        seen.sizes(Prompt(30, 1, segments))[0].reused_tokens
        for segments in (((1, 20), (2, 10)), ((1, 20), (3, 10)), ((1, 25), (2, 5)), ((9, 20), (2, 10)))
    )
    assert (first, second) == (0, 20)
    assert third == 20  # the longer one begins like the shorter ones; what follows stands at another place
    assert fourth == 0  # the same text behind another is no prefix


def test_reuse_of_given_text_goes_by_its_characters() -> None:
    seen = PrefixHistory()
    common = "x" * 640
    one, two = (seen.sizes(Prompt(text=common + tail * 160))[0] for tail in "ab")
    assert (one.reused_tokens, one.input_tokens, one.estimated) == (0, 200, True)
    assert two.reused_tokens == pytest.approx(160)
    assert seen.sizes(Prompt(text=common, tag=4))[0].reused_tokens == 0


def test_later_turns_reuse_everything_before_them() -> None:
    text = (
        '[prompts]\nkind = "sessions"\nturns = 3\nvary_turns = false\nsystem_tokens = 0\ninput_cv = 0\noutput_cv = 0\n'
    )
    found = profile(text + "input_tokens = 100\noutput_tokens = 50")
    # prompts of 100, 250 and 400 tokens, of which 0, 150 and 300 were there before
    assert found.prefix_reuse_ratio == pytest.approx(450 / 750)
    assert found.turns_mean == 3.0


def test_a_closed_loop_has_lengths_but_no_burstiness() -> None:
    found = profile('[prompts]\nkind = "fixed"\ninput_tokens = 9', [Step(1, users=4, warmup_s=0.0, measure_s=10.0)])
    assert found.input_tokens.p50 == 9
    assert found.gap_cv is None


def test_a_recorded_run_shows_the_shape_that_was_planned(tmp_path: Path) -> None:
    text = """
    seed = 5
    [prompts]
    kind = "shared_prefix"
    groups = 2
    reuse_ratio = 0.8
    input_tokens = 400
    input_cv = 0
    output_tokens = 10
    models = { a = 1, b = 1 }
    [ramp]
    kind = "ladder"
    rates = [5, 10]
    warmup_s = 1
    measure_s = 20
    settle_s = 0
    settle_requests = 0
    tail_s = 1
    """
    scenario = scenario_of(text)
    planned = profile_of_plan(scenario, [seen.step for seen in preview_steps(scenario)])
    run = ramp_in_memory(scenario, tmp_path)
    sent = profile_of_run(run)
    assert sent.input_tokens == planned.input_tokens
    assert sent.output_tokens.p95 == pytest.approx(planned.output_tokens.p95 or 0.0, rel=0.2)
    assert sent.prefix_reuse_ratio == pytest.approx(planned.prefix_reuse_ratio, abs=0.03)
    assert sent.gap_cv == pytest.approx(1.0, abs=0.2)
    assert sent.models["a"] == pytest.approx(0.5, abs=0.1)
    document, words = preview.of_run(Path(run.path))
    assert document["profile"]["input_tokens"]["p50"] == 400.0
    assert "prefix reuse: " in words


def test_plan_shows_the_steps_the_files_and_the_shape(tmp_path: Path) -> None:
    rows = "time,input_tokens,output_tokens\n" + "".join(f"{t},{100 + t},20\n" for t in range(50)) + "x,1,1\n"
    (tmp_path / "rows.csv").write_text(rows)
    path = tmp_path / "mine.toml"
    path.write_text(
        '[prompts]\nkind = "trace"\nfile = "rows.csv"\n[arrivals]\nkind = "replay"\n'
        '[ramp]\nkind = "ladder"\nrates = [1, 2]\nunit = "speed"\nmeasure_s = 20\n'
    )
    shown = CliRunner().invoke(cli, ["plan", str(path)], standalone_mode=False)
    assert shown.exception is None
    assert "rows.csv: 50 rows (plain); 1 skipped (1 no time stamp; line 52" in shown.output
    assert "prefix reuse: 0 % of the prompt tokens" in shown.output
    assert "the gaps' coefficient of variation is 0 (Poisson: 1)" in shown.output
    document = json.loads(CliRunner().invoke(cli, ["plan", str(path), "--json"], standalone_mode=False).output)
    assert [step["rate_rps"] for step in document["steps"]][-2:] == [1.0, 2.0]
    assert document["profile"]["output_tokens"] == {"mean": 20.0, "p50": 20.0, "p95": 20.0, "p99": 20.0}


def test_a_plan_ends_where_the_rows_do() -> None:
    text = (
        '[ramp]\nkind = "ladder"\nrates = [1, 2, 4]\nmeasure_s = 20\nwarmup_s = 0\nsettle_s = 0\nsettle_requests = 0\n'
    )
    path = Path(__file__).parents[1] / "data" / "workloads" / "azure_2023.csv"
    once = f'[prompts]\nkind = "trace"\nfile = "{path}"\nat_end = "stop"\n'
    assert [seen.requests for seen in preview_steps(input_files.ready(scenario_of(text + once)))] == []
    again = once.replace("stop", "repeat")
    assert len(list(preview_steps(input_files.ready(scenario_of(text + again))))) == 3


def test_a_run_ends_where_the_rows_do_and_sends_each_once(tmp_path: Path) -> None:
    lines = "".join(f'{{"prompt": "the prompt of row {i}", "max_tokens": 3}}\n' for i in range(130))
    (tmp_path / "rows.jsonl").write_text(lines)
    text = f"""
    [prompts]
    kind = "jsonl"
    file = "{tmp_path / "rows.jsonl"}"
    at_end = "stop"
    [arrivals]
    kind = "constant"
    [ramp]
    kind = "ladder"
    rates = [4, 4, 4, 4]
    warmup_s = 0
    measure_s = 10
    settle_s = 0
    settle_requests = 0
    tail_s = 0
    """
    run = ramp_in_memory(scenario_of(text), tmp_path)
    assert len(run.rows) == 3
    assert "the next step would need about 40 rows, the file has " in run.info.ending
    assert run.info.state == "stopped"
    assert sorted(run.table.seq.tolist()) == list(range(len(run.table)))
