"""A real Ray on this machine, with several nodes of its own: `make ray`."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from run_in_memory import scenario_of

from loadramp.client.endpoint import Endpoint
from loadramp.record.table import Run
from loadramp.runner import launch
from loadramp.runner.conductor import Conductor
from loadramp.runner.scenarios import Options
from loadramp.simulator.practise import simulator
from loadramp.workload.schedule import plan_step

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("default")]
if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed: make ray", allow_module_level=True)

TEXT = """
name = "ray"
seed = 5
[prompts]
kind = "fixed"
input_tokens = 20
output_tokens = 4
[ramp]
kind = "ladder"
rates = [10, 20]
warmup_s = 1
measure_s = 5
settle_s = 0
settle_requests = 0
tail_s = 1
max_error_ratio = 1.0
give_up_s = 60
[fleet]
kind = "ray"
workers = 1
"""


@pytest.fixture(scope="module")
def sim() -> Iterator[str]:
    with simulator() as url:
        yield url


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without processors and two nodes with one each."""
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_worker_niceness", "0")
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        made.add_node(num_cpus=1)
    yield made
    made.shutdown()


def ramped(cluster: Any, url: str, folder: Path, beside: launch.Beside | None = None) -> Run:
    scenario = scenario_of(f'{TEXT}address = "{cluster.address}"\n')
    options = Options(base_url=url, out=folder)
    return asyncio.run(launch.ramp(scenario, options, print, lambda _: None, salt=7, beside=beside)).run


def planned(run: Run) -> dict[int, tuple[float, int]]:
    """``seq`` to due time and step of all requests that one process would have sent."""
    first_seq, expected = 0, {}
    for step, following in zip(run.steps, [*run.steps[1:], None], strict=True):
        plan = plan_step(run.scenario, step, first_seq, 7, 30.0)
        until_s = following.begin_s if following else step.end_s
        expected |= {one.seq: (round(one.due_s, 6), one.step) for one in plan if one.due_s < until_s}
        first_seq += len(plan)
    return expected


def test_two_ray_workers_send_the_plan_of_one_process_request_by_request(
    cluster: Any, sim: str, tmp_path: Path
) -> None:
    run = ramped(cluster, sim, tmp_path)
    assert (run.info.state, run.info.workers, run.info.dead_workers) == ("complete", 2, [])
    table = run.table
    sent = zip(table.seq.tolist(), table.due_s.tolist(), table.step.tolist(), strict=True)
    assert {seq: (due_s, step) for seq, due_s, step in sent if due_s < run.steps[-1].end_s} == planned(run)
    assert {int(one) for one in table.worker} == {0, 1}
    assert [clock.of.partition(" (")[0] for clock in run.info.clocks or ()] == ["node 0", "node 1"]
    for clock in run.info.clocks or ():  # both nodes are on this machine: their clocks are one
        assert abs(clock.offset_s) <= clock.error_s
        assert clock.moved_s is not None


def test_a_node_killed_in_mid_step_is_named_and_the_run_goes_on(cluster: Any, sim: str, tmp_path: Path) -> None:
    killed_s = []

    async def kill(ramping: Conductor, _: Endpoint) -> None:
        while len(ramping.steps) < 2 or ramping.now_s < ramping.steps[1].window_s[0] + 1.0:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        killed_s.append(ramping.now_s)
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)

    run = ramped(cluster, sim, tmp_path, kill)
    (death,) = run.info.dead_workers
    assert "was lost: " in death.reason
    assert death.t_s <= killed_s[0] + 1.0  # its last word
    assert run.info.state == "complete"
    first, second = run.rows
    assert death.reason in [void.what for void in second.void]
    assert death.reason not in [void.what for void in first.void]
    lost = int(death.reason.partition("(worker ")[2].partition(")")[0])
    late = run.table.due_s > killed_s[0] + 1.0
    assert {int(one) for one in run.table.worker[late]} == {1 - lost}
    share = {seq for seq, (due_s, _) in planned(run).items() if due_s < run.steps[1].end_s}
    assert set(run.table.seq[run.table.due_s < run.steps[1].end_s].tolist()) < share
