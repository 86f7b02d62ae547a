"""comparison.json: files of earlier versions are read, and what does not fit is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadramp.comparison.answer_match import AnswerMatch
from loadramp.comparison.info import COMPARISON, ArmInfo, ComparisonInfo, Look, Round, Switched, read_info
from loadramp.record.run_directory import RunDirError

WITH_NULLS: dict[str, Any] = {
    "schema": 1, "name": "chat", "kind": "canary", "design": "abba", "began_at": "2026-01-02T03:04:05+00:00",
    "loadramp": "0.1.0", "argv": ["canary"], "overrides": [], "baseline": {"base_url": "http://a/v1", "model": "m"},
    "candidate": {"base_url": "http://b/v1", "model": "m"}, "switch_command": "./serve.sh {arm}", "swap_command": None,
    "same_version": False, "noise": None, "stopped": "", "looks": [{"blocks": 5, "verdict": "inconclusive"}],
    "switches": [{"arm": "baseline", "begin_s": 1, "ready_s": 2.5, "command_s": None}], "state": "complete",
    "rounds": [{"number": 0, "rate_rps": 8.0, "baseline_step": 0, "candidate_step": 1, "swapped": False}],
    "answers": {"prompts": 4, "equal": 3, "equal_to_itself": 4, "diverged_at": [7], "broken_base": {},
                "broken_candidate": {"empty": 1}},
}  # fmt: skip
"""As it was written when what is not known was null."""


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    (tmp_path / COMPARISON).write_text(json.dumps(WITH_NULLS))
    info = read_info(tmp_path)
    assert (info.name, info.design, info.switch_command, info.swap_command) == (
        "chat",
        "abba",
        "./serve.sh {arm}",
        None,
    )
    assert info.baseline == ArmInfo("http://a/v1", "m")
    assert info.rounds == [Round(0, 8.0, 0, 1)]
    assert info.looks == [Look(5, "inconclusive")]
    assert info.switches == [Switched("baseline", 1.0, 2.5)]
    assert info.answers == AnswerMatch(4, 3, 4, (7,), {}, {"empty": 1})


def test_what_was_written_is_read_again_and_what_is_not_known_is_not_written(tmp_path: Path) -> None:
    info = ComparisonInfo(name="chat", looks=[Look(5, "pass")], rollback="stopped at once", swapped_at_s=60.0)
    info.write(tmp_path)
    assert read_info(tmp_path) == info
    assert json.loads((tmp_path / COMPARISON).read_text()) == {
        "schema": 1, "name": "chat", "looks": [{"blocks": 5, "verdict": "pass"}], "rollback": "stopped at once",
        "swapped_at_s": 60.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rounds": [{"number": 0}]}, r"not a comparison: .*rate_rps.*\$\.rounds"),
        ({"same_version": "yes"}, r"not a comparison: Expected `bool`.*\$\.same_version"),
        ({"schema": 2}, "schema 2; this version reads 1"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    (tmp_path / COMPARISON).write_text(json.dumps(WITH_NULLS | change))
    with pytest.raises(RunDirError, match=words):
        read_info(tmp_path)
