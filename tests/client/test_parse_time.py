"""What the client spends on parsing is measured, said, and never counted as the server's latency."""

from typing import Any

import pytest
from records_and_rows import answer, window
from scripted_server import FIN, HEAD, LAST, C, framed
from test_checks import codes, found, good, run_of

from loadramp.analysis.checks.validity import void_reasons
from loadramp.client.http.response import ResponseReader
from loadramp.client.stream.outcome import RequestedOutput
from loadramp.record.codec import decode, encode
from loadramp.record.row import void_lines
from loadramp.record.table import Table
from loadramp.record.types import Record
from loadramp.report.probe_text import probe_document


class Slow:
    """A clock that goes on by the next of ``took_s`` between two looks at it."""

    def __init__(self, *took_s: float) -> None:
        self.now_s, self.left, self.looks = 0.0, list(took_s), 0

    def __call__(self) -> float:
        self.looks += 1
        if self.looks % 2 == 0 and self.left:
            self.now_s += self.left.pop(0)
        return self.now_s


def why_void(*args: Any, **more: Any) -> list[str]:
    return void_lines(void_reasons(*args, **more))


def parsed(*took_s: float, events: int = 4) -> Record:
    """An event each 0.1 s, of which parsing takes so long."""
    one = ResponseReader(Record(0, 0, 0.0, sent_s=0.0), RequestedOutput(done_expected=False), None, Slow(*took_s))
    one.feed(HEAD, 0.05)
    for i in range(1, events + 1):
        one.feed(framed(C("a") + (FIN("stop") if i == events else b": more\n\n")), i / 10)
    one.feed(LAST, 1.0)
    return one.finish()


@pytest.mark.parametrize(
    ("took_s", "parse_s", "doubtful_s"),
    [
        ((0.0, 0.02, 0.03), 0.0, None),
        ((0.0009,) * 6, 0.0, None),
        ((0.0, 0.02, 0.031), 0.051, 0.2),
        ((0.0, 0.6, 0.0009, 0.1), 0.7, 0.1),
        ((0.0, 0.0, 0.0, 0.0, 0.2), 0.2, 0.4),
        ((0.0, 0.0, 0.0, 0.0, 0.0, 0.2), 0.2, 1.0),
    ],
)
def test_parsing_beyond_50_ms_is_measured(took_s: tuple[float, ...], parse_s: float, doubtful_s: float | None) -> None:
    record = parsed(*took_s)
    assert (record.parse_s, record.doubtful_s) == (pytest.approx(parse_s), doubtful_s)
    assert ("slow_parse" in record.warnings) == (doubtful_s is not None)
    assert record.event_s == [0.1, 0.2, 0.3, 0.4]
    assert decode(encode(record)).doubtful_s == doubtful_s


def test_a_probe_leaves_out_what_came_while_the_client_was_parsing() -> None:
    document = probe_document(parsed(0.0, 0.02, 0.4))
    assert (document["ttft_s"], document["gap_s"]) == (0.1, [0.1])
    assert (document["e2e_s"], document["tpot_s"]) == (None, None)
    assert document["reasons"] == dict.fromkeys(("e2e_s", "tpot_s"), "the client was busy parsing when it came")
    assert "slow_parse" in document["warnings"]
    early = probe_document(parsed(0.4))
    assert [early[name] for name in ("ttft_s", "sent_ttft_s", "time_to_first_answer_s")] == [None] * 3
    assert early["gap_s"] == []
    last = probe_document(parsed(0.0, 0.0, 0.0, 0.0, 0.4))
    assert (last["e2e_s"], len(last["gap_s"]), "reasons" in last) == (0.4, 3, False)


def test_a_lot_that_is_parsed_the_quick_way_needs_no_clock() -> None:
    clock = Slow()
    one = ResponseReader(Record(31, 0, 0.0, sent_s=0.0), RequestedOutput(), None, clock)
    for piece in (HEAD, *[framed(C("a"))] * 1_000):
        one.feed(piece, 1.0)
    one.digest()
    assert clock.looks <= 2 * (1_000 // 32 + 4)


def test_a_step_whose_answers_came_while_the_client_was_parsing_is_void() -> None:
    records = [answer(i, i * 0.1, i * 0.1 + 0.2, [0.02] * 10) for i in range(600)]
    for record in records[:7]:
        record.parse_s, record.doubtful_s = 0.3, record.event_s[4]
    few, many = Table.of(records[2:]), Table.of(records)
    assert why_void(window(60.0, 10.0), few, []) == []
    (why,) = why_void(window(60.0, 10.0), many, [])
    assert why.startswith("the client was busy parsing while 7 of 600 answers came, so their times include it; ")
    for record in records:
        record.doubtful_s = record.event_s[-1]
    assert why_void(window(60.0, 10.0), Table.of(records), []) == []


def test_the_report_says_how_many_answers_took_long_to_parse() -> None:
    records = good(warnings=["slow_parse"])
    for record in records:
        record.parse_s, record.doubtful_s = 0.3, record.event_s[-1]
    check = found(run_of(records[:6] + good()[6:]), "slow_parse")
    assert (check.level, check.message) == ("note", "1 % of the answers took the client more than 50 ms to parse")
    for record in records[:3]:
        record.doubtful_s = record.event_s[0]
    check = found(run_of(records[:6] + good()[6:]), "slow_parse")
    assert check.level == "warn"
    assert check.message.endswith("; the times of 3 of them may include that")
    assert "slow_parse" not in codes(run_of(good()))
