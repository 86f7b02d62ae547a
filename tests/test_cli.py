"""The command line as a stranger uses it: exit codes, one clear error; a process of its own where something is sent."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import commands_in, free_port, in_process, keyed_simulator, loadramp, parsed

from loadramp.cli import cli, main


def test_an_unreachable_server_is_one_clear_line(quick: Path, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    began_s = time.monotonic()
    code, out, err = in_process(
        "run", str(quick), "--base-url", url, "--set", "target.ready_timeout_s=0.5", "--out", str(tmp_path)
    )
    assert code == 1
    assert out == ""
    assert url in err
    assert "refused" in err.lower(), err
    assert "Traceback" not in err
    assert time.monotonic() - began_s < 30


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "demo", "--base-url", "http://127.0.0.1:1", "--out"],
        ["canary", "canary", "--baseline", "http://127.0.0.1:1", "--candidate", "http://127.0.0.1:2", "--out"],
        ["campaign", "campaign", "--base-url", "http://127.0.0.1:1", "--out"],
        ["nightly", "nightly", "--base-url", "http://127.0.0.1:1", "--history"],
        ["compare", "one", "other", "--out"],
    ],
)
def test_a_place_that_cannot_be_written_is_found_before_anything_is_asked(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    code, out, err = in_process(*arguments, "file/reports", cwd=tmp_path)
    why = f"{arguments[-1]} file/reports: no directory can be made there (in {tmp_path}/file): Not a directory"
    assert (code, out, err) == (2, "", f"loadramp: {why}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_wrong_key_is_named_with_its_variable(tmp_path: Path, quick: Path) -> None:
    with keyed_simulator("RIGHT", "right-key") as url:
        run = ("run", str(quick), "--base-url", url, "--out", str(tmp_path))
        code, _, err = in_process(*run, env={"OPENAI_API_KEY": ""})
        assert (code, "401" in err, "OPENAI_API_KEY" in err) == (1, True, True), err
        code, _, err = in_process(*run, env={"OPENAI_API_KEY": "wrong-key"})
        assert (code, "401" in err, "refused" in err, "wrong-key" in err) == (1, True, True, False), err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nowhere.toml"], ["nowhere.toml: no such scenario file", "chat, code, demo"]),
        (["run", "demo", "--set", "ramp.factr=2"], ["[ramp] factr: unknown key"]),
        (["run", "demo", "--set", "nonsense"], ["--set nonsense"]),
        (["run", "demo", "--base-url", "ftp://x"], ["ftp"]),
        (["run", "demo", "--header", "oops", "--base-url", "http://127.0.0.1:1"], ["--header oops"]),
        (["probe", "--timeout", "nan", "--base-url", "http://127.0.0.1:1"], ["timeout_s", "got nan"]),
        (["probe", "--prompt", "a\udcff", "--base-url", "http://127.0.0.1:1"], ["not text"]),
        (["run", "demo", "--base-url", "http://93.184.216.34:8000"], ["public host", "--yes-i-may-load-test"]),
        (["run", "demo", "--bse-url", "x"], ["No such option"]),
        (["report", "nowhere"], ["nowhere: no run.json here"]),
        (["simulate", "--profile", "h9000"], ["h9000", "small"]),
        (["simulate", "--fault", "error_rate=2"], ["error_rate", "error_ratio"]),
        (["frobnicate"], ["No such command"]),
    ],
)
def test_bad_input_is_one_clear_error_and_exit_code_2(arguments: list[str], words: list[str], tmp_path: Path) -> None:
    code, out, err = in_process(*arguments, cwd=tmp_path, env={"OPENAI_BASE_URL": ""})
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    for word in words:
        assert word in err


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_the_help_of_a_command_has_examples_that_it_takes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = in_process(name, "--help")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 84
    examples = commands_in(out[out.index("Examples:") : out.index("Options:")])
    assert {words[0] for words in examples} == {name}
    monkeypatch.chdir(tmp_path)
    for words in examples:
        for file in (word for word in words if name == "import" and word.endswith(("json", "jsonl"))):
            Path(file).touch()
        parsed(words)


@pytest.mark.parametrize(
    ("shell", "words", "position", "found"),
    [
        ("bash", "loadramp run chat --un", "3", "plain,--until-sure"),
        ("bash", "loadramp probe --api re", "3", "plain,responses"),
        ("bash", "loadramp report re", "2", "file,re"),
        ("zsh", "loadramp can", "1", "plain\ncanary\nCompare two endpoints under the same load."),
        ("fish", "loadramp can", "can", "plain,canary\tCompare two endpoints under the same load."),
    ],
)
def test_shells_complete_our_words(
    shell: str,
    words: str,
    position: str,
    found: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = {"_LOADRAMP_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": position}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as left:
        main([])
    assert left.value.code == 0
    assert capsys.readouterr().out.strip() == found


def test_a_header_written_with_a_colon_is_refused_without_its_value(tmp_path: Path) -> None:
    code, _, err = in_process("probe", "--header", "Authorization: Bearer sk-12345678", cwd=tmp_path)
    assert (code, "--header Authorization: expected NAME=VALUE" in err, "sk-12345678" in err) == (2, True, False)


def test_a_missing_base_url_says_how_to_give_one(tmp_path: Path) -> None:
    code, _, err = in_process("run", "demo", cwd=tmp_path, env={"OPENAI_BASE_URL": ""})
    assert code == 2
    assert "OPENAI_BASE_URL" in err


def test_probe_prints_the_contract_s_document(sim: str) -> None:
    code, out, _ = in_process("probe", "--base-url", sim + "/v1", "--max-tokens", "5", "--json", "--show-text")
    document = json.loads(out)
    assert code == 0
    assert document["status"] == "ok"
    assert document["output_tokens"] == 5
    assert len(document["itl_s"]) == 4
    assert len(document["text"].split()) == 5
    assert set(document) == {
        "status", "error", "error_detail", "http_status", "ttft_s", "sent_ttft_s", "e2e_s", "stream_end_s",
        "time_to_first_byte_s", "time_to_first_answer_s", "gap_s", "itl_s", "tpot_s", "output_tokens",
        "prompt_tokens", "token_source", "finish_reason", "done_marker", "keepalives", "malformed_events",
        "warnings", "text",
    }  # fmt: skip


@pytest.mark.parametrize(
    "options", [["--via", "httpx"], ["--via", "openai"], ["--api", "completions"], ["--no-stream"]]
)
def test_probe_in_all_its_ways(sim: str, options: list[str]) -> None:
    code, out, err = in_process("probe", "--base-url", sim, "--max-tokens", "4", "--json", *options)
    assert code == 0, err
    assert json.loads(out)["output_tokens"] == 4


def test_probe_in_words_for_people(sim: str) -> None:
    code, out, _ = in_process("probe", "--base-url", sim, "--max-tokens", "3")
    assert code == 0
    assert out.startswith("ok, HTTP 200")
    assert "first token" in out


def test_a_key_variable_that_was_named_and_is_not_set_is_a_usage_error() -> None:
    code, out, err = in_process("probe", "--base-url", "http://127.0.0.1:1", "--api-key-env", "LOADRAMP_NEVER_SET")
    assert (code, out) == (2, "")
    assert "LOADRAMP_NEVER_SET is not set" in err


def test_a_file_of_jobs_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    code, _, err = in_process("serve", str(tmp_path / "jobs.toml"))
    assert code == 2
    assert "cannot be read" in err


def test_a_job_that_cannot_run_is_refused_when_the_server_starts(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.toml"
    jobs.write_text("[jobs.a]\nkind = 'run'\nscenario = 'nowhere.toml'\nbase_url = 'http://127.0.0.1:1'\n")
    code, _, err = in_process("serve", str(jobs), "--out", str(tmp_path))
    assert code == 2
    assert f"{jobs}: [jobs.a] scenario: nowhere.toml: no such scenario file" in err
    jobs.write_text(jobs.read_text().replace("nowhere.toml", "demo"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = in_process("serve", str(jobs), "--out", str(tmp_path), "--port", str(port))
    assert code == 1
    assert f"--host 127.0.0.1 --port {port}: Address already in use" in err


def test_plan_refuses_a_threshold_that_a_run_would_refuse(tmp_path: Path) -> None:
    for table in ('[gates]\nrules = ["p99(tttf_s) < 1"]\n', '[nightly]\nfloors = ["foo >= 1"]\n'):
        (tmp_path / "bad.toml").write_text(table)
        code, out, err = in_process("plan", str(tmp_path / "bad.toml"))
        assert (code, out) == (2, "")
        assert "tttf_s" in err or "foo" in err


def test_plan_sends_nothing_and_counts_everything(quick: Path) -> None:
    code, out, _ = in_process("plan", str(quick), "--json")
    document: dict[str, Any] = json.loads(out)
    assert code == 0
    assert [step["rate_rps"] for step in document["steps"]] == [20.0, 20.0, 40.0]
    assert document["total"]["requests"] == pytest.approx(94, abs=30)
    assert document["total"]["output_tokens"] == 6 * document["total"]["requests"]
    assert document["total"]["minutes"] == pytest.approx(0.05, abs=0.01)
    words = in_process("plan", "chat")[1]
    assert "stops at the first overloaded step" in words


def test_help_is_quick_and_names_every_command() -> None:
    code, out, _ = loadramp("--help")
    assert code == 0
    for command in ("run", "probe", "plan", "report", "simulate", "demo"):
        assert f"  {command} " in out
    heavy = "{'numpy', 'pandas', 'httpx', 'openai', 'plotly', 'msgspec', 'tomllib'} & set(sys.modules)"
    look = [sys.executable, "-c", f"import sys, loadramp.cli; print({heavy})"]
    assert subprocess.run(look, capture_output=True, text=True).stdout.strip() == "set()"


def test_a_ramp_begins_without_what_it_does_not_need() -> None:
    """The process that reads metrics pages without numpy; the one that conducts without what only features need."""
    heavy = "{'pandas', 'openai', 'plotly', 'yaml', 'scipy.stats', 'scipy.optimize', 'loadramp.simulator.server'}"
    look = f"""
import sys, loadramp.metrics.scrape_process
print('numpy' in sys.modules)
import loadramp.runner.launch
from loadramp.runner.gate_check import check_rules
from loadramp.runner.scenarios import load
check_rules(load(''))
print({heavy} & set(sys.modules))
"""
    assert subprocess.run([sys.executable, "-c", look], capture_output=True, text=True).stdout == "False\nset()\n"
