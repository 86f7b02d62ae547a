"""One record however the bytes were cut: at the end of broken compression, and with more behind a finished reply."""

import gzip
import zlib
from dataclasses import replace

import pytest
from mutated_replies import Ending, Mutated
from reply_invariants import fields, in_python
from scripted_server import DONE, FIN, HEAD, LAST, UNTIL_CLOSE, USE, C, event, framed

from loadramp.record.types import Record

REPLY = (
    b'{"object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant", "content": "a {[ b"}, '
    b'"finish_reason": "stop"}], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}'
)
REFUSED = b"HTTP/1.1 503 Busy\r\nContent-Type: application/json\r\n"


def one_record(raw: bytes, ending: Ending = "eof") -> Record:
    """The record of ``raw``, after cuts of it into two, of its end everywhere, and the cut into bytes gave the same."""
    one = Mutated("x", "0", raw, ending, True, True, None, 0)
    whole = in_python(one, [raw])
    for at in [*range(1, len(raw) - 60, 11), *range(max(1, len(raw) - 60), len(raw))]:
        assert fields(in_python(one, [raw[:at], raw[at:]])) == fields(whole), raw[:at]
    assert fields(in_python(one, [raw[at : at + 1] for at in range(len(raw))])) == fields(whole)
    return whole


def packed_head(coding: str) -> bytes:
    return UNTIL_CLOSE.replace(b"\r\n\r\n", f"\r\nContent-Encoding: {coding}\r\n\r\n".encode())


# -- compression


BODY = C("a") + C("b") + FIN("stop") + USE(3, 2) + DONE


@pytest.mark.parametrize("lost", [1, 4, 8, 9, 20])
def test_a_compressed_body_that_ends_too_early_has_brought_what_it_could(lost: int) -> None:
    record = one_record(packed_head("gzip") + gzip.compress(BODY, mtime=0)[:-lost])
    assert (record.status, record.text) == ("ok", "ab")


@pytest.mark.parametrize("where", [-1, -5, -8])
def test_a_wrong_check_sum_takes_nothing_back(where: int) -> None:
    packed = bytearray(gzip.compress(BODY, mtime=0))
    packed[where] ^= 1
    record = one_record(packed_head("gzip") + bytes(packed))
    assert (record.status, record.text, record.output_tokens, record.done_marker) == ("ok", "ab", 2, True)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_what_came_before_a_fault_in_the_compression_counts(coding: str) -> None:
    pack = zlib.compressobj(wbits=31 if coding == "gzip" else -15)
    packed = pack.compress(C("a") + C("b")) + pack.flush(zlib.Z_SYNC_FLUSH) + b"\x07" * 40
    record = one_record(packed_head(coding) + packed)
    assert (record.status, record.error, record.text) == ("error", "truncated", "ab")
    assert record.error_detail is not None
    assert record.error_detail.startswith("the compressed body is broken: Error -3 while decompressing data: ")
    assert record.error_detail.endswith(", after 2 output events")


def test_a_fault_behind_the_end_of_the_answer_changes_nothing() -> None:
    pack = zlib.compressobj(wbits=31)
    packed = pack.compress(BODY) + pack.flush(zlib.Z_SYNC_FLUSH) + b"\x07" * 40
    assert one_record(packed_head("gzip") + packed).status == "ok"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x1f",
        b"\x1f\x8b",
        b"\x78\x9c\xff",
        b"x",
        BODY,
        gzip.compress(b"", mtime=0),
        gzip.compress(BODY, mtime=0) + b"\x1f\x8b\x08",
    ],
)
def test_what_is_no_compression_at_all_is_that_wherever_it_is_cut(body: bytes) -> None:
    one_record(packed_head("gzip") + body)
    one_record(packed_head("deflate") + body, "cut")


def test_several_members_and_padding_are_read_through() -> None:
    packed = (
        gzip.compress(C("a"), mtime=0) + gzip.compress(b"") + gzip.compress(C("b") + FIN("stop"), mtime=0) + b"\0" * 9
    )
    record = one_record(packed_head("gzip") + packed)
    assert (record.status, record.text) == ("ok", "ab")


def test_the_compressed_body_of_a_refusal_is_read_up_to_its_fault() -> None:
    pack = zlib.compressobj(wbits=31)
    packed = pack.compress(b'{"error": "busy"}') + pack.flush(zlib.Z_SYNC_FLUSH) + b"\x07" * 9
    record = one_record(REFUSED + b"Content-Encoding: gzip\r\n\r\n" + packed)
    assert (record.error, record.error_detail) == ("http_5xx", "HTTP 503 Service Unavailable: busy")


# -- more behind a finished reply


BEHIND = [
    b"", b"\n", b" \n\n", b"x", b" more to come", b"{", b"}", b"]", b"[", b"{}", b"[]", b"[{}]", b"null\n", b"\xff",
    b"\0", REPLY, b"\n" + REPLY, b'{"usage": {"completion_tokens": 5}}', b'\n{"error": "no"}\n',
    b'data: {"error": "no"}\n\n', C("c") + FIN("length"), b"\n" + C("c"), DONE,
    b"\r\n[DONE]", b"event: error\n\n", b": ping\n\n", b"<html>",
]  # fmt: skip


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("ending", ["eof", "reset", "cut"])
def test_what_comes_behind_a_whole_reply_is_no_part_of_it(behind: bytes, ending: Ending) -> None:
    for raw in (UNTIL_CLOSE + REPLY + behind, HEAD + framed(REPLY + behind) + LAST):
        record = one_record(raw, ending)
        assert (record.status, record.text, record.finish_reason) == ("ok", "a {[ b", "stop")
        assert (len(record.event_s), record.error, record.prompt_tokens) == (1, None, 3)


@pytest.mark.parametrize("behind", BEHIND)
def test_what_comes_behind_a_refusal_is_cut_as_it_may(behind: bytes) -> None:
    record = one_record(REFUSED + b"Connection: close\r\n\r\n" + b'{"error": "busy"}' + behind)
    assert record.error == "http_5xx"
    assert (record.error_detail or "").startswith("HTTP 503 Service Unavailable: ")


@pytest.mark.parametrize("behind", BEHIND)
def test_what_comes_behind_the_end_of_a_response_is_no_part_of_it(behind: bytes) -> None:
    record = one_record(HEAD + framed(C("a") + FIN("stop") + DONE) + LAST + behind)
    assert (record.status, record.text, record.done_marker) == ("ok", "a", True)


@pytest.mark.parametrize(
    "body",
    [
        b"[" + REPLY + b"]",
        b" \t[ " + REPLY + b" ] x",
        b"{\n[DONE]\n" + C("a") + FIN("stop"),
        b'{"a": "\\\n"}\n' + C("a") + FIN("stop"),
        b'{"a":\ndata\ndat\n:x\n1}\n' + C("a") + FIN("stop"),
        b"{}{}[{}] {}\n[\n{}\n]\n[ 1]\n[{\n" + C("a") + FIN("stop"),
        b"\xef\xbb\xbf" + REPLY,
        b"\xef\xbb" + REPLY,
        b"\xef\xbb\xbf\xef\xbb\xbf" + C("a") + FIN("stop"),
        b"\xef" + C("a") + FIN("stop"),
        b'{"a": [\n\n1,\n\n2]}\r\n\r\n' + C("a") + FIN("stop"),
        b'data: {"a": 1\n{"b": 2}\n' + C("a") + FIN("stop"),
        b"event: x\n{}\n" + C("a") + FIN("stop"),
    ],
)
@pytest.mark.parametrize("ending", ["eof", "cut"])
def test_json_outside_any_field_is_the_same_however_it_is_cut(body: bytes, ending: Ending) -> None:
    one_record(UNTIL_CLOSE + body, ending)
    one_record(REFUSED + b"\r\n" + body, ending)


@pytest.mark.parametrize(
    "raw", [b"\x15\x03\x01\x00\x02\x02\x46", b"\x15\x04", b"SSH-2.0-x\r\n", b"HTTP/1.1 2x0 OK\r\n\r\n"]
)
def test_what_does_not_speak_http_is_told_the_same_however_it_is_cut(raw: bytes) -> None:
    record = one_record(raw)
    assert record.error == ("tls" if raw.startswith(b"\x15") else "connect")


def test_reads_of_another_time_change_nothing_but_instants() -> None:
    raw = HEAD + framed(C("a")) + framed(event({"choices": []})) + framed(C("b") + FIN("stop")) + LAST
    one = Mutated("x", "0", raw, "eof", True, True, None, 0)
    early, late = in_python(one, [raw]), in_python(one, [raw[:200], raw[200:]], 0.5)
    timed = {"first_byte_s", "event_s", "answer_s", "stream_end_s", "warnings"}
    same = replace(late, **{name: getattr(early, name) for name in timed})
    assert fields(same) == fields(early)
