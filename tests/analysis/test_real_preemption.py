"""A real vLLM with a KV pool too small for its load: diagnosed so, with its metrics and without; counts agree."""

import gzip
import json
from pathlib import Path

import pytest

from loadramp.analysis.checks.crosscheck import compare
from loadramp.record.run_info import MetricsInfo, RunInfo
from loadramp.record.table import Run, Table
from loadramp.record.types import Record, Sample, Step
from loadramp.runner.assess import assess
from loadramp.runner.scenarios import load

DATA = Path(__file__).parents[1] / "data" / "vllm-kv24"
STEPS = {2: Step(2, rate_rps=2.0, begin_s=65.5785, warmup_s=10.0, measure_s=40.0),
         5: Step(5, rate_rps=16.0, begin_s=215.8186, warmup_s=10.0, measure_s=40.0)}  # fmt: skip


def records() -> list[Record]:
    out = []
    for line in gzip.decompress((DATA / "records.jsonl.gz").read_bytes()).splitlines():
        step, due, sent, prompt, gaps, several = json.loads(line)
        event_s, t_s = [], due / 1e4
        for gap in gaps:
            t_s += gap / 1e4
            event_s.append(t_s)
        tokens = [1] * len(gaps)
        for event, k in several:
            tokens[event] = k
        out.append(
            Record(len(out), step, due / 1e4, sent_s=(due + sent) / 1e4, event_s=event_s, event_tokens=tokens,
                   stream_end_s=t_s, status="ok", prompt_tokens=prompt, output_tokens=sum(tokens),
                   asked_output_tokens=200, token_source="continuous", stamps="kernel")
        )  # fmt: skip
    return out


def samples() -> list[Sample]:
    names, *rows = map(json.loads, gzip.decompress((DATA / "server.jsonl.gz").read_bytes()).splitlines())
    return [Sample(t_s, "a", dict(zip(names, values, strict=True)), 0.014) for t_s, *values in rows]


@pytest.fixture(scope="module")
def table() -> Table:
    return Table.of(records())


def judged(table: Table, scrapes: list[Sample]) -> Run:
    info = RunInfo(metrics=MetricsInfo("vllm"))
    return assess(Run(info, load(""), list(STEPS.values()), table, scrapes))


def test_preemptions_that_vllm_counts_are_certain(table: Table) -> None:
    run = judged(table, samples())
    first = run.findings[0]
    assert (first.code, first.confidence, first.steps) == ("kv_eviction", "certain", (5,))
    assert first.evidence[0] == "317 preemptions among 679 requests at 16 req/s (46.7 %, 476 a minute)"
    assert first.evidence[1] == "KV cache up to 100 % full there"
    assert [cure.change for cure in first.cures[:2]] == ["--max-model-len 512", "--kv-cache-dtype fp8"]


def test_streams_that_freeze_alone_give_it_away_without_metrics(table: Table) -> None:
    first = judged(table, []).findings[0]
    assert (first.code, first.confidence, first.steps) == ("kv_eviction", "likely", (5,))
    assert "single streams while the others went on" in first.evidence[0]


def test_client_and_vllm_count_the_same_to_the_token(table: Table) -> None:
    run = judged(table, samples())
    quiet, loud = (compare(row, table, run.samples) for row in run.rows)
    assert [(one.name, one.server) for one in quiet] == [
        ("requests", 68.0), ("prompt_tokens", 4514.0), ("output_tokens", 13_653.0),
    ]  # fmt: skip
    for one in (*quiet, *loud):
        assert one.agrees
        assert min(abs(one.server - one.low), abs(one.server - one.high)) <= 0.005 * one.server
    assert not [check for check in run.checks if check.code == "server_counts"]
