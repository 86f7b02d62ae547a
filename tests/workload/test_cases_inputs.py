"""Input files as tools and people write them: encodings, forms of JSON, batch files (field cases 04, 09, 12, 18)."""

from __future__ import annotations

import codecs
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import in_process
from hypothesis import given, settings
from hypothesis import strategies as st

from loadramp.client import input_files
from loadramp.registry import ScenarioError
from loadramp.runner.scenarios import load
from loadramp.scenario.scenario import Target
from loadramp.workload.prompts.conversations import read_conversations
from loadramp.workload.prompts.lines import utf8
from loadramp.workload.prompts.row_fields import ignored_settings
from loadramp.workload.prompts.text_files import Texts, read_rows, read_text
from loadramp.workload.prompts.traces import read_trace

ENCODINGS = ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")
QUESTIONS = ["Name three rivers of Europe.", "Où est la gare ?", "Was ist eine Schlange? 🐍"]


def rows(text: str | bytes, **options: Any) -> Texts:
    return read_rows([text.encode() if isinstance(text, str) else text], "t", **options)


def asked(found: Texts) -> list[str | None]:
    return [said.text for said in found.rows]


# -- encodings


@pytest.mark.parametrize("name", ENCODINGS)
def test_text_in_any_unicode_encoding_is_read(name: str) -> None:
    """Field case 09: UTF-16 with a mark became U+FFFD and zeros; without a mark the zeros tell it."""
    text = "\r\n".join(QUESTIONS) + "\r\n"
    lines = "\r\n".join(json.dumps({"prompt": one}, ensure_ascii=False) for one in QUESTIONS)
    array = json.dumps([{"prompt": one} for one in QUESTIONS], ensure_ascii=False, indent=1)
    for found in (read_text([text.encode(name)], "t"), rows(lines.encode(name)), rows(array.encode(name))):
        assert asked(found) == QUESTIONS
        assert found.tally.skipped == {}


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_trace_in_any_unicode_encoding_is_read(name: str) -> None:
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2024-05-10 00:00:00.1,20,5\r\n2024-05-10 00:00:01.1,30,6\r\n"
    found = read_trace([text.encode(name)], "t")
    assert found.inputs.tolist() == [20, 30]
    assert found.tally.skipped == {}


@pytest.mark.parametrize("mark", [codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE])
def test_other_scripts_in_utf_16_are_known_by_their_mark(mark: bytes) -> None:
    name = "utf-16-le" if mark == codecs.BOM_UTF16_LE else "utf-16-be"
    assert asked(read_text([mark + "東京はどこですか\n大阪は".encode(name)], "t")) == ["東京はどこですか", "大阪は"]


@given(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=80),
    st.integers(1, 7),
    st.sampled_from(["utf-8-sig", "utf-16", "utf-32"]),
)
@settings(max_examples=60)
def test_how_the_bytes_are_cut_changes_no_character(text: str, size: int, name: str) -> None:
    data = text.encode(name)
    assert b"".join(utf8(data[i : i + size] for i in range(0, len(data), size))).decode() == text


def test_bytes_that_are_not_text_are_skipped_with_their_line_and_never_replaced() -> None:
    """Field case 09: letters of Latin-1 became U+FFFD without a word."""
    found = read_text(["good\nGrüße\nOù\nfine\n".encode("latin-1")], "t")
    assert asked(found) == ["good", "fine"]
    assert found.tally.skipped == {"not UTF-8": 2}
    assert found.tally.problems == ["line 2: not UTF-8", "line 3: not UTF-8"]
    array = rows('[{"prompt": "Grüße"}, {"prompt": "fine"}, {"prompt": "Köln"}]'.encode("latin-1"))
    assert asked(array) == ["fine"]
    assert array.tally.problems == ["row 1: not UTF-8", "row 3: not UTF-8"]
    pretty = rows('{"data": [\n{"prompt": "good"}]}\n{\n"prompt": "Grüße"\n}\n'.encode("latin-1"))
    assert asked(pretty) == ["good"]
    assert pretty.tally.problems == ["line 3: not UTF-8"]
    trace = read_trace(["time,input_tokens,output_tokens,who\n0,20,5,a\n1,20,5,Jürg\n2,9,9,b\n".encode("latin-1")], "t")
    assert trace.inputs.tolist() == [20, 9]
    assert trace.tally.skipped == {"not UTF-8": 1}


def test_a_paragraph_or_a_whole_file_with_bad_bytes_is_no_row() -> None:
    data = "one\ntwo\n\ngrün\nthree\n\nfour\n".encode("latin-1")
    found = read_text([data], "t", split="paragraph")
    assert asked(found) == ["one\ntwo", "four"]
    assert found.tally.problems == ["line 4: not UTF-8"]
    with pytest.raises(ScenarioError, match="t: no row can be used: line 4: not UTF-8"):
        read_text([data], "t", split="whole")


def test_zero_bytes_and_half_characters_are_no_text() -> None:
    found = read_text([b"good\nwith\0zero\nfine\n"], "t")
    assert asked(found) == ["good", "fine"]
    assert found.tally.skipped == {"not text (zero bytes)": 1}
    torn = read_text(["first\nsecond\n".encode("utf-16")[:-1]], "t")
    assert asked(torn) == ["first"]
    assert torn.tally.skipped == {"not UTF-8": 1}
    lone = codecs.BOM_UTF16_LE + "a\n".encode("utf-16-le") + b"\x00\xd8" + "\nb\n".encode("utf-16-le")
    assert asked(read_text([lone], "t")) == ["a", "b"]
    half = rows('[{"prompt": "\\ud83d"}, {"prompt": "\\ud83d\\ude00"}]')
    assert asked(half) == ["😀"]
    assert sum(half.tally.skipped.values()) == 1


def test_a_header_that_is_no_text_is_an_error() -> None:
    with pytest.raises(ScenarioError, match="line 1: the header is not UTF-8: convert the file to UTF-8"):
        read_trace(["Zeit,Länge,Größe\n0,1,2\n".encode("latin-1")], "t")


def test_gzip_of_utf_16_is_both(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_bytes(gzip.compress("one\r\ntwo\r\n".encode("utf-16")))
    scenario = load(f'[prompts]\nkind = "text"\nfile = "{tmp_path}/p.txt"\norder = "file"\n')
    assert asked(input_files.with_files(scenario).corpora["prompts"]) == ["one", "two"]


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"PAR1....", "Parquet"), (b"\x28\xb5\x2f\xfd....", "zstd"), (b"\xfd7zXZ\0", "xz"), (b"BZh91AY", "bzip2"),
        (b"PK\x03\x04..", "ZIP archive"),
    ],
)  # fmt: skip
def test_files_of_other_kinds_are_refused_by_name(first: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_bytes(first)
    scenario = load(f'[prompts]\nkind = "text"\nfile = "{tmp_path}/p.txt"\n')
    with pytest.raises(ScenarioError, match=words):
        input_files.with_files(scenario)


# -- forms of JSON

FOUR = [{"prompt": f"Question {i}?", "max_tokens": 8} for i in range(4)]
WORDS = [f"Question {i}?" for i in range(4)]
FORMS = {
    "lines": "\n".join(map(json.dumps, FOUR)),
    "lines that end with commas": ",\n".join(map(json.dumps, FOUR)) + ",\n",
    "lines with CR LF and blanks": "\r\n\r\n".join(map(json.dumps, FOUR)) + "\r\n\r\n",
    "an array on a line": json.dumps(FOUR),
    "a pretty array": json.dumps(FOUR, indent=2),
    "an array that ends with a comma": "[\n" + ",\n".join(map(json.dumps, FOUR)) + ",\n]",
    "an array of arrays": json.dumps([FOUR[:2], FOUR[2:]]),
    "two arrays": json.dumps(FOUR[:2]) + "\n" + json.dumps(FOUR[2:]),
    "a document on a line": json.dumps({"data": FOUR}),
    "a pretty document": json.dumps({"data": FOUR}, indent=2),
    "a pretty document with more in it": json.dumps({"version": 1, "metadata": {"n": 4}, "rows": FOUR}, indent="\t"),
    "a pretty document of lists": json.dumps({"data": [FOUR[:3], FOUR[3:]]}, indent=1),
    "pretty objects": "\n".join(json.dumps(one, indent=2) for one in FOUR),
    "pretty objects with commas": ",\n".join(json.dumps(one, indent=2) for one in FOUR),
    "objects on one line": " ".join(map(json.dumps, FOUR)),
    "objects on one line with nothing between": "".join(map(json.dumps, FOUR)),
    "two objects a line": json.dumps(FOUR[0]) + json.dumps(FOUR[1]) + "\n" + "\n".join(map(json.dumps, FOUR[2:])),
    "a text sequence": "".join(f"\x1e{json.dumps(one)}\n" for one in FOUR),
    "Windows line ends in a pretty document": json.dumps({"data": FOUR}, indent=2).replace("\n", "\r\n"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_form_of_a_json_file_is_found_by_parsing_it(form: str, name: str) -> None:
    """Field case 12: a pretty-printed document was "truncated"."""
    data = FORMS[form].encode(name)
    for found in (rows(data), read_rows([data[i : i + 7] for i in range(0, len(data), 7)], "t")):
        assert asked(found) == WORDS
        assert [said.output_tokens for said in found.rows] == [8] * 4
        assert found.tally.skipped == {}


def test_a_trace_and_conversations_may_be_pretty_printed_too() -> None:
    trace = [{"timestamp": 1000 * i, "input_length": 20 + i, "output_length": 5} for i in range(3)]
    for data in (json.dumps(trace, indent=2), json.dumps({"data": trace}, indent=2)):
        assert read_trace([data.encode()], "t").inputs.tolist() == [20, 21, 22]
    talk = {
        "conversations": [{"from": "human", "value": "A long question?"}, {"from": "gpt", "value": "An answer. " * 4}]
    }
    assert len(read_conversations(["\n".join(json.dumps(talk, indent=2) for _ in range(3)).encode()], "t")) == 3


def test_a_row_that_is_torn_or_broken_does_not_take_the_others_along() -> None:
    torn = rows(FORMS["lines"][:-9])
    assert asked(torn) == WORDS[:3]
    assert torn.tally.problems[0].startswith("line 4: no JSON")
    first = rows('{"prompt": "x", oops}\n' + FORMS["lines"])
    assert asked(first) == WORDS
    assert first.tally.skipped == {"no JSON": 1}
    pretty = FORMS["pretty objects"].replace('"Question 1?",', '"Question 1?" oops')
    middle = rows(pretty)
    assert asked(middle) == [WORDS[0], *WORDS[2:]]
    assert middle.tally.problems[0].startswith("line 5: no JSON")
    array = rows(FORMS["a pretty array"][:-12])
    assert asked(array) == WORDS[:3]
    assert sum(array.tally.skipped.values()) == 1
    open_end = rows(FORMS["an array on a line"][:-1])
    assert asked(open_end) == WORDS
    assert "the array has no end: the file may be cut off" in open_end.tally.notes


def test_a_broken_document_is_an_error_that_says_where() -> None:
    with pytest.raises(ScenarioError, match=r"t: no row can be used: line 1: no JSON: .*line \d+ column"):
        rows(FORMS["a pretty document"][:-20])


# -- rows

BATCH = """\
{"custom_id":"a1","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user","content":"Name three rivers."}],"max_tokens":8}}
{"custom_id":"a2","method":"POST","url":"/v1/chat/completions","body":{"model":"other-model","messages":[{"role":"user","content":"Name three lakes."}],"max_tokens":8,"stream":false}}
{"custom_id":"a3","method":"POST","url":"/v1/embeddings","body":{"model":"emb","input":"A sentence to embed."}}
{"custom_id":"a4","method":"POST","url":"/v1/embeddings","body":{"model":"emb","input":["One.","Two."]}}
{"custom_id":"a5","method":"POST","url":"/v1/score","body":{"model":"rr","text_1":"q","text_2":["d1","d2"]}}
{"custom_id":"a6","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"Once upon a time","max_tokens":8}}
{"custom_id":"a7","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi."},{"role":"assistant","content":"Hello."}],"max_tokens":8}}
"""  # noqa: E501


def test_a_mixed_batch_file_sends_what_is_for_this_api_and_names_the_rest() -> None:
    """Field case 04."""
    found = rows(BATCH)
    assert len(found) == 4
    assert found.tally.skipped == {"for /v1/embeddings": 2, "for /v1/score": 1}
    assert found.tally.problems == [
        "line 3: for /v1/embeddings", "line 4: for /v1/embeddings", "line 5: for /v1/score",
    ]  # fmt: skip
    assert ignored_settings(found.tally, Target(), "m") == [
        "t: 1 row names another model (other-model): m is asked",
        "t: 1 row asks for no stream: streamed all the same",
        "t: 1 row is for /completions: sent to /chat/completions",
        "t: 1 row ends with an assistant message: sent as it stands",
    ]
    whole = ignored_settings(found.tally, Target(api="completions", stream=False))
    assert whole == [
        "t: 4 rows name a model (m, other-model): the model of the run is asked",
        "t: 3 rows are for /chat/completions: sent to /completions",
        "t: 1 row ends with an assistant message: sent as it stands",
    ]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"url": "https://api.example.org/v1/embeddings?x=1", "body": {"input": "x"}}, "for /v1/embeddings"),
        ({"url": "/v1/images/generations", "body": {"prompt": "a cat"}}, "for /v1/images/generations"),
        ({"url": "/v1/rerank", "body": {"query": "q", "documents": []}}, "for /v1/rerank"),
        ({"url": "/v1/moderations", "body": {"input": "x"}}, "for /v1/moderations"),
        ({"url": "/v1/chat/completions", "method": "GET", "body": {"prompt": "x"}}, "method GET"),
        (
            {"custom_id": "a", "response": {"status_code": 200}, "error": None},
            "the answer to a batch row, not a request",
        ),
        ({"body": "not JSON"}, "a body given as text that is no JSON"),
        ({"payload": []}, "a payload that is no object"),
        ({"payloads": ["x"]}, "a payload that is no object"),
        ({"payload": [{"prompt": "x", "n": 2}]}, "more than one answer (n)"),
    ],
)
def test_rows_for_something_else_are_skipped_with_that_reason(row: dict[str, Any], reason: str) -> None:
    found = rows(json.dumps({"prompt": "good"}) + "\n" + json.dumps(row))
    assert asked(found) == ["good"]
    assert found.tally.skipped == {reason: 1}


def test_payload_rows_are_read() -> None:
    """Field case 12: AIPerf's inputs.json and GenAI-Perf's data."""
    said = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "stream": True, "top_k": 3}
    genai = rows(json.dumps({"data": [{"payload": [said]}, {"payload": said}]}))
    aiperf = rows(json.dumps({"data": [{"session_id": "s0", "payloads": [said, said, said]}]}, indent=2))
    for found, n in ((genai, 2), (aiperf, 3)):
        assert [(one.output_tokens, one.body) for one in found.rows] == [(8, {"top_k": 3})] * n
    assert ignored_settings(genai.tally, Target(), "m") == []
    assert ignored_settings(aiperf.tally, Target(), "m") == [
        "t: 2 later payloads of sessions: each is a request of its own"
    ]
    timed = rows("\n".join(json.dumps({"timestamp": t, "payload": [said]}) for t in (500, 1500)), time_unit="ms")
    assert timed.t_s is not None
    assert timed.t_s.tolist() == [0.0, 1.0]


def test_tensors_and_bodies_given_as_text_are_read() -> None:
    lists = {"text_input": ["Hello"], "max_tokens": [16], "stream": [True]}
    tensors = {"text_input": {"content": ["Bye"], "shape": [1]}, "max_tokens": {"content": [9], "shape": [1]}}
    found = rows(json.dumps({"data": [lists, tensors]}))
    assert [(one.text, one.output_tokens) for one in found.rows] == [("Hello", 16), ("Bye", 9)]
    (said,) = rows(json.dumps({"body": json.dumps({"prompt": "x", "max_tokens": 3, "seed": 4})})).rows
    assert (said.text, said.output_tokens, said.body) == ("x", 3, {"seed": 4})


def test_fields_and_delays_that_are_not_followed_are_named() -> None:
    lines = [{"prompt": "a", "top_k": 5, "logprobs": True}, {"prompt": "b", "top_k": 5, "delay": 300}]
    found = rows("\n".join(map(json.dumps, lines)))
    assert ignored_settings(found.tally, Target()) == [
        "t: 1 row has a delay and no time stamp: the delay is not followed",
        "t: fields of rows are not sent: top_k, logprobs; [prompts] body sends them with every request",
    ]


def test_stamps_that_some_rows_lack_are_told() -> None:
    found = rows('{"prompt": "a", "timestamp": 0}\n{"prompt": "b"}\n{"prompt": "c", "timestamp": 2}\n')
    assert found.t_s is None
    assert "1 of 3 rows have no time stamp, so that none can be replayed" in found.tally.notes


def test_later_turns_of_sessions_in_a_trace_are_named_as_such() -> None:
    """Field case 18: three quarters of the load had "no time stamp"."""
    opening = '{"session_id": "s%d", "timestamp": %d, "input_length": 600, "output_length": 20, "hash_ids": [%d, 7]}'
    later = '{"session_id": "s%d", "delay": 500, "input_length": 200, "output_length": 20, "hash_ids": [%d]}'
    lines = [line for i in range(5) for line in (opening % (i, i, i), *(later % (i, k) for k in range(3)))]
    found = read_trace(["\n".join(lines).encode()], "agent.jsonl")
    assert found.tally.skipped == {"later turns of sessions (delay) are not replayed": 15}
    assert "15 later turns of sessions (delay) are not replayed" in found.tally.words()
    assert len(found.tally.problems) == 10
    null = '{"timestamp": null, "delay": 5, "input_length": 20, "output_length": 2}'
    assert len(read_trace([(lines[0] + "\n" + null).encode()], "t")) == 1


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_a_trace_may_be_separated_otherwise_than_by_commas(separator: str) -> None:
    text = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.75,300,12\n1.5,200,9\n".replace(",", separator)
    for data in (text, f"sep={separator}\r\n{text}"):
        found = read_trace([data.encode("utf-16")], "t")
        assert (found.t_s.tolist(), found.inputs.tolist()) == ([0.0, 0.75], [300, 200])


# -- what is told


def test_plan_names_up_to_ten_bad_rows_and_what_is_not_followed(tmp_path: Path) -> None:
    bad = "\n".join(f'{{"prompt": "", "id": {i}}}' for i in range(12))
    (tmp_path / "b.jsonl").write_text(f"{BATCH}{bad}\n")
    (tmp_path / "s.toml").write_text(
        '[target]\nmodel = "m"\n[prompts]\nkind = "jsonl"\nfile = "b.jsonl"\n[ramp]\nkind = "ladder"\nrates = [2]\n'
    )
    code, out, _ = in_process("plan", str(tmp_path / "s.toml"))
    assert code == 0
    lines = out.splitlines()
    assert sum(line.startswith("b.jsonl: line ") for line in lines) == 10
    assert "b.jsonl: line 5: for /v1/score" in lines
    assert "b.jsonl: 1 row names another model (other-model): m is asked" in lines
    code, out, _ = in_process("plan", str(tmp_path / "s.toml"), "--json")
    assert "b.jsonl: line 8: an empty prompt" in json.loads(out)["notes"]
    scenario = load((tmp_path / "s.toml").read_text())
    full = input_files.with_files(replace(scenario, folder=str(tmp_path)))
    assert input_files.notes(full)[0].settings["model"] == {"m": 3, "other-model": 1}


def test_a_file_without_a_usable_row_ends_plan_with_code_2(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_bytes("Grüße\nKöln\n".encode("latin-1"))
    (tmp_path / "s.toml").write_text('[prompts]\nkind = "text"\nfile = "p.txt"\n')
    code, _, err = in_process("plan", str(tmp_path / "s.toml"))
    assert code == 2
    assert "p.txt: no row can be used: line 1: not UTF-8" in err
