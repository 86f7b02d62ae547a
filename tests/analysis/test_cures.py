"""Cures: ranked, with flags that exist, filled with figures of the run, and a proof."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import row, served

from loadramp.analysis.diagnosis.cures import CURES, OF_CAUSE, RANK, cures_of, engine_of, figures_of, with_cures
from loadramp.analysis.diagnosis.diagnose import RULES
from loadramp.analysis.diagnosis.remedies import ENGINES, REMEDIES, RUNBOOK_OF, RUNBOOKS, runbook_of
from loadramp.record.table import Table
from loadramp.record.types import Finding, Record
from loadramp.report.diagnosis import TITLES

DATA = Path(__file__).parents[1] / "data"
FLAGS = {engine: DATA / "cure_flags" / f"{engine}.txt" for engine in ENGINES} | {
    "vllm": DATA / "flags" / "vllm-0.32.txt"
}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_flag_of_a_cure_is_one_the_engine_has(engine: str) -> None:
    known = set(FLAGS[engine].read_text().splitlines())
    used = {
        flag
        for remedy in REMEDIES.values()
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z0-9_-]+", remedy.change(engine))
    }
    assert used
    assert used <= known


def test_flags_are_given_for_known_engines_only() -> None:
    assert {engine for remedy in REMEDIES.values() for engine in (*remedy.flags, *remedy.words)} <= set(ENGINES)


@pytest.mark.parametrize("code", sorted(set(CURES) - OF_CAUSE))
def test_cures_stand_in_the_order_in_which_they_are_worth_trying(code: str) -> None:
    ranked = [RANK.index(name) for name in CURES[code] if name in RANK]
    assert ranked == sorted(ranked)
    assert len(set(CURES[code])) == len(CURES[code])


@pytest.mark.parametrize("engine", ENGINES)
def test_evicted_caches_are_helped_first_by_what_needs_only_a_flag(engine: str) -> None:
    for code in ("kv_eviction", "kv_full"):
        names = [cure.name for cure in cures_of(code, engine, {})]
        assert names[:2] == ["context_cap", "fp8_kv_cache"]
        assert names.index("more_kv_memory") < names.index("quantized_weights") < names.index("larger_gpu")
        assert names[-1] == "replicas"


def test_memory_that_ran_out_is_budgeted_anew_first() -> None:
    names = [cure.name for cure in cures_of("out_of_memory", "vllm", {})]
    assert names[:5] == ["logs", "memory_budget", "less_memory", "context_cap", "fewer_sequences"]
    less = next(cure for cure in cures_of("out_of_memory", "vllm", {}) if cure.name == "less_memory")
    assert less.change == "--gpu-memory-utilization 0.88"


@pytest.mark.parametrize("engine", ENGINES)
def test_no_cure_takes_more_than_90_percent_of_a_gpu(engine: str) -> None:
    shares = [
        float(share)
        for remedy in REMEDIES.values()
        for share in re.findall(r"(?:utilization|fraction|static|entry-count)[a-z_-]* (0\.\d+)", remedy.change(engine))
    ]
    assert all(share <= 0.90 for share in shares)
    assert shares or engine == "llamacpp"
    assert "unless nothing else uses the GPU" in REMEDIES["more_kv_memory"].when


@pytest.mark.parametrize(("version", "change"), [("0.28.0", ""), ("0.29.0", "--max-num-queued-reqs N"), ("?", "--max")])
def test_a_cure_names_no_flag_that_the_engine_does_not_have(version: str, change: str) -> None:
    run = served(info={"metrics": {"dialect": "vllm"}, "target": {"version": version}})
    run.findings = [Finding("compute_bound", "likely", ())]
    queue = next(cure for cure in with_cures(run.findings, run)[0].cures if cure.name == "queue_limit")
    assert queue.change.startswith(change)
    assert bool(queue.change) == bool(change)


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
        ({}, ""),
    ],
)
def test_the_engine_is_known_from_its_page_or_from_what_it_calls_itself(info: dict[str, object], engine: str) -> None:
    assert engine_of(served(info=info)) == engine


def test_findings_keep_their_evidence_and_get_cures() -> None:
    run = served(info={"metrics": {"dialect": "vllm"}})
    run.findings = [Finding("kv_eviction", "certain", ("12 preemptions",), (3,)), Finding("healthy", "likely", ())]
    first, second = with_cures(run.findings, run)
    assert (first.evidence, first.steps, first.cures[0].name) == (("12 preemptions",), (3,), "context_cap")
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
    assert [cure.name for cure in with_cures(run.findings, run)[0].cures] == ["stronger_client"]
    for record in (refused, replace(refused, error_detail=held)):
        run.table = Table.of([record])
        cure = with_cures(run.findings, run)[0].cures[0]
        assert "open files" in cure.action
        assert "workers" not in cure.action + cure.when + cure.proof
