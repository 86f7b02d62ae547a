"""Text that loadramp made up is no evidence about real traffic, so the diagnosis draws nothing from it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulated_ramps import codes, ladder

from loadramp.analysis.diagnosis.diagnose import diagnose
from loadramp.client import input_files
from loadramp.record.run_info import read_info
from loadramp.record.table import Run
from loadramp.runner.scenarios import load
from loadramp.simulator.profiles import PROFILES

MIX = """
[prompts]
kind = "mix"
[[prompts.sources]]
kind = "conversations"
file = "talks.json"
weight = 9
[[prompts.sources]]
kind = "lognormal"
"""
REAL_MIX = MIX.replace('"lognormal"', '"jsonl"\nfile = "rows.jsonl"')


def files(*blocks: int, where: str = "prompts") -> dict[str, Any]:
    return {"files": [{"table": where, "file": "t", "blocks": n} for n in blocks]}


MADE_UP: list[tuple[str, dict[str, Any]]] = [
    ("", {}),
    ('[prompts]\nkind = "lognormal"\n', {}),
    ('[prompts]\nkind = "uniform"\n', {}),
    ('[prompts]\nkind = "fixed"\n', {}),
    ('[prompts]\nkind = "fixed"\nunique = false\n', {}),
    ('[prompts]\nkind = "trace"\nfile = "azure.csv"\n', files(0)),
    ('[prompts]\nkind = "trace"\nfile = "azure.csv"\n', {}),
    ('[prompts]\nkind = "conversations"\n', {"overrides": ["prompts.kind=fixed"]}),
    ('[prompts]\nkind = "text"\nfile = "sonnet.txt"\ninput_tokens = 500\n', files(0)),
    (MIX, {}),
]
REAL: list[tuple[str, dict[str, Any]]] = [
    ('[prompts]\nkind = "conversations"\nfile = "talks.json"\n', files(0)),
    ('[prompts]\nkind = "jsonl"\nfile = "rows.jsonl"\n', files(0)),
    ('[prompts]\nkind = "trace"\nfile = "mooncake.jsonl"\n', files(4000)),
    ('[prompts]\nkind = "text"\nfile = "questions.txt"\n', files(0)),
    ('[prompts]\nkind = "lognormal"\n', {"overrides": ['prompts.kind="conversations"', "prompts.file=t"]}),
    (REAL_MIX, {}),
]


def some_hits(n: int) -> list[list[int]]:
    """One request in six shares its blocks with the others."""
    return [list(range(60)) if i % 6 == 0 else [] for i in range(n)]


def measured() -> Run:
    """A healthy ladder in which the cache found 8 % of the prompt tokens."""
    return ladder(PROFILES["small"], [2, 4], blocks=some_hits)


@pytest.mark.long
@pytest.mark.parametrize(("text", "info"), MADE_UP)
def test_made_up_prompts_say_nothing_about_prefix_caching(text: str, info: dict[str, Any]) -> None:
    scenario = load(text, overrides=info.get("overrides", []))
    run = replace(measured(), scenario=scenario, info=read_info(info))
    assert "prefix_cache_idle" not in {one.code for one in diagnose(run)}


@pytest.mark.parametrize(("text", "info"), REAL)
def test_prompts_of_real_text_or_with_blocks_are_evidence(text: str, info: dict[str, Any]) -> None:
    scenario = load(text, overrides=info.get("overrides", []))
    run = replace(measured(), scenario=scenario, info=read_info(info))
    assert "prefix_cache_idle" in {one.code for one in diagnose(run)}


def test_new_text_that_was_in_the_cache_is_still_told_of_a_trace_without_blocks() -> None:
    text = '[prompts]\nkind = "trace"\nfile = "azure.csv"\n'
    run = replace(measured(), scenario=load(text), info=read_info(files(0)))
    assert "prefix_cache_accidental" in {one.code for one in diagnose(run)}
    mooncake = replace(run, info=read_info(files(4000)))
    assert "prefix_cache_accidental" not in {one.code for one in diagnose(mooncake)}
    assert codes(measured()) == ["prefix_cache_accidental"]


def test_a_run_notes_how_many_blocks_its_trace_has(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,input_tokens,output_tokens\n0,20,5\n1,20,5\n")
    rows = [{"timestamp": i, "input_length": 600, "output_length": 5, "hash_ids": [0, i]} for i in (1, 2)]
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name, blocks in (("a.csv", 0), ("b.jsonl", 4)):
        text = f'[prompts]\nkind = "trace"\nfile = "{tmp_path / name}"\n[knee]\nkind = "test_cases_madeup:_no_knee"\n'
        assert [note.blocks for note in input_files.notes(input_files.with_files(load(text)))] == [blocks]


def _no_knee(rows: object) -> None:
    return None
