"""What ``loadramp plan`` shows of a night: the steps that ``loadramp nightly`` would take."""

from __future__ import annotations

from pathlib import Path

from test_offered import LADDER, trace
from test_preview import RAMP, levels, planned

from loadramp.nightly.night import reference_first
from loadramp.runner.scenarios import load


def test_a_night_shows_its_reference_step_and_how_often_it_runs(tmp_path: Path) -> None:
    document, words = planned(RAMP + "[nightly]\nrepeats = 3\nreference_rps = 1.5\nreference_s = 40\n", tmp_path)
    (part,) = document["nightly"]
    assert levels(part["steps"]) == [
        ("settle", 1.5, 0.0, 10.0), ("step", 1.5, 5.0, 40.0), ("step", 1.0, 5.0, 20.0), ("step", 2.0, 5.0, 20.0),
    ]  # fmt: skip
    assert part["runs"] == 3
    assert "== loadramp nightly: 3 runs of these steps (5.2 min in all)" in words
    assert load(RAMP).ramp.function is not reference_first
    _, words = planned(RAMP + "[nightly]\nrepeats = 2\n", tmp_path)
    assert "a step at 50 % of the first one found comes before these" in words


def test_the_steps_of_a_night_say_what_they_offer(tmp_path: Path) -> None:
    trace(tmp_path)
    document, _ = planned(
        f'[arrivals]\nkind = "replay"\nfile = "trace.csv"\n{LADDER}[nightly]\nreference_rps = 4\n', tmp_path
    )
    assert any("8" in note and "offered" in note for note in document["nightly"][0]["notes"])
