"""Eleven steps of 45 s at 24 req/s on a real vLLM 0.25.1, one H200, every token (10 us): what its pace does.

The tokens of one engine step came within 2 ms and have one instant here; the prompts and their tokens are as sent.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from loadramp.record.run_info import RunInfo
from loadramp.record.table import Run, Table
from loadramp.record.types import Record, Step
from loadramp.runner.scenarios import load
from loadramp.scenario.scenario import Scenario

DATA = Path(__file__).parent / "data" / "h200" / "ladder_24.npz"
RATE_RPS, WARMUP_S, MEASURE_S = 24.0, 2.0, 45.0


def scenario() -> Scenario:
    return load("[ramp]\nkind = 'ladder'\nrates = [24]\n", "ladder.toml")


def captured() -> Run:
    with np.load(DATA) as data:
        tick_s = np.cumsum(data["tick_10us"].astype(np.int64)) / 1e5
        due_s = np.cumsum(data["due_us"].astype(np.int64)) / 1e6
        first = np.cumsum(data["first_tick"].astype(np.int64))
        tokens, prompts = data["tokens"].astype(np.int64), data["prompt_tokens"]
        merged, merged_tokens = np.cumsum(data["merged"].astype(np.int64)), data["merged_tokens"].astype(np.int64)
        begins_s = data["begin_s"]
    event_tokens = np.ones(int(tokens.sum()) - int((merged_tokens - 1).sum()), dtype=np.int64)
    event_tokens[merged] = merged_tokens
    through = np.cumsum(event_tokens)  # a token a tick: an event of two came with the second
    owner = np.searchsorted(np.cumsum(tokens), through)
    begin = np.concatenate((np.searchsorted(owner, np.arange(len(tokens))), [len(owner)]))
    before = np.concatenate(([0], np.cumsum(tokens)[:-1]))
    opening = event_tokens[begin[:-1]]
    at = first[owner] + through - before[owner] - opening[owner]
    event_s = tick_s[np.minimum(at, len(tick_s) - 1)]
    ends_s = event_s[begin[1:] - 1].tolist()
    records = [
        Record(
            i, 0, due, sent_s=due, first_byte_s=due, answer_s=due, stream_end_s=end_s, status="ok", http_status=200,
            prompt_tokens=prompt, asked_input_tokens=prompt, output_tokens=n, asked_output_tokens=n, done_marker=True,
            token_source="usage", finish_reason="length",
        )
        for i, (due, end_s, prompt, n) in enumerate(
            zip(due_s.tolist(), ends_s, prompts.tolist(), tokens.tolist(), strict=True)
        )
    ]  # fmt: skip
    table = replace(
        Table.of(records), begin=begin, event_s=event_s, event_tokens=event_tokens, event_choice=np.zeros_like(owner)
    )
    steps = [
        Step(k, rate_rps=RATE_RPS, begin_s=at_s, warmup_s=WARMUP_S, measure_s=MEASURE_S)
        for k, at_s in enumerate(begins_s.tolist())
    ]
    return Run(info=RunInfo(), scenario=scenario(), steps=steps, table=table, samples=[], client=[])
