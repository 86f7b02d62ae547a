"""Rule files are read and checked as text: what is not whole, does not balance or names no series is found."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from test_alerts import ENGINES, GPU, contract_of, run

from loadramp.advise.alerts import prometheus_rules
from loadramp.advise.launch_evidence import (
    checked,
    expr_faults,
    faults_of,
    replicas_of,
    rules_in,
    series_in,
    series_of,
    unwatched,
)
from loadramp.metrics.dialects import DIALECTS
from loadramp.record.types import Sample

ANNOTATIONS: dict[str, Any] = {"labels": {"severity": "warning"}}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_rules_of_every_engine_are_valid(engine: str) -> None:
    text = prometheus_rules(contract_of(run(samples=GPU), engine, selector='job="a",model_name="b{}c"'))
    found = checked("ramp", engine, text)
    assert (found.faults, found.rules) == ([], len(yaml.safe_load(text)["groups"][0]["rules"]))
    shown = set(found.missing)
    assert ("error rate" in shown) == ("requests_failed" not in DIALECTS[engine])
    assert "GPU health" not in shown


def test_what_no_rule_watches_is_named() -> None:
    assert unwatched(rules_in(prometheus_rules(contract_of(run())))) == ["GPU health"]
    assert unwatched([{"alert": "LLMGPUIdleWarning"}]) == ["error rate", "latency", "GPU health"]


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        ('sum(rate(a{x="1"}[5m])) > 2', ""),
        ('a{x="(["} and on (instance) b', ""),
        ("sum by (le) (rate(a[5m])", "brackets do not balance"),
        ("sum(a]) > 1", "brackets do not balance"),
        ('a{x="1} > 2', "a quote is not closed"),
        ("c > 1e3", "no such series: c"),
        ("sum(rate(a[5m])) / sum(rate(other:name_total[5m]))", "no such series: other:name_total"),
    ],
)
def test_promql_that_cannot_be_is_found(expr: str, words: str) -> None:
    found = expr_faults(expr, {"a", "b"})
    assert (words in found[0]) if words else found == []


def test_series_are_told_from_functions_labels_and_words() -> None:
    expr = 'histogram_quantile(0.99, sum by (le) (rate(x_bucket{model="m"}[5m]))) > 1.5 or vector(0) unless y offset 5m'
    assert series_in(expr) == ["x_bucket", "y"]


@pytest.mark.parametrize(("rule", "words"), [
    ({"alert": "A", "expr": "a > 1", "for": "5m", **ANNOTATIONS}, []),
    ({"alert": "A", "expr": "a > 1", **ANNOTATIONS}, ["A: no for"]),
    ({"expr": "a > 1", "for": "5m"}, ["a rule without a name: no alert, labels"]),
    ({"alert": "A", "expr": "a > 1", "for": "soon", **ANNOTATIONS}, ["A: for is no duration: soon"]),
])  # fmt: skip
def test_rules_that_are_not_whole_are_found(rule: dict[str, Any], words: list[str]) -> None:
    assert faults_of([rule], {"a"}) == words


@pytest.mark.parametrize(
    "text", ["", "groups:\n", "groups: 1\n", "a: &x 1\n", "groups:\n- rules:\n  - alert\n", "a:\n b\nc"]
)
def test_what_is_no_rule_file_is_not_read(text: str) -> None:
    assert checked("ramp", "vllm", text).faults[0].startswith("not YAML that can be read: ")


def test_another_engine_s_names_are_found() -> None:
    text = prometheus_rules(contract_of(run(), "sglang"))
    found = checked("ramp", "vllm", text)
    assert "no such series: sglang:" in found.faults[0]
    assert "up" in series_of("vllm")


def test_replicas_are_counted_by_their_pages() -> None:
    pages = [Sample(0.0, url, {"running": 1.0}) for url in ("a", "b", "a")]
    assert replicas_of(run(samples=[*pages, Sample(0.0, "gpu", {"gpu_util_ratio": 0.5})])) == 2
    assert replicas_of(run(samples=[])) == 1
