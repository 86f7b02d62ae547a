"""Cures and runbooks as tables: remedies.toml, runbooks.toml; and which version of vLLM has a cure's flag. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from loadramp.registry import ScenarioError, data_of

ENGINES = ("vllm", "sglang", "trtllm", "tgi", "lmdeploy", "llamacpp")


@dataclass(slots=True, frozen=True)
class Remedy:
    """A cure as it stands in the table. ``flags`` by engine; ``{longest} {context} {fewer} {more}`` are figures of the
    run."""

    action: str
    when: str
    flags: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    """What to change, by engine, where it is no flag to add."""
    needs: str = ""
    """The flag of vLLM that only some versions have (``SINCE``)."""

    def change(self, engine: str) -> str:
        """The engine's flag or, where it is none, what to change; empty where neither is known."""
        return self.flags.get(engine) or self.words.get(engine, "")


@dataclass(slots=True, frozen=True)
class Runbook:
    """What to do at once, step by step, when it happens in production."""

    title: str
    steps: tuple[str, ...]


REMEDIES = msgspec.convert(data_of(__package__, "remedies.toml"), dict[str, Remedy])
RUNBOOKS = msgspec.convert(data_of(__package__, "runbooks.toml"), dict[str, Runbook])
RUNBOOK_OF: dict[str, str] = {
    "out_of_memory": "out_of_memory",
    "server_down": "out_of_memory",
    "hardware_fault": "hardware_fault",
    "engine_stall": "hardware_fault",
    "kv_eviction": "high_latency",
    "kv_full": "high_latency",
    "scheduler_oversubscription": "high_latency",
    "compute_bound": "high_latency",
    "prefill_contention": "high_latency",
}
"""Finding to runbook."""


def runbook_of(code: str) -> Runbook | None:
    """The runbook for a finding, None where there is nothing to do at once."""
    name = RUNBOOK_OF.get(code)
    return RUNBOOKS[name] if name else None


Version = tuple[int, int]

SINCE: dict[str, Version] = {"--max-num-queued-reqs": (0, 29)}
"""Flags that not every version in use has, and the first that has them."""


def version_of(text: str) -> Version | None:
    """Major and minor of a version as an engine tells it ("0.29.1", "v0.30.0rc2+cu128"); None for builds without one
    ("0.1.dev1+g1234").

    Raises:
        ScenarioError: no version.
    """
    match = re.match(r"v?(\d+)\.(\d+)(.*)", text.strip())
    if match is None:
        raise ScenarioError(f"engine version {text!r}: expected one like 0.29.1")
    if "dev" in match[3] and (int(match[1]), int(match[2])) <= (0, 1):
        return None
    return int(match[1]), int(match[2])


def has_flag(name: str, version: Version | None) -> bool:
    """Whether that version has the flag; a version that is not known is taken for a new one."""
    return version is None or version >= SINCE.get(name, (0, 0))
