"""Whole runs from the command line: real processes, real sockets on loopback, what they leave behind."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import KEY, QUICK, free_port, in_process, keyed_simulator, loadramp
from llamacpp import serving as serving_llama
from llamacpp import write_model

from loadramp.record import run_directory


@dataclass
class Done:
    """A run that several tests look at."""

    code: int
    out: str
    err: str

    def copy(self, where: Path) -> Path:
        """Its directory, to be changed."""
        return Path(shutil.copytree(json.loads(self.out)["run_dir"], where / "copy"))


@pytest.fixture(scope="module")
def done(sim: str, tmp_path_factory: pytest.TempPathFactory) -> Done:
    where = tmp_path_factory.mktemp("done")
    (where / "quick.toml").write_text(QUICK)
    return Done(*in_process("run", str(where / "quick.toml"), "--base-url", sim, "--out", str(where / "r"), "--json"))


def test_a_run_leaves_a_report_and_prints_one_json_document(done: Done) -> None:
    code, out, err = done.code, done.out, done.err
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


def test_a_report_can_be_made_again_from_the_raw_files(done: Done, tmp_path: Path) -> None:
    run_dir = done.copy(tmp_path)
    for name in ("curve.csv", "verdict.json", "summary.md", "report.html"):
        (run_dir / name).unlink()
    _, again, _ = in_process("report", str(run_dir), "--json")
    assert json.loads(again) == json.loads(done.out) | {"run_dir": str(run_dir)}
    assert (run_dir / "report.html").stat().st_size < 2_000_000


def test_two_workers_send_the_same_plan_as_one(done: Done, sim: str, quick: Path, tmp_path: Path) -> None:
    plans = []
    two = in_process("run", str(quick), "--base-url", sim, "--out", str(tmp_path), "--json", "--set", "fleet.workers=2")
    for workers, (_, out, err) in ((1, (done.code, done.out, done.err)), (2, two)):
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
            code, out, err = in_process(
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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGHUP, 143)], ids=["INT", "HUP"])
def test_an_interrupt_saves_and_reports(
    sim: str, quick: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "loadramp", "run", str(quick), "--base-url", sim, "--out", str(tmp_path),
         "--set", "ramp.rates=[10, 20]", "--set", "ramp.measure_s=30"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if "| 10 req/s |" in line:
            break
    records = next(tmp_path.glob("*/records-0.jsonl"))
    while len(records.read_bytes().splitlines()) < 12:
        time.sleep(0.05)
    os.killpg(process.pid, number)  # as a terminal and a service manager do: to the workers, too
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "interrupted" in err
    run_dir = next(path for path in tmp_path.iterdir() if path.is_dir())
    info = json.loads((run_dir / "run.json").read_text())
    assert info["state"] == "stopped"
    assert (run_dir / "report.html").is_file()
    found = [json.loads(line) for line in (run_dir / "records-0.jsonl").read_bytes().splitlines()]
    assert len(found) > 5
    assert {record["status"] for record in found} <= {"ok", "unfinished"}
    assert info["dead_workers"] == []


def test_a_run_killed_outright_is_reported_as_killed_with_what_was_in_flight(
    sim: str, quick: Path, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "loadramp", "run", str(quick), "--base-url", sim, "--out", str(tmp_path),
         "--set", "ramp.rates=[10]", "--set", "ramp.measure_s=60", "--set", "prompts.output_tokens=4000"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0,
    )  # fmt: skip
    while len(lines_of(tmp_path, "client.jsonl")) < 3:
        assert process.poll() is None
        time.sleep(0.05)
    run_dir = next(tmp_path.glob("*/run.json")).parent
    assert run_directory.in_use(run_dir)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not run_directory.in_use(run_dir)
    sent = sum(json.loads(line)["sent"] for line in lines_of(tmp_path, "client.jsonl"))
    code, out, _ = in_process("report", str(run_dir), "--json")
    document = json.loads(out)
    killed = [check["message"] for check in document["checks"] if check["code"] == "killed"]
    assert code == 1  # nothing was answered
    assert f"Stopped early (killed): this rests on 0 finished steps; at least {sent} requests in flight lost" in (
        document["sentence"].replace("; the step at 10 req/s was cut short and is not one of them", "")
    )
    assert killed == [f"the client was killed with at least {sent} requests in flight, which left no record"]
    assert all(step["errors"] == {} for step in document["steps"])


def lines_of(out: Path, name: str) -> list[bytes]:
    """The whole lines of a file of the only run in ``out``."""
    return [
        line
        for path in out.glob(f"*/{name}")
        for line in path.read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")
    ]


@pytest.mark.long
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
    assert in_process("report", str(run_dir))[0] in {0, 3}
    assert (run_dir / "report.html").is_file()


@pytest.mark.long
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


@pytest.mark.long
def test_a_directory_removed_during_the_run_takes_no_answer(sim: str, quick: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadramp", "run", str(quick), "--base-url", sim, "--out", str(tmp_path / "out"),
               "--set", "ramp.rates=[20,20,20,20,20,20,20,20]", "--json"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        run_dir = second_step(tmp_path / "out", process)
        shutil.rmtree(run_dir)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert re.search(rf"stopped: {run_dir}/\S+: No such file or directory", err)
    assert f"{run_dir} was removed while the run went on: the answer below is all that is left of it" in err
    document = json.loads(out)
    assert document["state"] == "stopped"
    assert 1 <= len(document["steps"]) < 8
    assert document["steps"][0]["ok"] > 10


def second_step(out: Path, process: subprocess.Popen[str]) -> Path:
    """The directory of a run that has begun its second measured step."""
    while process.poll() is None:
        for path in out.glob("*/run.json"):
            if sum(step["role"] == "step" for step in json.loads(path.read_text())["steps"]) > 1:
                return path.parent
        time.sleep(0.05)
    raise AssertionError("the run ended")


def test_a_report_on_a_disk_that_takes_nothing_prints_the_answer(done: Done, tmp_path: Path) -> None:
    run_dir = done.copy(tmp_path)
    (run_dir / "report.html").unlink()
    code, out, err = loadramp("report", str(run_dir), "--json", most_bytes=100)
    assert err == f"not written: {run_dir}/run.json: File too large; the answer follows all the same\n"
    assert code == done.code
    assert json.loads(out)["ceiling"] == json.loads(done.out)["ceiling"]
    assert not (run_dir / "report.html").exists()


def test_a_report_of_a_read_only_directory_prints_the_table(
    done: Done, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path, name: str, _: str) -> Path:
        raise OSError(errno.EROFS, "Read-only file system", str(folder / name))

    run_dir = done.copy(tmp_path)
    monkeypatch.setattr(run_directory, "replace_whole", refuse)
    code, out, err = in_process("report", str(run_dir))
    assert (code, "req/s" in out) == (done.code, True)
    assert f"not written: {run_dir}/run.json: Read-only file system" in err


@pytest.mark.long
def test_a_reader_that_leaves_and_a_narrow_terminal_take_nothing_from_the_answer(done: Done, tmp_path: Path) -> None:
    run_dir = done.copy(tmp_path)
    told = in_process("report", str(run_dir), env={"COLUMNS": "40"})
    assert told[:2] == in_process("report", str(run_dir), env={"COLUMNS": "80"})[:2]
    command = [sys.executable, "-m", "loadramp", "report", str(run_dir)]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        left = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    finally:
        os.close(writer)
    assert (left.returncode, left.stderr) == (told[0], "")


@pytest.mark.long
def test_a_short_ramp_and_a_probe_against_a_real_llama_cpp_server(tmp_path: Path, quick: Path) -> None:
    model = tmp_path / "tiny.gguf"
    write_model(model)
    with serving_llama(model, free_port()) as url:
        code, out, err = in_process("probe", "--base-url", url, "--max-tokens", "8", "--json")
        document = json.loads(out)
        assert code == 0, err
        assert document["output_tokens"] == 8
        assert document["ttft_s"] > 0
        code, out, err = in_process("run", str(quick), "--base-url", url, "--out", str(tmp_path), "--json",
                                    "--set", "ramp.rates=[5, 10]", "--set", "target.body={temperature=0}")  # fmt: skip
        document = json.loads(out)
        assert code in {0, 3}, err
        assert [step["errors"] for step in document["steps"]] == [{}, {}]
        assert all(step["ok"] == step["requests"] > 0 for step in document["steps"])
        info = json.loads((Path(document["run_dir"]) / "run.json").read_text())
        assert info["metrics"]["dialect"] == "llamacpp"
        lines = (Path(document["run_dir"]) / "records-0.jsonl").read_bytes().splitlines()
        assert {json.loads(line)["output_tokens"] for line in lines} == {6}
