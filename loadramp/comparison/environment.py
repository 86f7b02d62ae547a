"""Under what conditions two runs were made, and in what they differ. Pure.

``subject`` keys are what a comparison is about: the served version and its settings. ``condition`` keys must be equal
for a difference to be the version's: load, host, GPU. ``noted`` ones bend little and are told.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from loadramp.record.table import Run
from loadramp.scenario.scenario import Scenario

Kind = Literal["condition", "subject", "noted"]
UNKNOWN = "unknown"
_LOAD: dict[str, Kind] = {
    "prompts": "condition", "arrivals": "condition", "seed": "noted", "ramp": "noted", "slo": "noted",
}  # fmt: skip
HARDWARE = frozenset({"gpu", "gpus", "gpu_count", "driver", "host"})
"""Labels that are of the machine, not of the version."""
SETTINGS = ("max_num_seqs", "block_size", "kv_blocks")
DIGITS = 12
"""Of a file's SHA-256 that are shown."""
_TARGET_KEYS = ("api", "via", "stream", "force_length", "body")


@dataclass(slots=True, frozen=True)
class Difference:
    """A key in which two runs differ. A side that does not tell is ``unknown``; a key that a scenario leaves out is
    ``default``."""

    key: str
    kind: Kind
    base: str
    candidate: str

    @property
    def breaks(self) -> bool:
        """A condition of which both sides tell, and not the same."""
        return self.kind == "condition" and UNKNOWN not in (self.base, self.candidate)


def fingerprint(run: Run) -> dict[str, tuple[Kind, str]]:
    """Key to (kind, value as text) of one run; what nobody told is left out."""
    info = run.info
    known: dict[str, tuple[Kind, str]] = {}
    for key in ("model", "engine", "version", "server", "max_model_len"):
        _put(known, key, "subject", getattr(info.target, key))
    _put(known, "metrics.dialect", "subject", info.dialect)
    settings = {name: value for sample in run.samples for name, value in sample.values.items() if name in SETTINGS}
    for key in SETTINGS:
        _put(known, key, "subject", f"{settings[key]:g}" if key in settings else None)
    for key, value in (info.labels or {}).items():
        _put(known, key, "condition" if key in HARDWARE else "subject", value)
    for file in info.files or ():
        _put(known, f"{file.table} file", "condition", file.sha256[:DIGITS])
    for key in ("machine", "cpu", "cores"):
        _put(known, f"client.{key}", "condition", getattr(info.host, key, None))
    _put(known, "client.loadramp", "noted", info.loadramp)
    _put(known, "client.workers", "noted", info.workers)
    _put(known, "request fields", "condition", info.fields)
    for key, value in _load(run.scenario).items():
        _put(known, key, _LOAD.get(key.partition(".")[0], "condition"), value)
    return known


def differences(base: Mapping[str, tuple[Kind, str]], candidate: Mapping[str, tuple[Kind, str]]) -> list[Difference]:
    """Keys whose values differ, conditions first."""
    differing = [
        Difference(key, (base.get(key) or candidate[key])[0], _value(base, key), _value(candidate, key))
        for key in dict.fromkeys([*base, *candidate])
        if _value(base, key) != _value(candidate, key)
    ]
    return sorted(differing, key=lambda difference: ("condition", "subject", "noted").index(difference.kind))


def _value(known: Mapping[str, tuple[Kind, str]], key: str) -> str:
    if key in known:
        return known[key][1]
    return "default" if key.partition(".")[0] in {*_LOAD, "target"} else UNKNOWN


def _load(scenario: Scenario) -> dict[str, Any]:
    """What a scenario says of the load, by dotted key; names and addresses left out."""
    raw = scenario.asked
    flat: dict[str, Any] = {}
    for name in _LOAD:
        table: Any = raw.get(name)
        if isinstance(table, dict):
            flat |= {f"{name}.{key}": value for key, value in table.items()}
        elif table is not None:
            flat[name] = table
    return flat | {f"target.{key}": raw["target"][key] for key in _TARGET_KEYS if key in raw.get("target", {})}


def _put(known: dict[str, tuple[Kind, str]], key: str, kind: Kind, value: Any) -> None:
    if value is None or value == "":
        return
    words = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    known[key] = (kind, words)
