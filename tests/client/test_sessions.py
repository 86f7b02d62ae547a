"""Sessions on simulated time: when turns are due, what they carry, what ends them, and how a step judges them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_in_memory import ramp_in_memory, scenario_of
from simulated_time import run

from loadramp.analysis.traffic_classes import sessions
from loadramp.client.sender import TURN, Sender
from loadramp.record.table import Table
from loadramp.record.types import Arrival, Record, Step
from loadramp.report import build_html
from loadramp.simulator.faults import Faults

THREE_TURNS = """
seed = 3
[prompts]
kind = "sessions"
turns = 3
vary_turns = false
system_tokens = 20
input_tokens = 10
input_cv = 0
output_tokens = 5
output_cv = 0
think_s = 2
think_cv = 0
[arrivals]
kind = "constant"
"""


@dataclass
class Talker:
    """Answers ``answer of SEQ`` after half a second; refuses the turns in ``broken``."""

    broken: set[int] = field(default_factory=set)
    left_open_s: float = 0.0
    asked: list[tuple[Arrival, Any]] = field(default_factory=list)

    def prepare(self, arrival: Arrival, content: Any) -> bytes:
        self.asked.append((arrival, content))
        return b"x"

    def start(self, *_: object, patient: bool) -> None:
        """Not without a task."""

    def meanwhile(self, call: object) -> None:
        """Nothing takes long."""

    async def send(self, arrival: Arrival, request: bytes) -> Record:
        loop = asyncio.get_running_loop()
        prompt = arrival.prompt
        record = Record(arrival.seq, arrival.step, arrival.due_s, sent_s=loop.time(), session=prompt.session,
                        turn=prompt.turn, turns=prompt.turn + 1 + len(prompt.following))  # fmt: skip
        await asyncio.sleep(0.5)
        record.stream_end_s = loop.time()
        await asyncio.sleep(self.left_open_s)
        if prompt.turn in self.broken:
            record.status, record.error = "error", "http_5xx"
        else:
            record.status, record.text = "ok", f"answer of {arrival.seq % TURN}"
        return record

    async def close(self) -> None:
        return None


def offer(
    steps: list[Step], talker: Talker, text: str = THREE_TURNS, until_s: float = 30.0, **options: Any
) -> list[Record]:
    records: list[Record] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        share = Sender(scenario_of(text), talker, loop.time, 0.0, records.append, precise=False, **options)
        for number, step in enumerate(steps):
            await asyncio.sleep(max(0.0, step.begin_s - 0.05 - loop.time()))
            share.begin(step, number * 1000)
        await asyncio.sleep(until_s - loop.time())
        await share.finish(1e6)
        await share.close()

    run(main())
    return sorted(records, key=lambda r: (r.session or 0, r.turn))


def step(index: int = 0, rate_rps: float = 3.0, begin_s: float = 1.0, measure_s: float = 4.0) -> Step:
    return Step(index, rate_rps=rate_rps, begin_s=begin_s, warmup_s=0.0, measure_s=measure_s)


REST = Step(1, role="drain", rate_rps=0.0, begin_s=5.0, warmup_s=0.0, measure_s=60.0)


def test_a_turn_is_due_when_the_answer_has_ended_and_the_pause_is_over() -> None:
    records = offer([step(), step(1, begin_s=5.0, measure_s=2.0)], Talker(), until_s=30.0)
    by_session: dict[int, list[Record]] = {}
    for record in records:
        by_session.setdefault(record.session or 0, []).append(record)
    whole = [turns for turns in by_session.values() if turns[0].due_s < 15.0]
    assert {len(turns) for turns in whole} == {3}
    for first, second, third in whole:
        assert second.due_s == pytest.approx((first.stream_end_s or 0.0) + 2.0)
        assert third.due_s == pytest.approx((second.stream_end_s or 0.0) + 2.0)
        assert [record.lag_s for record in (first, second, third)] == pytest.approx([0.0, 0.0, 0.0], abs=1e-9)
        assert [record.seq - first.seq for record in (first, second, third)] == [0, TURN, 2 * TURN]


def test_each_turn_carries_the_model_s_own_answers() -> None:
    talker = Talker()
    offer([step()], talker)
    arrival, content = next((a, c) for a, c in talker.asked if a.prompt.turn == 2)
    assert [message["role"] for message in content] == ["user", "assistant", "user", "assistant", "user"]
    number = arrival.seq % TURN
    assert [content[1]["content"], content[3]["content"]] == [f"answer of {number}"] * 2
    first = next(c for a, c in talker.asked if a.seq == number)
    assert content[0]["content"] == first
    assert len(first.split()) == 30


def test_answers_are_not_written_unless_they_are_asked_for() -> None:
    assert {record.text for record in offer([step()], Talker())} == {None}
    assert all(record.text for record in offer([step()], Talker(), keep_text=True))


def test_a_failed_turn_ends_its_session() -> None:
    records = offer([step()], Talker(broken={1}))
    assert {record.turn for record in records} == {0, 1}
    table = Table.of(records)
    told = sessions(table, (1.0, 5.0))
    assert told is not None
    assert (told["started"], told["broken"], told["ended"]) == (4, 4, 0)


def test_a_turn_belongs_to_the_step_that_is_on_when_it_is_due() -> None:
    records = offer([step(), step(1, begin_s=5.0), step(2, begin_s=9.0)], Talker(), until_s=13.0)
    for record in records:
        assert record.step == (0 if record.due_s < 5.0 else 1 if record.due_s < 9.0 else 2)
    assert {record.step for record in records if record.turn == 2} == {1, 2}


def test_a_drain_cuts_the_sessions_and_so_does_the_end() -> None:
    records = offer([step(), REST], Talker())
    assert max(record.due_s for record in records) < 5.0
    ended = offer([step()], Talker(), until_s=4.0)
    assert max(record.due_s for record in ended) < 4.0
    assert all(record.ok for record in ended)


def test_a_cap_on_requests_in_flight_holds_for_later_turns_too() -> None:
    text = THREE_TURNS + "[ramp]\nmax_in_flight = 1\n"
    records = offer([step(rate_rps=12.0)], Talker(), text)
    dropped = [record for record in records if not record.ok]
    assert dropped
    assert all("max_in_flight" in (record.error_detail or "") for record in dropped)
    assert {record.turns for record in dropped} == {3}


def test_an_answer_left_open_by_the_server_is_over_when_that_is_known() -> None:
    """Otherwise the next turn would be due before the client could know, and count as late."""
    records = offer([step()], Talker(left_open_s=1.5))
    second = [record for record in records if record.turn == 1]
    assert second
    assert all((record.lag_s or 0.0) < 1e-9 for record in second)


def test_users_of_a_closed_loop_hold_conversations_one_after_the_other() -> None:
    records = offer([Step(0, users=2, begin_s=0.0, warmup_s=0.0, measure_s=30.0)], Talker(), until_s=31.0)
    whole = [r for r in records if r.session is not None and r.session < 4]
    assert [record.turn for record in whole] == [0, 1, 2] * 4
    first = [r for r in records if r.session == 0]
    assert [round(b.due_s - (a.stream_end_s or 0.0), 6) for a, b in pairwise(first)] == [2.0, 2.0]
    busy = [record for record in records if record.due_s <= 10.2 < (record.stream_end_s or 0.0)]
    assert len(busy) <= 2


RUN = (
    THREE_TURNS
    + """
[ramp]
kind = "ladder"
rates = [6, 12]
warmup_s = 15
measure_s = 40
settle_s = 2
settle_requests = 0
tail_s = 12
"""
)


def test_a_ramp_of_sessions_offers_the_rate_and_judges_turns_and_sessions(tmp_path: Path) -> None:
    run_ = ramp_in_memory(scenario_of(RUN), tmp_path)
    for row, rate_rps in zip(run_.rows, (6.0, 12.0), strict=True):
        assert row.arrival_rps == pytest.approx(rate_rps, rel=0.05)
        assert not row.void
        assert row.lag_p99_s < 1e-6
        turns = row.classes["turn"]
        assert [turns[name].requests for name in "123"] == pytest.approx([row.requests / 3] * 3, rel=0.1)
        assert turns["1"].input_tokens_mean < turns["2"].input_tokens_mean < turns["3"].input_tokens_mean
        told = row.sessions
        assert told["started"] == told["ended"] == pytest.approx(rate_rps / 3 * 40, abs=2)
        assert (told["broken"], told["open"], told["turns_mean"]) == (0, 0, 3.0)
        assert told["duration_p50_s"] == pytest.approx(4.0 + told["answering_p50_s"], rel=0.05)
    assert np.nansum(run_.table.prompt_tokens) == pytest.approx(np.nansum(run_.table.asked_input_tokens), rel=1e-6)
    assert "text" not in next(Path(run_.path).glob("records-*.jsonl")).read_text()
    page = build_html(run_)
    assert "By class of traffic" in page
    assert "Sessions begun" in page


def test_what_was_said_before_is_found_in_the_prefix_cache(tmp_path: Path) -> None:
    text = RUN.replace("system_tokens = 20", "system_tokens = 300").replace("rates = [6, 12]", "rates = [6]")
    run_ = ramp_in_memory(scenario_of(text), tmp_path)
    cached = run_.table.cached_tokens / run_.table.prompt_tokens
    later = (run_.table.turn > 0) & run_.table.ok
    assert np.nanmean(cached[later]) > 0.8


def test_faults_break_sessions_and_are_counted_as_such(tmp_path: Path) -> None:
    text = RUN.replace("rates = [6, 12]", "rates = [6]")
    run_ = ramp_in_memory(scenario_of(text), tmp_path, faults=Faults(error_ratio=0.008))
    told = run_.rows[0].sessions
    assert told["broken"] > 0
    assert told["broken"] + told["ended"] == told["started"]


def test_a_session_that_goes_on_is_open() -> None:
    def turn(seq: int, session: int, turn: int, due_s: float, ok: bool = True) -> Record:
        end_s = due_s + 1.0
        return Record(seq, 0, due_s, sent_s=due_s, event_s=[end_s], stream_end_s=end_s, status="ok" if ok else "error",
                      session=session, turn=turn, turns=2)  # fmt: skip

    table = Table.of([turn(0, 0, 0, 1.0), turn(TURN, 0, 1, 4.0), turn(1, 1, 0, 2.0), turn(2, 2, 0, 3.0, ok=False),
                      turn(3, 3, 0, 99.0), Record(4, 0, 1.5, status="ok")])  # fmt: skip
    assert sessions(table, (0.0, 10.0)) == {
        "started": 3, "ended": 1, "broken": 1, "open": 1, "turns_mean": 1.0, "duration_p50_s": 4.0,
        "duration_p90_s": 4.0, "answering_p50_s": 2.0, "answering_p90_s": 2.0,
    }  # fmt: skip
    assert sessions(Table.of([Record(4, 0, 1.5, status="ok")]), (0.0, 10.0)) is None
