"""A run directory: created exclusively, appended to as things happen, valid after every step and after a kill.

The only module that writes a run's files. Raw files are append-only; derived ones are replaced whole.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from loadramp.record.codec import decode_each
from loadramp.record.columns import decode_table
from loadramp.record.run_info import HostInfo, RunInfo, read_info
from loadramp.record.table import Run, Table
from loadramp.record.types import ClientSample, Sample
from loadramp.record.whole_run import read_records
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Scenario

SCHEMA = 1
Load = Callable[[str, str, Sequence[str]], Scenario]
"""``f(text, name, overrides)``: a scenario; ``name`` is how errors call it."""


class RunDirError(ScenarioError):
    """The directory is not a run, or is of a schema this version does not read."""


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError raised within names ``path``: opening a file says which one it was, writing to it does not."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def check_place(parent: Path, option: str = "--out") -> None:
    """Find out before a run whether it could be written below ``parent``. Tried, since what ``access`` says of a
    read-only disk or of root is not so; what is made for it is taken away again.

    Raises:
        ScenarioError: it could not; names ``parent`` and why.
        OSError: the disk is full.
    """
    there = asked = parent.absolute()
    while not os.path.lexists(there):
        there = there.parent
    try:
        with tempfile.TemporaryDirectory(prefix=".loadramp-", dir=there):
            pass
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise OSError(error.errno, error.strerror, str(parent)) from None
        where = "" if there == asked else f" (in {there})"
        raise ScenarioError(f"{option} {parent}: no directory can be made there{where}: {error.strerror}") from None


@dataclass(slots=True)
class RunDir:
    """Where a run is written. ``path`` exists."""

    path: Path
    _hold: int | None = None
    """A descriptor whose lock lasts as long as the process that writes here, however it ends."""

    @staticmethod
    def create(parent: Path, name: str, scenario_text: str, began_at: datetime) -> RunDir:
        """A fresh directory ``<parent>/<time>-<safe name>``; never one that exists.

        Raises:
            OSError: the directory cannot be made.
        """
        base = f"{began_at:%Y%m%d-%H%M%S}-{safe_name(name)}"
        parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, 1000):
            path = parent / (base if attempt == 1 else f"{base}-{attempt}")
            try:
                path.mkdir()
            except FileExistsError:
                continue
            put(path / "scenario.toml", scenario_text.encode())
            return RunDir(path, _held(path))
        raise FileExistsError(f"{parent}: a thousand runs called {base}")

    def let_go(self) -> None:
        """The run has ended and nothing more is written of it."""
        if self._hold is not None:
            os.close(self._hold)
            self._hold = None

    def __del__(self) -> None:
        self.let_go()

    def records_path(self, worker: int) -> Path:
        return self.path / f"records-{worker}.jsonl"

    @property
    def server_path(self) -> Path:
        return self.path / "server.jsonl"

    @property
    def client_path(self) -> Path:
        return self.path / "client.jsonl"

    def append_client(self, samples: list[ClientSample]) -> None:
        """Add one line a sample."""
        with naming(self.client_path), self.client_path.open("ab") as file:
            file.writelines(msgspec.json.encode(sample) + b"\n" for sample in samples)

    def write(self, name: str, text: str) -> Path:
        """Replace a derived file whole: a reader sees the old one or the new one, never half.

        Raises:
            OSError: the disk; names the file.
        """
        return replace_whole(self.path, name, text)

    def write_json(self, name: str, document: Mapping[str, Any]) -> None:
        """The same of a JSON document."""
        self.write(name, json.dumps(document, indent=1, allow_nan=False) + "\n")

    def save_info(self, info: RunInfo) -> None:
        """Replace ``run.json``."""
        self.write_json("run.json", {"schema": SCHEMA, **info.document()})


@dataclass(slots=True)
class RecordTail:
    """Reads what the workers have appended to their files since the last look; half a line waits for its rest."""

    rundir: RunDir
    _offsets: dict[Path, int] = field(default_factory=dict)

    def read(self) -> Table:
        """New records of all workers, in no particular order.

        Raises:
            OSError: a file that was read before is gone: what its worker writes is lost.
        """
        lines: list[bytes] = []
        for path in sorted({*self.rundir.path.glob("records-*.jsonl"), *self._offsets}):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                data = file.read()
            whole = data.rfind(b"\n") + 1
            self._offsets[path] = self._offsets.get(path, 0) + whole
            lines += data[:whole].split(b"\n")
        return decode_table(lines)[0]


def _held(path: Path) -> int | None:
    """A descriptor of ``path`` with a lock that says that a process writes there; None where there are no locks."""
    try:
        held = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return None
    return held


def in_use(path: Path) -> bool:
    """Some process still writes the run in ``path``, or nobody can tell."""
    try:
        looked = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return True
    try:
        fcntl.flock(looked, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(looked)
    return False


def replace_whole(folder: Path, name: str, text: str) -> Path:
    """Write ``name`` in ``folder`` under another name and rename it; half a file that did not fit is taken away."""
    path, partial = folder / name, folder / f".{name}.partial"
    try:
        with naming(path):
            partial.write_bytes(text.encode())
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    partial.replace(path)
    return path


def put(path: Path, content: bytes) -> None:
    """Write a file of somebody's own choice. Raises OSError; names the file."""
    with naming(path):
        path.write_bytes(content)


def read(path: Path, load: Load) -> tuple[Run, int]:
    """A run from its directory, without anything derived, and how many torn lines were skipped.

    Args:
        path: the directory.
        load: makes a Scenario of its text; who knows every kind lives above this room (``runner.scenarios.load``).

    Raises:
        RunDirError: it is no run directory.
        ScenarioError: its scenario is none any more.
        OSError: a file cannot be read.
    """
    info = read_run_json(path)
    text = scenario_text(path)
    scenario = load(text, str(path / "scenario.toml"), info.overrides or ())
    with naming(Path(tempfile.gettempdir())):
        table, skipped = read_records(sorted(path.glob("records-*.jsonl")))
    samples, torn_samples = decode_each(_open_lines(path / "server.jsonl"), Sample)
    client, torn_client = decode_each(_open_lines(path / "client.jsonl"), ClientSample)
    run = Run(
        info=info,
        scenario=scenario,
        steps=list(info.steps),
        table=table,
        samples=samples,
        client=client,
        estimates=info.estimates or {},
        checks=info.checks or [],
        path=str(path),
    )
    return run, skipped + torn_samples + torn_client


def read_run_json(path: Path) -> RunInfo:
    """What run.json in ``path`` says.

    Raises:
        RunDirError: there is none, or none of this schema.
    """
    if not (path / "run.json").is_file():
        raise RunDirError(f"{path}: no run.json here; expected a run directory such as reports/20260101-120000-chat")
    try:
        document = json.loads((path / "run.json").read_bytes())
        schema = document.pop("schema", None)
        info = read_info(document)
    except (ValueError, AttributeError, TypeError, msgspec.ValidationError) as error:
        raise RunDirError(f"{path / 'run.json'}: not a run: {error}") from None
    if schema != SCHEMA:
        raise RunDirError(f"{path / 'run.json'}: schema {schema!r}; this version reads {SCHEMA}")
    return info


def scenario_text(path: Path) -> str:
    """The scenario of the run in ``path``, as it was written.

    Raises:
        RunDirError: it is not there, or no text.
    """
    try:
        return (path / "scenario.toml").read_bytes().decode()
    except (FileNotFoundError, UnicodeDecodeError) as error:
        raise RunDirError(f"{path}: not a whole run: scenario.toml: {error}") from None


def _open_lines(path: Path) -> Iterator[bytes]:
    if path.is_file():
        with path.open("rb") as file:
            yield from (line for line in file if line.strip())


def safe_name(name: str) -> str:
    """``name`` as part of a file name: letters, digits, dot, dash; at most 60 characters; never empty or hidden."""
    kept = re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip(".-")[:60]
    return kept or "run"


def host() -> HostInfo:
    """What machine this is, as far as it can bend a measurement."""
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else ""
    uname = os.uname()
    cores = len(os.sched_getaffinity(0))
    return HostInfo(f"{uname.sysname} {uname.release}", uname.machine, model, cores, round(os.getloadavg()[0], 2))
