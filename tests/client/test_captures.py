"""Replies of real servers replay to what their servers meant, however they are cut."""

import csv
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from mutated_replies import Mutated
from real_replies import CAPTURES, DATA, reads_of
from reply_invariants import Fed, apart, in_c, in_python, ways_in_c

from loadramp.analysis.checks.answer_checks import burst_share
from loadramp.client.http import c_reader
from loadramp.client.http.response import ResponseReader
from loadramp.client.stream.outcome import RequestedOutput
from loadramp.record.table import Table
from loadramp.record.types import Record

MEANT = list(csv.DictReader((DATA / "meant.tsv").read_text().splitlines(), delimiter="\t"))


def replay(capture: dict[str, Any], reads: list[tuple[bytes, float]] | None = None) -> Record:
    asked = RequestedOutput(
        streamed=capture["stream"], done_expected="responses" not in capture["path"], save_text=True
    )
    exchange = ResponseReader(Record(0, 0, 0.0, sent_s=0.0), asked)
    for data, t_s in reads_of(capture) if reads is None else reads:
        exchange.feed(data, t_s)
    end_s = capture["end_ns"] / 1e9
    if capture["end"] == "eof":
        exchange.closed(None, "", end_s)
    else:
        exchange.fail("client", "cut off by the client", end_s)
    return exchange.finish()


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fed]:
    one = Fed(tmp_path_factory.mktemp("fed"))
    yield one
    one.close()


@pytest.mark.skipif(c_reader.LOADED is None, reason="the reader in C was not built")
def test_the_reader_in_c_makes_the_same_records_of_real_replies(fed: Fed) -> None:
    for name, capture in CAPTURES.items():
        reads = [data for data, _ in reads_of(capture)]
        one = Mutated(name, "0", b"".join(reads), "eof", capture["stream"], True, None, 0)
        expected = in_python(one, reads, 0.5)
        assert [apart(expected, record) for record in ways_in_c(fed, one, reads, 0.5)] == [[], [], []], name


@pytest.mark.skipif(c_reader.LOADED is None, reason="the reader in C was not built")
@pytest.mark.parametrize(
    ("name", "looks"),
    [
        ("vllm/chat_stream_basic", [4, 4, 1]),
        ("vllm/chat_stream_continuous_usage", [3, 3, 1]),
        ("vllm/chat_stream_ignore_eos_min_tokens", [3, 3, 1]),
        ("vllm/completions_stream_include_usage", [5, 5, 2]),
        ("llama-server/chat_stream_basic", [4, 4, 2]),
        ("transformers/chat_stream_basic", [5, 5, 2]),
        ("vllm/tool_named_stream", [10, 10, 10]),
    ],
)
def test_so_often_python_looks_at_a_real_reply(
    fed: Fed, monkeypatch: pytest.MonkeyPatch, name: str, looks: list[int]
) -> None:
    """At once; patiently; and patiently where a reply has begun so before: then, when it ends."""
    capture, read = CAPTURES[name], Fed.read
    reads = [data for data, _ in reads_of(capture)]
    one = Mutated(name, "0", b"".join(reads), "eof", True, True, None, 0)
    fed.forget()
    found = []
    for patient in (False, True, True):
        dues: list[bool] = []
        with monkeypatch.context() as patched:
            patched.setattr(
                Fed, "read", lambda self, data, t_s, dues=dues: dues.append(read(self, data, t_s)) or dues[-1]
            )
            in_c(fed, one, reads, 0.5, patient)
        found.append(dues.count(True))
    assert found == looks


def without_times(record: Record) -> dict[str, Any]:
    timed = {"first_byte_s", "event_s", "answer_s", "stream_end_s", "warnings"}
    return {name: getattr(record, name) for name in Record.__dataclass_fields__ if name not in timed}


@pytest.mark.parametrize("meant", MEANT, ids=lambda meant: meant["capture"])
def test_a_reply_of_a_real_server_means_what_its_server_meant(meant: dict[str, str]) -> None:
    record = replay(CAPTURES[meant["capture"]])

    def shown(value: Any) -> str:
        return "-" if value in (None, "") else str(value)

    assert {
        "http": shown(record.http_status),
        "status": record.status,
        "error": shown(record.error),
        "events": str(len(record.event_s)),
        "output_tokens": shown(record.output_tokens),
        "prompt_tokens": shown(record.prompt_tokens),
        "token_source": shown(record.token_source),
        "finish_reason": shown(record.finish_reason),
        "done": "yes" if record.done_marker else "no",
    } == {name: value for name, value in meant.items() if name not in {"capture", "text_crc32"}}
    assert meant["text_crc32"] in {"-", f"{zlib.crc32((record.text or '').encode()):08x}"}
    assert record.malformed_events == 0
    assert sum(record.event_tokens or [1] * len(record.event_s)) <= (record.output_tokens or 0)
    assert (record.error_detail is None) == (record.status == "ok")
    assert (record.error is None) == (record.status in {"ok", "unfinished"})


@pytest.mark.parametrize("size", [1, 7, 61, 1 << 30], ids=["1", "7", "61", "all"])
def test_a_reply_means_the_same_however_it_was_cut(size: int) -> None:
    for name, capture in CAPTURES.items():
        raw = b"".join(data for data, _ in reads_of(capture))
        if len(raw) > 2000 * size:
            continue
        pieces = [(raw[i : i + size], 0.0) for i in range(0, len(raw), size)]
        assert without_times(replay(capture, pieces)) == without_times(replay(capture)), name


def test_every_capture_has_its_meaning_and_every_meaning_its_capture() -> None:
    assert {meant["capture"] for meant in MEANT} == set(CAPTURES)
    assert len(MEANT) == 187


@pytest.mark.parametrize("server", ["llama-server", "xllamacpp"])
@pytest.mark.parametrize("name", ["chat_stream_basic", "chat_stream_ignore_eos"])
def test_a_tiny_llama_cpp_model_is_taken_for_no_proxy(server: str, name: str) -> None:
    record = replay(CAPTURES[f"{server}/{name}"])
    assert "burst_delivery" not in record.warnings
    assert burst_share(Table.of([record] * 20).gaps(), record.sent_ttft_s) == 0.0


def test_an_admitted_request_waits_behind_keep_alives() -> None:
    record = replay(CAPTURES["vllm/admission_01"])
    assert (record.keepalives, record.first_byte_s is not None and record.first_byte_s < 2.0) == (7, True)
    assert record.ttft_s == pytest.approx(7.508, abs=0.001)


def test_a_preemption_is_one_long_gap_in_the_stream() -> None:
    gaps = [
        max(b - a for a, b in zip(record.event_s, record.event_s[1:], strict=False))
        for record in (replay(CAPTURES[f"vllm/preempt_stream_{i:02}"]) for i in range(14))
    ]
    assert max(gaps) == pytest.approx(8.3, abs=0.1)
    assert sum(gap > 0.8 for gap in gaps) >= 3


def test_a_server_s_refusals_are_read_in_its_own_words() -> None:
    said = {name: replay(CAPTURES[name]).error_detail or "" for name in CAPTURES if "err_" in name or "kill" in name}
    assert said["vllm/err_token_id_out_of_vocab"] == "Token id 999999 is out of vocabulary (BadRequestError, 400)"
    assert said["vllm/err_context_too_long_stream"].startswith(
        "HTTP 400 Bad Request: This model's maximum context length"
    )
    assert said["transformers/err_unknown_model"].startswith("HTTP 400 Bad Request: Server is pinned to")
    assert said["llama-server/kill9_stream"] == "the connection was closed inside the reply, after 15 output events"
    assert said["vllm/kill_worker_stream"].startswith("EngineCore encountered an issue.")


def test_running_counts_of_vllm_give_four_tokens_an_event() -> None:
    record = replay(CAPTURES["vllm/stream_interval4_chat_continuous"])
    assert record.event_tokens == [1, 4, 4, 4, 4, 1]
    spread = replay(CAPTURES["vllm/stream_interval4_chat"])  # the same answer, counted at its end only
    assert (spread.token_source, sum(spread.event_tokens)) == ("pro_rata", 18)
