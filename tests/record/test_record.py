"""Records to lines, to columns, to a directory, and back."""

import json
import tracemalloc
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadramp.record.codec import decode, decode_lines, encode
from loadramp.record.columns import decode_table
from loadramp.record.event_columns import every, gathered, stepped
from loadramp.record.run_directory import RecordTail, RunDir, RunDirError, check_place, read, safe_name
from loadramp.record.run_info import RunInfo, SelfcheckInfo, read_info
from loadramp.record.table import Table
from loadramp.record.types import ClientSample, Record, Step
from loadramp.record.whole_run import read_records
from loadramp.registry import ScenarioError, error_message
from loadramp.runner.scenarios import load

RECORD = Record(
    seq=3,
    step=1,
    due_s=10.0,
    worker=2,
    sent_s=10.0004,
    first_byte_s=10.05,
    event_s=[10.1, 10.12, 10.18],
    event_tokens=[1, 1, 3],
    answer_s=10.12,
    stream_end_s=10.19,
    status="ok",
    http_status=200,
    asked_input_tokens=64,
    asked_output_tokens=5,
    prompt_tokens=70,
    output_tokens=5,
    token_source="continuous",
    finish_reason="length",
    done_marker=True,
)


def test_a_record_line_holds_microsecond_gaps() -> None:
    line = json.loads(encode(RECORD))
    assert line["due_us"] == 10_000_000
    assert line["sent_us"] == 400
    assert line["event_us"] == [100_000, 20_000, 60_000]
    assert line["event_tokens"] == [1, 1, 3]
    assert "error" not in line
    assert encode(RECORD).endswith(b"}\n")


def test_tokens_are_left_out_where_every_event_brought_one() -> None:
    assert "event_tokens" not in json.loads(encode(replace(RECORD, event_tokens=[1, 1, 1])))


def test_a_record_comes_back_as_it_was() -> None:
    assert decode(encode(RECORD)) == RECORD
    failed = Record(seq=1, step=0, due_s=0.5, status="error", error="connect", error_detail="refused")
    assert decode(encode(failed)) == failed


@given(st.floats(0, 1e5), st.lists(st.floats(0, 5), max_size=400))
@settings(max_examples=60)
def test_rounding_never_adds_up(due_s: float, gaps_s: list[float]) -> None:
    event_s = (due_s + np.cumsum(gaps_s)).tolist()
    again = decode(encode(Record(seq=0, step=0, due_s=due_s, event_s=event_s)))
    assert np.allclose(again.event_s, event_s, rtol=0, atol=1.01e-6)


def test_torn_and_foreign_lines_are_counted_and_skipped() -> None:
    whole = encode(RECORD)
    decoded = decode_lines([whole, whole[:50], b"\n", b'{"a": 1}\n', b"[1]\n", whole])
    assert len(decoded.records) == 2
    assert decoded.skipped == 3


@given(st.lists(st.tuples(st.floats(0, 1e5), st.lists(st.floats(0, 5), max_size=20), st.booleans()), max_size=8))
@settings(max_examples=60)
def test_a_batch_of_lines_has_the_columns_of_its_records(asked: list[tuple[float, list[float], bool]]) -> None:
    lines = []
    for seq, (due_s, gaps_s, in_pairs) in enumerate(asked):
        tokens = [2] * len(gaps_s) if in_pairs else []
        event_s = (due_s + np.cumsum(gaps_s)).tolist()
        lines.append(encode(Record(seq=seq, step=0, due_s=due_s, event_s=event_s, event_tokens=tokens)))
    (table, skipped), each = decode_table(lines), Table.of(decode_lines(lines).records)
    assert skipped == 0
    for one in fields(Table):
        own, of_records = getattr(table, one.name), getattr(each, one.name)
        assert own.dtype == of_records.dtype
        assert np.array_equal(own, of_records, equal_nan=own.dtype == np.float64)


def test_a_batch_skips_the_lines_that_are_no_records() -> None:
    whole = json.loads(encode(RECORD))
    wrong = [
        {**whole, "event_us": [1, "2"]},
        {**whole, "event_us": [1.5, 2.0, 3.0]},
        {**whole, "event_us": [[1], [2], [3]]},
        {**whole, "event_us": 7},
        {**whole, "event_us": [1, 2]},  # of which event_tokens names three
        {**whole, "due_us": "10"},
        {**whole, "seq": None},
        {**whole, "status": 3},
        {**whole, "prompt_tokens": "many"},
        {**whole, "of_tomorrow": 1},
    ]
    lines = [encode(RECORD), *(json.dumps(one).encode() for one in wrong), b"{", b"\n", encode(RECORD)]
    table, skipped = decode_table(lines)
    decoded = decode_lines(lines)
    assert table.seq.tolist() == [record.seq for record in decoded.records] == [RECORD.seq, RECORD.seq]
    assert skipped == decoded.skipped == 11


def test_columns_hold_what_the_records_hold() -> None:
    never_sent = Record(seq=4, step=1, due_s=11.0, status="error", error="connect")
    table = Table.of([RECORD, never_sent])
    assert table.ttft_s[0] == pytest.approx(0.1)
    assert table.sent_ttft_s[0] == pytest.approx(0.0996)
    assert table.e2e_s[0] == pytest.approx(0.18)
    assert table.tpot_s[0] == pytest.approx(0.08 / 4)
    assert np.isnan(table.ttft_s[1])
    assert table.ok.tolist() == [True, False]
    assert table.failed.tolist() == [False, True]
    gaps = table.gaps()
    assert gaps.gap_s == pytest.approx([0.02, 0.06])
    itl_s, end_s = gaps.itl()
    assert itl_s == pytest.approx([0.02, 0.02, 0.02, 0.02])
    assert end_s == pytest.approx([10.12, 10.18, 10.18, 10.18])


def test_tpot_needs_two_tokens() -> None:
    one = replace(RECORD, event_s=[10.1], event_tokens=[1], output_tokens=1)
    lump = replace(RECORD, event_s=[10.1], event_tokens=[5], output_tokens=5)
    assert np.isnan(Table.of([one, lump]).tpot_s).all()


def test_tpot_leaves_out_the_tokens_of_the_first_event() -> None:
    record = replace(RECORD, event_s=[0.2, 0.23, 0.26, 0.29], event_tokens=[4, 1, 1, 1], output_tokens=7)
    assert Table.of([record]).tpot_s[0] == pytest.approx(0.03)


def test_gaps_of_interleaved_choices_stay_within_a_choice() -> None:
    record = replace(
        RECORD, event_s=[0.100, 0.101, 0.120, 0.125], event_tokens=[1] * 4, event_choice=[0, 1, 0, 1], output_tokens=4
    )
    assert Table.of([record, RECORD]).gaps().gap_s == pytest.approx([0.020, 0.024, 0.02, 0.06])


def test_selecting_and_joining_keep_events_with_their_requests() -> None:
    records = [replace(RECORD, seq=i, event_s=[float(i)] * i, event_tokens=[1] * i) for i in range(5)]
    table = Table.of(records)
    odd = table.select(table.seq % 2 == 1)
    assert odd.seq.tolist() == [1, 3]
    assert odd.event_s.tolist() == [1.0, 3.0, 3.0, 3.0]
    back = Table.concat([odd, table.select(table.seq % 2 == 0)])
    assert back.seq.tolist() == [1, 3, 0, 2, 4]
    assert back.events.tolist() == [1, 3, 0, 2, 4]
    assert back.select_rows(np.argsort(back.seq)).event_s.tolist() == table.event_s.tolist()
    assert len(Table.concat([])) == 0


def test_rows_that_follow_one_another_are_selected_as_any_others() -> None:
    table = Table.of([Record(i, 0, float(i), status="ok", event_s=[i + 0.1 * k for k in range(i)]) for i in range(5)])
    for rows in ([], [0], [4], [1, 2, 3], [0, 1, 2, 3, 4], [3, 2, 1], [1, 3, 2, 4], [2, 2, 3]):
        some = table.select_rows(np.array(rows, dtype=np.int64))
        assert some.seq.tolist() == rows
        assert np.diff(some.begin).tolist() == rows  # request i has i events
        assert some.event_s.tolist() == [i + 0.1 * k for i in rows for k in range(i)]


def test_a_window_of_a_run_is_cut_out_without_the_events_after_it() -> None:
    """The last instant of the run is kept, and what is selected is as good as what was there."""
    table = Table.of([
        Record(i, 0, float(i), status="ok", event_s=[i + 0.1 * k for k in range(1, 31)], stream_end_s=i + 3.0)
        for i in range(8)
    ])  # fmt: skip
    some = table.alive(4.5, 5.0)
    assert some.seq.tolist() == [2, 3, 4, 5, 6, 7]
    assert some.events.tolist() == [30, 30, 30, 0, 0, 30]
    assert some.last_s[-1] == table.last_s[-1]
    assert some.event_s[: some.begin[3]].tolist() == table.event_s[table.begin[2] : table.begin[5]].tolist()
    assert np.shares_memory(table.alive(4.5, 8.0).event_s, table.event_s)


def test_the_ends_of_requests_are_their_first_and_last_events_without_gaps() -> None:
    table = Table.of([
        Record(0, 0, 0.0, status="ok", event_s=[0.1, 0.2, 0.3], event_tokens=[1, 2, 3]),
        Record(1, 0, 1.0, status="ok", event_s=[1.5]),
        Record(2, 0, 2.0, status="error"),
        Record(3, 0, 3.0, status="ok", event_s=[3.1, 3.4]),
    ])  # fmt: skip
    ends = table.ends()
    assert ends.events.tolist() == [2, 1, 0, 2]
    assert ends.event_s.tolist() == [0.1, 0.3, 1.5, 3.1, 3.4]
    assert ends.event_tokens.tolist() == [1, 3, 1, 1, 1]
    assert np.array_equal(ends.last_s, table.last_s, equal_nan=True)
    assert len(ends.gaps().gap_s) == 0


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.data())
def test_entries_are_gathered_however_long_their_runs_are(sizes: list[int], data: st.DataObject) -> None:
    order = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=12))
    column, size = np.arange(sum(sizes)), np.array(sizes)
    first = np.cumsum(size) - size
    expected = [entry for i in order for entry in range(first[i], first[i] + size[i])]
    assert gathered(column, first[order], size[order]).tolist() == expected
    assert gathered(every(3, len(column)), first[order], size[order]).tolist() == [3] * len(expected)
    some = np.array(sorted({i for i in order if size[i] and first[i]}), dtype=np.int64)
    entries = np.array([entry for i in some for entry in range(first[i], first[i] + size[i])], dtype=np.int64)
    assert gathered(column, first[some], size[some]).tolist() == entries.tolist()
    square, steps = stepped(column**2, first[some], size[some])
    assert square.tolist() == (entries**2).tolist()
    assert steps.tolist() == (2 * entries - 1).tolist()


def new_dir(tmp_path: Path, name: str = "demo") -> RunDir:
    return RunDir.create(tmp_path, name, "seed = 1\n", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


def test_rp05_two_runs_in_one_second_get_two_directories(tmp_path: Path) -> None:
    first, second = new_dir(tmp_path), new_dir(tmp_path)
    assert first.path.name == "20260102-030405-demo"
    assert second.path.name == "20260102-030405-demo-2"


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("org/name:v1 (x)", "org-name-v1-x"),
        ("../../etc", "etc"),
        ("\u00e9\u4e16", "run"),
        ("a" * 300, "a" * 60),
        ("", "run"),
    ],
)
def test_rp05_names_are_made_safe_for_files(name: str, safe: str) -> None:
    assert safe_name(name) == safe


@pytest.mark.parametrize("name", ["client.jsonl", "run.json", "report.html"])
def test_a_full_disk_is_named_by_the_file_that_it_did_not_take(tmp_path: Path, name: str) -> None:
    rundir = new_dir(tmp_path)
    folder = rundir.path
    (folder / "run.json").write_text("before")
    replaced = "jsonl" not in name
    (folder / (f".{name}.partial" if replaced else name)).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as error:
        if name == "client.jsonl":
            rundir.append_client([ClientSample(1.0)])
        elif name == "run.json":
            rundir.save_info(RunInfo())
        else:
            rundir.write(name, "half of it")
    assert error_message(error.value) == f"{folder / name}: No space left on device"
    assert not (folder / f".{name}.partial").is_symlink()
    assert (folder / "run.json").read_text() == "before"


@pytest.mark.parametrize("below", ["", "reports", "reports/deep"])
def test_a_place_that_can_be_written_is_left_as_it_was(tmp_path: Path, below: str) -> None:
    check_place(tmp_path / below)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("below", "why"),
    [("file", "Not a directory"), ("file/deep/er", "Not a directory"), ("lost", "No such file or directory")],
)
def test_a_place_that_cannot_be_written_is_named_with_the_reason(tmp_path: Path, below: str, why: str) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere" / "at all")
    with pytest.raises(ScenarioError) as error:
        check_place(tmp_path / below, "--history")
    told = str(error.value)
    assert told.startswith(f"--history {tmp_path / below}: no directory can be made there")
    assert told.endswith(why)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "lost"]


def test_a_killed_run_can_be_read(tmp_path: Path) -> None:
    rundir = new_dir(tmp_path)
    rundir.save_info(RunInfo(state="running", steps=[Step(0, rate_rps=2.0, begin_s=1.0, measure_s=5.0)]))
    rundir.records_path(0).write_bytes(encode(RECORD) + encode(replace(RECORD, seq=9, due_s=4.0)) + b'{"seq": 1')
    rundir.records_path(1).write_bytes(encode(replace(RECORD, seq=5, due_s=7.0)))
    rundir.append_client([ClientSample(1.0, loop_lag_s=0.002)])
    run, skipped = read(rundir.path, load)
    assert skipped == 1
    assert run.table.seq.tolist() == [9, 5, 3]
    assert run.steps[0].rate_rps == 2.0
    assert run.client[0].loop_lag_s == 0.002
    assert run.scenario.source == "seed = 1\n"
    assert run.scenario.seed == 1
    assert run.info.state == "running"


def test_a_long_run_is_read_into_files_as_any_other_into_memory(tmp_path: Path) -> None:
    """With events of one token and of several, out of order and from several files: column by column, the same."""
    rng = np.random.default_rng(3)
    paths = [tmp_path / f"records-{k}.jsonl" for k in range(3)]
    for k, path in enumerate(paths):
        due_s = rng.uniform(0.0, 50.0, 400).round(3).tolist()
        counts = rng.integers(0, 9, 400).tolist()
        path.write_bytes(b"".join(
            encode(replace(RECORD, seq=3 * i + k, due_s=due_s[i], event_s=[due_s[i] + 0.5 * j for j in range(n)],
                           event_tokens=[1 + k] * n if i > 100 else []))
            for i, n in enumerate(counts)
        ) + b"torn")  # fmt: skip
    (in_memory, torn), (in_files, torn_too) = read_records(paths), read_records(paths, in_memory_bytes=0)
    assert torn == torn_too == 3
    by_due = np.argsort(in_memory.due_s, kind="stable")
    assert in_files.seq.tolist() == in_memory.seq.tolist() == in_memory.seq[by_due].tolist()
    for one in fields(Table):
        own, other = getattr(in_files, one.name), getattr(in_memory, one.name)
        assert np.array_equal(own, other, equal_nan=own.dtype == np.float64)
    assert len(read_records([], in_memory_bytes=0)[0]) == 0


def test_the_events_of_a_long_run_take_no_memory(tmp_path: Path) -> None:
    """Bytes are counted, not time: of four times the tokens in as many requests."""

    def peak_bytes(tokens: int) -> int:
        path = tmp_path / f"records-{tokens}.jsonl"
        event_s = [10.1 + 0.02 * k for k in range(tokens)]
        path.write_bytes(encode(replace(RECORD, event_s=event_s, event_tokens=[])) * 100)
        tracemalloc.start()
        table, _ = read_records([path], in_memory_bytes=0)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(table.event_s) == 100 * tokens
        return peak

    few, many = peak_bytes(10_000), peak_bytes(30_000)  # 8 and 24 MB of instants
    assert many < few + 4_000_000


def test_a_tail_reads_each_record_once_and_waits_for_half_a_line(tmp_path: Path) -> None:
    rundir = new_dir(tmp_path)
    tail = RecordTail(rundir)
    assert tail.read().seq.tolist() == []
    line = encode(RECORD)
    rundir.records_path(0).write_bytes(line + line[:10])
    assert tail.read().seq.tolist() == [3]
    assert tail.read().seq.tolist() == []
    with rundir.records_path(0).open("ab") as file:
        file.write(line[10:])
    assert tail.read().seq.tolist() == [3]


def test_what_is_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match=r"no run\.json here"):
        read(tmp_path, load)
    (tmp_path / "run.json").write_text('{"schema": 99}')
    with pytest.raises(RunDirError, match="schema 99"):
        read(tmp_path, load)
    for text in ("[1, 2", "[]", "null", '{"schema": 1, "steps": 3}', '{"schema": 1, "steps": [{"index": "a"}]}'):
        (tmp_path / "run.json").write_text(text)
        with pytest.raises(RunDirError, match="not a run"):
            read(tmp_path, load)
    (tmp_path / "run.json").write_text('{"schema": 1}')
    with pytest.raises(RunDirError, match="not a whole run"):
        read(tmp_path, load)


def test_rp01_run_json_is_strict_json(tmp_path: Path) -> None:
    rundir = new_dir(tmp_path)
    odd = {"a": float("nan"), "b": [float("inf"), np.float64(1.5), np.int64(2)], "c": (1, None)}
    rundir.save_info(RunInfo(more=odd))
    assert json.loads((rundir.path / "run.json").read_text()) == {
        "schema": 1, "steps": [], "dead_workers": [], "a": None, "b": [None, 1.5, 2], "c": [1, None]}  # fmt: skip


def test_what_another_version_wrote_of_a_run_is_read_and_kept() -> None:
    """Keys that are not known stay; what a run does not say stays unwritten; indices of steps are numbers again."""
    written = {
        "name": "chat", "target": {"model": "m", "max_model_len": 4096}, "selfcheck": None, "state": "running",
        "ended_at": None, "ending": None, "steps": [], "dead_workers": [{"t_s": 1.5, "reason": "worker 0 ended"}],
        "lengthened": {"3": 24.0}, "of_tomorrow": {"a": [1, 2]},
    }  # fmt: skip
    info = read_info(written)
    assert info.document() == written
    assert info.lengthened == {3: 24.0}
    assert info.more == {"of_tomorrow": {"a": [1, 2]}}
    assert read_info(info.document()) == info
    assert read_info({"target": {"of_tomorrow": 1}, "steps": [{"index": 0, "of_tomorrow": 1}]}).steps == [Step(0)]
    with pytest.raises(msgspec.ValidationError, match="workers"):
        read_info({"workers": "two"})


def test_what_an_earlier_version_noted_of_the_client_is_read() -> None:
    """It did not note which reader was in use, and knew the same lags."""
    noted = {
        "measured_at": "2026-01-01T00:00:00+00:00", "cpu_per_token_s": 1.2e-5, "most_tokens_per_s": 20204.5,
        "most_streams": 416, "limit": None, "lag_p99_s_at_10_rps": 0.001, "lag_p99_s_at_1000_rps": None,
    }  # fmt: skip
    known = read_info({"selfcheck": noted}).selfcheck
    assert isinstance(known, SelfcheckInfo)
    assert (known.cpu_per_token_s, known.most_streams, known.lag_p99_s_at_10_rps) == (1.2e-5, 416, 0.001)
    assert (known.reader, known.limit, known.lag_p99_s_at_100_rps) == (None, None, None)
