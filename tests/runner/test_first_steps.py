"""``doctor``, ``init`` and ``run --quick``: the first five minutes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import in_process

from loadramp.client.endpoint import endpoint_of
from loadramp.client.preflight import EndpointFacts
from loadramp.record.types import Calibration, Record
from loadramp.runner.doctor import DoctorLine, of_endpoint, of_stream, page_text
from loadramp.runner.new_scenario import FactsForScenario, first_rate, lengths, scenario_text
from loadramp.runner.scenarios import load
from loadramp.scenario.scenario import Target


def test_init_writes_a_scenario_that_can_be_planned(sim: str, tmp_path: Path) -> None:
    code, out, err = in_process("init", "--base-url", sim, "--output", "chat.toml", cwd=tmp_path)
    assert (code, err) == (0, "")
    assert out.splitlines()[1].startswith("next: loadramp plan chat.toml")
    scenario = load((tmp_path / "chat.toml").read_text(), "chat.toml")
    assert (scenario.name, scenario.target.model, scenario.ramp.kind) == ("chat", "sim", "ceiling")
    assert scenario.target.base_url == f"{sim}/v1"
    assert scenario.metrics.url == f"{sim}/metrics"
    assert scenario.prompts.option("input_tokens") == 512
    again, _, why = in_process("init", "--base-url", sim, "--output", "chat.toml", cwd=tmp_path)
    assert again == 2
    assert "chat.toml: exists already" in why


def test_lengths_leave_room_in_the_model_s_context() -> None:
    assert lengths(None) == (512, 128)
    assert lengths(131_072) == (512, 128)
    assert lengths(256) == (32, 16)
    assert lengths(16) == (8, 4)


@pytest.mark.parametrize(("token_s", "rate_rps"), [(None, 1.0), (0.015, 1.0), (0.02, 0.5), (0.1, 0.1), (60.0, 0.02)])
def test_the_first_rate_has_about_two_replies_at_once(token_s: float | None, rate_rps: float) -> None:
    assert first_rate(token_s, 128) == rate_rps
    text = scenario_text(FactsForScenario("http://host/v1", "m", token_s=token_s), "x")
    assert load(text).ramp.option("start_rps") == rate_rps
    assert ("An answer takes 13 s alone." in text) == (token_s == 0.1)


def test_a_scenario_without_a_metrics_page_says_how_to_name_one() -> None:
    text = scenario_text(FactsForScenario("http://host/v1", 'odd "name"\n', None, None, None), "x")
    assert '# url = "http://host:9090/metrics"' in text
    assert load(text).target.model == 'odd "name"\n'


def test_doctor_names_what_to_fix(sim: str, tmp_path: Path) -> None:
    empty = {"XDG_CACHE_HOME": str(tmp_path)}
    code, out, _ = in_process("doctor", "--base-url", sim, "--json", env=empty)
    document = json.loads(out)
    assert code == 3
    messages = [one["message"] for one in document["found"] if one["level"] == "fix"]
    assert "this machine has not been measured as a client" in messages
    assert any(one["message"].startswith("first token after") for one in document["found"])
    assert any("(vllm)" in one["message"] for one in document["found"] if one["level"] == "ok")


def test_doctor_of_nobody_says_so_and_looks_at_this_machine() -> None:
    code, out, _ = in_process("doctor", "--base-url", "http://127.0.0.1:9", "--quiet")
    assert code == 3
    assert "fix   http://127.0.0.1:9" in out
    assert "client:" in out


def record(gaps_s: list[float]) -> Record:
    event_s = list(np.cumsum([0.2, *gaps_s]))
    return Record(0, 0, 0.0, sent_s=0.0, event_s=event_s, stream_end_s=event_s[-1], status="ok", stamps="kernel")


def test_a_stream_that_something_holds_back_is_to_be_fixed() -> None:
    even, bunched = of_stream(record([0.02] * 20)), of_stream(record([0.1, 0.0, 0.0, 0.0] * 8))
    assert [one.level for one in even] == ["ok"]
    assert even[0].message == "first token after 200 ms, then one every 20 ms"
    assert [one.level for one in bunched] == ["ok", "fix"]
    assert "75 % of the events came together" in bunched[1].message


def test_a_failed_request_is_to_be_fixed() -> None:
    failed = Record(0, 0, 0.0, status="error", error="http_4xx", error_detail="400: max_tokens too large")
    assert of_stream(failed)[0].message == "a request failed: http_4xx: 400: max_tokens too large"


def test_a_server_without_metrics_and_with_refused_fields_is_described() -> None:
    known = EndpointFacts(
        "m", frozenset(), ("dropped_ignore_eos", "late_reads"), Calibration(), {"max_model_len": 8192}
    )
    found = of_endpoint(endpoint_of(Target(base_url="http://gpu-7.example:8000"), {}), known, None)
    assert [one.level for one in found] == ["ok", "note", "fix"]
    assert "up to 8,192 tokens" in found[0].message
    assert "refuses ignore_eos" in found[1].message


def test_a_context_length_given_as_text_is_left_out() -> None:
    known = EndpointFacts("m", frozenset(), (), Calibration(), {"engine": "vllm", "max_model_len": "8192"})
    line = of_endpoint(endpoint_of(Target(base_url="http://gpu-7.example:8000"), {}), known, None)[0]
    assert line.message == "http://gpu-7.example:8000/v1 serves m (vllm)"


def test_the_page_puts_what_to_fix_first() -> None:
    text = page_text([DoctorLine("ok", "client", "2 cores"), DoctorLine("fix", "client", "busy", "stop it")])
    assert text.splitlines()[1:4] == ["client:", "  fix   busy", "        stop it"]
    assert text.endswith("1 thing to fix before measuring")


def test_a_quick_run_says_what_its_shortness_costs(sim: str, tmp_path: Path) -> None:
    shorter = ("ramp.kind=ladder", "ramp.rates=[4]", "ramp.measure_s=2", "ramp.warmup_s=0.3", "ramp.settle_s=0",
               "ramp.settle_requests=0", "ramp.tail_s=0")  # fmt: skip
    settings = [word for one in shorter for word in ("--set", one)]
    (tmp_path / "short.toml").write_text('[prompts]\nkind = "fixed"\ninput_tokens = 20\noutput_tokens = 4\n')
    code, out, _ = in_process("run", str(tmp_path / "short.toml"), "--base-url", sim, "--quick", *settings,
                              "--out", str(tmp_path), "--json", "--quiet")  # fmt: skip
    assert code in {0, 3}  # void where the machine is busy
    (check,) = [one for one in json.loads(out)["checks"] if one["code"] == "quick"]
    assert check["message"].startswith(
        "a quick ramp: with steps of 2 s intervals are about 5.5 times as wide as with those"
    )
