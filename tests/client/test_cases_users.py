"""Users of a closed loop whose requests fail: how long they wait, and what the diagnosis makes of it (field case 15).

All on simulated time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from curve_rows import changed
from run_in_memory import ramp_in_memory, scenario_of
from simulated_time import run

from loadramp.analysis.diagnosis.diagnose import diagnose
from loadramp.client.sender import Sender, wait_after
from loadramp.record.table import Run
from loadramp.record.types import Arrival, ErrorKind, Record, Step
from loadramp.report.verdict_text import verdict_sentence
from loadramp.simulator.faults import Faults

Answer = tuple[ErrorKind | None, float | None]
"""The kind of failure (None: an answer) and what Retry-After asks."""


@dataclass
class Gateway:
    """Answers after 0.28 s or fails at once, as ``decide(now_s)`` says."""

    decide: Callable[[float], Answer]
    sent: list[float] = field(default_factory=list)

    def prepare(self, arrival: Arrival, content: Any) -> bytes:
        return b"x"

    def start(self, *_: object, patient: bool) -> None:
        """Not without a task."""

    def meanwhile(self, call: object) -> None:
        """Nothing takes long."""

    async def send(self, arrival: Arrival, request: bytes) -> Record:
        loop = asyncio.get_running_loop()
        self.sent.append(loop.time())
        record = Record(arrival.seq, arrival.step, arrival.due_s, sent_s=loop.time())
        kind, record.retry_after_s = self.decide(loop.time())
        if kind is None:
            await asyncio.sleep(0.28)
            record.status = "ok"
        else:
            record.status, record.error = "error", kind
        record.stream_end_s = loop.time()
        return record

    async def close(self) -> None:
        return None


def offer(decide: Callable[[float], Answer], *users: int, measure_s: float = 60.0, text: str = "") -> Gateway:
    """Steps of so many users, one after the other from 0 s on; the run must end when the last one does."""
    gateway = Gateway(decide)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        share = Sender(scenario_of(text), gateway, loop.time, 0.0, lambda _: None, precise=False)
        for index, n in enumerate(users):
            share.begin(
                Step(index, users=n, begin_s=index * measure_s, warmup_s=0.0, measure_s=measure_s), index * 1000
            )
            await asyncio.sleep(measure_s)
        before_s = loop.time()
        await share.finish(before_s + 30.0)
        assert loop.time() - before_s < 0.5, "a user that waits must not hold up the end"
        await share.close()

    run(main())
    return gateway


def quota(rate: float = 2.0, burst: float = 4.0, retry_after_s: float | None = 1.0) -> Callable[[float], Answer]:
    """A token bucket, as the gateway of field case 15 has it."""
    state = {"tokens": burst, "at_s": 0.0}

    def decide(now_s: float) -> Answer:
        state["tokens"] = min(burst, state["tokens"] + rate * (now_s - state["at_s"]))
        state["at_s"] = now_s
        if state["tokens"] < 1.0:
            return "http_429", retry_after_s
        state["tokens"] -= 1.0
        return None, None

    return decide


def test_users_over_a_quota_come_back_when_they_were_told_to() -> None:
    """Field case 15: 2 users sent 40,000 requests in 8 s. At most 2 requests a second pass and each user fails once a
    second."""
    gateway = offer(quota(), 2, measure_s=8.0)
    assert 20 < len(gateway.sent) < 40


@pytest.mark.parametrize("kind", ["http_429", "http_5xx", "http_4xx", "connect", "reset", "empty"])
def test_whatever_the_failure_a_user_waits_longer_after_each_one_in_a_row(kind: ErrorKind) -> None:
    gateway = offer(lambda _: (kind, None), 1)
    gaps = [round(b - a, 6) for a, b in pairwise(gateway.sent)]
    assert gaps[:6] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert set(gaps[6:]) <= {10.0}


def test_an_answer_ends_the_waiting_and_the_next_failure_begins_it_anew() -> None:
    gateway = offer(lambda now_s: ("http_5xx", None) if now_s < 5.0 else (None, None), 1, measure_s=20.0)
    assert [round(at_s, 6) for at_s in gateway.sent[:5]] == [0.0, 1.0, 3.0, 7.0, 7.28]
    assert wait_after(0) == 0.0
    assert wait_after(1) == 1.0


def test_what_the_server_asks_for_is_kept_within_reason() -> None:
    assert wait_after(1, 3.5) == 3.5
    assert wait_after(9, 3.5) == 3.5
    assert wait_after(1, 0.0) == 1.0
    assert wait_after(1, -5.0) == 1.0
    assert wait_after(1, 86_400.0) == 60.0
    assert wait_after(1, float("inf")) == 60.0
    assert wait_after(1, float("nan")) == 1.0
    assert wait_after(5000) == 10.0


def test_a_failed_session_waits_before_the_next_one_begins() -> None:
    text = '[prompts]\nkind = "sessions"\nturns = 3\nthink_s = 0.1\nthink_cv = 0\n'
    gateway = offer(lambda _: ("http_5xx", None), 3, text=text)
    assert len(gateway.sent) == 3 * 9


USERS = """
seed = 5
[prompts]
kind = "fixed"
input_tokens = 50
output_tokens = 30
[ramp]
kind = "users"
users = [2, 4]
warmup_s = 3
measure_s = 40
settle_s = 0
settle_requests = 0
tail_s = 1
max_error_ratio = 1.0
give_up_s = 1000
"""


def users_of(tmp_path: Path, faults: Faults) -> Run:
    return ramp_in_memory(scenario_of(USERS), tmp_path, "small", faults)


@pytest.mark.parametrize(
    ("status", "code"), [(429, "admission_failure"), (503, "admission_failure"), (500, "errors"), (401, "errors")]
)
def test_the_finding_is_the_failure_never_the_client(tmp_path: Path, status: int, code: str) -> None:
    found = users_of(tmp_path, Faults(error_ratio=0.7, error_status=status, retry_after_s=1.0))
    assert found.findings[0].code == code
    assert "client_limited" not in {one.code for one in found.findings}
    assert len(found.table) < 600


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        (Faults(crash_at_s=1.0, crash_kind="process"), "errors"),
        (Faults(reset_ratio=1.0, reset_tokens=0), "errors"),
        (Faults(crash_at_s=30.0, crash_kind="process"), "server_down"),
    ],
)
def test_refused_and_broken_connections_are_the_finding_too(tmp_path: Path, faults: Faults, code: str) -> None:
    found = users_of(tmp_path, faults)
    assert [one.code for one in found.findings] == [code]
    assert len(found.table) < 200


def test_a_step_void_because_of_a_flood_of_failures_is_told_by_the_failures(tmp_path: Path) -> None:
    """A thousand users may still keep a process busy with refusals: that is no limit of the client's."""
    found = users_of(tmp_path, Faults(error_ratio=0.9, error_status=429))
    void = [changed(row, void=True, reasons={"void": "a client process used 96 % of a core"}) for row in found.rows]
    judged = replace(found, rows=void)
    judged.findings = diagnose(judged)
    assert [one.code for one in judged.findings] == ["admission_failure"]
    assert "No verdict: requests failed" in verdict_sentence(judged)
    assert "the client, not the server" not in verdict_sentence(judged)


def test_a_client_that_is_too_slow_for_answers_is_still_the_limit(tmp_path: Path) -> None:
    found = users_of(tmp_path, Faults())
    void = [changed(row, void=True, reasons={"void": "a client process used 96 % of a core"}) for row in found.rows]
    assert [one.code for one in diagnose(replace(found, rows=void))] == ["client_limited"]
