"""What a log shows of a run as it goes on."""

from types import SimpleNamespace

import pytest

from loadramp.commands.screen import watching
from loadramp.record.types import Step


def test_a_log_gets_a_line_a_step_and_one_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    steps = [Step(0, rate_rps=1.0, measure_s=30.0), Step(1, rate_rps=2.0, begin_s=30.0, measure_s=5.0)]
    with watching(quiet=False) as (_, watch):
        for second in range(1, 35):
            step = steps[second >= 30]
            watch(SimpleNamespace(t_s=float(second), step=step, rows=[], sent=second, in_flight=1, waiting=0,
                                  tokens_per_s=9.0, failed=0))  # fmt: skip
    said = capsys.readouterr().err.splitlines()
    assert [words.split(" | ")[0] for words in said] == ["0:01", "0:11", "0:21", "0:30"]
    assert "2 req/s" in said[-1]
