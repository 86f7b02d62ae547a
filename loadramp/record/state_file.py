"""What a command keeps of itself in its directory (comparison.json, campaign.json, tune.json), by one definition for
writer and reader."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from loadramp.record.run_directory import RunDir, RunDirError
from loadramp.registry import ScenarioError

SCHEMA = 1
State = TypeVar("State")


def write_state(path: Path, name: str, document: Mapping[str, Any]) -> None:
    """Replace the file ``name`` in ``path``. Raises OSError; names the file."""
    RunDir(path).write_json(name, {"schema": SCHEMA, **document})


def read_state(path: Path, name: str, kind: type[State], what: str) -> State:
    """The file ``name`` in ``path`` as a ``kind``; ``what`` is how errors call what it is of.

    Raises:
        RunDirError: it is not there, or is not of this schema.
        OSError: it cannot be read.
    """
    try:
        document = json.loads((path / name).read_bytes())
        schema = document.pop("schema", None)
        if schema == SCHEMA:
            return msgspec.convert(document, kind)
    except FileNotFoundError:
        raise RunDirError(f"{path}: no {name} here: it is no {what}") from None
    except (ValueError, LookupError, TypeError, AttributeError, msgspec.ValidationError) as error:
        raise RunDirError(f"{path / name}: not a {what}: {error}") from None
    raise RunDirError(f"{path / name}: schema {schema!r}; this version reads {SCHEMA}")


def check_same(path: Path, source: str, overrides: Sequence[str], before: Sequence[str], *free: str) -> None:
    """Refuse to go on in ``path`` with another scenario, or with other overrides than ``before``.

    Args:
        free: keys that may change.

    Raises:
        ScenarioError: says what it was begun with.
    """
    if (path / "scenario.toml").read_bytes().decode() != source:
        raise ScenarioError(f"{path}: was begun with another scenario (scenario.toml in it is the one)")
    now, then = (
        [override for override in each if override.partition("=")[0] not in free] for each in (overrides, before)
    )
    if now != then:
        words = " ".join(f"--set {override}" for override in before) or "no --set"
        raise ScenarioError(f"{path}: was begun with {words}; give the same again")
