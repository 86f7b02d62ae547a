"""What ``loadramp plan`` shows of a campaign: the steps of its phases."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_preview import RAMP, levels, planned


def test_a_campaign_shows_the_steps_of_its_phases_where_the_target_is_known(tmp_path: Path) -> None:
    text = RAMP + "[campaign]\ntarget_rps = 3\n[campaign.sustained]\nmeasure_s = 7200\n"
    document, words = planned(text, tmp_path)
    parts = {part["title"].removeprefix("campaign: "): levels(part["steps"]) for part in document["campaign"]}
    assert list(parts) == ["baseline", "ramp", "sustained", "overload", "chaos"]
    assert parts["baseline"][-1] == ("step", 1, 10.0, 300.0)
    assert parts["ramp"] == [("settle", 1.0, 0.0, 10.0), ("step", 1.0, 5.0, 20.0), ("step", 2.0, 5.0, 20.0)]
    assert parts["sustained"] == [("settle", 3.0, 0.0, 10.0), *[("step", 3.0, 0.0, 3600.0)] * 2]
    assert [one[1] for one in parts["overload"][1:]] == pytest.approx([3.0, 3.6, 6.0, 3.0])
    assert "Left out without --chaos CMD." in words
    document, words = planned(RAMP + "[campaign]\n", tmp_path)
    assert document["campaign"][2]["steps"] == []
    assert "60 min, at 70 % of what the ramp finds." in words
