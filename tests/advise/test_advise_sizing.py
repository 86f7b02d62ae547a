"""Replicas, GPUs and cost from the rate of one replica, and what a measured run says about demand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from records_and_rows import row
from run_in_memory import ramp_in_memory, scenario_of

from loadramp.advise.advice import Measured, advise
from loadramp.advise.demand import Demand, Rate, comparable, demand_of, overruled, prefix_reuse_of, rate_of
from loadramp.advise.options import AdviceOptions, EngineFacts, GpuFacts, LoadFacts, ModelFacts, TrafficFacts, asked_of
from loadramp.advise.sizing import Load, ReplicaSize, SizeOption, cheapest, load_of
from loadramp.advise.text import advice_document, advice_markdown, advice_text
from loadramp.cli import cli
from loadramp.record.run_info import RunInfo
from loadramp.record.table import Run, Table
from loadramp.record.types import Estimate, Record
from loadramp.registry import ScenarioError
from loadramp.runner.finish import judge
from loadramp.runner.scenarios import load
from loadramp.scenario.scenario import Slo
from loadramp.simulator.profiles import PROFILES

EXAMPLE = Path(__file__).parents[2] / "reports" / "example"
LOAD = Load(peak_rps=30.0, mean_rps=10.0)
FOUND = Estimate("found", 16.0, 15.0, 17.0, sustained_rps=13.6)


def size(rate: Rate, load: Load = LOAD, gpus: int = 1, price: float | None = None) -> ReplicaSize:
    return ReplicaSize(load, rate, gpus, price, input_tokens=500.0, output_tokens=100.0)


def run_of(
    estimates: dict[str, Estimate],
    scenario: str = "",
    overrides: Sequence[str] = (),
    slo: dict[str, float] | None = None,
) -> Run:
    asked = replace(load(scenario, overrides=overrides), slo=Slo(**(slo or {})))
    return Run(RunInfo(), asked, [], Table.of([]), estimates=estimates)


def test_replicas_carry_the_peak_with_30_percent_free_and_one_to_spare() -> None:
    found = size(Rate(6.0, 8.0, "ceiling"))
    assert found.needed == 8  # 30 / (6 x 0.7) = 7.14
    assert found.replicas == 9
    assert found.replicas_at_best == 7  # 30 / (8 x 0.7) = 5.36
    assert found.gpus == 9
    assert found.busy_ratio == pytest.approx(30 / 54)
    assert found.survives == 4  # five carry 30 req/s at their limit


def test_a_replica_that_takes_exactly_the_peak_with_its_headroom_is_one() -> None:
    assert size(Rate(10.0, 10.0, "x"), Load(7.0)).needed == 1
    assert size(Rate(10.0, 10.0, "x"), Load(7.0, headroom_ratio=0.0, spare=0)).replicas == 1
    assert size(Rate(10.0, 10.0, "x"), Load(7.1)).needed == 2


def test_cost_of_a_million_tokens_at_the_rate_and_at_the_mean_load() -> None:
    found = size(Rate(6.0, 8.0, "service level"), price=3.6)
    assert found.cost_per_hour == pytest.approx(32.4)
    best, worst = found.busy_cost(100.0) or (0.0, 0.0)
    assert worst == pytest.approx(3.6 / (6 * 100 * 3600) * 1e6)  # 1.667
    assert best == pytest.approx(1.25)
    assert found.fleet_cost(100.0) == pytest.approx(32.4 / (10 * 100 * 3600) * 1e6)  # 9
    assert size(Rate(6.0, 8.0, "x")).busy_cost(100.0) is None  # no price
    assert size(Rate(6.0, 8.0, "x"), Load(30.0), price=1.0).fleet_cost(100.0) is None  # no mean load


def test_a_load_is_a_peak_or_a_mean_and_how_many_times_it_the_peak_is() -> None:
    assert load_of(LoadFacts(mean_rps=10.0, peak_multiplier=3.0)) == Load(30.0, 10.0)
    assert load_of(LoadFacts(30.0, peak_multiplier=3.0)) == Load(30.0, 10.0)
    assert load_of(LoadFacts(mean_rps=10.0)) == Load(20.0, 10.0)
    assert load_of(LoadFacts()) is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"peak_multiplier": 2.0}, "of what"),
        ({"mean_rps": 5.0, "peak_multiplier": 0.5}, "peak_multiplier.*>= 1.0"),
        ({"peak_rps": 30.0, "mean_rps": 5.0, "peak_multiplier": 3.0}, "5 x 3 is not a peak of 30"),
        ({"peak_rps": 5.0, "mean_rps": 30.0}, "a mean of 30 above a peak of 5"),
        ({"peak_rps": -1.0}, "peak_rps.*> 0"),
        ({"peak_rps": 5.0, "headroom": 1.0}, "headroom.*< 1.0"),
        ({"peak_rps": 5.0, "spare": -1}, "spare.*>= 0"),
        ({"peak_rps": 5.0, "price": (-1.0,)}, "price.*>= 0"),
    ],
)
def test_loads_that_cannot_be_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        load_of(asked_of(options).load)


def test_the_rate_of_a_replica_is_the_lowest_of_ceiling_soak_and_service_level() -> None:
    assert rate_of(run_of({"ceiling": FOUND}))[0] == Rate(13.6, 17.0, "sustained in the soak")
    assert rate_of(run_of({"ceiling": replace(FOUND, sustained_rps=None)}))[0] == Rate(15.0, 17.0, "ceiling")
    slo = {"ceiling": FOUND, "slo_capacity": Estimate("found", 9.0, 8.0, 10.0)}
    assert rate_of(run_of(slo, slo={"ttft_s": 1.0}))[0] == Rate(8.0, 10.0, "service level")
    assert rate_of(run_of(slo, slo={"error_ratio": 0.01}))[0] == Rate(13.6, 17.0, "sustained in the soak")
    open_end = {"ceiling": Estimate("not_found_up_to", 64.0)}
    assert rate_of(run_of(open_end))[0] == Rate(64.0, 64.0, "highest rate offered")


def test_without_a_rate_nothing_is_sized() -> None:
    missed = {"ceiling": FOUND, "slo_capacity": Estimate("below_range", 1.0)}
    assert rate_of(run_of(missed, slo={"itl_s": 0.1}))[0] is None
    nothing, why = rate_of(run_of({"ceiling": Estimate("inconclusive", reason="two steps only")}))
    assert nothing is None
    assert "two steps only" in why
    with pytest.raises(ScenarioError, match="r: two steps only"):
        advise(AdviceOptions(load=LoadFacts(peak_rps=5.0)), [Measured("r", Demand(rate_reason="two steps only"))])


def test_a_rate_whose_low_end_is_not_known_is_none_to_size_by() -> None:
    """The point would be the middle of what may be true, and taken for its low end."""
    vague = {"ceiling": FOUND, "slo_capacity": Estimate("found", 10.7, None, 14.8)}
    assert rate_of(run_of(vague, slo={"ttft_s": 1.0})) == (None, (
        "service level: the interval reaches below the lowest rate judged; a lower start or longer steps would show it"
    ))  # fmt: skip
    apart = {"ceiling": FOUND, "slo_capacity": Estimate("found", 10.7, None, None)}
    assert rate_of(run_of(apart, slo={"ttft_s": 1.0})) == (None, (
        "service level: the repeats lie too far apart for a low end; longer steps or more repeats would show it"
    ))  # fmt: skip
    assert rate_of(run_of({"ceiling": replace(FOUND, low_rps=None, high_rps=None)}))[0] == Rate(
        13.6, 16.0, "ceiling"
    )  # a soak has held it
    nothing, why = rate_of(run_of({"ceiling": Estimate("found", 16.0)}))
    assert nothing is None
    assert why.startswith("ceiling: the repeats lie too far apart")
    slo = {"ceiling": Estimate("found", 16.0), "slo_capacity": Estimate("found", 9.0, 8.0, 10.0)}
    assert rate_of(run_of(slo, slo={"ttft_s": 1.0}))[0] == Rate(8.0, 10.0, "service level")
    unseen = {"ceiling": FOUND, "slo_capacity": Estimate("inconclusive", None, None, 8.0, reason="missed at 8 req/s")}
    assert rate_of(run_of(unseen, slo={"ttft_s": 1.0})) == (
        None, "no rate was shown to meet the service level (missed at 8 req/s)",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("slo", "words"),
    [
        (Estimate("inconclusive", reason="too few answers"), "no rate was shown to meet the service level (too few"),
        (Estimate("found", 12.0, 0.0, 14.0), "service level: the interval reaches below the lowest rate judged"),
        (None, "the run has no estimate of the rate within its service level"),
    ],
)
def test_a_ceiling_does_not_stand_in_for_a_service_level(slo: Estimate | None, words: str) -> None:
    estimates = {"ceiling": FOUND} | ({"slo_capacity": slo} if slo else {})
    rate, why = rate_of(run_of(estimates, slo={"itl_s": 0.1}))
    assert rate is None
    assert why.startswith(words)


def test_no_rate_is_above_the_low_end_of_the_slo_capacity() -> None:
    held = {"ceiling": FOUND, "slo_capacity": Estimate("found", 9.0, 8.0, 10.0, sustained_rps=9.5)}
    assert rate_of(run_of(held, slo={"ttft_s": 1.0}))[0] == Rate(8.0, 10.0, "service level")
    beyond = {"ceiling": FOUND, "slo_capacity": Estimate("not_found_up_to", 12.0, 11.0)}
    assert rate_of(run_of(beyond, slo={"ttft_s": 1.0}))[0] == Rate(11.0, 12.0, "service level")


def test_memory_and_flags_are_told_where_the_size_cannot_be() -> None:
    model = ModelFacts(parameters=8e9, layers=32, kv_heads=8, head_dim=128)
    open_slo = Demand(input_tokens=400, output_tokens=100, context_p95=1000, context_max=1000, requests=500,
                      rate_reason="service level: the interval reaches below the lowest rate judged")  # fmt: skip
    advice = advise(AdviceOptions(GpuFacts(gpu="L40S"), model, load=LoadFacts(peak_rps=5.0)), [Measured("r", open_slo)])
    text, document = advice_text(advice), advice_document(advice)
    assert "vllm serve MODEL" in text
    assert "Replicas: not sized" in text
    assert "r: service level: the interval reaches below the lowest rate judged; --replica-rps would do" in text
    assert (document["sizes"], len(document["not_sized"])) == ([], 1)


def test_limits_are_those_of_the_scenario_and_not_of_run_json(tmp_path: Path) -> None:
    text = (
        '[slo]\nttft_s = 0.001\n[prompts]\nkind = "uniform"\ninput_tokens = 100\noutput_tokens = 12\n'
        "[ramp]\nstart_rps = 4\nmax_rps = 8\nwarmup_s = 1\nmeasure_s = 8\nsettle_s = 0\nsettle_requests = 0\n"
        "soak_s = 0\ntail_s = 1\n"
    )
    run = ramp_in_memory(scenario_of(text), tmp_path, PROFILES["small"])
    path = Path(run.path)
    info = json.loads((path / "run.json").read_text())
    for told in (None, {"ttft_s": 100.0}):
        info.pop("slo", None)
        (path / "run.json").write_text(json.dumps(info | ({"slo": told} if told else {})))
        again = judge(path).run
        assert again.scenario.slo.ttft_s == 0.001
        assert rate_of(again)[0] is None  # no rate meets a millisecond


def test_more_than_90_percent_of_a_card_is_for_an_engine_alone_and_says_so() -> None:
    model = ModelFacts(parameters=8e9, layers=32, kv_heads=8, head_dim=128)
    traffic = TrafficFacts(context_tokens=1000)
    high, usual = (
        advise(AdviceOptions(GpuFacts(gpu="L40S"), model, EngineFacts(utilization=share), traffic), [])
        for share in (0.95, 0.9)
    )
    assert any("only where nothing else uses the GPU" in note for note in high.notes)
    assert not any("nothing else uses" in note for note in usual.notes)


TALKS = '[prompts]\nkind = "conversations"\nfile = "talks.json"\n'


def answered(prompt: int, output: int, cached: int | None = None) -> Record:
    return Record(
        0, 0, 0.0, status="ok", event_s=[0.1], prompt_tokens=prompt, output_tokens=output, cached_tokens=cached
    )


def test_reuse_is_read_only_where_prompts_are_such_that_it_means_something() -> None:
    table = Table.of([answered(100, 10, 60), answered(300, 10, 100)])
    real = Run(RunInfo(), load(TALKS), [], table)
    assert prefix_reuse_of(real) == (0.4, "")
    made_up = Run(RunInfo(), load('[prompts]\nkind = "fixed"\n'), [], table)
    assert prefix_reuse_of(made_up)[0] is None
    assert "prompts of kind 'fixed' are made up" in prefix_reuse_of(made_up)[1]
    silent = Run(RunInfo(), load(TALKS), [], Table.of([answered(100, 10)]))
    assert prefix_reuse_of(silent) == (None, "the server shows no prefix cache hits")
    silent.rows = [row(1.0, prefix_hit_ratio=0.5)]
    assert prefix_reuse_of(silent)[0] == 0.5


def test_a_measured_ramp_tells_its_demand() -> None:
    demand = demand_of(judge(EXAMPLE).run)
    assert demand.input_tokens == pytest.approx(274.7, abs=0.1)
    assert demand.output_tokens == pytest.approx(46.33, abs=0.01)
    assert demand.context_p95 == 791
    assert demand.rate is not None
    assert (demand.rate.low_rps, demand.rate.high_rps) == pytest.approx((7.16, 29.86), abs=0.01)
    assert demand.reuse_ratio is None
    assert demand.in_flight == pytest.approx(38.6, abs=0.1)
    document = advice_document(
        advise(AdviceOptions(load=LoadFacts(peak_rps=60.0, price=(2.0,))), [Measured("run", demand)])
    )
    assert document["sizes"][0]["replicas"] >= 3
    json.dumps(document, allow_nan=False)


def test_the_largest_batch_within_the_itl_limit_is_told_only_where_a_larger_one_broke_it() -> None:
    rows = [row(r, running_max=n, itl_p99_s=s) for r, n, s in ((1, 8, 0.02), (2, 20, 0.04), (4, 60, 0.09))]
    run = run_of({"ceiling": FOUND}, slo={"itl_s": 0.05})
    run.rows = rows
    assert demand_of(run).slo_running == 20
    run.rows = rows[:2]
    assert demand_of(run).slo_running is None


def test_the_cheapest_configuration_names_those_whose_interval_might_beat_it() -> None:
    small = SizeOption("small", size(Rate(6.0, 6.5, "x"), gpus=1, price=1.0))  # 9 replicas
    large = SizeOption("large", size(Rate(20.0, 21.0, "x"), gpus=4, price=4.0))  # 4 replicas: 16
    shaky = SizeOption("shaky", size(Rate(5.0, 7.0, "x"), gpus=1, price=1.0))  # 10 replicas, 8 at best
    best, rivals = cheapest([large, small, shaky])
    assert best == [small]
    assert rivals == [shaky]


def test_runs_of_other_prompts_or_promises_are_not_compared() -> None:
    chat, other = '[prompts]\nkind = "fixed"\n', '[prompts]\nkind = "uniform"\n'
    assert comparable([run_of({}, chat), run_of({}, chat)]) == []
    assert "[prompts] differs" in comparable([run_of({}, chat), run_of({}, other)])[0]
    changed = run_of({}, chat, overrides=["slo.ttft_s=2"])
    assert "[slo] differs" in comparable([run_of({}, chat), changed])[0]


def test_what_set_changed_counts_as_if_the_scenario_said_it() -> None:
    said = run_of({}, '[prompts]\nkind = "fixed"\n')
    told = run_of({}, '[prompts]\nkind = "uniform"\n', overrides=["prompts.kind=fixed"])
    assert comparable([said, told]) == []
    assert prefix_reuse_of(told) == prefix_reuse_of(said)
    assert "prompts of kind 'fixed' are made up" in prefix_reuse_of(told)[1]


def test_two_configurations_stand_side_by_side_in_words_and_data() -> None:
    one, two = (Demand(output_tokens=100.0, rate=Rate(low, low * 1.1, "ceiling")) for low in (6.0, 14.0))
    asked = AdviceOptions(load=LoadFacts(peak_rps=30.0, gpus=(1, 2), price=(1.0, 1.0)))
    advice = advise(asked, [Measured("single", one), Measured("pair", two)])
    text = advice_text(advice)
    assert "Configurations compared" in text
    assert "least cost" in text
    document = advice_document(advice)
    assert [s["gpus"] for s in document["sizes"]] == [9, 10]
    assert document["cheapest"] == {"name": "single", "as_good": ["pair"]}
    assert advice_markdown(advice).startswith("# What to run\n")
    with pytest.raises(ScenarioError, match="--price: give it once, or once for each of the 2 runs; got 3"):
        advise(replace(asked, load=replace(asked.load, price=(1.0, 2.0, 3.0))), advice.measured)


def test_configurations_of_equal_cost_have_no_winner() -> None:
    same = Demand(output_tokens=100.0, rate=Rate(6.0, 6.0, "ceiling"))
    asked = AdviceOptions(load=LoadFacts(peak_rps=30.0, gpus=(1,)))
    advice = advise(asked, [Measured("first", same), Measured("second", same)])
    assert "fewest GPUs  the same for first, second\n" in advice_text(advice) + "\n"
    assert advice_document(advice)["cheapest"] == {"name": None, "as_good": ["first", "second"]}


@pytest.mark.parametrize(
    ("traffic", "said"),
    [
        (TrafficFacts(300.0, 100.0, context_tokens=100), r"100 \(as given\) is less than the 400 of a mean request"),
        (TrafficFacts(context_tokens=100), r"100 \(as given\) is less than the 500 of a mean request"),
        (TrafficFacts(input_tokens=5000.0), r"900 \(as measured\) is less than the 5,100 of a mean request"),
    ],
)
def test_a_context_that_refuses_the_mean_request_is_refused(traffic: TrafficFacts, said: str) -> None:
    measured = Demand(input_tokens=400.0, output_tokens=100.0, context_p95=900, context_max=1000)
    with pytest.raises(ScenarioError, match=said):
        overruled(measured, traffic)
    assert overruled(measured, TrafficFacts(context_tokens=500)).context_p95 == 500


def test_a_load_of_millions_of_replicas_is_a_slip() -> None:
    asked = AdviceOptions(load=LoadFacts(peak_rps=1e300), traffic=TrafficFacts(replica_rps=1e-300))
    with pytest.raises(ScenarioError, match="a peak of 1e\\+300 req/s, where one replica takes 1e-300"):
        advise(asked, [])


def test_nothing_to_advise_on_is_an_error() -> None:
    with pytest.raises(ScenarioError, match="nothing to advise on"):
        advise(AdviceOptions(traffic=TrafficFacts(input_tokens=10.0, output_tokens=10.0)), [])


def test_options_win_over_the_file_and_wrong_keys_are_named() -> None:
    asked = asked_of({"gpu": "H100", "price": ()}, '[gpu]\ngpu = "L4"\nmax_gpus = 2\n[load]\nprice = [1]\n', "f.toml")
    assert (asked.gpu.gpu, asked.gpu.max_gpus, asked.load.price) == ("H100", 2, [1.0])
    for text, words in (
        ("[gpus]\n", r"f\.toml: \[gpus\]: no such table; there are gpu, model"),
        ("gpu = 1\n", "gpu: expected a table"),
        ('[gpu]\nname = "x"\n', "name: unknown key"),
        ("[engine]\nutilization = 2\n", "utilization"),
        ("[", "not TOML"),
    ):
        with pytest.raises(ScenarioError, match=words):
            asked_of({}, text, "f.toml")


def test_the_command_reproduces_the_mistral_figure_and_errors_are_usage_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps({"model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000,
                    "tie_word_embeddings": False, "max_position_embeddings": 32768})
    )  # fmt: skip
    facts = tmp_path / "facts.toml"
    facts.write_text('[gpu]\ngpu = "L40S"\n[model]\nmodel_config = "config.json"\n[traffic]\ncontext_tokens = 2000\n')
    out = tmp_path / "advice.md"
    code = cli.main(["advise", "--facts", str(facts), "--json", "--markdown", str(out)], standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert round(document["memory"]["kv_bytes"] / 1e9) == 29
    assert document["memory"]["token_bytes"] == 131_072
    assert document["engines"]["vllm"]["command"].startswith("vllm serve MODEL --max-model-len 2048")
    assert "sglang" in out.read_text()
    config.write_text("{")
    with pytest.raises(ScenarioError, match=r"config\.json: not JSON"):
        cli.main(["advise", "--facts", str(facts)], standalone_mode=False)
    with pytest.raises(ScenarioError, match=r"gone\.toml: no such file"):
        cli.main(["advise", "--facts", str(tmp_path / "gone.toml")], standalone_mode=False)
