"""Files on disk: found beside the scenario, unpacked by what they are, read once, and errors that name them."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from loadramp.client import input_files
from loadramp.registry import ScenarioError
from loadramp.runner.scenarios import load
from loadramp.scenario.scenario import Scenario

ROWS = b"time,input_tokens,output_tokens\n0,10,5\n1,20,6\n2,0,1\n"


def scenario(text: str, folder: Path) -> Scenario:
    return replace(load(text, "t.toml"), folder=str(folder))


TRACE = '[prompts]\nkind = "trace"\nfile = "rows.csv"'


def test_gzip_is_known_by_its_first_bytes_not_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(gzip.compress(ROWS))
    packed = input_files.with_files(scenario(TRACE, tmp_path)).corpora["prompts"]
    (tmp_path / "rows.csv").write_bytes(ROWS)
    plain = input_files.with_files(scenario(TRACE, tmp_path)).corpora["prompts"]
    assert packed.inputs.tolist() == plain.inputs.tolist() == [10, 20]
    assert packed.tally.sha256 == plain.tally.sha256 != ""


def test_a_file_is_looked_for_beside_the_scenario_and_then_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there with spaces"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    (here / "rows.csv").write_bytes(ROWS)
    assert len(input_files.with_files(scenario(TRACE, there)).corpora["prompts"]) == 2
    (there / "rows.csv").write_bytes(ROWS + b"3,30,7\n")
    assert len(input_files.with_files(scenario(TRACE, there)).corpora["prompts"]) == 3


def test_a_file_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(ROWS)
    one = '{ kind = "trace", file = "rows.csv" }'
    text = f'[prompts]\nkind = "mix"\nsources = [{one}, {one}]'
    full = input_files.with_files(scenario(text, tmp_path))
    assert full.corpora["prompts.0"] is full.corpora["prompts.1"]
    (tmp_path / "rows.csv").unlink()
    assert input_files.with_files(full) is full
    assert input_files.without_files(full).corpora == {}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "rows.csv: cannot be read: No such file"),
        (b"PAR1....", "Parquet is not read here"),
        (gzip.compress(ROWS, mtime=0)[:-9], "rows.csv: cannot be read"),
        (b"\x1f\x8b nonsense", "rows.csv: cannot be read"),
        (b"", "rows.csv: empty"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(content: bytes | None, words: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(ScenarioError, match=words):
        input_files.ready(scenario(TRACE, tmp_path))


def test_what_was_skipped_is_told_to_people_and_kept_for_the_run(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(ROWS)
    full = input_files.ready(scenario(TRACE, tmp_path))
    assert input_files.skipped_rows(full) == [
        "rows.csv: 2 rows (plain); 1 skipped (1 no prompt; line 4: no prompt: 0 tokens, answer of 1); time in s"
    ]
    (note,) = input_files.notes(full)
    assert (note.table, note.rows, note.skipped) == ("prompts", 2, {"no prompt": 1})
    assert len(note.sha256) == 64


def test_rows_of_text_are_shuffled_by_the_seed_but_a_replay_keeps_their_order(tmp_path: Path) -> None:
    lines = "".join(f'{{"prompt": "p{i}", "timestamp": {i}}}\n' for i in range(40))
    (tmp_path / "rows.jsonl").write_text(lines)
    text = 'seed = {}\n[prompts]\nkind = "jsonl"\nfile = "rows.jsonl"\n'

    def order(seed: int, more: str = "") -> list[str]:
        rows = input_files.ready(scenario(text.format(seed) + more, tmp_path)).corpora["prompts"].rows
        return [said.text for said in rows]

    assert order(1) == order(1) != order(2)
    in_file = [f"p{i}" for i in range(40)]
    assert order(1, 'order = "file"') == in_file
    assert order(1, '[arrivals]\nkind = "replay"') == in_file
    assert sorted(order(1)) == sorted(in_file)
