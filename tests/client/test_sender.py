"""A share of the load on simulated time: what is due when, what is never delayed, what a closed loop keeps busy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from simulated_time import JumpingLoop, run

from loadramp.client.sender import TURN, Sender
from loadramp.record.types import Arrival, Record, Step
from loadramp.registry import ScenarioError
from loadramp.runner.scenarios import load
from loadramp.scenario.scenario import Scenario
from loadramp.workload.schedule import plan_step


def _no_knee(rows: object) -> None:
    return None


def scenario(text: str = "") -> Scenario:
    return load(f'seed = 3\n[knee]\nkind = "test_sender:_no_knee"\n{text}')


@dataclass
class FakeClient:
    """Answers each request after ``service_s(seq)`` seconds of simulated time."""

    service_s: Callable[[int], float]
    alive: dict[int, float] = field(default_factory=dict)
    started_s: dict[int, float] = field(default_factory=dict)
    most: int = 0
    between: Callable[[], None] = lambda: None
    work_s: float = 0.0
    """What making one request costs: the clock goes on meanwhile."""

    def prepare(self, arrival: Arrival, content: Any) -> bytes:
        assert content
        if self.work_s:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, JumpingLoop)
            loop._now_s += self.work_s
        return b"x"

    async def send(self, arrival: Arrival, request: bytes) -> Record:
        loop = asyncio.get_running_loop()
        record = Record(arrival.seq, arrival.step, arrival.due_s, sent_s=loop.time())
        self.alive[arrival.seq] = loop.time()
        self.most = max(self.most, len(self.alive))
        try:
            await asyncio.sleep(self.service_s(arrival.seq))
            record.status = "ok"
        except asyncio.CancelledError:
            record.status, record.error = "error", "client"
        del self.alive[arrival.seq]
        record.stream_end_s = loop.time()
        return record

    def start(
        self, arrival: Arrival, request: bytes, done: Callable[[asyncio.Task[Record], Record], None], *, patient: bool
    ) -> asyncio.Task[Record]:
        loop = asyncio.get_running_loop()
        self.started_s[arrival.seq] = loop.time()
        task = loop.create_task(self.send(arrival, request))
        task.add_done_callback(lambda task: done(task, task.result()))
        return task

    def meanwhile(self, call: Callable[[], None]) -> None:
        self.between = call

    def cut(self, task: asyncio.Task[Record]) -> None:
        task.cancel()

    async def close(self) -> None:
        return None


def offer(
    steps: list[Step],
    service_s: Callable[[int], float] = lambda _: 0.5,
    text: str = "",
    until_s: float = 0.0,
    index: int = 0,
    of: int = 1,
    work_s: float = 0.0,
) -> tuple[list[Record], FakeClient, Sender]:
    """Offer the steps one after the other and wait for all answers."""
    records: list[Record] = []
    client = FakeClient(service_s, work_s=work_s)
    kept: list[Sender] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        share = Sender(scenario(text), client, loop.time, 0.0, records.append, index=index, of=of, precise=False)
        kept.append(share)
        for number, step in enumerate(steps):
            await asyncio.sleep(max(0.0, step.begin_s - 0.05 - loop.time()))
            share.begin(step, number * 100_000)
        await asyncio.sleep((until_s or steps[-1].end_s) - loop.time())
        await share.finish(1e6)
        await share.close()

    run(main())
    return sorted(records, key=lambda r: r.seq), client, kept[0]


def open_step(rate_rps: float, begin_s: float = 1.0, measure_s: float = 10.0, index: int = 0) -> Step:
    return Step(index, rate_rps=rate_rps, begin_s=begin_s, warmup_s=0.0, measure_s=measure_s)


def test_each_request_is_sent_at_its_instant_however_slow_the_answers_are() -> None:
    step = open_step(40.0)
    records, client, _ = offer([step], service_s=lambda _: 30.0)
    planned = [a for a in plan_step(scenario(), step, hold_s=30.0) if a.due_s < step.end_s]
    assert [r.due_s for r in records[: len(planned)]] == [a.due_s for a in planned]
    assert max(abs(r.lag_s or 0.0) for r in records) < 1e-9
    assert client.most == len(records)


@pytest.mark.parametrize("work_s", [0.0, 0.001, 0.004])
def test_rt01_ten_thousand_requests_at_200_a_second_do_not_drift(work_s: float) -> None:
    """The case: work between the requests. Sleeping a gap after 1 ms of it would send 167 a second, after 4 ms 111."""
    text = '[arrivals]\nkind = "constant"'
    records, _, _ = offer([open_step(200.0, measure_s=50.0)], lambda _: 0.001, text, work_s=work_s)
    planned = [r for r in records if r.due_s < 51.0]
    assert [r.seq for r in planned] == list(range(10_000))
    assert {r.status for r in planned} == {"ok"}
    sent_s = np.array([r.sent_s for r in planned])
    lag_s = np.array([r.lag_s for r in planned])
    assert 9_999 / (sent_s[-1] - sent_s[0]) == pytest.approx(200.0, rel=0.01)
    assert np.quantile(np.abs(lag_s), 0.99) < 0.005
    assert abs(np.polyfit(sent_s, lag_s, 1)[0]) < 1e-6
    if not work_s:
        assert np.diff(sent_s) == pytest.approx(np.full(9_999, 0.005), abs=1e-9)


def busy(text: str, at_s: float, work: Callable[[FakeClient, JumpingLoop], None]) -> tuple[Sender, FakeClient]:
    """100 requests a second from 1 to 4 s, in a loop that does ``work`` at ``at_s``."""
    kept: list[tuple[Sender, FakeClient]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        client = FakeClient(lambda _: 0.001)
        share = Sender(scenario(text), client, loop.time, 0.0, lambda _: None, precise=False)
        kept.append((share, client))
        loop.call_at(at_s, work, client, loop)
        share.begin(open_step(100.0, measure_s=3.0), 0)
        await asyncio.sleep(6.0)
        await share.finish(1e6)

    run(main())
    return kept[0]


def test_what_is_due_leaves_between_two_pieces_of_work() -> None:
    """The loop is busy from 2.001 to 2.101 s, with a pause after the first half of it."""

    def work(client: FakeClient, loop: JumpingLoop) -> None:
        for _ in range(2):
            loop._now_s += 0.05
            client.between()

    _, client = busy('[arrivals]\nkind = "constant"', 2.001, work)
    late = [at_s for seq, at_s in client.started_s.items() if at_s - (1.005 + 0.01 * seq) > 1e-6]
    assert late == pytest.approx([*[2.051] * 5, *[2.101] * 5])


def test_a_request_that_cannot_be_built_between_two_pieces_of_work_ends_the_run() -> None:
    def prepare(arrival: Arrival, content: Any) -> bytes:
        raise ScenarioError("too large")

    def work(client: FakeClient, loop: JumpingLoop) -> None:
        client.prepare = prepare  # type: ignore[method-assign]
        loop._now_s += 1.0
        client.between()

    assert busy("", 2.0, work)[0].failure == "ScenarioError: too large"


@pytest.mark.parametrize("answer_s", [2.0, 9.0])
def test_rt04_answers_of_any_length_take_nothing_from_a_rate_of_two_a_second(answer_s: float) -> None:
    records, client, _ = offer([open_step(2.0, measure_s=200.0)], lambda _: answer_s, '[arrivals]\nkind = "constant"')
    sent = [r for r in records if r.sent_s is not None and 1.0 <= r.sent_s < 201.0]
    assert len(sent) == 400
    assert max(r.lag_s or 0.0 for r in records) < 1e-9
    assert client.most == pytest.approx(2.0 * answer_s, abs=1)


def test_rt04_twenty_users_of_a_request_each_ten_seconds_are_two_a_second() -> None:
    """The case: 20 clients of 0.1 a second, answers of 2 s. Here a pause is one after the answer: 8 s of it."""
    text = """[prompts]
kind = "sessions"
turns = 40
vary_turns = false
system_tokens = 0
input_tokens = 1
output_tokens = 1
input_cv = 0
output_cv = 0
think_s = 8
think_cv = 0
max_context_tokens = 100000
"""
    step = Step(0, users=20, begin_s=0.0, warmup_s=0.0, measure_s=200.0)
    records, _, _ = offer([step], lambda _: 2.0, text)
    sent = [r for r in records if r.sent_s is not None and r.sent_s < 200.0]
    assert len(sent) / 200.0 == pytest.approx(2.0, rel=0.02)
    own = [r.due_s for r in sent if r.seq % TURN == sent[0].seq]
    assert np.diff(own) == pytest.approx(np.full(len(own) - 1, 10.0))


def test_load_goes_on_at_the_same_rate_until_the_next_step_is_decided() -> None:
    records, _, _ = offer([open_step(50.0)], until_s=15.0)
    late = [r for r in records if r.due_s >= 11.0]
    assert len(late) == pytest.approx(200, abs=50)
    assert {r.step for r in records} == {0}


def test_the_next_step_ends_the_one_before_at_its_own_begin() -> None:
    records, _, _ = offer([open_step(20.0), open_step(40.0, begin_s=11.5, index=1)])
    assert max(r.due_s for r in records if r.step == 0) < 11.5
    assert min(r.due_s for r in records if r.step == 1) >= 11.5
    assert len([r for r in records if r.step == 1]) == pytest.approx(400, abs=70)


def test_shares_of_workers_send_exactly_the_plan_between_them() -> None:
    step = open_step(30.0)
    halves = [offer([step], index=i, of=2)[0] for i in range(2)]
    whole = offer([step])[0]
    assert sorted(r.seq for half in halves for r in half) == [r.seq for r in whole]
    assert abs(len(halves[0]) - len(halves[1])) <= 1


def test_dx05_four_workers_send_a_quarter_each() -> None:
    shares = [offer([open_step(100.0)], index=i, of=4)[0] for i in range(4)]
    rates_rps = [sum(r.due_s < 11.0 for r in share) / 10.0 for share in shares]
    assert rates_rps == pytest.approx([25.0] * 4, rel=0.1)
    assert all(max(r.lag_s or 0.0 for r in share) < 1e-9 for share in shares)


def test_a_cap_on_requests_in_flight_is_a_failed_record_not_a_delay() -> None:
    text = '[ramp]\nmax_in_flight = 4\n[arrivals]\nkind = "constant"'
    records, client, share = offer([open_step(10.0)], service_s=lambda _: 1.0, text=text)
    dropped = [r for r in records if r.status == "error"]
    assert client.most == 4
    assert len(dropped) == share.held > 40
    assert {r.error for r in dropped} == {"client"}
    assert "max_in_flight" in (dropped[0].error_detail or "")
    assert all((r.lag_s or 0.0) < 1e-9 for r in records if r.ok)


def test_the_guard_holds_back_what_exceeds_max_rps_and_it_shows_as_lag() -> None:
    """In real time: asyncio-throttle reads its own clock. 0.5 s at 200 a second through a guard of 100."""
    records: list[Record] = []

    async def main() -> int:
        loop = asyncio.get_running_loop()
        text = '[target]\nmax_rps = 100\n[arrivals]\nkind = "constant"'
        share = Sender(
            scenario(text), FakeClient(lambda _: 0.001), loop.time, loop.time(), records.append, precise=False
        )
        share.begin(open_step(200.0, begin_s=0.01, measure_s=0.5), 0)
        await asyncio.sleep(0.51)
        await share.finish(10.0)
        return share.held

    held = asyncio.run(main())
    sent_s = np.sort([r.sent_s for r in records if r.sent_s is not None])
    assert len(sent_s) == len(records) >= 95
    assert held > 20
    assert (len(sent_s) - 1) / (sent_s[-1] - sent_s[0]) < 125
    assert max(r.lag_s or 0.0 for r in records) > 0.2


def test_requests_that_the_guard_holds_back_to_the_end_are_records_too() -> None:
    records: list[Record] = []

    async def main() -> int:
        loop = asyncio.get_running_loop()
        text = '[target]\nmax_rps = 0.1\n[arrivals]\nkind = "constant"'
        share = Sender(scenario(text), FakeClient(lambda _: 0.0), loop.time, loop.time(), records.append, precise=False)
        share.begin(open_step(100.0, begin_s=0.01, measure_s=0.2), 0)
        await asyncio.sleep(0.15)
        await share.finish(0.0)
        return share.held

    held = asyncio.run(main())
    first, *others = sorted(records, key=lambda r: r.seq)
    assert first.ok
    assert [record.seq for record in others] == list(range(1, len(records)))
    assert {record.error_detail for record in others} == {"not sent: held back by max_rps until the load had ended"}
    assert {(record.status, record.error, record.sent_s) for record in others} == {("unfinished", None, None)}
    assert held == len(others) > 1


def test_rt10_a_closed_loop_keeps_every_user_busy() -> None:
    """Ten users, answers of 1 to 10 s: no lots, no saw-tooth (RT-10)."""
    step = Step(0, users=10, begin_s=0.0, warmup_s=0.0, measure_s=60.0)
    records, client, _ = offer([step], service_s=lambda seq: 1.0 + (seq * 7) % 10)
    assert client.most == 10
    busy_s = sum(min(r.stream_end_s or 0.0, 60.0) - r.due_s for r in records)
    assert busy_s / 60.0 >= 9.5
    assert all(r.due_s == r.sent_s for r in records)


@pytest.mark.parametrize(("users", "total"), [(4, 10), (8, 3)])
def test_rt11_users_need_not_divide_the_number_of_requests(users: int, total: int) -> None:
    """RT-11: ten requests over four users, three over eight; the planned numbers are all sent, none twice."""
    step = Step(0, users=users, begin_s=0.0, warmup_s=0.0, measure_s=0.9 if total == 3 else 2.4)
    records, _, _ = offer([step], service_s=lambda seq: 1.0)
    assert len({r.seq for r in records}) == len(records)
    assert len(records) == users * (1 if total == 3 else 3)


def test_users_are_added_and_leave_from_step_to_step_without_a_restart() -> None:
    steps = [Step(i, users=n, begin_s=20.0 * i, warmup_s=0.0, measure_s=20.0) for i, n in enumerate((2, 6, 3))]
    records, _, _ = offer(steps, service_s=lambda seq: 1.0)
    at = {t: sum(r.due_s <= t < (r.stream_end_s or 0.0) for r in records) for t in (15.5, 35.5, 55.5)}
    assert at == {15.5: 2, 35.5: 6, 55.5: 3}


def test_what_is_cut_at_the_end_is_a_record() -> None:
    records: list[Record] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        share = Sender(scenario(), FakeClient(lambda _: 100.0), loop.time, 0.0, records.append, precise=False)
        share.begin(open_step(5.0, begin_s=0.1), 0)
        await asyncio.sleep(5.0)
        await share.finish(6.0)

    run(main())
    assert len(records) > 10
    assert {(r.status, r.error) for r in records} == {("error", "client")}
    assert {r.stream_end_s for r in records} == {6.0}


def test_rt02_overdue_requests_are_not_sent_in_a_storm_after_a_stall() -> None:
    """RT-02: what is more than a second late is recorded as failed; the rest is sent at once, its lag on record."""
    records: list[Record] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        offset = [0.0]
        share = Sender(
            scenario('[arrivals]\nkind = "constant"'),
            FakeClient(lambda _: 0.01),
            lambda: loop.time() + offset[0],
            0.0,
            records.append,
            precise=False,
        )
        share.begin(open_step(100.0, begin_s=0.1), 0)
        await asyncio.sleep(2.0)
        offset[0] = 3.0  # three seconds pass in which the process did not run
        await asyncio.sleep(2.0)
        await share.close()

    run(main())
    dropped = [r for r in records if r.error_detail and "late" in r.error_detail]
    assert 190 <= len(dropped) <= 205
    assert {r.error for r in dropped} == {"client"}
