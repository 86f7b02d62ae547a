"""The nodes of a Ray cluster: on each that has processors an actor with a ``NodeShare``. Ray places it and carries its
words.

Only this module imports ray (the extra ``ray``), and only when a run asks for it.
"""

from __future__ import annotations

import signal
import socket
import textwrap
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadramp.client.cluster_fleet import Node, NodeLost, P, T, Verb
from loadramp.client.fleet import FleetError
from loadramp.client.node_share import NodeShare
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import FleetOptions
from loadramp.units import plural

CONNECT_S = 5.0


@dataclass(slots=True)
class RayNode:
    """One node with its actor."""

    name: str
    workers: int
    actor: Any

    async def call(self, verb: Verb[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The answer of a method of the actor."""
        import ray

        try:
            answer: T = await getattr(self.actor, verb.__name__).remote(*args, **kwargs)
        except ray.exceptions.RayTaskError as error:
            raise FleetError(f"{self.name}: {error.cause}") from None
        except ray.exceptions.RayError as error:
            raise NodeLost(_in_short(error)) from None
        return answer

    def drop(self) -> None:
        import ray

        ray.kill(self.actor)


@dataclass(slots=True)
class RayCluster:
    """``[fleet] kind = "ray"``: ``address``, ``nodes`` and ``workers`` of each node."""

    options: FleetOptions
    _ours: bool = False
    """We connected, so we disconnect."""

    def connect(self) -> Sequence[Node]:
        """An actor on each node of the cluster.

        Raises:
            ScenarioError: Ray is not installed.
            FleetError: the cluster cannot be reached, or has too few nodes with processors.
        """
        ray = _ray()
        if not ray.is_initialized():
            check_address(self.options.address)
            _initialized(ray, self.options.address)
            self._ours = True
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0.0) >= 1.0]
        wanted = self.options.nodes or len(nodes)
        if not nodes or len(nodes) < wanted:
            raise FleetError(
                f"[fleet] nodes: {plural(wanted, 'node')} asked for, the Ray cluster has {len(nodes)} with processors"
            )
        return [self._node(ray, number, node) for number, node in enumerate(nodes[:wanted])]

    def close(self) -> None:
        if self._ours:
            _ray().shutdown()

    def _node(self, ray: Any, number: int, node: Mapping[str, Any]) -> RayNode:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        cpus = int(node["Resources"]["CPU"])
        asked = self.options.workers
        workers = asked if isinstance(asked, int) else max(1, min(8, cpus // 2))
        place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        share = ray.remote(NodeShare).options(num_cpus=min(workers, cpus), scheduling_strategy=place, max_restarts=0)
        return RayNode(f"node {number} ({node['NodeManagerAddress']})", workers, share.remote())


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ScenarioError("[fleet] kind = 'ray' needs Ray: pip install 'loadramp[ray]'") from None
    return ray


def check_address(address: str) -> None:
    """Find out at once whether anybody listens at a ``host:port``, with or without ``ray://``: Ray tries for minutes.

    Raises:
        FleetError: nobody does.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():  # auto, local, or the name of something that Ray knows
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_S):
            pass
    except OSError as error:
        raise FleetError(f"[fleet] address: no Ray cluster at {address}: {error.strerror or error}") from None


def _initialized(ray: Any, address: str) -> None:
    """Connect; what a run does about signals stays as it is.

    Raises:
        FleetError: nobody answers there.
    """
    ours = threading.current_thread() is threading.main_thread()
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)} if ours else {}
    try:
        ray.init(address=address or None, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise FleetError(f"[fleet] address: no Ray cluster at {address or 'the default address'}: {error}") from None
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _in_short(error: BaseException) -> str:
    """What Ray says, without the log that it adds."""
    words = str(error).strip().partition("\n")[0]
    return textwrap.shorten(f"{type(error).__name__}: {words}", 160, placeholder=" ...")
