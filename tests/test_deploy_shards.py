"""The examples for one ramp from many machines: parsed, their scenario read, their commands those that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from loadramp.cli import cli
from loadramp.runner.scenarios import load, shard_of
from loadramp.workload.agreed import agreed_steps, check_agreeable

FOLDER = Path(__file__).parent.parent / "deploy/kubernetes"
AT, AT_S = "2026-01-02T03:04:00Z", 1767323040.0


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((FOLDER / name).read_text().replace("@START_AT@", AT)))


def test_the_pods_of_the_job_are_the_shards_of_one_plan() -> None:
    _, config, job = documents("shards.yaml")
    spec = job["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    options = dict(zip(container["args"][2::2], container["args"][3::2], strict=False))
    assert (spec["completionMode"], spec["parallelism"]) == ("Indexed", spec["completions"])
    for index in range(spec["completions"]):
        number = options["--shard"].replace("$(JOB_COMPLETION_INDEX)", str(index))
        shard = shard_of(number, options["--start-at"], AT_S - 60)
        assert shard is not None
        assert (shard.index, shard.of, shard.start_s) == (index, spec["completions"], AT_S)
    (name, text), *more = config["data"].items()
    assert not more
    assert container["args"][:2] == ["run", f"/scenario/{name}"]
    scenario = load(text, name)
    check_agreeable(scenario, "--shard")
    assert agreed_steps(scenario)[-1].end_s < spec["activeDeadlineSeconds"]
    assert scenario.fleet.workers < int(container["resources"]["requests"]["cpu"])  # one more for the main process


def test_a_pod_that_fails_takes_no_other_with_it_unless_the_plan_itself_is_wrong() -> None:
    spec = documents("shards.yaml")[2]["spec"]
    assert spec["backoffLimitPerIndex"] == 0
    assert "backoffLimit" not in spec
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    (rule,) = spec["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [2])


def test_what_the_pods_write_is_what_is_merged() -> None:
    claim, _, job = documents("shards.yaml")
    (merge,) = documents("merge.yaml")
    pods = [one["spec"]["template"]["spec"] for one in (job, merge)]
    claims = {volume["persistentVolumeClaim"]["claimName"] for pod in pods for volume in pod["volumes"][:1]}
    assert claims == {claim["metadata"]["name"]}
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    (command,) = pods[1]["containers"][0]["args"]
    assert f"/data/shards/*-of-{job['spec']['completions']} " in command
    assert pods[0]["containers"][0]["args"][-2] == "/data/shards"


def test_the_examples_use_options_that_exist() -> None:
    options = {option for command in cli.commands.values() for param in command.params for option in param.opts}
    for name in ("shards.yaml", "merge.yaml"):
        assert set(re.findall(r"(?<=\s)--[a-z][a-z-]*(?=[\s\n])", "\n".join(map(str, documents(name))))) <= options


def test_the_ray_cluster_has_as_many_pods_as_the_scenario_wants_nodes_and_a_head_that_sends_nothing() -> None:
    claim, config, job = documents("ray.yaml")
    spec = job["spec"]["rayClusterSpec"]
    ((name, text),) = config["data"].items()
    scenario = load(text, name)
    (group,) = spec["workerGroupSpecs"]
    assert (scenario.fleet.kind, scenario.fleet.nodes) == ("ray", group["replicas"])
    assert {group[key] for key in ("replicas", "minReplicas", "maxReplicas")} == {scenario.fleet.nodes}
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    head, sender = (one["template"]["spec"] for one in (spec["headGroupSpec"], group))
    assert scenario.fleet.workers < int(sender["containers"][0]["resources"]["limits"]["cpu"])  # one more for Ray
    assert {pod["containers"][0]["image"] for pod in (head, sender)} == {"loadramp-ray:local"}
    assert head["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    program, command, path, *options = job["spec"]["entrypoint"].split()
    assert (program, command, path) == ("loadramp", "run", f"/scenario/{name}")
    known = {option for param in cli.commands["run"].params for option in param.opts}
    assert {option for option in options if option.startswith("--")} <= known
