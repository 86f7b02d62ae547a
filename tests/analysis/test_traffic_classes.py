"""A step taken apart by class, model and turn: the same windows and refusals, nothing where there is one class."""

from typing import Any

import numpy as np
import pytest
from curve_rows import changed
from report_runs import row, served

from loadramp.analysis.ceiling import sustained
from loadramp.analysis.curve import fold
from loadramp.analysis.latency import window_view
from loadramp.analysis.offered_load import offered
from loadramp.analysis.traffic_classes import MOST_CLASSES, by_class
from loadramp.record.row import ClassFigures, columns_of
from loadramp.record.run_info import ColdStart
from loadramp.record.table import Table
from loadramp.record.types import Record, Step
from loadramp.report.traffic_classes import classes_section
from loadramp.scenario.scenario import Slo

STEP = Step(0, rate_rps=10.0, begin_s=0.0, warmup_s=0.0, measure_s=100.0)


def request(seq: int, ttft_s: float, **more: Any) -> Record:
    due_s = seq / 10.0
    event_s = (due_s + ttft_s + 0.02 * np.arange(5)).tolist()
    return Record(seq, 0, due_s, sent_s=due_s, event_s=event_s, stream_end_s=event_s[-1], status="ok",
                  prompt_tokens=100, output_tokens=5, **more)  # fmt: skip


def table(**more: Any) -> Table:
    """A thousand requests, every fourth a slow document of 400 tokens."""
    records = []
    for seq in range(1000):
        slow = seq % 4 == 3
        record = request(seq, 0.5 if slow else 0.1, label="document" if slow else "chat", **more)
        record.prompt_tokens = 400 if slow else 100
        records.append(record)
    return Table.of(records)


def test_each_class_has_the_latencies_of_its_own_requests() -> None:
    found = by_class(window_view(table(), (0.0, 100.0)), Slo(ttft_s=0.3))
    assert found.keys() == {"label"}
    chat, document = found["label"]["chat"], found["label"]["document"]
    assert (chat.requests, document.requests) == (750, 250)
    assert (chat.latency["ttft_p50_s"], document.latency["ttft_p50_s"]) == pytest.approx((0.1, 0.5))
    assert (chat.input_tokens_mean, document.input_tokens_mean) == (100.0, 400.0)
    assert (chat.good_ratio, document.good_ratio) == (1.0, 0.0)
    assert chat.arrival_rps == pytest.approx(7.5)
    assert chat.latency["itl_p99_s"] == pytest.approx(0.02)


def test_a_percentile_that_a_class_cannot_carry_is_refused_for_that_class_alone() -> None:
    found = by_class(window_view(table(), (0.0, 100.0)), Slo())["label"]
    assert found["chat"].latency["ttft_p99_s"] == pytest.approx(0.1)
    assert found["document"].latency["ttft_p99_s"] is None
    assert "250 requests cannot carry a p99" in found["document"].reasons["ttft_p99_s"]


def test_one_class_is_no_class() -> None:
    rows = fold(STEP, Table.of([request(seq, 0.1) for seq in range(50)]))
    assert rows.classes is None
    assert rows.sessions is None
    with_classes = fold(STEP, table())
    assert with_classes.classes is not None and with_classes.classes["label"].keys() == {"chat", "document"}
    written = columns_of(with_classes)["classes"]["label"]["document"]
    assert list(written) == [
        "requests", "ok", "error_ratio", "arrival_rps", "input_tokens_mean", "output_tokens_mean", "good_ratio",
        "ttft_p50_s", "ttft_p99_s", "itl_p50_s", "itl_p99_s", "e2e_p50_s", "e2e_p99_s", "reasons",
    ]  # fmt: skip
    assert "classes" not in columns_of(rows)


def test_unnamed_requests_and_many_names_are_told_apart() -> None:
    names = [f"m{seq % 80}" if seq % 2 else None for seq in range(1000)]
    found = by_class(
        window_view(Table.of([request(seq, 0.1, model=names[seq]) for seq in range(1000)]), (0.0, 100.0)), Slo()
    )
    models = found["model"]
    assert len(models) == MOST_CLASSES + 1
    assert models["(none)"].requests == 500
    assert sum(figures.requests for figures in models.values()) == 1000
    assert "(others)" in models


def test_sessions_that_had_not_filled_up_are_noted_and_sustain_what_came() -> None:
    told = {"started": 9, "ended": 9, "broken": 0, "open": 0}
    more: dict[str, Any] = {"role": "soak", "sessions": told, "overloaded": False}
    rows = [
        row(0, 8.0, arrival_rps=6.0, load_rps=6.0, **more),
        row(1, 8.0, arrival_rps=7.9, load_rps=8.0, **more),
        row(2, 8.0, arrival_rps=6.0, load_rps=8.0),
    ]
    (note,) = offered(served(rows=rows))
    assert (note.code, note.step) == ("offered", 0)
    assert note.message.startswith("8 req/s asked, 6 offered:")
    assert "ramp.warmup_s" in note.advice
    assert sustained(rows[:1]) == 6.0
    assert sustained([changed(rows[2], role="soak")]) == 8.0


def test_failed_requests_of_a_class_are_counted_in_it() -> None:
    records = [request(seq, 0.1, label="ab"[seq % 2]) for seq in range(200)]
    for record in records[1::20]:
        record.status, record.error, record.event_s = "error", "http_5xx", []
    found = by_class(window_view(Table.of(records), (0.0, 100.0)), Slo())["label"]
    assert (found["a"].error_ratio, found["b"].error_ratio) == (0.0, 0.1)


def test_each_class_has_a_curve_of_its_own() -> None:
    def step(i: int, rate_rps: float) -> Any:
        slow = ClassFigures(40, latency={"ttft_p50_s": 0.2 * rate_rps, "itl_p50_s": 0.02})
        without = ClassFigures(40, latency={"ttft_p50_s": None, "itl_p50_s": 0.02})
        return row(i, rate_rps, classes={"label": {"chat": slow, "document": without}})

    page = classes_section(served(rows=[step(0, 1.0), step(1, 2.0)]))
    assert page is not None
    assert "p50 TTFT by class" in page
    assert "p50 ITL by class" in page
    assert "p50 TTFT" not in str(classes_section(served(rows=[step(0, 1.0)]))).partition("<details>")[0]


def test_as_many_turns_as_there_are_looks_have_a_line_and_a_marker_each_in_the_key() -> None:
    slow = ClassFigures(40, latency={"ttft_p50_s": 0.2, "itl_p50_s": 0.02})
    turns = {str(turn): slow for turn in range(1, 7)}
    rows = [row(i, rate_rps, classes={"turn": turns}) for i, rate_rps in enumerate((1.0, 2.0))]
    page = str(classes_section(served(rows=rows)))
    swatches = [part.partition("</svg>")[0] for part in page.split("<svg width=")[1:]]
    assert len(set(swatches)) == len(swatches) == 6
    assert all("<line" in one and one.count("<") == 2 for one in swatches)


def test_the_report_shows_classes_sessions_and_cold_starts() -> None:
    figures = ClassFigures(90, 88, 0.02, 0.75, 400.0, 20.0, 0.5, {"ttft_p50_s": 0.25})
    told = {"started": 12, "ended": 9, "broken": 1, "open": 2, "turns_mean": 3.5, "duration_p50_s": 41.0,
            "duration_p90_s": 90.0, "answering_p50_s": 11.0}  # fmt: skip
    run = served(rows=[row(0, 4.0, classes={"model": {"<legal>": figures}}, sessions=told)])
    run.info.models = {"<legal>": ColdStart(1.5, 0.05)}
    page = classes_section(run)
    assert page is not None
    assert "&lt;legal&gt;" in page
    assert "<legal>" not in page
    for words in ("250 ms", "50 %", "41 s", "1.5 s", "Cold starts", "By model"):
        assert words in page
    assert classes_section(served()) is None
