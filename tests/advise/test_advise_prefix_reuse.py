"""Text that loadramp made up is no evidence about the reuse of prefixes: not in advice, not in flags."""

from __future__ import annotations

from typing import Any

import pytest
from test_cases_madeup import MADE_UP, REAL

from loadramp.advise.demand import Demand, prefix_reuse_of
from loadramp.advise.flags import _prefix
from loadramp.record.run_info import read_info
from loadramp.record.table import Run, Table
from loadramp.record.types import Record
from loadramp.runner.scenarios import load


@pytest.mark.parametrize(("text", "info"), MADE_UP)
def test_made_up_prompts_set_no_flag_of_prefix_caching(text: str, info: dict[str, Any]) -> None:
    scenario = load(text, overrides=info.get("overrides", []))
    cached = Table.of([Record(0, 0, 0.0, status="ok", event_s=[0.1], prompt_tokens=100, cached_tokens=2)])
    reuse, why = prefix_reuse_of(Run(read_info(info), scenario, [], cached))
    assert reuse is None
    assert "says nothing about real traffic" in why
    flag = _prefix(Demand(reuse_reason=why), "--enable-prefix-caching", "--no-enable-prefix-caching")
    assert not flag.set
    assert "--no" not in flag.words


@pytest.mark.parametrize(("text", "info"), REAL)
def test_prompts_of_real_text_or_with_blocks_show_how_much_is_reused(text: str, info: dict[str, Any]) -> None:
    scenario = load(text, overrides=info.get("overrides", []))
    cached = Table.of([Record(0, 0, 0.0, status="ok", event_s=[0.1], prompt_tokens=100, cached_tokens=2)])
    assert prefix_reuse_of(Run(read_info(info), scenario, [], cached)) == (0.02, "")
