"""The grammar of thresholds: what is read, and that what is not understood is an error that helps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadramp.analysis.threshold_rules import AGGREGATES, LATENCIES, Place, parse
from loadramp.registry import ScenarioError


@pytest.mark.parametrize(("text", "aggregate", "name", "op", "limit", "place"), [
    ("p99(ttft_s) < 0.8 @ rate <= 8", "p99", "ttft_s", "<", 0.8, Place("rate", "<=", 8.0)),
    ("mean( itl_s )<=30ms@step 3", "mean", "itl_s", "<=", 0.03, Place("step", "=", 3.0)),
    ("p50(gap_s) < 1.5e-2", "p50", "gap_s", "<", 0.015, None),
    ("ceiling_rps >= 12", "", "ceiling_rps", ">=", 12.0, None),
    ("  knee_rps   >  .5 ", "", "knee_rps", ">", 0.5, None),
    ("error_ratio < 0.1%", "", "error_ratio", "<", 0.001, None),
    ("good_ratio >= 99 % @ soak", "", "good_ratio", ">=", 0.99, Place("soak")),
    ("preemptions <= 0 @ users == 32", "", "preemptions", "<=", 0.0, Place("users", "=", 32.0)),
    ("p95(all_e2e_s) < 4s @ rate = 8 req/s", "p95", "all_e2e_s", "<", 4.0, Place("rate", "=", 8.0)),
])  # fmt: skip
def test_a_rule_is_read(text: str, aggregate: str, name: str, op: str, limit: float, place: Place | None) -> None:
    found = parse(text)
    assert (found.aggregate, found.name, found.op, found.place) == (aggregate, name, op, place)
    assert found.limit == pytest.approx(limit)
    assert found.text == " ".join(text.split())


@pytest.mark.parametrize(("text", "words"), [
    ("p99(ttft) < 1", "no latency 'ttft'; did you mean 'ttft_s'? there are ttft_s, sent_ttft_s"),
    ("p98(ttft_s) < 1", "no aggregate 'p98'; there are mean, p50, p90, p95, p99"),
    ("ceiling >= 12", "no metric 'ceiling'; did you mean 'ceiling_rps'?"),
    ("ttft_s < 1", "ttft_s needs an aggregate, as p99(ttft_s)"),
    ("p99(ceiling_rps) < 1", "no latency 'ceiling_rps'"),
    ("ceiling_rps >= 12 @ rate <= 8", "a number of the whole run and takes no @"),
    ("p99(all_ttft_s) < 1", "known per step: add @ rate"),
    ("mean(all_ttft_s) < 1 @ step 1", "it has no mean"),
    ("error_ratio = 0", "never equals a number"),
    ("error_ratio", "expected METRIC OPERATOR NUMBER"),
    ("error_ratio < many", "expected METRIC OPERATOR NUMBER"),
    ("error_ratio < 1e999", "must be a finite number"),
    ("error_ratio < 1 @ noon", "after @ expected rate, users or step"),
    ("", "expected METRIC OPERATOR NUMBER"),
    ("__import__('os') < 1", "expected METRIC OPERATOR NUMBER"),
])  # fmt: skip
def test_what_is_no_rule_is_a_usage_error_that_says_what_is_one(text: str, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse(text)
    assert words in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_is_a_rule_or_a_scenario_error(text: str) -> None:
    try:
        rule = parse(text)
    except ScenarioError:
        return
    assert rule.op in {"<", "<=", ">", ">="}


@given(st.sampled_from(AGGREGATES), st.sampled_from(LATENCIES[:6]), st.sampled_from(["<", "<=", ">", ">="]),
       st.floats(0.0001, 1e6), st.sampled_from(["", " @ rate <= 4", "@step 2", " @ soak"]))  # fmt: skip
def test_what_is_written_as_the_grammar_says_is_read(
    aggregate: str, name: str, op: str, limit: float, place: str
) -> None:
    rule = parse(f"{aggregate}({name}) {op} {limit!r}{place}")
    assert (rule.aggregate, rule.name, rule.op) == (aggregate, name, op)
    assert rule.limit == limit
    assert (rule.place is None) == (place == "")
