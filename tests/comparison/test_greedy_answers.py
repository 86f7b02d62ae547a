"""Greedy questions to a simulated server in memory, and to one whose answers are scripted."""

from __future__ import annotations

import asyncio

import pytest
from memory_pipe import connect_in_memory
from simulated_time import run as run_jumping

from loadramp.client.endpoint import endpoint_of
from loadramp.client.http.sockets import ConnectFailed
from loadramp.client.probe import SingleRequests
from loadramp.client.request_body import OPTIONAL_FIELDS
from loadramp.comparison.answer_match import GreedyAnswer, broken, compare
from loadramp.comparison.greedy_answers import QUESTIONS, ask, prompts
from loadramp.scenario.scenario import Target
from loadramp.simulator.faults import Faults
from loadramp.simulator.profiles import PROFILES
from loadramp.simulator.service import Service

TARGET = Target(base_url="http://127.0.0.1:8000")


def asked(faults: Faults | None = None, n: int = 3, tokens: int = 12) -> list[GreedyAnswer]:
    async def main() -> list[GreedyAnswer]:
        service = Service(PROFILES["small"], faults=faults, answer_tokens=10_000)  # so that the limit ends every answer
        loop = asyncio.get_running_loop()
        connect = connect_in_memory(service, refused=ConnectFailed)
        requests = SingleRequests(TARGET, endpoint_of(TARGET, {}), "sim", loop.time, connect)
        answers = await ask(requests, OPTIONAL_FIELDS, prompts(n), tokens)
        service.close()
        return answers

    return run_jumping(main())


def test_the_same_engine_gives_the_same_answers() -> None:
    base, again = asked(), asked()
    assert [one.tokens for one in base] == [12, 12, 12]
    seen = compare(base, again, asked())
    assert (seen.prompts, seen.equal, seen.equal_to_itself, seen.broken) == (3, 3, 3, 0)
    assert len({one.text for one in base}) == 3


def test_failed_answers_are_none_not_empty() -> None:
    failed = asked(Faults(error_ratio=1.0))
    assert [broken(one) for one in failed] == ["error"] * 3


def test_questions_are_plain_and_no_two_are_the_same() -> None:
    assert len(set(QUESTIONS)) == len(QUESTIONS) >= 16
    assert prompts(3) == list(QUESTIONS[:3])
    many = prompts(40)
    assert len(set(many)) == 40
    assert prompts(40) == many


@pytest.mark.parametrize("n", [0, 1])
def test_few_questions(n: int) -> None:
    assert len(prompts(n)) == n
