"""The examples for schedulers and CI servers: parsed, and their own commands run against the simulator, shortened."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from loadramp.cli import cli

ROOT = Path(__file__).parents[2]
SHORT = (
    "nightly.repeats=1", "nightly.reference_rps=30", "nightly.reference_s=1", "prompts.input_tokens=20",
    "prompts.output_tokens=4", "ramp.start_rps=20", "ramp.max_rps=20", "ramp.warmup_s=0.2", "ramp.measure_s=1",
    "ramp.settle_s=0", "ramp.settle_requests=0", "ramp.tail_s=0.1",
)  # fmt: skip


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((ROOT / "deploy" / name).read_text()))


def run_as_written(lines: list[str], tmp_path: Path) -> tuple[str, Path]:
    """The lines of an example in one shell, on a free port, every night shortened. Returns what was said, and where.

    A shell that fails does not end the script: an example's later steps run whatever the night came to.
    """
    for name in ("scenarios", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    shims = tmp_path / "bin"
    shims.mkdir()
    sets = " ".join(f"--set {one}" for one in SHORT)
    loadramp = f'#!/bin/sh\n[ "$1" = nightly ] && set -- "$@" {sets}\nexec {sys.executable} -m loadramp "$@"\n'
    for name, text in (
        ("loadramp", loadramp),
        ("pip", "#!/bin/sh\n"),
        ("python", f'#!/bin/sh\nexec {sys.executable} "$@"\n'),
    ):
        (shims / name).write_text(text)
        (shims / name).chmod(0o755)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = "trap 'kill $(jobs -p)' EXIT\n" + "\n".join(lines).replace("8000", str(port))
    script = script.replace("loadramp nightly", "code() { echo exit $?; }; loadramp nightly").replace(
        "--quiet\n", "--quiet; code\n"
    )
    env = {**os.environ, "PATH": f"{shims}:{os.environ['PATH']}", "BASE_URL": f"http://127.0.0.1:{port}",
           "GITHUB_STEP_SUMMARY": str(tmp_path / "step-summary.md"), "PYTHONPATH": str(ROOT)}  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=110, check=False
    )
    return done.stdout + done.stderr, tmp_path


@pytest.mark.slow
def test_the_github_example_runs_as_written(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl here")
    steps = documents("github-actions.yml")[0]["jobs"]["nightly"]["steps"]
    said, where = run_as_written([step["run"] for step in steps if "run" in step], tmp_path)
    assert re.search(r"^exit [03]$", said, re.MULTILINE), said
    assert "::" in said
    uploaded = next(step["with"]["path"] for step in steps if "upload-artifact" in step.get("uses", "")).split()
    assert [name for name in uploaded if not (where / name).exists()] == []
    assert (where / "step-summary.md").read_text().startswith("# nightly: night of ")
    assert {path.name for path in (where / "benchmark").iterdir()} == {
        "bigger-is-better.json",
        "smaller-is-better.json",
    }
    series = yaml.safe_load((where / "otava/otava.yaml").read_text())["tests"]
    files = {one["file"] for one in series.values()}
    assert "otava-ref_itl_p50_s.csv" in files
    assert [name for name in files if not (where / "otava" / name).is_file()] == []


@pytest.mark.slow
def test_the_gitlab_example_runs_as_written(tmp_path: Path) -> None:
    job = documents("gitlab-ci.yml")[0]["nightly"]
    said, where = run_as_written([*job["before_script"], *job["script"], *job["after_script"]], tmp_path)
    assert re.search(r"^exit [03]$", said, re.MULTILINE), said
    artifacts = job["artifacts"]
    assert [name for name in [*artifacts["paths"], *artifacts["reports"].values()] if not (where / name).exists()] == []


@pytest.mark.slow
def test_the_cron_job_s_command_runs_as_written(tmp_path: Path) -> None:
    pod = documents("kubernetes/cronjob.yaml")[1]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command = " ".join([*container["command"], *container["args"]]).replace("http://llm:8000", "http://127.0.0.1:8000")
    command = command.replace("/data/", f"{tmp_path}/")
    wait = "until curl -sf http://127.0.0.1:8000/health; do sleep 1; done"
    said, where = run_as_written(["loadramp simulate --port 8000 &", wait, command + "\n"], tmp_path)
    assert re.search(r"^exit [03]$", said, re.MULTILINE), said
    assert (where / "history/trend.html").is_file()
    assert list((where / "reports").iterdir())


def test_the_cron_job_is_one_at_a_time_and_tries_a_regression_only_once() -> None:
    claim, cron = documents("kubernetes/cronjob.yaml")
    spec = cron["spec"]
    job = spec["jobTemplate"]["spec"]
    pod = job["template"]["spec"]
    assert (cron["apiVersion"], cron["kind"], spec["concurrencyPolicy"]) == ("batch/v1", "CronJob", "Forbid")
    assert pod["restartPolicy"] == "Never"  # a pod failure policy needs it
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"] == {"containerName": "loadramp", "operator": "In", "values": [2, 3, 99]}
    assert rule["onExitCodes"]["containerName"] == pod["containers"][0]["name"]
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert job["activeDeadlineSeconds"] > 25 * 60


@pytest.mark.parametrize("name", ["github-actions.yml", "gitlab-ci.yml", "kubernetes/cronjob.yaml"])
def test_examples_use_options_and_scenarios_that_exist(name: str) -> None:
    text = (ROOT / "deploy" / name).read_text()
    options = {option for command in cli.commands.values() for param in command.params for option in param.opts}
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    used = set(re.findall(r"(?<=\s)--[a-z][a-z-]*", code))
    assert used <= options
    assert all((ROOT / path).is_file() for path in re.findall(r"scenarios/[\w-]+\.toml", text))


def test_a_git_lab_night_that_was_not_measured_is_no_failure_and_a_regression_is() -> None:
    job = documents("gitlab-ci.yml")[0]["nightly"]
    assert job["allow_failure"] == {"exit_codes": [1, 3]}
    assert job["artifacts"]["when"] == "always"


def test_the_history_of_a_night_that_failed_is_kept_for_the_next_one() -> None:
    """A regression fails the job: what keeps the history must not wait for success."""
    steps = documents("github-actions.yml")[0]["jobs"]["nightly"]["steps"]
    uses = [step.get("uses", "") for step in steps]
    assert "actions/cache@v4" not in uses  # saves on success only
    restore, save = (next(step for step in steps if step.get("uses") == f"actions/cache/{what}@v4")
                     for what in ("restore", "save"))  # fmt: skip
    measure = next(step for step in steps if "loadramp nightly" in step.get("run", ""))
    assert steps.index(restore) < steps.index(measure) < steps.index(save)
    assert save["if"] == "always()"
    assert save["with"]["path"] == restore["with"]["path"] == "history"
    assert save["with"]["key"] == restore["with"]["key"]
    assert "github.run_id" in save["with"]["key"]  # a key is written once: every night needs its own
    assert save["with"]["key"].startswith(restore["with"]["restore-keys"])
    cache = documents("gitlab-ci.yml")[0]["nightly"]["cache"]
    assert (cache["paths"], cache["when"]) == (["history"], "always")
