"""The manifests for rollout controllers: every field is one of its resource, every command one that exists."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from loadramp.cli import cli
from loadramp.comparison.job_config import arguments, read_jobs

ROOT = Path(__file__).parents[2] / "deploy"
KNOWN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data/crds.json").read_text())
FILES = sorted(path for folder in ("argo", "flagger", "kserve", "serve") for path in (ROOT / folder).glob("*.yaml"))


def documents(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def objects(value: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object below ``value`` with its path, ``a.b[].c``."""
    if isinstance(value, dict):
        yield path, value
        for key, item in value.items():
            yield from objects(item, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from objects(item, f"{path}[]")


def containers() -> list[tuple[str, dict[str, Any]]]:
    """Our own containers in all manifests."""
    return [
        (path.name, found)
        for path in FILES
        for document in documents(path)
        for _, found in objects(document, "")
        if "image" in found and "loadramp" in str(found["image"])
    ]


def test_there_is_one_for_each_controller() -> None:
    kinds = {document["kind"] for path in FILES for document in documents(path)}
    assert kinds >= {"AnalysisTemplate", "Rollout", "Canary", "InferenceService", "LLMInferenceService", "Job"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_field_is_one_that_its_resource_knows(path: Path) -> None:
    for document in documents(path):
        known = KNOWN.get(document["kind"])
        if known is None:
            continue
        assert document["apiVersion"] == known["apiVersion"]
        for where, found in objects(document["spec"], "spec"):
            if where in known:
                assert set(found) <= set(known[where]), where


def test_the_check_above_would_see_a_field_that_is_not_there() -> None:
    wrong = {"metrics": [{"name": "x", "sucessCondition": "y"}]}
    seen = [
        where
        for where, found in objects(wrong, "spec")
        if not set(found) <= set(KNOWN["AnalysisTemplate"].get(where, found))
    ]
    assert seen == ["spec.metrics[]"]


def template(name: str) -> dict[str, Any]:
    (document,) = documents(ROOT / "argo" / name)
    (metric,) = document["spec"]["metrics"]
    return {"args": {one["name"] for one in document["spec"]["args"]}, "metric": metric}


def test_argo_s_job_fails_once_and_for_all() -> None:
    job = template("job.yaml")["metric"]["provider"]["job"]["spec"]
    assert job["backoffLimit"] == 0
    assert job["template"]["spec"]["restartPolicy"] == "Never"


def test_argo_s_web_metric_reads_the_verdict_and_waits_for_it() -> None:
    metric = template("web.yaml")["metric"]
    web = metric["provider"]["web"]
    assert (metric["successCondition"], metric["failureCondition"]) == ('result == "pass"', 'result == "fail"')
    assert web["jsonPath"] == "{$.verdict}"
    assert web["method"] == "POST"
    assert web["url"].endswith("/v1/jobs/{{args.job}}/start")
    assert metric["consecutiveSuccessLimit"] == 1
    assert "count" not in metric  # polls until it is known
    assert metric["inconclusiveLimit"] * 30 >= 20 * 60


def test_every_argument_of_a_template_is_declared() -> None:
    for name in ("job.yaml", "web.yaml"):
        used = set(re.findall(r"\{\{ *args\.(\w+) *\}\}", (ROOT / "argo" / name).read_text()))
        assert used <= template(name)["args"]


def test_flagger_s_gates_are_those_of_the_server() -> None:
    (document,) = documents(ROOT / "flagger/canary.yaml")
    hooks = {hook["type"]: hook for hook in document["spec"]["analysis"]["webhooks"]}
    assert set(hooks) == {"confirm-promotion", "rollback"}
    assert hooks["confirm-promotion"]["url"].endswith("/v1/jobs/chat/confirm")
    assert hooks["rollback"]["url"].endswith("/v1/jobs/chat/rollback")
    assert all(re.fullmatch(r"[0-9]+(m|s)", hook["timeout"]) for hook in hooks.values())


def test_the_jobs_of_the_cluster_are_those_of_the_file_and_can_be_run() -> None:
    text = (ROOT / "serve/jobs.toml").read_text()
    config = next(one for one in documents(ROOT / "serve/serve.yaml") if one["kind"] == "ConfigMap")
    assert tomllib.loads(config["data"]["jobs.toml"]) == tomllib.loads(text)
    for job in read_jobs(text, "jobs.toml").values():
        parsed(arguments(job, "out"))


def parsed(words: list[str]) -> dict[str, Any]:
    """The words as our command line takes them. Raises click's error for one that does not exist."""
    command = cli.commands[words[0]]
    return command.make_context(words[0], list(words[1:])).params


@pytest.mark.parametrize(("name", "container"), containers(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_command_line_is_one_that_we_take(name: str, container: dict[str, Any]) -> None:
    words = [re.sub(r"\{\{ *args\.\w+ *\}\}", "8", word) for word in container["args"]]
    assert parsed(words)
    assert re.search(r":[0-9]", container["image"]), "pinned"


def test_a_command_line_that_we_do_not_take_is_seen() -> None:
    with pytest.raises(click.ClickException):
        parsed(["canary", "canary", "--base", "x"])


def test_kserve_is_measured_by_the_addresses_of_the_revisions() -> None:
    (service,) = documents(ROOT / "kserve/inferenceservice.yaml")
    assert service["metadata"]["annotations"]["serving.kserve.io/enable-tag-routing"] == "true"
    (job,) = documents(ROOT / "kserve/job.yaml")
    words = " ".join(job["spec"]["template"]["spec"]["containers"][0]["args"])
    assert "--baseline=http://prev-chat-predictor" in words
    assert "--candidate=http://latest-chat-predictor" in words
