"""Traces of every schema in use, on invented rows: columns by name, units, blocks, windows, rows of no use."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loadramp.registry import ScenarioError
from loadramp.workload.arrivals import Instants, replay
from loadramp.workload.prompts.json_forms import objects_of
from loadramp.workload.prompts.lines import RowCounts, lines_of
from loadramp.workload.prompts.trace_formats import FORMATS, Stamps
from loadramp.workload.prompts.traces import Trace, read_trace

DATA = Path(__file__).parents[1] / "data" / "workloads"


def read(text: str, **options: object) -> Trace:
    return read_trace([text.encode()], "t", **options)  # type: ignore[arg-type]  # options by name


AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:02:11.1234567,512,37\n2023-11-16 18:02:11.9000001,1890,4\n"
)


@pytest.mark.parametrize(
    ("name", "form", "rows", "t_s", "inputs", "outputs"),
    [
        ("azure_2023.csv", "azure", 3, [0.0, 0.7765434, 0.7765434], [512, 1890, 98], [37, 4, 211]),
        ("azure_2024_week.csv", "azure", 3, [0.0, 0.99007, 61.99007], [2162, 98, 40], [5, 211, 9]),
        ("azure_2025_images.csv.gz", "azure", 2, [0.0, 2.25], [640, 310], [88, 12]),
        ("burstgpt.csv", "burstgpt", 3, [0.0, 0.0, 12.0], [320, 900, 77], [18, 210, 4]),
        ("vidur.csv", "vidur", 2, [0.0, 0.5], [300, 40], [12, 3]),
        ("mooncake.jsonl", "mooncake", 3, [0.0, 3.0, 3.0], [1100, 1536, 20], [42, 7, 1]),
        ("qwen_bailian.jsonl", "qwen", 3, [0.0, 1.5, 2.25], [33, 48, 16], [7, 20, 9]),
        ("plain.csv", "plain", 2, [0.0, 0.25], [10, 20], [5, 6]),
    ],
)
def test_each_schema_is_known_by_its_columns(
    name: str, form: str, rows: int, t_s: list[float], inputs: list[int], outputs: list[int]
) -> None:
    packed = (DATA / name).read_bytes()
    trace = read_trace([gzip.decompress(packed) if name.endswith(".gz") else packed], name)
    assert (trace.tally.format, len(trace), trace.tally.rows) == (form, rows, rows)
    assert trace.t_s.tolist() == pytest.approx(t_s, abs=5e-8)
    assert trace.inputs.tolist() == inputs
    assert trace.outputs.tolist() == outputs


def test_a_column_more_does_not_shift_the_others() -> None:
    """The multimodal trace has NumImages second: read by place it would be taken for the prompt's length."""
    trace = read_trace([gzip.decompress((DATA / "azure_2025_images.csv.gz").read_bytes())], "t")
    assert trace.images.tolist() == [2, 0]
    assert trace.inputs.tolist() == [640, 310]


def test_columns_may_come_in_any_order_among_others() -> None:
    trace = read("x,GeneratedTokens,TIMESTAMP,y,ContextTokens\n1,37,2023-11-16 18:02:11,2,512\n")
    assert (trace.inputs.tolist(), trace.outputs.tolist()) == ([512], [37])


def test_missing_columns_are_an_error_that_names_those_present() -> None:
    with pytest.raises(ScenarioError, match=r"its columns are when, what; wanted .*TIMESTAMP, ContextTokens") as caught:
        read("when,what\n1,2\n")
    assert "num_prefill_tokens" in str(caught.value)
    with pytest.raises(ScenarioError, match="wanted are those of burstgpt: Timestamp, Request tokens"):
        read(AZURE, format="burstgpt")
    with pytest.raises(ScenarioError, match="t: empty"):
        read("")


def test_own_names_of_columns_can_be_given() -> None:
    text = "at,in,out,kind\n5,10,20,a\n6,11,21,b\n"
    trace = read(text, columns={"time": "at", "input": "in", "output": "out", "label": "kind"})
    assert (trace.t_s.tolist(), trace.inputs.tolist(), trace.labels) == ([0.0, 1.0], [10, 11], ("a", "b"))
    with pytest.raises(ScenarioError, match="columns tokens: there are time, input, output"):
        read(text, columns={"tokens": "in"})


def test_rows_out_of_order_are_sorted_stably_and_it_is_said() -> None:
    trace = read("time,input_tokens,output_tokens\n5,1,1\n3,2,1\n5,3,1\n3,4,1\n")
    assert trace.t_s.tolist() == [0.0, 0.0, 2.0, 2.0]
    assert trace.inputs.tolist() == [2, 4, 1, 3]
    assert "rows were not in order of time: sorted" in trace.tally.words()


def test_sorting_takes_the_blocks_along() -> None:
    rows = [(3000, [1, 2, 3]), (0, [7]), (3000, [1, 5])]
    lines = [{"timestamp": t, "input_length": 512 * len(ids), "output_length": 1, "hash_ids": ids} for t, ids in rows]
    trace = read("\n".join(map(json.dumps, lines)))
    assert [trace.blocks[trace.begin[i] : trace.begin[i + 1]].tolist() for i in range(3)] == [[7], [1, 2, 3], [1, 5]]


def test_equal_stamps_are_kept() -> None:
    trace = read_trace([(DATA / "burstgpt.csv").read_bytes()], "t")
    assert trace.t_s.tolist() == [0.0, 0.0, 12.0]


def test_rows_without_a_prompt_or_an_answer_are_counted_by_line() -> None:
    tally = read_trace([(DATA / "burstgpt.csv").read_bytes()], "burstgpt.csv").tally
    assert tally.skipped == {"no answer": 1, "no prompt": 1, "no length": 1, "too few cells": 1}
    assert tally.problems[0] == "line 4: no answer: 1,207 tokens, answer of 0"
    assert tally.words().startswith("burstgpt.csv: 3 rows (burstgpt); 4 skipped (1 no answer, 1 no prompt")


def test_a_file_of_bad_rows_only_is_an_error_that_names_the_first() -> None:
    with pytest.raises(ScenarioError, match=r"t: no row can be used: line 2: no time stamp: .*'soon'"):
        read("time,input_tokens,output_tokens\nsoon,1,1\n")
    with pytest.raises(ScenarioError, match="no row can be used: it has only a header"):
        read("time,input_tokens,output_tokens\n")


def test_a_window_is_cut_out_and_counts_from_its_begin() -> None:
    text = "time,input_tokens,output_tokens\n" + "".join(f"{t},{t + 1},1\n" for t in range(100, 200, 10))
    trace = read(text, window_s=[20, 50])  # seconds since the first row
    assert trace.t_s.tolist() == [0.0, 10.0, 20.0]
    assert trace.inputs.tolist() == [121, 131, 141]
    assert trace.span_s == 30.0
    assert trace.tally.left_out == {"outside window_s": 7}
    with pytest.raises(ScenarioError, match="begin must lie before its end"):
        read(text, window_s=[50, 20])


def test_seconds_milliseconds_and_iso_text_make_the_same_schedule() -> None:
    head = "time,input_tokens,output_tokens\n"
    stamps = [0.0, 0.25, 7.125]
    seconds = read(head + "".join(f"{1000 + t},5,5\n" for t in stamps))
    millis = read(head + "".join(f"{1000 * t},5,5\n" for t in stamps), time_unit="ms")
    iso = read(
        head
        + "".join(f"2024-05-12T23:59:{55 + t:06.3f}Z,5,5\n" for t in stamps[:2])
        + "2024-05-13 02:00:02.125+02:00,5,5\n"
    )
    assert seconds.t_s.tolist() == millis.t_s.tolist() == iso.t_s.tolist() == stamps


def test_seven_decimals_keep_the_gap_to_the_microsecond() -> None:
    """DS-11: 0.1000000 and 0.1049999 s are 5 ms apart, not one burst and not a crash."""
    trace = read(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:02:11.1000000,5,5\n2023-11-16 18:02:11.1049999,5,5\n"
    )
    assert trace.t_s.tolist() == pytest.approx([0.0, 0.0049999], abs=1e-9)


@given(st.lists(st.integers(0, 2**44), min_size=1, max_size=30))
@settings(max_examples=50)
def test_iso_stamps_are_exact_to_the_nanosecond(offsets_ns: list[int]) -> None:
    stamps = Stamps()
    base = np.datetime64("2024-05-12T22:00:00", "ns")
    read_s = [stamps.read(f"{base + np.timedelta64(ns, 'ns')}") for ns in offsets_ns]
    assert [round(1e9 * t) for t in read_s] == [ns - offsets_ns[0] for ns in offsets_ns]


def test_mooncake_and_qwen_share_column_names_but_neither_unit_nor_block() -> None:
    mooncake = read_trace([(DATA / "mooncake.jsonl").read_bytes()], "m")
    qwen = read_trace([(DATA / "qwen_bailian.jsonl").read_bytes()], "q")
    assert (mooncake.block_tokens, qwen.block_tokens) == (512, 16)
    assert "time in ms, blocks of 512 tokens" in mooncake.tally.words()
    assert "time in s, blocks of 16 tokens" in qwen.tally.words()
    assert qwen.labels == ("text", "search")


def test_blocks_that_do_not_make_the_prompt_are_refused_row_by_row() -> None:
    trace = read_trace([(DATA / "mooncake.jsonl").read_bytes()], "m")
    assert trace.tally.problems == ["line 4: blocks do not make the prompt: 3 blocks of 512 for 1,600 tokens (4)"]
    line = '{"timestamp": 1, "input_length": 64, "output_length": 2, "hash_ids": [1, 2, 3, 4]}\n'
    with pytest.raises(ScenarioError, match=r"\(block_tokens = 512: another number\?\)"):
        read(line)
    assert read(line, block_tokens=16).block_tokens == 16


def test_only_some_rows_can_be_asked_for() -> None:
    trace = read_trace([(DATA / "burstgpt.csv").read_bytes()], "t", only={"Model": "ChatGPT"})
    assert trace.inputs.tolist() == [320, 77]
    assert trace.tally.left_out == {"not Model = ChatGPT": 2}


def test_a_byte_order_mark_windows_line_ends_and_blank_lines_change_nothing() -> None:
    plain = read(AZURE)
    other = read_trace([b"\xef\xbb\xbf" + AZURE.replace("\n", "\r\n").encode() + b"\r\n\r\n"], "t")
    assert (other.t_s.tolist(), other.inputs.tolist()) == (plain.t_s.tolist(), plain.inputs.tolist())
    assert other.tally.skipped == {}


@given(st.data())
@settings(max_examples=60)
def test_how_the_bytes_are_cut_changes_nothing(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["azure_2023.csv", "burstgpt.csv", "mooncake.jsonl", "qwen_bailian.jsonl"]))
    whole = (DATA / name).read_bytes()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    expected, found = read_trace([whole], name), read_trace(pieces, name)
    assert found.t_s.tolist() == expected.t_s.tolist()
    assert found.tally == expected.tally


@given(st.lists(st.binary(max_size=40), max_size=6))
@example([b'\r"'])
@settings(max_examples=100)
def test_no_bytes_at_all_break_a_reader(pieces: list[bytes]) -> None:
    try:
        read_trace(pieces, "noise")
    except ScenarioError as error:
        assert str(error).startswith("noise: ")


def test_line_numbers_are_those_of_the_file() -> None:
    assert list(lines_of([b"a\n\n", b"b", b"\xe2\x80\xa8c\nd"])) == [(1, b"a"), (3, b"b\xe2\x80\xa8c"), (4, b"d")]


def test_an_array_of_json_is_read_element_by_element_and_a_torn_one_up_to_the_tear() -> None:
    tally = RowCounts("t")
    rows = [{"a": 1}, {"b": "x" * 50}, {"c": [1, 2]}]
    whole = json.dumps(rows, indent=1).encode()
    for size in (1, 7, 1000):
        pieces = [whole[i : i + size] for i in range(0, len(whole), size)]
        assert [value for _, value in objects_of(pieces, tally)] == rows
    assert tally.skipped == {}
    torn = [value for _, value in objects_of([whole[:-20]], tally)]
    assert torn == rows[:2]
    assert tally.problems[0].startswith("row 3: no JSON")


def test_a_replay_keeps_every_gap_and_divides_it_by_the_speed() -> None:
    t_s = np.array([0.0, 0.000001, 0.5, 0.5, 2.25])
    trace = Instants(t_s, 2.8125)
    own = replay(trace, trace.rate_rps, 2.8, np.random.default_rng(0))
    assert own.tolist() == pytest.approx(t_s.tolist(), abs=1e-12)
    fast = replay(trace, 4 * trace.rate_rps, 0.7, np.random.default_rng(0))
    assert fast.tolist() == pytest.approx((t_s / 4).tolist(), abs=1e-12)
    assert len(fast) == len(own)


def test_a_replay_begins_anew_at_the_end_of_its_trace_or_stops() -> None:
    trace = Instants(np.array([0.0, 1.0, 3.0]), 4.5)
    assert replay(trace, trace.rate_rps, 10.0, np.random.default_rng(0)).tolist() == pytest.approx(
        [0, 1, 3, 4.5, 5.5, 7.5, 9]
    )
    assert replay(trace, trace.rate_rps, 10.0, np.random.default_rng(0), at_end="stop").tolist() == [0.0, 1.0, 3.0]


@given(st.lists(st.floats(0, 50), min_size=1, max_size=40), st.floats(0.1, 50), st.floats(0.5, 30))
@settings(max_examples=60)
def test_a_replay_ascends_and_stays_within_the_step(gaps_s: list[float], rate_rps: float, duration_s: float) -> None:
    t_s = np.cumsum([0.0, *gaps_s])
    trace = Instants(t_s, float(t_s[-1]) + 1.0)
    due_s = replay(trace, rate_rps, duration_s, np.random.default_rng(0))
    assert np.all(np.diff(due_s) >= 0)
    assert np.all((due_s >= 0) & (due_s < duration_s))


def test_every_format_has_rows_to_try_it_on() -> None:
    assert set(FORMATS) == {"azure", "burstgpt", "vidur", "qwen", "mooncake", "plain"}


@pytest.mark.slow
def test_a_million_rows_take_no_more_than_200_megabytes(tmp_path: Path) -> None:
    """Streamed, never a list of rows: in a process of its own, so that its peak is its own."""
    path = tmp_path / "big.csv"
    line = "2024-05-12 00:00:{s:02d}.{us:06d}+00:00,{i},{o}\n"
    with path.open("w") as file:
        file.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        block = "".join(line.format(s=k % 60, us=k % 10**6, i=1 + k % 4000, o=1 + k % 500) for k in range(1000))
        for _ in range(1000):
            file.write(block)
    code = (
        "import re, sys\n"
        "from pathlib import Path\n"
        "from loadramp.client.input_files import Opened\n"
        "from loadramp.workload.prompts.traces import read_trace\n"
        "trace = read_trace(Opened(Path(sys.argv[1])).chunks(), 'big')\n"
        # not ru_maxrss: that is handed down from the process that started this one
        "print(len(trace), re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])\n"
    )
    out = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
    rows, peak_kb = map(int, out.split())
    assert rows == 1_000_000
    assert peak_kb < 200_000
