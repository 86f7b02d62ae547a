"""Scenarios: defaults, overrides, and errors that name file, table, key and what is allowed."""

import tomllib
from pathlib import Path

import pytest
from scipy.special import pdtrc

from loadramp.registry import ScenarioError
from loadramp.runner.scenarios import load
from loadramp.scenario.scenario import Scenario, toml_value

ROOT = Path(__file__).parents[2]


def read(text: str, *overrides: str) -> Scenario:
    return load(text, "dir/my.toml", overrides)


def test_an_empty_scenario_is_the_default_ramp() -> None:
    scenario = read("")
    assert (scenario.name, scenario.seed) == ("my", 0)
    assert (scenario.prompts.kind, scenario.arrivals.kind, scenario.ramp.kind, scenario.knee.kind) == (
        "lognormal",
        "poisson",
        "ceiling",
        "ceiling",
    )
    assert scenario.pace.measure_s is None
    assert scenario.target.api == "chat"
    assert scenario.slo.limits == {}


def test_tables_are_bound_and_typed() -> None:
    scenario = read(
        'name = "x"\nseed = 7\n[slo]\nttft_s = 1\nitl_s = 0.05\n[arrivals]\nkind = "gamma"\ncv = 3\n'
        '[ramp]\nkind = "geometric"\nstart_rps = 2\nwarmup_s = 5\nmax_minutes = 3\n'
    )
    assert scenario.slo.limits == {"ttft": 1.0, "itl": 0.05}
    assert isinstance(scenario.slo.ttft_s, float)
    assert scenario.arrivals.options == {"cv": 3.0}
    assert scenario.ramp.options == {"start_rps": 2.0}
    assert (scenario.pace.warmup_s, scenario.pace.max_minutes) == (5.0, 3.0)


def test_the_text_is_kept_byte_for_byte() -> None:
    text = '# a comment\r\nname = "é"   \n'
    assert read(text).source == text


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("ramp.start_rps=4", 4.0),
        ("ramp.start_rps = 4.5", 4.5),
    ],
)
def test_set_overrides_a_number(override: str, expected: float) -> None:
    assert read("[ramp]\nstart_rps = 1", override).ramp.options["start_rps"] == expected


def test_set_takes_bare_words_lists_and_new_tables() -> None:
    scenario = read("", "target.model=org/name", "ramp.kind=ladder", "ramp.rates=[1, 2.5]", "seed=3")
    assert scenario.target.model == "org/name"
    assert scenario.ramp.options["rates"] == [1.0, 2.5]
    assert scenario.seed == 3
    assert scenario.overrides[0] == "target.model=org/name"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[ramp]\nfactr = 2",
            ["dir/my.toml: [ramp] factr: unknown key", "did you mean 'factor'", "start_rps", "warmup_s"],
        ),
        (
            "[arrivals]\nkind = 'possion'",
            ["[arrivals] kind: no 'possion'", "did you mean 'poisson'", "constant, diurnal, gamma"],
        ),
        ("[arrivals]\nkind = 'gamma'\nvc = 2", ["[arrivals] vc: unknown key", "allowed: cv"]),
        ("[slo]\nttft_s = 'fast'", ["[slo] ttft_s", "Expected float", "got 'fast'"]),
        ("[slo]\nttft_s = -1", ["[slo] ttft_s", "> 0"]),
        ("[slo]\nquantile = 99", ["[slo] quantile", "< 1"]),
        ("[slo]\nttft_ms = 5", ["[slo] ttft_ms: unknown key", "ttft_s"]),
        ("[target]\napi = 'grpc'", ["[target] api", "grpc", "allowed: chat, completions, responses"]),
        ("[arrivals]\ncv = 2", ["[arrivals] cv: not for kind = 'poisson', only for 'gamma'", "allowed: none"]),
        (
            "[ramp]\nkind = 'ladder'\nrates = [1]\nstart_rps = 1\nmax_rps = 8",
            [
                "dir/my.toml: [ramp] start_rps, max_rps: not for kind = 'ladder', only for 'ceiling' or 'geometric'",
                "allowed: lengths, rates; and for every kind: give_up_s",
            ],
        ),
        ("[ramp]\nstart_rps = 8\nmax_rps = 4", ["[ramp] start_rps: 8 is above max_rps = 4"]),
        ("[ramp]\nstart_rps = 2000", ["[ramp] start_rps: 2000 is above max_rps = 1024"]),
        ("[targt]\nmodel = 'x'", ["dir/my.toml: targt: no such key or table", "did you mean 'target'"]),
        ("target = 3", ["target: expected a table [target]"]),
        ("[ramp]\nkind = 'ladder'", ["[ramp] rates: missing"]),
        ("[ramp]\nkind = 'ladder'\nrates = []", ["[ramp] rates", "length >= 1"]),
        ("[ramp]\nkind = 'ladder'\nrates = [1, 0]", ["[ramp] rates", "> 0"]),
        ("[ramp]\nmeasure_s = 0", ["[ramp] measure_s", "> 0"]),
        ("[fleet]\nworkers = 0", ["[fleet] workers"]),
        ("[fleet]\nworkers = 'many'", ["[fleet] workers"]),
        ("seed = -1", ["seed", ">= 0"]),
        ("seed = 1\nseed = 2", ["dir/my.toml: not TOML"]),
        ("[knee]\nkind = 'nowhere.module:f'", ["[knee] kind: cannot reach"]),
        ("[prompts]\nkind = 'fixed'\ninput_tokens = 0", ["[prompts] input_tokens", ">= 1"]),
    ],
)
def test_errors_name_the_place_and_what_is_allowed(text: str, words: list[str]) -> None:
    with pytest.raises(ScenarioError) as caught:
        read(text)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("override", ["ramp.start_rps", "=3", ".a=3", "seed.x=1"])
def test_a_malformed_override_is_named(override: str) -> None:
    with pytest.raises(ScenarioError, match="--set"):
        read("seed = 1", override)


def test_a_function_outside_the_repository_is_reached_by_name() -> None:
    assert read("[arrivals]\nkind = 'loadramp.workload.arrivals:constant'").arrivals(2.0, 2.0, None).tolist() == [
        0.25,
        0.75,
        1.25,
        1.75,
    ]


@pytest.mark.parametrize("path", sorted((ROOT / "scenarios").glob("*.toml")), ids=lambda p: p.name)
def test_every_scenario_that_ships_can_be_read(path: Path) -> None:
    scenario = load(path.read_text(), str(path))
    assert scenario.name


def test_a_byte_order_mark_before_the_text_is_passed_over_and_kept() -> None:
    assert read("\ufeffseed = 3").seed == 3
    assert read("\ufeffseed = 3\r\n").source == "\ufeffseed = 3\r\n"


def test_no_number_is_infinite() -> None:
    for text in ("[ramp]\nmeasure_s = inf", "[ramp]\nkind = 'ladder'\nrates = [1, inf]", "[slo]\nttft_s = 1e999"):
        with pytest.raises(ScenarioError, match=r"my.toml: \[\w+\] \w+: Expected a finite number"):
            read(text)


@pytest.mark.parametrize(("rate", "expected"), [(10.0, 60.0), (4.0, 85.439), (2.0, 170.879), (1.0, 300.0), (None, 60)])
def test_a_step_lasts_60_s_or_until_300_requests_are_due_almost_surely_at_most_300_s(
    rate: float | None, expected: float
) -> None:
    assert read("").pace.length_s(rate) == pytest.approx(expected, abs=0.001)
    assert read("[ramp]\nmeasure_s = 7").pace.length_s(rate) == 7.0


def test_300_requests_are_due_in_99_of_100_such_windows() -> None:
    expected = read("").pace.length_s(3.0) * 3.0
    assert pdtrc(299, expected) == pytest.approx(0.99, abs=0.0005)


@pytest.mark.parametrize("value", ["a\x7f \u20ac \U0001f642\n", True, 3, 0.5, [1.0, "b"], {"a": {"b": [False]}}])
def test_a_value_in_toml_s_syntax_is_read_back(value: object) -> None:
    assert tomllib.loads(f"v = {toml_value(value)}") == {"v": value}


def test_a_key_without_a_value_is_left_out_of_a_table() -> None:
    assert toml_value({"a": 1, "b": None}) == "{a = 1}"
