"""Alert rules, board and scaler: made of the contract, in names that the engine has, and taken by Prometheus itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from curve_rows import changed
from hypothesis import given, settings
from hypothesis import strategies as st
from metrics_pages import page, read
from report_runs import estimates, served, served_rows
from rule_text import series_in, series_of

from loadramp.advise.alert_export import contract_of, in_flight_at, keda_scaler, names_of_engine
from loadramp.advise.alerts import prometheus_rules, yaml_text
from loadramp.advise.contract import Contract
from loadramp.advise.grafana import grafana_board
from loadramp.metrics.dialects import DIALECTS, wanted
from loadramp.metrics.prometheus_text import names
from loadramp.record.run_info import MetricsInfo
from loadramp.record.table import Run
from loadramp.record.types import Estimate, Sample
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Slo

ROOT = Path(__file__).parents[2]
ENGINES = sorted(set(DIALECTS) - {"dcgm"})


def run(**more: Any) -> Run:
    rows = [changed(one, in_flight_mean=4.0 * (one.rate_rps or 0.0)) for one in served_rows()]
    return served(**({"rows": rows, "info": replace(served().info, metrics=MetricsInfo("vllm"))} | more))


def contract(engine: str = "vllm", **more: Any) -> Contract:
    return replace(contract_of(run(), engine), **more)


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("no promtool here (Debian: apt-get install prometheus)")
    return subprocess.run([found, *arguments], capture_output=True, text=True, timeout=60, check=False)


def rules_of(text: str) -> dict[str, dict[str, Any]]:
    (group,) = yaml.safe_load(text)["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def test_the_contract_is_the_slo_and_what_was_measured() -> None:
    found = contract()
    assert (found.scenario, found.engine, found.slo.limits) == ("chat", "vllm", {"ttft": 1.0, "itl": 0.06})
    assert found.capacity_rps == 12.4  # SLO capacity, below the sustained 13.6
    assert found.capacity_low_rps == 11.0
    assert found.planned_rps == pytest.approx(0.8 * 11.0)
    assert found.in_flight[0] == (2.0, 8.0)


def test_latencies_warn_at_one_and_a_half_times_the_slo_and_are_critical_at_twice() -> None:
    rules = rules_of(prometheus_rules(contract()))
    bucket = "histogram_quantile(0.99, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[5m])))"
    assert rules["LLMTTFTWarning"]["expr"] == f"{bucket} > 1.5"
    assert rules["LLMTTFTCritical"]["expr"] == f"{bucket} > 2"
    assert rules["LLMITLWarning"]["expr"].endswith("(rate(vllm:inter_token_latency_seconds_bucket[5m]))) > 0.09")
    assert rules["LLMKVCacheWarning"]["expr"] == "max(vllm:kv_cache_usage_perc) > 0.85"
    assert rules["LLMKVCacheCritical"]["expr"] == "max(vllm:kv_cache_usage_perc) > 0.95"
    assert {rule["labels"]["severity"] for rule in rules.values()} == {"warning", "critical"}
    assert {name[:-7] for name in rules if name.endswith("Warning")} == {
        "LLMTTFT", "LLMITL", "LLMKVCache", "LLMQueue", "LLMPreemptions", "LLMErrors", "LLMNearCapacity",
    }  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_gets_only_names_that_it_has_and_prometheus_takes_them(engine: str, tmp_path: Path) -> None:
    text = prometheus_rules(contract(engine))
    families = {re.sub(r"_(sum|count)$", "", name) for name in wanted(engine)} | set(wanted(engine))
    for rule in rules_of(text).values():
        plain = re.sub(r'\{[^}]*\}|\[[^\]]*\]|"[^"]*"', "", rule["expr"])
        words = set(re.findall(r"[a-zA-Z_][\w:]*", plain)) - {
            "histogram_quantile", "sum", "by", "le", "rate", "max", "avg", "or", "vector", "absent", "instance",
        }  # fmt: skip
        assert {word.removesuffix("_bucket") for word in words} <= families, rule["expr"]
    (tmp_path / "rules.yml").write_text(text)
    checked = promtool("check", "rules", tmp_path / "rules.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_an_engine_does_not_show_is_left_out_and_named() -> None:
    text = prometheus_rules(contract("tgi"))
    assert "Left out, because it was not measured or tgi does not show it: time to first token histogram" in text
    assert "LLMTTFTWarning" not in rules_of(text)
    bare = Contract("x", "some", {}, slo=Slo(ttft_s=1.0))
    with pytest.raises(ScenarioError, match="no alert can be made: some shows none of time to first token histogram"):
        prometheus_rules(bare)


UNIT = """
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'vllm:kv_cache_usage_perc', values: '0.5x10 0.97x20'}
      - {series: 'vllm:num_requests_waiting', values: '0x10 60x30'}
      - {series: 'vllm:num_requests_running', values: '64x40'}
      - {series: 'vllm:request_success_total{finished_reason="stop"}', values: '0+540x40'}
      - {series: 'vllm:request_success_total{finished_reason="error"}', values: '0x10 0+30x30'}
      - {series: 'vllm:time_to_first_token_seconds_bucket{le="1"}', values: '0+600x10 6000+0x30'}
      - {series: 'vllm:time_to_first_token_seconds_bucket{le="5"}', values: '0+600x40'}
      - {series: 'vllm:time_to_first_token_seconds_bucket{le="+Inf"}', values: '0+600x40'}
    alert_rule_test:
"""


def expect(alert: str, minute: int, fires: bool, severity: str) -> str:
    head = f"      - eval_time: {minute}m\n        alertname: {alert}\n        exp_alerts:"
    labels = f"{{severity: {severity}, scenario: chat}}"
    return head + (f"\n          - exp_labels: {labels}\n" if fires else " []\n")


def test_the_alerts_fire_when_they_should_and_not_before(tmp_path: Path) -> None:
    """Prometheus's own rule tests: a quiet time, then a full cache, a queue, errors and slow first tokens."""
    plain = re.sub(r"\n *annotations:\n.*\n.*", "", prometheus_rules(contract()))  # only labels are compared
    (tmp_path / "rules.yml").write_text(plain)
    cases = [
        ("LLMKVCacheCritical", "critical"), ("LLMQueueWarning", "warning"), ("LLMErrorsWarning", "warning"),
        ("LLMTTFTCritical", "critical"),
    ]  # fmt: skip
    told = [expect(name, minute, minute == 25, severity) for name, severity in cases for minute in (8, 25)]
    told.append(expect("LLMNearCapacityWarning", 25, False, "warning"))
    told.append(expect("LLMPreemptionsWarning", 25, False, "warning"))
    (tmp_path / "test.yml").write_text(UNIT + "".join(told))
    done = promtool("test", "rules", tmp_path / "test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


SELECTOR = 'namespace="prod",job="vllm",model_name="org/m"'
GPU = [Sample(0.0, values={"gpu_memory_used_bytes": 1.0, "gpu_memory_free_bytes": 1.0, "gpu_temperature_c": 60.0,
                           "gpu_util_ratio": 0.5, "running": 1.0})]  # fmt: skip


def exprs(text: str) -> dict[str, str]:
    return {name: rule["expr"] for name, rule in rules_of(text).items()}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_selector_is_on_every_query(engine: str) -> None:
    chosen = contract_of(run(samples=GPU), engine, selector=SELECTOR)
    board = [t["expr"] for panel in json.loads(grafana_board(chosen))["panels"] for t in panel["targets"]]
    query = yaml.safe_load(keda_scaler(chosen))["spec"]["triggers"][0]["metadata"]["query"]
    rules = exprs(prometheus_rules(chosen))
    for expr in [*rules.values(), *board, query]:
        assert set(series_in(expr)) <= series_of(engine)
        series = re.findall(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}", expr)
        names = {name for name, _ in series}
        bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|by \(\w+\)", "", expr)
        left = set(re.findall(r"[a-zA-Z_:][\w:]*", bare)) - names
        assert left <= {"histogram_quantile", "sum", "rate", "max", "min", "avg", "or", "vector", "absent", "count",
                        "avg_over_time"}, expr  # fmt: skip
        for name, matchers in series:
            assert 'namespace="prod"' in matchers
            assert ('job="vllm"' in matchers) == (not name.startswith("DCGM")), expr
            assert ("model_name" in matchers) == (name != "up" and not name.startswith("DCGM")), expr


@pytest.mark.parametrize("engine", ENGINES)
def test_prometheus_takes_the_rules_with_a_selector(engine: str, tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(prometheus_rules(contract_of(run(samples=GPU), engine, selector=SELECTOR)))
    checked = promtool("check", "rules", tmp_path / "rules.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("engine", ENGINES)
def test_a_level_is_compared_with_one_replica_or_a_share_and_never_with_a_sum(engine: str) -> None:
    """What grows with the number of replicas stands against nothing that does not."""
    levels = {}
    for name, expr in exprs(prometheus_rules(contract_of(run(samples=GPU), engine, selector=SELECTOR))).items():
        left, _, level = expr.rpartition(" > ") if " > " in expr else expr.rpartition(" < ")
        plain = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", left or expr).removeprefix("60 * ")
        levels[name] = level
        share = re.fullmatch(r"(.*) / \((.*)\)", plain)
        if name.startswith("LLMErrors"):
            assert share is not None, expr
            assert share[1].strip("()") in share[2]
            continue
        assert re.match(r"(max|min|avg|absent|histogram_quantile|up\b)", plain), expr
        assert "sum(" not in plain, expr
        counted = any(word in name for word in ("Queue", "Preemptions", "NearCapacity", "RunningAtLimit"))
        assert ("sum by (instance) (" in plain) == counted, expr
    asked = {
        "LLMKVCacheWarning": "0.85", "LLMKVCacheCritical": "0.95", "LLMQueueWarning": "50", "LLMQueueCritical": "200",
        "LLMErrorsWarning": "0.005", "LLMErrorsCritical": "0.02", "LLMPreemptionsWarning": "5",
        "LLMPreemptionsCritical": "20", "LLMGPUTemperatureWarning": "80", "LLMGPUTemperatureCritical": "85",
        "LLMGPUMemoryCritical": "0.95", "LLMGPUIdleWarning": "20", "LLMAvailabilityWarning": "0.999",
        "LLMTTFTWarning": "1.5", "LLMTTFTCritical": "2",
    }  # fmt: skip
    assert {name: levels[name] for name in asked if name in levels} == {
        name: level for name, level in asked.items() if name in levels
    }
    if engine == "vllm":
        assert set(asked) <= set(levels)


def test_matchers_are_merged_with_those_that_a_series_has() -> None:
    found = exprs(prometheus_rules(contract_of(run(), selector='{model_name=~"a|b"}')))
    assert 'vllm:request_success_total{finished_reason!~"abort|error",model_name=~"a|b"}' in found["LLMErrorsWarning"]
    assert 'vllm:time_to_first_token_seconds_bucket{model_name=~"a|b"}[5m]' in found["LLMTTFTWarning"]
    assert "LLMTargetDownCritical" not in found  # a model is no target


@pytest.mark.parametrize("wrong", ["prod", "namespace=prod", 'a="b" c="d"', 'a="b",', 'a="b"} or up{c="d"', "="])
def test_a_selector_that_is_none_is_a_usage_error(wrong: str) -> None:
    if wrong == 'a="b",':  # Prometheus allows the comma
        assert contract_of(run(), selector=wrong).target == 'a="b"'
        return
    with pytest.raises(ScenarioError, match=r"--selector .*: expected matchers such as namespace="):
        contract_of(run(), selector=wrong)


def test_gpu_rules_are_made_of_what_the_exporter_shows() -> None:
    found = exprs(prometheus_rules(contract_of(run(samples=GPU), gpu_selector='job="dcgm"')))
    own = '{job="dcgm"}'
    used, free = f"DCGM_FI_DEV_FB_USED{own}", f"DCGM_FI_DEV_FB_FREE{own}"
    assert found["LLMGPUMemoryCritical"] == f"max({used} / ({used} + {free})) > 0.95"
    assert found["LLMGPUTemperatureWarning"] == f"max(DCGM_FI_DEV_GPU_TEMP{own}) > 80"
    assert found["LLMGPUTemperatureCritical"] == f"max(DCGM_FI_DEV_GPU_TEMP{own}) > 85"
    assert found["LLMGPUIdleWarning"] == f"avg(avg_over_time(DCGM_FI_DEV_GPU_UTIL{own}[1h])) < 20"
    assert found["LLMGPUSaturatedWarning"] == f"min(DCGM_FI_DEV_GPU_UTIL{own}) >= 99"
    titles = [panel["title"] for panel in json.loads(grafana_board(contract_of(run(samples=GPU))))["panels"]]
    assert {"GPU memory used", "GPU temperature", "GPU utilization"} <= set(titles)
    unseen = prometheus_rules(contract())
    assert "LLMGPU" not in unseen
    assert "GPU memory, GPU temperature, GPU utilization" in " ".join(unseen.replace("#", "").split())


def test_gpu_rules_fire_on_the_page_of_an_exporter(tmp_path: Path) -> None:
    """The documented page of two GPUs: one at 87 C with 95.06 % of its memory in use, 75 % busy on average."""
    text = page("dcgm")
    seen = Sample(0.0, values=read(text)[1])
    rules = prometheus_rules(contract_of(run(samples=[seen])))
    of_gpu = {name: expr for name, expr in exprs(rules).items() if name.startswith("LLMGPU")}
    assert set(of_gpu) == {"LLMGPUMemoryCritical", "LLMGPUTemperatureWarning", "LLMGPUTemperatureCritical",
                           "LLMGPUIdleWarning", "LLMGPUSaturatedWarning"}  # fmt: skip
    assert {name for expr in of_gpu.values() for name in series_in(expr)} <= set(names(text))
    lines = [line for line in text.splitlines() if line.startswith("DCGM_")]
    series = [f"      - {{series: '{one.rpartition(' ')[0]}', values: '{one.rpartition(' ')[2]}x90'}}" for one in lines]
    (tmp_path / "rules.yml").write_text(re.sub(r"\n *annotations:\n.*\n.*", "", rules))
    fire = {"LLMGPUMemoryCritical": True, "LLMGPUTemperatureWarning": True, "LLMGPUTemperatureCritical": True}
    told = [expect(name, 80, fire.get(name, False), "critical" if "Crit" in name else "warning") for name in of_gpu]
    (tmp_path / "test.yml").write_text(REPLICAS.replace("SERIES", "\n".join(series)) + "".join(told))
    done = promtool("test", "rules", tmp_path / "test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_target_down_and_availability_fire_for_one_of_many(tmp_path: Path) -> None:
    """Ten replicas, one of which is gone for ten minutes; a target of another job does not count."""
    series = [f"      - {{series: 'up{{job=\"vllm\",instance=\"{i}\"}}', values: '1x120'}}" for i in range(9)]
    series.append("      - {series: 'up{job=\"vllm\",instance=\"9\"}', values: '1x60 0x10 1x50'}")
    series.append("      - {series: 'up{job=\"other\",instance=\"9\"}', values: '0x120'}")
    rules = re.sub(r"\n *annotations:\n.*\n.*", "", prometheus_rules(contract_of(run(), selector='job="vllm"')))
    (tmp_path / "rules.yml").write_text(rules)
    down = '{severity: critical, scenario: chat, job: vllm, instance: "9"}'
    told = f"      - {{eval_time: 66m, alertname: LLMTargetDownCritical, exp_alerts: [{{exp_labels: {down}}}]}}\n"
    told += "".join(expect("LLMAvailabilityWarning", minute, minute == 80, "warning") for minute in (58, 80))
    told += expect("LLMTargetDownCritical", 100, False, "critical") + expect(
        "LLMNoTargetCritical", 100, False, "critical"
    )
    (tmp_path / "test.yml").write_text(REPLICAS.replace("SERIES", "\n".join(series)) + told)
    done = promtool("test", "rules", tmp_path / "test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


REPLICAS = """
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
SERIES
    alert_rule_test:
"""


@pytest.mark.parametrize(("replicas", "a_minute", "waiting", "preempted", "fires"), [
    (1, 480, 30, 3, False), (8, 480, 30, 3, False), (1, 720, 60, 8, True), (8, 720, 60, 8, True),
])  # fmt: skip
def test_no_rule_turns_wrong_when_replicas_are_added(
    replicas: int, a_minute: int, waiting: int, preempted: int, fires: bool, tmp_path: Path
) -> None:
    """Eight replicas that each carry what one did: measured was 11 req/s at least, 660 a minute."""
    series = [
        f"      - {{series: '{name}', values: '{values}'}}"
        for i in range(replicas)
        for name, values in (
            (f'vllm:request_success_total{{finished_reason="stop",instance="{i}"}}', f"0+{a_minute}x40"),
            (f'vllm:num_requests_waiting{{instance="{i}"}}', f"{waiting}x40"),
            (f'vllm:num_preemptions_total{{instance="{i}"}}', f"0+{preempted}x40"),
        )
    ]
    plain = re.sub(r"\n *annotations:\n.*\n.*", "", prometheus_rules(contract()))
    (tmp_path / "rules.yml").write_text(plain)
    names = ("LLMNearCapacityWarning", "LLMQueueWarning", "LLMPreemptionsWarning")
    told = [expect(name, 30, fires, "warning") for name in names]
    (tmp_path / "test.yml").write_text(REPLICAS.replace("SERIES", "\n".join(series)) + "".join(told))
    done = promtool("test", "rules", tmp_path / "test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_capacity_is_the_low_end_for_each_replica() -> None:
    rules = exprs(prometheus_rules(contract_of(run(), replicas=2)))
    per_replica = 'avg(sum by (instance) (rate(vllm:request_success_total{finished_reason!~"abort|error"}[5m])))'
    assert rules["LLMNearCapacityWarning"] == f"{per_replica} > 4.95"  # 0.9 x 11 / 2


def test_the_engine_s_own_limit_on_running_requests_is_watched_where_it_is_shown() -> None:
    assert exprs(prometheus_rules(contract("trtllm")))["LLMRunningAtLimitWarning"] == (
        "max(sum by (instance) (trtllm:num_requests_running) / sum by (instance) (trtllm:max_num_active_requests)) >= 1"
    )
    assert "limit on running requests" in prometheus_rules(contract())


def test_the_scaler_asks_for_a_replica_when_each_carries_what_it_is_meant_to() -> None:
    scaler = yaml.safe_load(keda_scaler(contract()))
    (trigger,) = scaler["spec"]["triggers"]
    assert (scaler["apiVersion"], scaler["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
    assert trigger["metadata"]["query"] == "sum(vllm:num_requests_running) + sum(vllm:num_requests_waiting)"
    assert trigger["metadata"]["threshold"] == "35.2"  # 4 in flight for each of 0.8 x 11 req/s
    two = yaml.safe_load(keda_scaler(contract(replicas=2)))
    assert two["spec"]["triggers"][0]["metadata"]["threshold"] == "17.6"
    with pytest.raises(ScenarioError, match="no capacity was found"):
        keda_scaler(contract(capacity_rps=None))


def test_requests_in_flight_between_the_steps_that_were_measured() -> None:
    known = Contract("x", "vllm", {}, in_flight=[(2.0, 4.0), (4.0, 10.0)])
    assert in_flight_at(known, 3.0) == 7.0
    assert in_flight_at(known, 4.0) == 10.0
    assert in_flight_at(known, 6.0) == 15.0
    assert in_flight_at(known, 1.0) is None


def test_the_board_draws_the_promise_and_the_capacity_as_lines() -> None:
    board = json.loads(grafana_board(contract()))
    panels = {panel["title"]: panel for panel in board["panels"]}
    steps = panels["Time to first token"]["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [step["value"] for step in steps] == [None, 1.0, 1.5, 2.0]
    capacity = panels["Requests finished, a replica"]["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [step["value"] for step in capacity] == [None, pytest.approx(9.9), 11.0]
    assert len({(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]}) == len(board["panels"])
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert all(target["expr"] for panel in board["panels"] for target in panel["targets"])


@pytest.mark.parametrize(
    ("slo", "words"),
    [
        (Estimate("below_range", None, None, 2.0), "the service level was missed at the lowest rate"),
        (Estimate("inconclusive", None, None, 8.0), "no rate was shown to meet the service level"),
    ],
)
def test_a_rate_at_which_the_slo_was_never_met_is_no_capacity(slo: Estimate, words: str) -> None:
    found = {"ceiling": Estimate("found", 28.0, 27.0, 29.0, sustained_rps=24.0), "slo_capacity": slo}
    missed = contract_of(run(estimates=found))
    assert (missed.capacity_rps, missed.planned_rps, missed.missed) == (None, None, words)
    text = prometheus_rules(missed)
    assert "LLMNearCapacityWarning" not in rules_of(text)
    comment = " ".join(line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#"))
    assert f"measured capacity ({words})" in comment
    with pytest.raises(ScenarioError, match=rf"no capacity was found in this run \({words}\)"):
        keda_scaler(missed)
    unasked = contract_of(run(estimates=found, scenario="[slo]\nerror_ratio = 0.01\n"))
    assert (unasked.capacity_rps, unasked.missed) == (24.0, "")


def test_whose_names_is_a_question_that_must_be_answered() -> None:
    unseen = served()
    with pytest.raises(ScenarioError, match="the run does not say whose metrics it saw, so whose names to use is not"):
        contract_of(unseen)
    with pytest.raises(
        ScenarioError, match="saw no metrics, so whose names to use is not known: give --engine, one of"
    ):
        contract_of(served(samples=[]))
    with pytest.raises(ScenarioError, match="no engine 'vlm'"):
        contract_of(unseen, "vlm")
    assert contract_of(unseen, "sglang").names["waiting"] == "sglang:num_queue_reqs"


def test_series_that_count_only_with_some_labels_keep_them() -> None:
    names = names_of_engine("vllm")
    assert names["requests_done"] == 'vllm:request_success_total{finished_reason!~"abort|error"}'
    assert names["requests_failed"] == 'vllm:request_success_total{finished_reason=~"error"}'


def test_no_capacity_no_capacity_alert() -> None:
    none = {name: replace(estimates()[name], status="inconclusive") for name in ("ceiling", "slo_capacity")}
    text = prometheus_rules(contract_of(run(estimates=none)))
    assert "measured capacity" in text
    assert "LLMNearCapacityWarning" not in text


def test_the_examples_in_deploy_are_what_the_command_makes() -> None:
    assert (ROOT / "deploy/prometheus/rules.example.yml").read_text() == prometheus_rules(contract())
    assert (ROOT / "deploy/grafana/dashboards/contract.example.json").read_text() == grafana_board(contract())
    checked = promtool("check", "config", ROOT / "deploy/prometheus/prometheus.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "14 rules found" in checked.stdout + checked.stderr


SCALARS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=20), st.integers(), st.booleans(), st.none(),
    st.floats(allow_nan=False, allow_infinity=False),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3),
        st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), inner, min_size=1, max_size=3),
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(VALUES)
def test_whatever_is_written_as_yaml_is_read_back(value: Any) -> None:
    assert yaml.safe_load(yaml_text({"v": value}, "above")) == {"v": value}
