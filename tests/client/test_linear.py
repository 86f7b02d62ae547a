"""What an answer costs to read grows with its bytes, whatever the cuts: counted in bytes looked at, not in seconds."""

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator

import pytest
from scripted_server import DONE, FIN, HEAD, LAST, C, chunk, event, framed

from loadramp.client.http import reply_parts, response
from loadramp.client.http.response import ResponseReader
from loadramp.client.stream import answer
from loadramp.client.stream.outcome import RequestedOutput
from loadramp.client.stream.sse import Brackets, SseParser
from loadramp.record.types import Record

REPLY = json.dumps(
    {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"content": "w" * 30_000}, "finish_reason": "stop",
                     "logprobs": [{"token": "}", "top": [{"token": "]", "logprob": -0.5}]}] * 2_000}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2_000},
    }
).encode()  # fmt: skip


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Bytes that were read for brackets, handed to the JSON decoder, and taken from parsers as lines or pieces."""
    count: Counter[str] = Counter()
    closes, read, take = Brackets.closes, answer.read_event, SseParser._take_tail

    def counted_closes(self: Brackets, data: bytes, at: int = 0) -> int:
        end = closes(self, data, at)
        count["brackets"] += (len(data) if end < 0 else end) - at
        count["calls"] += 1
        return end

    def counted_read(payload: bytes) -> object:
        count["decoded"] += len(payload)
        return read(payload)

    def counted_take(self: SseParser) -> bytes:
        line = take(self)
        count["joined"] += len(line)
        return line

    monkeypatch.setattr(Brackets, "closes", counted_closes)
    monkeypatch.setattr(answer, "read_event", counted_read)
    monkeypatch.setattr(response, "read_event", counted_read)
    monkeypatch.setattr(SseParser, "_take_tail", counted_take)
    yield count


def played(body: bytes, size: int, head: bytes = HEAD) -> Record:
    """The record of ``body`` in chunks of ``size`` bytes, all at once."""
    one = ResponseReader(Record(0, 0, 0.0, sent_s=0.0), RequestedOutput(save_text=True))
    whole = b"".join([head, *(framed(body[i : i + size]) for i in range(0, len(body), size)), LAST])
    for i in range(0, len(whole), 65_536):
        one.feed(whole[i : i + 65_536], 1.0)
    return one.finish()


def repr_of(body: bytes) -> str:
    """The name of a case: the whole of a body would make it 60 kB long."""
    return repr(body[:12])


@pytest.mark.parametrize("size", [1, 24, 1000, 1 << 20])
def test_a_whole_reply_in_small_chunks_is_read_once(looked_at: Counter[str], size: int) -> None:
    record = played(REPLY, size)
    assert (record.status, record.output_tokens, len(record.text or "")) == ("ok", 2_000, 30_000)
    assert looked_at["decoded"] == len(REPLY)
    assert looked_at["brackets"] <= len(REPLY) + 8
    assert looked_at["joined"] == len(REPLY)


@pytest.mark.parametrize(
    "body",
    [
        b"{[" + b"[]" * 16_000,
        b'{"a": "' + b"[]}{" * 8_000,
        b"{}" * 16_000,
        b"{}" * 16_000 + b"\n",
        b"[{}]" * 8_000,
        b"[[" + b"]" * 30_000,
        b" " * 30_000 + b"{" + b" " * 30_000 + b"}" * 30_000,
        b"[" + b" " * 30_000 + b"{" + b"}]" * 10_000,
        b"{\n" + b"\n" * 30_000 + b"}",
        b"{" + b" " * 30_000 + b"\n" * 30_000 + b"}",
        b'{"a": 1\ndata: {}\n' * 2_000,
        b"{\n[DONE]\n" * 4_000,
        b'{"a": "\\' * 4_000,
        b"data: {" + b"}{" * 16_000 + b"\n\n",
        b"data: {}\n" * 4_000,
        b":}\n" * 10_000,
        b"}]" * 16_000,
        b"data" * 10_000,
        b"\r{}\r\n" * 8_000,
    ],
    ids=repr_of,
)
@pytest.mark.parametrize("size", [1, 2, 1 << 20])
def test_nothing_is_looked_at_more_than_a_few_times(looked_at: Counter[str], body: bytes, size: int) -> None:
    played(body, size)
    assert looked_at["decoded"] <= len(body)
    assert looked_at["brackets"] <= len(body) + 8
    assert looked_at["joined"] <= 2 * len(body)
    assert looked_at["calls"] <= len(body) + 8


@pytest.mark.parametrize(
    "body", [b"}" * 16_000, b'{"a": 1}' * 2_000, b'{"a": [' + b"[]" * 8_000, b"{]" * 8_000], ids=repr_of
)
def test_the_body_of_a_refusal_is_read_once(looked_at: Counter[str], body: bytes) -> None:
    record = played(body, 1, HEAD.replace(b"200 OK", b"503 Busy"))
    assert record.error == "http_5xx"
    assert looked_at["decoded"] <= len(body)
    assert looked_at["brackets"] <= len(body) + 8


def test_a_refusal_that_goes_on_after_its_beginning_is_looked_at_no_more(looked_at: Counter[str]) -> None:
    played(b'{"a": "' + b"}" * 200_000, 100, HEAD.replace(b"200 OK", b"500 Oops"))
    assert looked_at["brackets"] <= response.ERROR_BODY_BYTES


def test_small_members_of_a_compressed_body_cost_no_long_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    members = gzip.compress(b"") * 3_000
    fed: list[int] = []
    decompress = reply_parts.Inflate._decompress

    def counted(self: reply_parts.Inflate, data: bytes) -> bytes:
        fed.append(len(data))
        return decompress(self, data)

    monkeypatch.setattr(reply_parts.Inflate, "_decompress", counted)
    assert reply_parts.Inflate().feed(members) == b""
    assert max(fed) <= 4_097
    assert len(fed) <= 3_000 + len(members) // 4_096 + 1


def test_a_compressed_body_is_the_same_in_one_piece() -> None:
    body = (C("a") + FIN("stop") + DONE) * 2_000
    for packed in (gzip.compress(body), zlib.compress(body), zlib.compress(body)[2:-4]):
        assert reply_parts.Inflate().feed(packed) == body
        one = reply_parts.Inflate()
        assert b"".join(one.feed(packed[i : i + 7]) for i in range(0, len(packed), 7)) == body


def test_messages_of_another_choice_are_looked_up_not_searched_for() -> None:
    message = {"index": 1, "message": {"content": "b"}}
    body = C("a") * 3_000 + chunk(message) + chunk({"index": 1, "delta": {"content": "c"}}) + chunk(message) + DONE
    one = answer.StreamAnswer()
    one.body(body, 1.0)
    assert (one.choices.count(0), one.choices.count(1)) == (3_000, 3)
    assert one._seen == {0, 1}


def test_gaps_of_a_thousand_choices_are_told_apart_in_one_pass() -> None:
    body = b"".join(event({"choices": [{"index": i % 1_000, "delta": {"content": "a"}}]}) for i in range(3_000))
    record = played(body + DONE, 1 << 20)
    assert record.event_choice[:3] == [0, 1, 2]
    assert len(record.event_s) == 3_000
    assert "multiple_choices" in record.warnings
