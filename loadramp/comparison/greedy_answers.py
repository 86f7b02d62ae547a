"""Asks both versions the same plain questions at temperature 0, one at a time, to compare their answers.

There is no load on the server and nothing else in the batch, so a healthy engine repeats itself.
"""

from dataclasses import replace

from loadramp.client.probe import SingleRequests
from loadramp.comparison.answer_match import GreedyAnswer
from loadramp.registry import data_of

QUESTIONS: list[str] = data_of(__package__, "questions.toml")["questions"]


def prompts(n: int) -> list[str]:
    """``n`` questions, the same ones for the same ``n``; beyond the list they ask for another form of answer."""
    return [
        question if i < len(QUESTIONS) else f"{question} Answer number {i // len(QUESTIONS) + 1}, in other words."
        for i in range(n)
        for question in (QUESTIONS[i % len(QUESTIONS)],)
    ]


async def ask(
    requests: SingleRequests, fields: frozenset[str], questions: list[str], tokens: int
) -> list[GreedyAnswer]:
    """The greedy answers to ``questions``, one request after the other; the text of a failed one is None.

    A server that refuses a seed gets none.

    Args:
        requests: to whom; the text of its answers is kept.
        fields: the optional request fields that the server takes.
        questions: what to ask.
        tokens: longest answer.
    """
    plain = replace(requests, target=replace(requests.target, force_length=False, via="direct"), save_text=True)
    greedy = {"temperature": 0.0, "seed": 1}
    answers = []
    for i, question in enumerate(questions):
        record = await plain.send(question, tokens, fields, greedy)
        if i == 0 and record.http_status in {400, 422}:
            del greedy["seed"]
            record = await plain.send(question, tokens, fields, greedy)
        answered = record.ok or record.status == "empty"
        answers.append(GreedyAnswer(record.text or "" if answered else None, record.output_tokens))
    return answers
