"""The command line as a stranger uses it: real processes, real sockets on loopback, exit codes, one clear error."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from llamacpp import serving as serving_llama
from llamacpp import write_model

from loadramp.jobs.practise import simulator

QUICK = """
name = "quick"
seed = 3
[slo]
ttft_s = 5
[prompts]
kind = "fixed"
input_tokens = 30
output_tokens = 6
[ramp]
kind = "ladder"
rates = [20, 40]
warmup_s = 0.3
measure_s = 1.2
settle_s = 0.2
settle_requests = 0
tail_s = 0.3
"""
KEY = "sk-canary-7f3a9b"


def loadramp(
    *arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None, most_bytes: int | None = None
) -> tuple[int, str, str]:
    """Exit code, stdout, stderr. ``most_bytes``: how long any file may get, as if the disk were full then."""

    def limit() -> None:
        assert most_bytes is not None
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    done = subprocess.run(
        [sys.executable, "-m", "loadramp", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        preexec_fn=None if most_bytes is None else limit,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def sim() -> Iterator[str]:
    with simulator() as url:
        yield url


@pytest.fixture
def quick(tmp_path: Path) -> Path:
    path = tmp_path / "quick.toml"
    path.write_text(QUICK)
    return path


@contextmanager
def keyed_simulator(variable: str, key: str) -> Iterator[str]:
    """A simulator that demands a key; ended by its own process."""
    port = free_port()
    command = [sys.executable, "-m", "loadramp", "simulate", "--port", str(port), "--api-key-env", variable]
    with subprocess.Popen(command, env={**os.environ, variable: key}, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        yield f"http://127.0.0.1:{port}"
        server.terminate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_run_leaves_a_report_and_prints_one_json_document(sim: str, quick: Path, tmp_path: Path) -> None:
    code, out, err = loadramp("run", str(quick), "--base-url", sim, "--out", str(tmp_path / "r"), "--json")
    document = json.loads(out)
    assert code in {0, 3}, err
    assert document["state"] == "complete"
    assert [step["rate_rps"] for step in document["steps"]] == [20.0, 40.0]
    assert document["ceiling"]["status"] in {"not_found_up_to", "not_measurable", "inconclusive"}
    assert set(document) >= {"run_dir", "verdict", "ceiling", "p99_itl_knee", "slo_capacity", "steps", "checks"}
    run_dir = Path(document["run_dir"])
    assert {path.name for path in run_dir.iterdir()} >= {
        "scenario.toml", "run.json", "records-0.jsonl", "server.jsonl", "client.jsonl",
        "curve.csv", "verdict.json", "summary.md", "report.html",
    }  # fmt: skip
    assert (run_dir / "scenario.toml").read_text() == QUICK
    assert json.loads((run_dir / "verdict.json").read_text()) == document
    assert "quick" not in out.splitlines()[0]
    assert "20 req/s" in err


def test_a_report_can_be_made_again_from_the_raw_files(sim: str, quick: Path, tmp_path: Path) -> None:
    _, out, _ = loadramp("run", str(quick), "--base-url", sim, "--out", str(tmp_path), "--json", "--quiet")
    first = json.loads(out)
    run_dir = Path(first["run_dir"])
    for name in ("curve.csv", "verdict.json", "summary.md", "report.html"):
        (run_dir / name).unlink()
    _, again, _ = loadramp("report", str(run_dir), "--json")
    assert json.loads(again) == first
    assert (run_dir / "report.html").stat().st_size < 6_000_000


def test_two_workers_send_the_same_plan_as_one(sim: str, quick: Path, tmp_path: Path) -> None:
    plans = []
    for workers in (1, 2):
        _, out, err = loadramp(
            "run", str(quick), "--base-url", sim, "--out", str(tmp_path / str(workers)), "--json", "--quiet",
            "--set", f"fleet.workers={workers}",
        )  # fmt: skip
        run_dir = Path(json.loads(out)["run_dir"])
        files = sorted(run_dir.glob("records-*.jsonl"))
        assert len(files) == workers, err
        lines = [json.loads(line) for file in files for line in file.read_bytes().splitlines()]
        steps = {step["index"]: step for step in json.loads((run_dir / "run.json").read_text())["steps"]}
        plans.append(
            sorted(
                (line["seq"], line["step"], round(line["due_us"] - steps[line["step"]]["begin_s"] * 1e6, -1) // 10)
                for line in lines
                if line["due_us"] / 1e6 < steps[line["step"]]["begin_s"] + 1.5 and steps[line["step"]]["role"] == "step"
            )
        )
    assert [p[:2] for p in plans[0]] == [p[:2] for p in plans[1]]
    assert all(abs(a[2] - b[2]) <= 1 for a, b in zip(*plans, strict=True))
    assert len(plans[0]) > 60


def test_rp08_no_secret_reaches_any_file_or_message(tmp_path: Path) -> None:
    """RP-08: key, password in the URL, secret header, proxy password."""
    environment = {"LOADRAMP_TEST_KEY": KEY, "HTTPS_PROXY": "http://u:proxy-pw-5512@127.0.0.1:9"}
    scenario = tmp_path / "s.toml"
    scenario.write_text(QUICK + '[target]\nheaders = { X-Api-Key = "header-secret-99" }\n')
    with keyed_simulator("LOADRAMP_TEST_KEY", KEY) as url:
        for base in (url, url.replace("//", "//user:url-pw-3481@")):
            code, out, err = loadramp(
                "run", str(scenario), "--base-url", base, "--out", str(tmp_path / "out"), "--json",
                "--api-key-env", "LOADRAMP_TEST_KEY", "--header", "X-Token=option-secret-77", env=environment,
            )  # fmt: skip
            # Basic authorization from the URL wins over the key, and this server wants the key
            assert code == 1 if "url-pw" in base else code in {0, 3}, err
            files = [p.read_bytes().decode(errors="replace") for p in (tmp_path / "out").rglob("*") if p.is_file()]
            assert len(files) > 5
            for secret in (KEY, "header-secret-99", "option-secret-77", "url-pw-3481", "proxy-pw-5512"):
                assert secret not in out + err
                assert not any(secret in text for text in files)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_saves_and_reports(sim: str, quick: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "loadramp", "run", str(quick), "--base-url", sim, "--out", str(tmp_path),
         "--set", "ramp.rates=[10, 20]", "--set", "ramp.measure_s=30"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if "| 10 req/s |" in line:
            break
    records = next(tmp_path.glob("*/records-0.jsonl"))
    while len(records.read_bytes().splitlines()) < 12:
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "interrupted" in err
    run_dir = next(path for path in tmp_path.iterdir() if path.is_dir())
    info = json.loads((run_dir / "run.json").read_text())
    assert info["state"] == "stopped"
    assert (run_dir / "report.html").is_file()
    assert len((run_dir / "records-0.jsonl").read_bytes().splitlines()) > 5


def test_an_unreachable_server_is_one_clear_line(quick: Path, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    began_s = time.monotonic()
    code, out, err = loadramp(
        "run", str(quick), "--base-url", url, "--set", "target.ready_timeout_s=0.5", "--out", str(tmp_path)
    )
    assert code == 1
    assert out == ""
    assert url in err
    assert "refused" in err.lower(), err
    assert "Traceback" not in err
    assert time.monotonic() - began_s < 30


def test_records_that_the_disk_does_not_take_end_the_run_and_what_it_took_is_judged(
    sim: str, quick: Path, tmp_path: Path
) -> None:
    code, out, err = loadramp(
        "run", str(quick), "--base-url", sim, "--set", "ramp.rates=[40,40,40,40]", "--out", str(tmp_path / "out"),
        "--json", most_bytes=24_000,
    )  # fmt: skip
    (run_dir,) = (tmp_path / "out").iterdir()
    assert code == 1, err
    assert f"stopped: {run_dir}/records-0.jsonl: File too large" in err
    assert f"what was measured is kept: loadramp report {run_dir}" in err
    document = json.loads(out)
    assert (document["state"], len(document["steps"]) < 4) == ("stopped", True)
    assert 20_000 < (run_dir / "records-0.jsonl").stat().st_size <= 24_000
    assert not (run_dir / "report.html").exists()
    assert loadramp("report", str(run_dir))[0] in {0, 3}
    assert (run_dir / "report.html").is_file()


def test_a_report_that_the_disk_does_not_take_is_named_and_the_answer_is_there(
    sim: str, quick: Path, tmp_path: Path
) -> None:
    code, out, err = loadramp(
        "run", str(quick), "--base-url", sim, "--out", str(tmp_path / "out"), "--json", most_bytes=200_000
    )
    (run_dir,) = (tmp_path / "out").iterdir()
    assert code == 1, err
    assert f"stopped: {run_dir}/report.html: File too large" in err
    assert [step["rate_rps"] for step in json.loads(out)["steps"]] == [20, 40]
    assert not [path.name for path in run_dir.iterdir() if path.name.startswith(".")]


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
    code, out, err = loadramp(*arguments, "file/reports", cwd=tmp_path)
    why = f"{arguments[-1]} file/reports: no directory can be made there (in {tmp_path}/file): Not a directory"
    assert (code, out, err) == (2, "", f"loadramp: {why}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_wrong_key_is_named_with_its_variable(tmp_path: Path, quick: Path) -> None:
    with keyed_simulator("RIGHT", "right-key") as url:
        run = ("run", str(quick), "--base-url", url, "--out", str(tmp_path))
        code, _, err = loadramp(*run, env={"OPENAI_API_KEY": ""})
        assert (code, "401" in err, "OPENAI_API_KEY" in err) == (1, True, True), err
        code, _, err = loadramp(*run, env={"OPENAI_API_KEY": "wrong-key"})
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
    code, out, err = loadramp(*arguments, cwd=tmp_path, env={"OPENAI_BASE_URL": ""})
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    for word in words:
        assert word in err


def test_a_header_written_with_a_colon_is_refused_without_its_value(tmp_path: Path) -> None:
    code, _, err = loadramp("probe", "--header", "Authorization: Bearer sk-12345678", cwd=tmp_path)
    assert (code, "--header Authorization: expected NAME=VALUE" in err, "sk-12345678" in err) == (2, True, False)


def test_a_missing_base_url_says_how_to_give_one(tmp_path: Path) -> None:
    code, _, err = loadramp("run", "demo", cwd=tmp_path, env={"OPENAI_BASE_URL": ""})
    assert code == 2
    assert "OPENAI_BASE_URL" in err


def test_probe_prints_the_contract_s_document(sim: str) -> None:
    code, out, _ = loadramp("probe", "--base-url", sim + "/v1", "--max-tokens", "5", "--json", "--show-text")
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
    code, out, err = loadramp("probe", "--base-url", sim, "--max-tokens", "4", "--json", *options)
    assert code == 0, err
    assert json.loads(out)["output_tokens"] == 4


def test_probe_in_words_for_people(sim: str) -> None:
    code, out, _ = loadramp("probe", "--base-url", sim, "--max-tokens", "3")
    assert code == 0
    assert out.startswith("ok, HTTP 200")
    assert "first token" in out


def test_a_key_variable_that_was_named_and_is_not_set_is_a_usage_error() -> None:
    code, out, err = loadramp("probe", "--base-url", "http://127.0.0.1:1", "--api-key-env", "LOADRAMP_NEVER_SET")
    assert (code, out) == (2, "")
    assert "LOADRAMP_NEVER_SET is not set" in err


def test_a_reader_that_leaves_and_a_narrow_terminal_take_nothing_from_the_answer(
    sim: str, quick: Path, tmp_path: Path
) -> None:
    loadramp("run", str(quick), "--base-url", sim, "--out", str(tmp_path), "--quiet")
    run_dir = next(tmp_path.glob("*-quick"))
    told = loadramp("report", str(run_dir), env={"COLUMNS": "40"})
    assert told[:2] == loadramp("report", str(run_dir), env={"COLUMNS": "80"})[:2]
    command = [sys.executable, "-m", "loadramp", "report", str(run_dir)]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        left = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    finally:
        os.close(writer)
    assert (left.returncode, left.stderr) == (told[0], "")


def test_a_file_of_jobs_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    code, _, err = loadramp("serve", str(tmp_path / "jobs.toml"))
    assert code == 2
    assert "cannot be read" in err


def test_plan_refuses_a_threshold_that_a_run_would_refuse(tmp_path: Path) -> None:
    for table in ('[gates]\nrules = ["p99(tttf_s) < 1"]\n', '[nightly]\nfloors = ["foo >= 1"]\n'):
        (tmp_path / "bad.toml").write_text(table)
        code, out, err = loadramp("plan", str(tmp_path / "bad.toml"))
        assert (code, out) == (2, "")
        assert "tttf_s" in err or "foo" in err


def test_plan_sends_nothing_and_counts_everything(quick: Path) -> None:
    code, out, _ = loadramp("plan", str(quick), "--json")
    document: dict[str, Any] = json.loads(out)
    assert code == 0
    assert [step["rate_rps"] for step in document["steps"]] == [20.0, 20.0, 40.0]
    assert document["total"]["requests"] == pytest.approx(94, abs=30)
    assert document["total"]["output_tokens"] == 6 * document["total"]["requests"]
    assert document["total"]["minutes"] == pytest.approx(0.05, abs=0.01)
    words = loadramp("plan", "chat")[1]
    assert "stops at the first overloaded step" in words


def test_help_is_quick_and_names_every_command() -> None:
    code, out, _ = loadramp("--help")
    assert code == 0
    for command in ("run", "probe", "plan", "report", "simulate", "demo"):
        assert f"  {command} " in out
    heavy = "{'numpy', 'pandas', 'httpx', 'openai', 'plotly'} & set(sys.modules)"
    look = [sys.executable, "-c", f"import sys, loadramp.cli; print({heavy})"]
    assert subprocess.run(look, capture_output=True, text=True).stdout.strip() == "set()"


def test_a_short_ramp_and_a_probe_against_a_real_llama_cpp_server(tmp_path: Path, quick: Path) -> None:
    model = tmp_path / "tiny.gguf"
    write_model(model)
    with serving_llama(model, free_port()) as url:
        code, out, err = loadramp("probe", "--base-url", url, "--max-tokens", "8", "--json")
        document = json.loads(out)
        assert code == 0, err
        assert document["output_tokens"] == 8
        assert document["ttft_s"] > 0
        code, out, err = loadramp("run", str(quick), "--base-url", url, "--out", str(tmp_path), "--json",
                                  "--set", "ramp.rates=[5, 10]", "--set", "target.body={temperature=0}")  # fmt: skip
        document = json.loads(out)
        assert code in {0, 3}, err
        assert [step["errors"] for step in document["steps"]] == [{}, {}]
        assert all(step["ok"] == step["requests"] > 0 for step in document["steps"])
        info = json.loads((Path(document["run_dir"]) / "run.json").read_text())
        assert info["metrics"]["dialect"] == "llamacpp"
        lines = (Path(document["run_dir"]) / "records-0.jsonl").read_bytes().splitlines()
        assert {json.loads(line)["output_tokens"] for line in lines} == {6}
