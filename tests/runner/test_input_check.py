"""What cannot be meant is refused before anything is sent; what hardly can is said."""

from pathlib import Path

import pytest

from loadramp.registry import ScenarioError
from loadramp.runner.input_check import check_input, doubts
from loadramp.runner.preview import of_scenario
from loadramp.runner.scenarios import load


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('name = ""', "name: expected a name; got ''. Without the key it is the name of the file"),
        ('name = "  "', "name: expected a name; got ''. Without the key it is the name of the file"),
        (
            "[ramp]\nkind = 'ceiling'\nfactor = 1.0000001",
            "[ramp] factor: expected at least 1.01; got 1.0000001 (rates that are closer cannot be told apart; up to "
            "69,314,722 steps would be sent)",
        ),
        ("[target]\nbase_url = 'htp:/x'", "[target] base_url: expected http://HOST:PORT; got 'htp:/x'"),
        ("[target]\nbase_url = 'not a url'", "[target] base_url: expected http://HOST:PORT; got 'not a url'"),
        ("[target]\nbase_url = 'ftp://x'", "[target] base_url: scheme 'ftp'; allowed: http, https"),
        ("[target]\nproxy = 'a b'", "[target] proxy: expected http://HOST:PORT"),
        ("[metrics]\nurl = 'h:9400/metrics'",
         "[metrics] url: expected http://HOST:PORT/metrics; got 'h:9400/metrics'"),
        ("[metrics]\nurls = ['http://u:pw@h:9400', 'ftp://u:pw@x']",
         "[metrics] urls: expected http://HOST:PORT/metrics; got 'x'"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(text: str, words: str) -> None:
    with pytest.raises(ScenarioError) as error:
        check_input(load(text))
    assert str(error.value) == words


@pytest.mark.parametrize("url", ["http://h:8000/v1", "h:8000", "https://[::1]:8000", "http://b\u00fccher.example", "h"])
def test_addresses_that_a_run_takes_are_taken(url: str) -> None:
    check_input(load(f"[target]\nbase_url = '{url}'\n[metrics]\nurl = 'http://u:pw@h:9400'"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[slo]\nttft_s = 500", ["[slo] ttft_s: 500 s is long for a limit; limits are in seconds, and 500 ms is 0.5"]),
        ("[slo]\nitl_s = 30", ["[slo] itl_s: 30 s is long for a limit; limits are in seconds, and 30 ms is 0.03"]),
        ("[slo]\nttft_s = 30\nitl_s = 1.5\ntpot_s = 1.0\ne2e_s = 300", []),
        (
            "[gates]\nrules = ['p99(e2e_s) < 900', 'error_ratio < 0.01']",
            ["[gates] p99(e2e_s) < 900: 900 s is long for a limit; limits are in seconds, and 900 ms is 0.9"],
        ),
        (
            "[ramp]\nkind = 'geometric'\nfactor = 1.05",
            ["[ramp] factor = 1.05: up to 86 steps from 1 to 64 req/s; a plan lists 64"],
        ),
        ("[ramp]\nkind = 'geometric'\nfactor = 1.07", []),
    ],
)
def test_what_can_hardly_be_meant_is_said(text: str, words: list[str]) -> None:
    assert doubts(load(text)) == words


def test_a_plan_says_it_and_refuses_it_as_a_run_does(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("[slo]\nttft_s = 500\n[ramp]\nkind = 'ladder'\nrates = [1]\n")
    document, words = of_scenario(tmp_path / "s.toml")
    said = "warning: [slo] ttft_s: 500 s is long for a limit; limits are in seconds, and 500 ms is 0.5"
    assert said in words
    assert said in document["notes"]
    with pytest.raises(ScenarioError):
        of_scenario(tmp_path / "s.toml", ["target.base_url=htp:/x"])
