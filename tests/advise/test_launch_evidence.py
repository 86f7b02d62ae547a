"""What a launch learns of its alert rules: how many there are, and what none of them watches."""

from __future__ import annotations

import pytest
import yaml
from rule_text import series_in, series_of
from test_alerts import ENGINES, GPU, contract_of, run

from loadramp.advise.alerts import prometheus_rules
from loadramp.advise.launch_evidence import alerts_of, replicas_of, unwatched
from loadramp.metrics.dialects import DIALECTS
from loadramp.record.run_info import MetricsInfo
from loadramp.record.types import Sample


@pytest.mark.parametrize("engine", ENGINES)
def test_the_rules_of_every_engine_are_whole_and_read_series_that_there_are(engine: str) -> None:
    text = prometheus_rules(contract_of(run(samples=GPU), engine, selector='job="a",model_name="b{}c"'))
    for rule in yaml.safe_load(text)["groups"][0]["rules"]:
        assert rule["alert"]
        assert rule["labels"]
        assert rule["for"].removesuffix("m").isdecimal()
        assert set(series_in(rule["expr"])) <= series_of(engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_no_rule_watches_is_named(engine: str) -> None:
    measured = run(samples=GPU)
    measured.info = measured.info.__class__(name="x y", metrics=MetricsInfo(engine))
    found, text = alerts_of("x y", "ramp", measured)
    assert found.rules == text.count("- alert: ")
    assert (found.phase, found.engine) == ("ramp", engine)
    assert ("error rate" in found.missing) == ("requests_failed" not in DIALECTS[engine])
    assert "GPU health" not in found.missing
    assert "loadramp-x-y" in text


def test_an_idle_gpu_is_not_its_health() -> None:
    assert unwatched(["LLMGPUIdleWarning"]) == ["error rate", "latency", "GPU health"]


def test_a_run_without_metrics_makes_no_rules() -> None:
    unseen = run(samples=[])
    unseen.info = unseen.info.__class__()
    found, text = alerts_of("x", "ramp", unseen)
    assert (found.rules, text) == (0, "")
    assert found.refused.startswith("the run saw no metrics")


def test_replicas_are_counted_by_their_pages() -> None:
    pages = [Sample(0.0, url, {"running": 1.0}) for url in ("a", "b", "a")]
    assert replicas_of(run(samples=[*pages, Sample(0.0, "gpu", {"gpu_util_ratio": 0.5})])) == 2
    assert replicas_of(run(samples=[])) == 1
