"""What ``loadramp plan`` shows: the steps that the command would take, and what no process can hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_in_memory import ramp_in_memory, scenario_of

from loadramp.cli import main
from loadramp.record.row import Row
from loadramp.record.types import Step
from loadramp.runner.preview import of_scenario
from loadramp.runner.scenarios import load
from loadramp.workload.preview import ahead_s
from loadramp.workload.schedule import LOOKED_AT, beginning

COMMON = '[prompts]\nkind = "fixed"\ninput_tokens = 50\noutput_tokens = 10\n'
RAMP = '[ramp]\nkind = "ladder"\nrates = [1, 2]\nwarmup_s = 5\nmeasure_s = 20\nsettle_s = 10\nsettle_requests = 0\n'


def planned(text: str, tmp_path: Path) -> tuple[dict[str, Any], str]:
    path = tmp_path / "own.toml"
    path.write_text(COMMON + text)
    return of_scenario(path)


def levels(steps: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(s["role"], s["rate_rps"] or s["users"], s["warmup_s"], s["measure_s"]) for s in steps]


def test_a_step_of_an_absurd_rate_is_counted_from_its_begin(tmp_path: Path) -> None:
    text = '[arrivals]\nkind = "constant"\n[ramp]\nkind = "ladder"\nrates = [1000000]\nwarmup_s = 10\nmeasure_s = 50\n'
    scenario = load(COMMON + text)
    step = Step(1, rate_rps=1e6, begin_s=5.0, warmup_s=10.0, measure_s=50.0)
    plan = beginning(scenario, step, 7)
    assert (len(plan), plan.first_seq, plan.due_s[0]) == (LOOKED_AT, 7, pytest.approx(5.0000005))
    assert plan.due_s[-1] == pytest.approx(6.0, abs=1e-5)
    document, _ = planned(text + "settle_s = 0\nsettle_requests = 0\n", tmp_path)
    (told,) = document["steps"]
    assert (told["requests"], told["input_tokens"], told["output_tokens"]) == (60_000_000, 3_000_000_000, 600_000_000)


def test_a_rate_that_no_process_can_hold_is_refused_with_what_to_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.toml"
    path.write_text(COMMON + '[ramp]\nkind = "geometric"\nstart_rps = 1e4\nfactor = 100\nmax_rps = 1e9\n')
    with pytest.raises(SystemExit) as left:
        main(["plan", str(path)])
    assert left.value.code == 2
    told = capsys.readouterr()
    assert (told.out, told.err) == (
        "",
        "loadramp: [ramp] a step of 70 s at 1e+08 req/s has more than 100,000,000 requests: "
        "lower its rate (max_rps), or make it shorter (measure_s)\n",
    )


CLIMB = 'kind = "ceiling"\nmax_rps = 8\nwarmup_s = 10\nmeasure_s = 50\nsoak_s = 100\n'


@pytest.mark.parametrize(
    ("ramp", "rows", "seconds"),
    [
        ('kind = "ladder"\nrates = [1, 2, 3]\nwarmup_s = 10\nmeasure_s = 50\n', 1, (120.0, 120.0)),
        (CLIMB, 0, (60.0 + 110.0, 60.0 + 3 * 110.0)),  # a ceiling in the first step; a soak, or three
        (CLIMB, 2, (120.0, 60.0 + 3 * 110.0)),  # or none up to 8 req/s
        (CLIMB, 4, (0.0, 0.0)),
        ('kind = "geometric"\nmax_rps = 64\nwarmup_s = 10\nmeasure_s = 50\n', 1, (120.0, 360.0)),
    ],
)
def test_what_is_ahead_of_a_ramp_depends_on_when_the_endpoint_gives_way(
    ramp: str, rows: int, seconds: tuple[float, float]
) -> None:
    quiet = [Row(rate_rps=2.0**k, overloaded=False) for k in range(rows)]
    assert ahead_s(load(f"{COMMON}[ramp]\n{ramp}"), quiet) == seconds


def test_what_is_ahead_of_a_ramp_of_one_s_own_is_not_known() -> None:
    assert ahead_s(load(f'{COMMON}[ramp]\nkind = "loadramp.workload.ramps:ladder"\nrates = [1]\n'), []) is None


def test_a_run_says_how_long_it_still_takes(tmp_path: Path) -> None:
    seen: dict[int, tuple[float, float] | None] = {}
    short = "rates = [2, 4]\nwarmup_s = 2\nmeasure_s = 8\nsettle_s = 5\nsettle_requests = 0\ntail_s = 3\n"
    text = f'{COMMON}[ramp]\nkind = "ladder"\n{short}'
    ramp_in_memory(scenario_of(text), tmp_path, watch=lambda one: seen.setdefault(round(one.t_s), one.left_s))
    assert seen[2] == pytest.approx((23.0, 23.0), abs=0.6)  # settling
    assert seen[9] == pytest.approx((16.0, 16.0), abs=0.6)
    assert seen[20] == pytest.approx((5.0, 5.0), abs=0.6)
    assert seen[27] == pytest.approx((1.0, 1.0), abs=0.6)  # the tail
