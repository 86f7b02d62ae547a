"""What the terminal says: progress lines, plan previews, probes."""

from typing import Any

import pytest
from curve_rows import changed, row_of
from run_in_memory import scenario_of

from loadramp.record.types import Step
from loadramp.report.preview import notes, preview_document, preview_table
from loadramp.report.probe_text import ProbeDocument, probe_words
from loadramp.report.progress import Progress, clock, line, row_line, step_words
from loadramp.workload.preview import preview_steps


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Step(0, rate_rps=1024.0), "1024 req/s"),
        (Step(0, rate_rps=0.5), "0.5 req/s"),
        (Step(0, users=32), "32 users"),
        (Step(0, users=1), "1 user"),
        (Step(0, role="soak", rate_rps=13.456), "soak at 13.46 req/s"),
        (Step(0, role="drain", rate_rps=0.0), "draining"),
        (Step(0, role="settle", rate_rps=1.0), "settling at 1 req/s"),
        (Step(0, role="tail", rate_rps=8.0), "last answers, still 8 req/s"),
        (Step(0, role="down", rate_rps=4.0), "down to 4 req/s"),
    ],
)
def test_steps_have_their_words(step: Step, words: str) -> None:
    assert step_words(step) == words


@pytest.mark.parametrize(("t_s", "shown"), [(0, "0:00"), (187.9, "3:07"), (3729, "1:02:09")])
def test_the_run_s_clock(t_s: float, shown: str) -> None:
    assert clock(t_s) == shown


def test_a_progress_line_says_where_it_is_and_shouts_failures() -> None:
    step = Step(3, rate_rps=8.0, begin_s=100.0, warmup_s=10.0, measure_s=50.0)
    progress = Progress(112.0, step, 4, 1234, 1200, 0, 30, 2, 5678.0, ())
    assert line(progress) == (
        "1:52 | 8 req/s | 12/60 s | sent 1,234 | in flight 30 (2 without a token) | 5,678 tokens/s"
    )
    assert line(Progress(112.0, step, 4, 1234, 1200, 7, 30, 2, 5678.0, ())).endswith("| FAILED 7")


def test_a_finished_step_in_one_line() -> None:
    row = row_of(
        rate_rps=16.0, ok=990, requests=1000, ttft_p50_s=0.05, itl_p50_s=0.02, itl_p99_s=0.048, saturated=True,
        signals=["queue", "backlog"],
    )  # fmt: skip
    assert row_line(row) == (
        "step 16 req/s: 990 of 1,000 finished; TTFT p50 50 ms; ITL p50 20 ms p99 48 ms; saturated (queue, backlog)"
    )
    row = changed(row, void=True, reasons={"void": "the client was late"})
    assert row_line(row).endswith("VOID (the client was late)")


PLANNED = """
name = "p"
[prompts]
kind = "fixed"
input_tokens = 100
output_tokens = 10
[arrivals]
kind = "constant"
[ramp]
kind = "geometric"
start_rps = 2
max_rps = 8
warmup_s = 5
measure_s = 20
settle_s = 10
settle_requests = 0
"""


def test_a_plan_counts_what_would_be_sent() -> None:
    scenario = scenario_of(PLANNED)
    steps = list(preview_steps(scenario))
    document = preview_document(scenario, steps)
    assert [(s["role"], s["rate_rps"], s["requests"]) for s in document["steps"]] == [
        ("settle", 2.0, 20),
        ("step", 2.0, 50),
        ("step", 4.0, 100),
        ("step", 8.0, 200),
    ]
    assert document["total"] == {"requests": 370, "input_tokens": 37_000, "output_tokens": 3700, "minutes": 1.42}
    assert "8 req/s" in preview_table(scenario, steps)


def test_a_plan_says_what_it_cannot_know() -> None:
    users = scenario_of('[ramp]\nkind = "users"\nusers = [1, 2]\nmax_minutes = 3\n')
    steps = list(preview_steps(users))
    assert preview_document(users, steps)["total"]["requests"] is None
    assert notes(users, steps) == [
        "A closed loop sends as many requests as are answered.",
        "It ends before a step that would exceed 3 minutes.",
        "Longer steps or another ramp? An engine that keeps its pace needs neither; longer steps (measure_s) narrow "
        "its ceiling more than further ramps do.",
        "If its pace has slow stretches, --repeats 2 narrows the ceiling as well as steps three times as long, in "
        "about the same time, and shows what changes over minutes; --until-sure 0.1 lets each step go on for its "
        "latencies.",
        "Warm-ups grow with the time that requests take; 10 s is the least.",
    ]
    assert "a soak of 5 min" in notes(scenario_of(""), [])[0]


DOCUMENT: ProbeDocument = {
    "status": "ok", "error": None, "error_detail": None, "http_status": 200, "ttft_s": 0.25, "sent_ttft_s": 0.25,
    "e2e_s": 0.35, "stream_end_s": 0.36, "time_to_first_byte_s": 0.02, "time_to_first_answer_s": 0.25,
    "gap_s": [0.02, 0.05, 0.03], "itl_s": [0.02, 0.05, 0.03], "tpot_s": 0.0333, "output_tokens": 4,
    "prompt_tokens": 12, "token_source": "usage", "finish_reason": "stop", "done_marker": True, "keepalives": 0,
    "malformed_events": 0, "warnings": ["no_done"],
}  # fmt: skip


def test_a_probe_in_words() -> None:
    words = probe_words(DOCUMENT)
    assert words.splitlines()[0] == "ok, HTTP 200"
    assert "gaps                   3, median 30 ms, longest 50 ms" in words
    assert "4 in 4 events (counted by: usage)" in words
    assert "note: the stream ended without its [DONE] marker" in words


def test_a_failed_probe_says_what_failed_first() -> None:
    failed: Any = {
        **dict.fromkeys(DOCUMENT), "status": "error", "error": "http_5xx", "http_status": 503,
        "error_detail": "overloaded", "gap_s": [], "itl_s": [], "warnings": [],
    }  # fmt: skip
    assert probe_words(failed) == "error: http_5xx, HTTP 503: overloaded"
