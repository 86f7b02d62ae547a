"""The same plain questions at temperature 0, one at a time: answers to compare two versions by.

No load is on the server and nothing else is in the batch, so that a healthy engine repeats itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from loadramp.client.endpoint import Endpoint
from loadramp.client.http.sockets import Connect
from loadramp.client.measuring_client import Client
from loadramp.record.types import Arrival, Prompt, Record
from loadramp.scenario.scenario import Target

QUESTIONS = (
    "Explain in a few sentences how rain forms.",
    "List the seven days of the week in order.",
    "What is 17 times 24? Show the steps.",
    "Write a short, polite letter that asks a neighbour to return a ladder.",
    "Translate into French: The library closes at six o'clock.",
    "Name three differences between a lake and a river.",
    "Write a Python function that returns the largest number in a list.",
    "Summarise in one sentence: A farmer planted oats, lost them to hail, and planted again in June.",
    "Why does bread rise when it is baked?",
    "Give a JSON object with the keys name and age for a person called Ada who is 36.",
    "Which is heavier, a kilogram of feathers or a kilogram of iron, and why?",
    "Continue the story: The lamp in the tower went out, and",
    "Put these words in alphabetical order: pear, apple, plum, fig.",
    "What should one do first when a pan of oil catches fire?",
    "Describe the colour blue to someone who has never seen.",
    "If a train leaves at 14:50 and the ride takes 95 minutes, when does it arrive?",
)


def prompts(n: int) -> list[str]:
    """``n`` questions, the same ones for the same ``n``; beyond the list they ask for another form of answer."""
    return [
        question if i < len(QUESTIONS) else f"{question} Answer number {i // len(QUESTIONS) + 1}, in other words."
        for i in range(n)
        for question in (QUESTIONS[i % len(QUESTIONS)],)
    ]


async def ask(
    target: Target,
    endpoint: Endpoint,
    model: str,
    fields: frozenset[str],
    questions: list[str],
    tokens: int,
    clock: Callable[[], float],
    connect: Connect | None = None,
) -> list[tuple[str | None, int | None]]:
    """The greedy answers to ``questions``, one request after the other: (text, tokens), text None where one failed.

    A server that refuses a seed gets none.

    Args:
        target, endpoint, model, fields: as for a run.
        questions: what to ask.
        tokens: longest answer.
        clock: absolute seconds.
        connect: opens pipes in place of sockets.
    """
    greedy = {"temperature": 0.0, "seed": 1}
    out: list[tuple[str | None, int | None]] = []
    for i, question in enumerate(questions):
        record = await _one(target, endpoint, model, fields, question, tokens, clock, connect, greedy)
        if i == 0 and record.http_status in {400, 422} and "seed" in greedy:
            del greedy["seed"]
            record = await _one(target, endpoint, model, fields, question, tokens, clock, connect, greedy)
        answered = record.ok or record.status == "empty"
        out.append((record.text or "" if answered else None, record.output_tokens))
    return out


async def _one(
    target: Target,
    endpoint: Endpoint,
    model: str,
    fields: frozenset[str],
    question: str,
    tokens: int,
    clock: Callable[[], float],
    connect: Connect | None,
    greedy: dict[str, float],
) -> Record:
    plain = replace(target, body={**target.body, **greedy}, force_length=False)
    client = Client(plain, endpoint, model, connect=connect, clock=clock, t0_s=clock(), save_text=True, fields=fields)
    arrival = Arrival(0, 0, 0.0, Prompt(output_tokens=tokens))
    record = await client.send(replace(arrival, due_s=client.now_s()), client.prepare(arrival, question))
    await client.close()
    return record
