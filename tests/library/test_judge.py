"""``loadramp.judge``: records of another tool get the same judgement as our own."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import loadramp

if TYPE_CHECKING:
    import pandas as pd

EXAMPLE = Path(__file__).parents[2] / "reports" / "example"


@cache
def records() -> pd.DataFrame:
    """The requests of the example as another tool would tell them."""
    import pandas as pd

    run = loadramp.read(EXAMPLE)
    asked = dict(zip(run.steps.step, run.steps.rate_rps, strict=True))
    frame = run.requests[run.requests.step.isin(list(asked))]
    tokens = run.tokens.groupby("seq").at_s.apply(list)
    return pd.DataFrame(
        {
            "due_s": frame.due_s + 1000.0,
            "token_s": [[at_s + 1000.0 for at_s in tokens[seq]] for seq in frame.seq],
            "output_tokens": frame.output_tokens,
            "prompt_tokens": frame.prompt_tokens,
            "step": frame.step,
            "rate_rps": frame.step.map(asked),
        }
    )


def ends() -> pd.DataFrame:
    """The same of which only the first and the last token are known."""
    frame = records()
    return frame.drop(columns="token_s").assign(
        first_token_s=[one[0] for one in frame.token_s], last_token_s=[one[-1] for one in frame.token_s]
    )


def test_the_ceiling_of_foreign_records_is_that_of_our_own() -> None:
    judged = loadramp.judge(records(), slo={"ttft_s": 1.0, "itl_s": 0.05, "quantile": 0.95})
    assert judged.verdict == "pass"
    assert judged.path is None
    assert judged.ceiling.rate_rps == pytest.approx(27.7, abs=0.3)
    assert judged.slo_capacity.limit == "itl"
    assert judged.slo_capacity.rate_rps == pytest.approx(16.3, abs=0.3)
    assert [finding.code for finding in judged.findings] == ["scheduler_oversubscription"]
    assert len(judged.to_html()) > 100_000


def test_without_token_times_itl_is_null_with_a_reason() -> None:
    judged = loadramp.judge(ends(), slo={"ttft_s": 1.0, "quantile": 0.95})
    row = judged.to_dict()["steps"][0]
    assert row["itl_p50_s"] is None
    assert row["reasons"]["itl_p50_s"] == "only the first and the last token of each answer are known"
    assert row["tpot_p50_s"] == pytest.approx(0.023, abs=0.001)
    assert judged.ceiling.rate_rps == pytest.approx(27.0, abs=1.0)
    assert judged.p99_itl_knee.status in {"not_measurable", "inconclusive"}
    assert judged.tokens.empty
    assert "ITL" in judged.to_html()
    with pytest.raises(loadramp.ScenarioError, match="itl_s cannot be judged"):
        loadramp.judge(ends(), slo={"itl_s": 0.05})


def test_a_log_without_steps_is_cut_into_windows() -> None:
    judged = loadramp.judge(ends().drop(columns=["step", "rate_rps"]), window_s=10.0, name="gateway log")
    assert judged.ceiling.rate_rps == pytest.approx(26.5, abs=1.5)
    assert judged.steps.rate_rps.tolist()[0] == pytest.approx(judged.steps.requests[0] / 10.0)
    assert judged.scenario.name == "gateway log"


def test_failures_are_counted_by_kind() -> None:
    frame = records().assign(error=None)
    frame = frame[frame.step == frame.step.iloc[0]]
    frame["error"] = [
        *[None] * (len(frame) - 4),  # the warm-up is not measured
        "HTTP 429: Too Many Requests",
        "ServerDisconnectedError",
        "timeout_idle",
        "something odd after 500 tokens",
    ]
    judged = loadramp.judge(frame)
    failed = judged.requests[judged.requests.status == "error"].error.tolist()
    assert sorted(failed) == ["http_429", "reset", "timeout_idle"]
    odd = judged.requests[judged.requests.status == "incomplete"]
    assert odd.error_detail.tolist() == ["something odd after 500 tokens"]
    assert judged.to_dict()["steps"][0]["errors"] == {"http_429": 1, "reset": 1, "timeout_idle": 1, "incomplete": 1}


def test_the_end_of_a_log_is_judged_too() -> None:
    import pandas as pd

    due_s = [i / 4 for i in range(400)]  # 99.75 s: one window and 0.66 of one
    error: list[object] = [None] * 300 + [503] * 100
    frame = pd.DataFrame({"due_s": due_s, "first_token_s": [at_s + 0.1 for at_s in due_s], "error": error})
    judged = loadramp.judge(frame)
    assert judged.steps.requests.tolist() == [240, 160]
    assert judged.steps.window_end_s.tolist() == pytest.approx([60.0, 99.75], abs=1e-3)
    assert len(judged.requests[judged.requests.status != "ok"]) == 100
    assert loadramp.judge(frame[:340]).steps.requests.tolist() == [340]  # 24.75 s more are part of the first window
    with pytest.raises(loadramp.ScenarioError, match="window_s: expected seconds above 0; got 0"):
        loadramp.judge(frame, window_s=0.0)


def test_time_stamps_are_read_as_instants() -> None:
    import pandas as pd

    frame = ends()
    for name in ("due_s", "first_token_s", "last_token_s"):
        frame[name] = pd.to_datetime(frame[name], unit="s", utc=True)
    assert loadramp.judge(frame).ceiling.rate_rps == pytest.approx(27.0, abs=1.0)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"due": [1.0]}, "judge: due: no such column"),
        ({"output_tokens": [1]}, "expected a column due_s or sent_s"),
        ({"due_s": [1.0, None]}, "due_s: a request without an instant"),
        ({"due_s": ["soon"]}, "judge: due_s: expected seconds or time stamps: could not convert"),
        ({"due_s": [1.7e12, 1.7e12]}, "due_s: expected seconds or time stamps; got 1.7e"),
        ({"due_s": [1.0, 2.0], "first_token_s": [0.5, 2.5]}, r"row 0: .*first_token_s \(-0.5\) lies before sent_s"),
        ({"due_s": [1.0], "output_tokens": [2.5]}, "row 0: output_tokens: expected a whole number; got 2.5"),
        ({"due_s": [1.0], "token_s": [[1.0, 2.0]], "event_tokens": [[1]]}, "event_tokens: expected a number from 0 on"),
        ({"due_s": [1.0, 2.0], "rate_rps": [1.0, 1.0]}, "rate_rps: needs a column step"),
        ({"due_s": [1.0, 2.0], "step": [0, None]}, "step: 1 row without one"),
        (
            {"due_s": [1.0, 2.0], "step": [0, 0], "users": [2.5, 2.5]},
            "users: expected a whole number from 1 on; got 2.5",
        ),
        ({"due_s": [0.0, 9.0, 5.0, 20.0], "step": [0, 0, 1, 1]}, "two steps overlap"),
        ({"due_s": [0.0, 9.0], "step": [0, 0], "rate_rps": [1.0, 2.0]}, "step 0 has several"),
        ({"due_s": []}, "no requests"),
        ({"due_s": [0.0, 100.0, 200.0]}, "no window of 60 s has 20 requests"),
    ],
)
def test_what_cannot_be_judged_is_one_error(columns: dict[str, list[object]], said: str) -> None:
    import pandas as pd

    with pytest.raises(loadramp.ScenarioError, match=said):
        loadramp.judge(pd.DataFrame(columns))
