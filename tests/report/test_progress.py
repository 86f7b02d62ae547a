"""What a terminal shows while a run goes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from loadramp.record.table import Table
from loadramp.record.types import ClientSample, Record
from loadramp.report.progress import left_words, panel, sparkline


def answered(seq: int, ttft_s: float, gap_s: float, tokens: int = 3, **more: Any) -> Record:
    event_s = [seq + ttft_s + gap_s * i for i in range(tokens)]
    return Record(seq, 0, float(seq), sent_s=float(seq), event_s=event_s, stream_end_s=event_s[-1], status="ok", **more)


def lines(**more: Any) -> dict[str, str]:
    told = {
        "sent": 1200, "finished": 1100, "in_flight": 90, "waiting": 12, "tokens_per_s": 4321.4, "errors": {},
        "latest": [], "client": (), "history": (),
    } | more  # fmt: skip
    return dict(panel(SimpleNamespace(**told | {"latest": Table.of(told["latest"])})))


def test_latencies_are_those_of_the_answers_that_ended() -> None:
    shown = lines(latest=[answered(i, 0.05, 0.02) for i in range(120)])
    assert shown["TTFT"] == "p50 50 ms  p99 50 ms  (the last 120)"
    assert shown["ITL"] == "p50 20 ms  p99 20 ms  (the last 240)"
    assert shown["requests"] == "1,200 sent, 1,100 ended, 90 in flight (12 without a token)"


def test_few_answers_have_no_p99_and_none_has_a_dash() -> None:
    assert lines(latest=[answered(0, 0.05, 0.02)])["TTFT"] == "p50 50 ms  p99 –  (the last 1)"
    assert lines()["TTFT"] == lines()["ITL"] == "–"


def test_an_event_of_several_tokens_is_shared_among_them() -> None:
    shown = lines(latest=[answered(0, 0.1, 0.03, event_tokens=[1, 3, 3])])
    assert shown["ITL"] == "p50 10 ms  p99 –  (the last 6)"


def test_failures_are_named_by_kind_the_most_first() -> None:
    assert lines()["failed"] == "none"
    assert lines(errors={"reset": 2, "http_429": 1300})["failed"] == "http_429 1,300, reset 2"


def test_the_client_s_own_health_stands_below() -> None:
    worst = [ClientSample(1.0, 0, 0.0005, 0.2), ClientSample(1.0, 1, 0.012, 0.75)]
    assert lines(client=worst)["client"] == "loop up to 12 ms late, busiest worker 75 % of a core"


@pytest.mark.parametrize(
    ("values", "drawn"), [((), ""), ((0.0, 0.0), "▁▁"), ((0.0, 50.0, 100.0), "▁▅█"), ((1.0, 8.0), "▂█")]
)
def test_a_sparkline_is_as_high_as_its_largest_value(values: tuple[float, ...], drawn: str) -> None:
    assert sparkline(values) == drawn
    assert lines(history=values, tokens_per_s=9.0)["tokens/s"] == f"      9 {drawn}"


@pytest.mark.parametrize(
    ("left_s", "words"),
    [
        ((0.0, 0.0), "0 s left"),
        ((41.0, 41.0), "50 s left"),
        ((290.0, 300.0), "5 min left"),
        ((25.0, 59.0), "30 to 60 s left"),
        ((45.0, 100.0), "50 s to 2 min left"),
        ((220.0, 820.0), "4 to 14 min left"),
    ],
)
def test_the_time_left_is_as_exact_as_it_can_be(left_s: tuple[float, float], words: str) -> None:
    assert left_words(left_s) == words
