"""Cures: ranked, with flags that exist, filled with figures of the run, and a proof."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import row, served

from loadramp.advise.cures import CURES, RANK, cures_of, engine_of, figures_of, with_cures
from loadramp.advise.remedies import ENGINES, REMEDIES
from loadramp.advise.runbooks import RUNBOOK_OF, RUNBOOKS, runbook_of
from loadramp.judge.diagnose import RULES
from loadramp.record.table import Table
from loadramp.record.types import Finding, Record
from loadramp.report.diagnosis import TITLES

DATA = Path(__file__).parent / "data"
FLAGS = {engine: DATA / "cure_flags" / f"{engine}.txt" for engine in ENGINES} | {
    "vllm": DATA / "flags" / "vllm-0.32.txt"
}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_flag_of_a_cure_is_one_the_engine_has(engine: str) -> None:
    known = set(FLAGS[engine].read_text().splitlines())
    used = {
        flag
        for remedy in REMEDIES.values()
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z0-9_-]+", remedy.flags.get(engine, ""))
    }
    assert used
    assert used <= known


def test_flags_are_given_for_known_engines_only() -> None:
    assert {engine for remedy in REMEDIES.values() for engine in remedy.flags} <= set(ENGINES)


@pytest.mark.parametrize("code", CURES)
def test_cures_stand_in_the_order_in_which_they_are_worth_trying(code: str) -> None:
    ranked = [RANK.index(name) for name in CURES[code] if name in RANK]
    assert ranked == sorted(ranked)
    assert len(set(CURES[code])) == len(CURES[code])


def test_the_order_is_that_of_the_sources() -> None:
    order = ("quantized_weights", "fp8_kv_cache", "prefix_caching", "chunked_prefill", "context_cap")
    assert RANK[:5] == order
    assert RANK.index("context_cap") < RANK.index("fewer_sequences") < RANK.index("replicas")


def test_tokens_that_wait_for_prompts_are_helped_by_smaller_chunks_first() -> None:
    first, *_ = cures_of("prefill_contention", "vllm", {})
    assert "--max-num-batched-tokens" in first.change


def test_every_cure_says_what_when_and_how_to_prove_it() -> None:
    for code in CURES:
        for cure in cures_of(code, "vllm", {}):
            assert cure.action.endswith(".")
            assert cure.when
            assert "again" in cure.proof
            assert "{" not in cure.when + cure.change


def test_every_finding_that_is_no_praise_has_cures_and_a_title() -> None:
    codes = set(CURES) | {"healthy"}
    assert set(TITLES) == codes
    named = {rule.__name__ for rule in RULES} - {"prefix_cache"}
    assert named <= codes


def test_flags_are_filled_with_figures_of_the_run() -> None:
    run = served(rows=[row(0, 8.0, running_max=60.0), row(1, 16.0, running_max=64.0)])
    figures = figures_of(run)
    assert figures == {"longest": 2012, "context": 2304, "fewer": 51, "more": 128}
    by_name = {cure.name: cure for cure in cures_of("kv_eviction", "vllm", figures)}
    assert by_name["fewer_sequences"].change == "--max-num-seqs 51"
    assert by_name["context_cap"].change == "--max-model-len 2304"
    assert "2012 tokens" in by_name["context_cap"].when
    assert by_name["fp8_kv_cache"].proof == (
        "run this ramp again with --kv-cache-dtype fp8, same scenario and seed, and compare: loadramp compare BASE CAND"
    )


def test_without_figures_a_flag_shows_n_and_without_an_engine_no_flag() -> None:
    assert figures_of(served(table=Table.of([]), rows=[])) == {}
    more = {cure.name: cure.change for cure in cures_of("scheduler_oversubscription", "sglang", {})}
    assert more["more_sequences"] == "--max-running-requests N"
    assert {cure.change for cure in cures_of("kv_eviction", "", {})} == {""}
    assert cures_of("kv_eviction", "", {})[0].proof.startswith("run this ramp again with this changed")


@pytest.mark.parametrize(
    ("info", "engine"),
    [
        ({"metrics": {"dialect": "vllm"}}, "vllm"),
        ({"metrics": {"dialect": "dcgm"}, "target": {"engine": "sglang"}}, "sglang"),
        ({"target": {"engine": "llamacpp"}}, "llamacpp"),
        ({"target": {"engine": "TensorRT-LLM"}}, "trtllm"),
        ({"target": {"engine": "somebody"}}, ""),
        ({"target": "http://host"}, ""),
        ({}, ""),
    ],
)
def test_the_engine_is_known_from_its_page_or_from_what_it_calls_itself(info: dict[str, object], engine: str) -> None:
    assert engine_of(served(info=info)) == engine


def test_findings_keep_their_evidence_and_get_cures() -> None:
    run = served(info={"metrics": {"dialect": "vllm"}})
    run.findings = [Finding("kv_eviction", "certain", ("12 preemptions",), (3,)), Finding("healthy", "likely", ())]
    first, second = with_cures(run)
    assert (first.evidence, first.steps, first.cures[0].name) == (("12 preemptions",), (3,), "quantized_weights")
    assert second.cures == ()


def test_runbooks_are_steps_for_findings_that_exist() -> None:
    assert set(RUNBOOKS) == {"high_latency", "out_of_memory", "hardware_fault"}
    assert set(RUNBOOK_OF) <= set(CURES)
    assert set(RUNBOOK_OF.values()) == set(RUNBOOKS)
    assert all(len(book.steps) >= 5 for book in RUNBOOKS.values())
    assert runbook_of("healthy") is None
    kv = runbook_of("kv_eviction")
    assert kv is not None
    assert kv.title == "High latency"


def test_a_client_that_ran_out_of_files_is_not_told_to_use_more_workers() -> None:
    detail = "too many open files: raise the limit (ulimit -n)"
    held = "not sent: 936 requests in flight (max_in_flight, or the limit on open files)"
    refused = Record(0, 0, 0.0, status="error", error="client", error_detail=detail)
    run = served(rows=[row(0, 8.0)])
    run.findings = [Finding("client_limited", "certain", ("1 of 1 steps are void",))]
    assert [cure.name for cure in with_cures(run)[0].cures] == ["stronger_client"]
    for record in (refused, replace(refused, error_detail=held)):
        run.table = Table.of([record])
        cure = with_cures(run)[0].cures[0]
        assert "open files" in cure.action
        assert "workers" not in cure.action + cure.when + cure.proof
