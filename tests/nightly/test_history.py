"""The history's file: whatever happens to it, what was written before stays readable."""

import json
import multiprocessing
from pathlib import Path

import pytest
from history_samples import FINGERPRINT, failed, measured, night_of, steady

from loadramp.nightly.history import Entry, History, is_history
from loadramp.nightly.series import all_series
from loadramp.registry import ScenarioError, error_message


def test_what_was_appended_is_read_again(tmp_path: Path) -> None:
    history = History(tmp_path / "new" / "h")
    assert history.read() == ([], 0)
    lines = [*measured(0, steady), *failed(1), Entry(night_of(2), "nightly", metric="ceiling_rps", value=0.0, low=0.0)]
    history.append(lines[:3])
    history.append(lines[3:])
    assert history.read() == (lines, 0)
    assert is_history(history.path)


def test_a_line_is_plain_json_without_what_it_does_not_say(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.append([Entry(night_of(0), "s", "measured", "ceiling_rps", 16.0, 15.0, fingerprint={"gpu": "H100"})])
    assert json.loads(history.file.read_text()) == {
        "night": "2026-01-01T03:00:00+00:00", "scenario": "s", "kind": "measured", "metric": "ceiling_rps",
        "value": 16.0, "low": 15.0, "fingerprint": {"gpu": "H100"}, "schema": 1,
    }  # fmt: skip


def test_a_torn_last_line_is_skipped_counted_and_does_not_swallow_the_next(tmp_path: Path) -> None:
    history = History(tmp_path)
    first, second = measured(0, steady)[:1], measured(1, steady)[:1]
    history.append([*first, *measured(0, steady)[1:2]])
    whole = history.file.read_bytes()
    history.file.write_bytes(whole[:-20])  # killed while it wrote
    assert history.read() == (first, 1)
    history.append(second)
    assert history.read() == ([*first, *second], 1)


def test_a_newer_history_is_refused(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text(
        '{"night":"2026-01-02","scenario":"s","kind":"measured","value":1.0,"schema":2}\n'
    )
    with pytest.raises(ScenarioError, match="schema 2; this version reads up to 1"):
        History(tmp_path).read()


def test_bytes_that_are_no_line_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_bytes(b'\xff\xfe\n{"night":1}\n[]\n\n{}\n')
    assert History(tmp_path).read() == ([], 4)


def test_lines_that_are_there_twice_or_out_of_order_are_read_once_and_in_order(tmp_path: Path) -> None:
    lines = [entry for i in range(3) for entry in measured(i, steady)]
    history = History(tmp_path)
    history.append([*lines[20:], *lines[:20], *lines])
    entries, skipped = history.read()
    assert skipped == 0
    assert len(entries) == len(lines) == 36
    assert [entry.night for entry in entries] == [night_of(i) for i in range(3) for _ in range(12)]


def test_a_line_of_no_night_is_skipped(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.append([Entry("yesterday", "s", "measured", "ceiling_rps", 16.0)])
    assert history.read() == ([], 1)


def write_many(path: str, scenario: str) -> None:
    for i in range(40):
        History(Path(path)).append(
            [Entry(night_of(i), scenario, metric="m" * 200, value=1.0, repeat=r) for r in range(3)]
        )


@pytest.mark.long
def test_two_programs_that_append_do_not_tear_each_other_s_lines(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_many, args=(str(tmp_path), name)) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    entries, skipped = History(tmp_path).read()
    assert skipped == 0
    assert [sum(e.scenario == name for e in entries) for name in ("a", "b")] == [120, 120]


def test_ten_years_of_nights_are_one_read(tmp_path: Path) -> None:
    """3,650 nights of three runs and four metrics: no night is looked at one by one from the disk."""
    lines = [Entry(night_of(i), "nightly", "measured", f"m{k}", 1.0 + i, repeat=r, fingerprint=FINGERPRINT)
             for i in range(3650) for k in range(4) for r in range(3)]  # fmt: skip
    history = History(tmp_path)
    history.append(lines)
    entries, _ = history.read()
    series = all_series(entries)
    assert {name: len(nights) for name, nights in series.items()} == {f"m{k}": 3650 for k in range(4)}


@pytest.mark.parametrize("name", ["history.jsonl", "trend.html"])
def test_a_full_disk_is_named_by_the_file_that_it_did_not_take(tmp_path: Path, name: str) -> None:
    history = History(tmp_path / "nights")
    history.path.mkdir()
    (history.path / (name if "jsonl" in name else f".{name}.partial")).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as error:
        if name == "history.jsonl":
            history.append([Entry("2026-01-02T03:04:05+00:00", "chat")])
        else:
            history.write(name, "half of it")
    assert error_message(error.value) == f"{history.path / name}: No space left on device"
    assert not (history.path / f".{name}.partial").is_symlink()
