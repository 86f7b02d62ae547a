"""The metric cases (MD): tokens, latencies and their sources, from the bytes up."""

import asyncio
from typing import Any

import numpy as np
import pytest
from scripted_server import (
    CU,
    DONE,
    FIN,
    USE,
    C,
    Scripted,
    arrival,
    chunk,
    client_on,
    counted,
    delta,
    jump,
    record_of,
    reply,
    stream,
)

from loadramp.record.table import Table
from loadramp.record.types import Record
from loadramp.report.probe_text import probe_document


def near(*values_ms: float) -> Any:
    return pytest.approx([value / 1000 for value in values_ms])


def at(ms: float) -> Any:
    return pytest.approx(ms / 1000)


def seen(script: Any, **options: Any) -> dict[str, Any]:
    return probe_document(record_of(script, **options))


def test_md01_the_first_token_is_no_gap() -> None:
    got = seen(stream((500, C("a")), (520, C("b")), (540, C("c")), (540, FIN("stop") + DONE)))
    assert (got["ttft_s"], got["itl_s"], got["output_tokens"]) == (at(500), near(20, 20), 3)


def test_md02_a_gap_is_shared_by_the_tokens_of_its_event() -> None:
    record = record_of(
        stream((100, CU("a", c=1)), (160, CU("b c d", c=4)), (180, CU("e", c=5)), (180, FIN("stop") + DONE))
    )
    got = probe_document(record)
    assert (got["output_tokens"], got["itl_s"], got["gap_s"]) == (5, near(20, 20, 20, 20), near(60, 20))
    assert (got["tpot_s"], got["token_source"]) == (at(20), "continuous")
    assert record.event_tokens == [1, 3, 1]
    assert "multi_token_events" in got["warnings"]


def test_md02_without_running_counts_the_final_count_is_spread_by_length() -> None:
    record = record_of(stream((100, C("a")), (160, C("bcd")), (180, C("e")), (180, FIN("stop") + USE(3, 5) + DONE)))
    assert (record.event_tokens, record.token_source) == ([1, 3, 1], "pro_rata")
    assert probe_document(record)["itl_s"] == near(20, 20, 20, 20)
    assert "pro_rata" in record.warnings


def test_md02_tokens_held_back_go_to_the_next_event_with_text() -> None:
    """A server that waits for whole characters sends empty events for the tokens in between."""
    record = record_of(
        stream(
            (100, CU("a", c=1)),
            (120, CU("", c=2)),
            (140, CU("", c=3)),
            (160, CU("🙂", c=4)),
            (180, CU("", c=5)),
            (180, FIN("stop") + USE(5, 6) + DONE),
        )
    )
    got = probe_document(record)
    assert (record.event_tokens, got["output_tokens"]) == ([1, 3], 6)  # the last two made no gap
    assert (got["itl_s"], got["gap_s"]) == (near(20, 20, 20), near(60))


def test_md04_tpot_leaves_out_the_tokens_of_the_first_event() -> None:
    """Policy B: (290 - 200) / (7 - 4)."""
    record = record_of(
        stream(
            (200, CU("abcd", c=4)),
            (230, CU("e", c=5)),
            (260, CU("f", c=6)),
            (290, CU("g", c=7)),
            (290, FIN("stop") + DONE),
        )
    )
    assert probe_document(record)["tpot_s"] == at(30)
    assert Table.of([record]).tpot_s[0] == at(30)
    assert (record.event_tokens[0], Table.of([record]).first_tokens[0]) == (4, 4)


def test_md05_one_token_answers_have_no_tpot() -> None:
    short = stream((100, C("a")), (100, FIN("length") + USE(1, 1) + DONE))
    long = stream(*[(100.0 + 20 * i, C("a")) for i in range(11)], (300, FIN("length") + USE(1, 11) + DONE))
    assert seen(short)["tpot_s"] is None
    assert seen(short)["itl_s"] == []
    assert seen(short)["ttft_s"] == at(100)
    table = Table.of([record_of(short)] * 50 + [record_of(long)] * 50)
    tpot_s = table.tpot_s[~np.isnan(table.tpot_s)]
    assert (len(tpot_s), float(tpot_s.mean())) == (50, at(20))
    assert int(np.count_nonzero(~np.isnan(table.ttft_s))) == 100


@pytest.mark.parametrize(
    "script",
    [
        stream((100, CU("abc", c=3)), (100, FIN("length") + DONE)),
        stream((100, C("abc")), (100, FIN("length") + USE(1, 3) + DONE)),
        reply(
            b'{"choices":[{"message":{"content":"abc"},"finish_reason":"length"}],"usage":{"completion_tokens":3}}',
            at_ms=100,
        ),
    ],
    ids=["continuous", "pro rata", "whole reply"],
)
def test_md05_tokens_that_came_together_have_no_tpot(script: Any) -> None:
    got = seen(script)
    assert (got["status"], got["output_tokens"], got["tpot_s"], got["itl_s"], got["ttft_s"]) == (
        "ok",
        3,
        None,
        [],
        at(100),
    )


def test_md08_reasoning_tokens_are_part_of_the_output() -> None:
    usage = counted(9, 30) | {"completion_tokens_details": {"reasoning_tokens": 20}}
    record = record_of(stream((10, delta(reasoning="hm")), (20, C("a")), (20, FIN("stop") + chunk(usage=usage) + DONE)))
    assert (record.output_tokens, record.reasoning_tokens) == (30, 20)


@pytest.mark.parametrize("details", [None, {}, {"reasoning_tokens": None}, [], "none"])
def test_md08_details_of_usage_may_be_missing(details: Any) -> None:
    usage = counted(9, 1) | {"completion_tokens_details": details, "prompt_tokens_details": details}
    record = record_of(stream((10, C("a")), (20, FIN("stop") + chunk(usage=usage) + DONE)))
    assert (record.status, record.output_tokens, record.reasoning_tokens, record.cached_tokens) == ("ok", 1, None, None)


def test_md08_cached_prompt_tokens_are_kept() -> None:
    usage = counted(371, 1) | {"prompt_tokens_details": {"cached_tokens": 256}}
    assert record_of(stream((10, C("a") + FIN("stop") + chunk(usage=usage) + DONE))).cached_tokens == 256


def test_md09_tokens_are_what_the_server_counted_not_what_the_text_would_make() -> None:
    spaces = [(10.0 * i, C(" ")) for i in range(1, 16)]
    got = seen(stream(*spaces, (150, FIN("length") + USE(4, 15) + DONE)))
    assert (got["output_tokens"], got["token_source"], len(got["itl_s"])) == (15, "usage", 14)
    # DESIGN.md has no tokenizer among its token sources: without usage each event is one token
    bare = seen(stream(*spaces, (150, FIN("length") + DONE)))
    assert (bare["output_tokens"], bare["token_source"]) == (15, "events")


def test_md11_gaps_are_pooled_over_tokens() -> None:
    def answer(stalled: bool) -> Record:
        gaps_ms = [10.0] * 100
        if stalled:
            gaps_ms[40] = 2000.0
        instants = np.cumsum([50.0, *gaps_ms])
        return record_of(
            stream(*[(float(t), C("a")) for t in instants], (float(instants[-1]), FIN("length") + USE(1, 101) + DONE))
        )

    calm, stalled = answer(False), answer(True)
    itl_s, _ = Table.of([calm] * 6 + [stalled] + [calm] * 93).gaps().itl()
    assert len(itl_s) == 10_000
    assert (float(itl_s.max()), float(np.quantile(itl_s, 0.99))) == (at(2000), at(10))
    assert np.mean(probe_document(stalled)["itl_s"]) == at(29.9)


def test_md13_waiting_in_the_client_shows_in_latency_and_as_lag() -> None:
    server = Scripted([stream((500, C("a")), (500, FIN("stop") + USE(1, 1) + DONE), head_ms=0)])

    async def main() -> list[Record]:
        client = client_on(server)
        turn = asyncio.Semaphore(1)

        async def one(i: int) -> Record:
            asked = arrival(i, due_s=i * 0.1)
            await asyncio.sleep(asked.due_s)
            async with turn:
                return await client.send(asked, client.prepare(asked, "hi"))

        return await asyncio.gather(*(one(i) for i in range(8)))

    records = jump(main())
    assert [r.sent_ttft_s for r in records] == [at(500)] * 8
    assert [r.e2e_s for r in records] == near(500, 900, 1300, 1700, 2100, 2500, 2900, 3300)
    assert np.mean([r.lag_s for r in records]) == at(1400)


def test_md15_tokens_of_an_event_count_as_so_many() -> None:
    """What a peak over one-second bins has to add up: 30 events of 4 tokens."""
    acts = [(100.0 * i + 50, CU("abcd", c=4 * (i + 1))) for i in range(30)]
    record = record_of(stream(*acts, (2950, FIN("length") + DONE)))
    bins = np.bincount(np.array(record.event_s).astype(int), weights=record.event_tokens)
    assert (list(bins), record.output_tokens) == ([40, 40, 40], 120)


def test_md17_interleaved_choices_are_kept_apart() -> None:
    record = record_of(
        stream(
            (100, C("a", 0)),
            (101, C("b", 1)),
            (120, C("c", 0)),
            (125, C("d", 1)),
            (125, FIN("stop", 0) + FIN("stop", 1) + USE(5, 4) + DONE),
        )
    )
    got = probe_document(record)
    assert (got["output_tokens"], got["ttft_s"], got["itl_s"], got["gap_s"]) == (4, at(100), near(20, 24), near(20, 24))
    assert (record.event_choice, got["text"], "multiple_choices" in got["warnings"]) == ([0, 1, 0, 1], "ac\nbd", True)
    assert list(Table.of([record]).gaps().gap_s) == near(20, 24)


def test_md17_running_counts_of_each_choice_are_kept_apart() -> None:
    record = record_of(
        stream(
            (100, CU("a", 1, 0) + CU("b", 1, 1)),
            (120, CU("cc", 3, 0)),
            (130, CU("d", 2, 1)),
            (130, FIN("stop", 0) + FIN("stop", 1) + DONE),
        )
    )
    assert (record.event_tokens, record.output_tokens, record.token_source) == ([1, 1, 2, 1], 5, "continuous")


def test_md17_the_answer_goes_on_until_every_choice_has_finished() -> None:
    script = stream((10, C("a", 0) + C("b", 1)), (20, FIN("stop", 0)), (30020, C("c", 1)), (30030, FIN("length", 1)))
    got = seen(script, grace_s=1.0, idle_timeout_s=60.0)
    assert (got["status"], got["output_tokens"], got["e2e_s"]) == ("ok", 3, at(30020))


def test_md19_without_usage_each_event_is_a_token_and_that_is_said() -> None:
    """DESIGN.md has no tokenizer among its token sources: events are counted."""
    got = seen(stream(*[(10.0 * i, C("a")) for i in range(1, 6)], (50, FIN("length") + DONE)))
    assert (got["output_tokens"], got["token_source"], "no_usage" in got["warnings"]) == (5, "events", True)


@pytest.mark.parametrize("usage", [None, {"prompt_tokens": 4}, {"prompt_tokens": 4, "completion_tokens": 0}])
def test_md19_usage_without_completion_tokens_is_no_usage(usage: Any) -> None:
    got = seen(stream((10, C("a")), (20, C("b") + FIN("stop") + chunk(**({"usage": usage} if usage else {})) + DONE)))
    assert (got["output_tokens"], got["token_source"], got["status"]) == (2, "events", "ok")


END = FIN("stop") + DONE


@pytest.mark.parametrize(
    ("instants_ms", "burst"),
    [
        ([100, 100, 100, 100], True),
        ([100, 100.05, 100.1, 100.15], True),
        ([100, 100, 120, 120, 120, 140, 140, 140], True),
        ([100, 100.1, 100.2, 150, 150.1, 150.2], True),
        ([100, 100, 120, 140], False),
        ([1, 1.1, 1.2, 1.3, 1.4, 1.5], False),
        ([1, *[1 + k / 10 for k in range(1, 40)], 30, *[30 + k / 10 for k in range(1, 40)]], False),
        ([100, 100], False),
        ([100], False),
    ],
    ids=["one read", "at once", "lots", "close lots", "a pair", "a quick engine", "and its pause", "two", "one"],
)
def test_tokens_that_are_held_back_and_come_together_are_called_a_burst(instants_ms: list[float], burst: bool) -> None:
    got = seen(stream(*[(float(ms), C("a")) for ms in instants_ms], (instants_ms[-1], END)))
    assert ("burst_delivery" in got["warnings"]) is burst


@pytest.mark.parametrize(("tokens", "warned"), [(371, True), (1945, True), (1946, False), (2048, False)])
def test_ds07_an_answer_shorter_than_asked_is_said(tokens: int, warned: bool) -> None:
    assert ("short_output" in _asked(2048, tokens).warnings) is warned
    assert "short_output" not in _asked(2048, tokens, force_length=False).warnings


@pytest.mark.parametrize(
    ("counted_tokens", "warned"), [(5000, True), (880, True), (1000, False), (1090, False), (1140, True)]
)
def test_ds02_a_prompt_of_another_length_is_said(counted_tokens: int, warned: bool) -> None:
    script = stream((10, C("a") + FIN("length") + USE(counted_tokens, 1) + DONE))
    record = jump(_one(Scripted([script]), input_tokens=1000))
    assert ("prompt_length_mismatch" in record.warnings) is warned


def _asked(asked: int, got: int, **options: Any) -> Record:
    script = stream((10, C("a") + FIN("length") + USE(1, got) + DONE))
    return jump(_one(Scripted([script]), options, output_tokens=asked))


async def _one(server: Scripted, options: dict[str, Any] | None = None, **prompt: Any) -> Record:
    client = client_on(server, **(options or {}))
    asked = arrival(**prompt)
    return await client.send(asked, client.prepare(asked, "hi"))
