"""What a log shows of a run as it goes on."""

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from loadramp.cli import cli
from loadramp.commands import terminal
from loadramp.commands.terminal import watching
from loadramp.record.types import Step


def test_a_log_gets_a_line_a_step_and_one_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    steps = [Step(0, rate_rps=1.0, measure_s=30.0), Step(1, rate_rps=2.0, begin_s=30.0, measure_s=5.0)]
    with watching(quiet=False) as (_, watch):
        for second in range(1, 35):
            step = steps[second >= 30]
            watch(SimpleNamespace(t_s=float(second), step=step, rows=[], sent=second, in_flight=1, waiting=0,
                                  tokens_per_s=9.0, failed=0, left_s=None))  # fmt: skip
    said = capsys.readouterr().err.splitlines()
    assert [words.split(" | ")[0] for words in said] == ["0:01", "0:11", "0:21", "0:30"]
    assert "2 req/s" in said[-1]


def test_a_run_asks_before_it_loads_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "asks", lambda yes, as_json: not yes and not as_json)
    asked = CliRunner().invoke(cli, ["run", "demo", "--base-url", "http://10.255.255.1:9"], input="n\n")
    assert asked.exit_code == 1
    assert "Load 10.255.255.1?" in asked.output
