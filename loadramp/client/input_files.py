"""Opens the files that a scenario reads, once in each process, and hands their bytes to the readers of ``plan``."""

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from loadramp.record.run_info import InputFile
from loadramp.record.sanitize import clean_all
from loadramp.registry import Choice, ScenarioError, options_of
from loadramp.scenario.scenario import Scenario
from loadramp.workload.prompts import READERS
from loadramp.workload.prompts.row_fields import ignored_settings
from loadramp.workload.prompts.source import tables_of
from loadramp.workload.schedule import instants_of, reads_a_file, turns_of

CHUNK_BYTES = 1 << 20
GZIP = b"\x1f\x8b"
REFUSED = {
    b"PAR1": "Parquet is not read here; write it out as JSON lines first",
    b"\x28\xb5\x2f\xfd": "compressed by zstd; unpack it first, or use gzip",
    b"\xfd7zX": "compressed by xz; unpack it first, or use gzip",
    b"BZh": "compressed by bzip2; unpack it first, or use gzip",
    b"PK\x03\x04": "a ZIP archive (or a spreadsheet); unpack it first, or save it as CSV",
}
"""First bytes of files that are not read, and what to do."""
SCALED = ("start_rps", "max_rps", "rates")
"""The options of ramps that are rates."""


@dataclass(slots=True)
class Opened:
    """A file as it is read: its bytes in pieces, unpacked where they are gzip whatever the name says, and hash."""

    path: Path
    _hash: Any = field(default_factory=lambda: hashlib.sha256(usedforsecurity=False))

    def chunks(self) -> Iterator[bytes]:
        """All of the file.

        Raises:
            ScenarioError: it cannot be opened or unpacked, or is of a kind that nothing here reads.
        """
        try:
            with self.path.open("rb") as raw:
                magic = raw.read(4)
                raw.seek(0)
                why = next((words for first, words in REFUSED.items() if magic.startswith(first)), "")
                if why:
                    raise ScenarioError(f"{self.path}: {why}")
                file = gzip.GzipFile(fileobj=raw) if magic[:2] == GZIP else raw
                while chunk := file.read(CHUNK_BYTES):
                    self._hash.update(chunk)
                    yield chunk
        except (OSError, EOFError, zlib.error) as error:
            words = getattr(error, "strerror", None) or str(error)
            raise ScenarioError(f"{self.path}: cannot be read: {words}") from None

    @property
    def sha256(self) -> str:
        """Of the unpacked bytes that were read."""
        digest: str = self._hash.hexdigest()
        return digest


def with_files(scenario: Scenario) -> Scenario:
    """The scenario with every file that it names read. Costs nothing where there is none, or where it was done before.

    Raises:
        ScenarioError: a file is missing or holds nothing to use; names it.
    """
    wanted = [
        (where, choice)
        for where, choice in [*tables_of(scenario.prompts), ("arrivals", scenario.arrivals)]
        if choice.options.get("file")
    ]
    if not wanted or all(where in scenario.corpora for where, _ in wanted):
        return scenario
    for where, choice in wanted:
        if choice.kind not in READERS:
            raise ScenarioError(f"[{where}] kind: {choice.kind!r} has a key file, but nothing here reads it")
    corpora: dict[str, Any] = {}
    read: dict[tuple[str, str], Any] = {}  # two tables that read one file alike share its rows
    for where, choice in wanted:
        options = {k: v for k, v in choice.options.items() if k in options_of(READERS[choice.kind])}
        key = (str(choice.options["file"]), repr((READERS[choice.kind], sorted(options.items()))))
        if key not in read:
            read[key] = _read(scenario, choice, options)
        rows = read[key]
        if (
            hasattr(rows, "shuffled")
            and choice.options.get("order", "shuffled") == "shuffled"
            and not _replayed(scenario)
        ):
            rows = rows.shuffled(np.random.default_rng([scenario.seed, len(rows)]))
        corpora[where] = rows
    return replace(scenario, corpora=corpora)


def ready(scenario: Scenario) -> Scenario:
    """The scenario with its files read and its ramp in requests a second: what a run, a plan and a profile start from.

    Raises:
        ScenarioError: as ``with_files``; or a ramp by speed has no trace to take its speed from.
    """
    full = with_files(scenario)
    if reads_a_file(full.arrivals.function):
        instants_of(full)
    if full.pace.unit == "rps":
        return full
    if not reads_a_file(full.arrivals.function):
        raise ScenarioError(
            "[ramp] unit = 'speed' needs [arrivals] kind = 'replay': nothing else has a speed of its own"
        )
    native_rps = native_rate_rps(full)
    options = dict(full.ramp.options)
    for name in options_of(full.ramp.function):
        if name in SCALED:
            value = full.ramp.option(name)
            options[name] = [rate * native_rps for rate in value] if isinstance(value, list) else value * native_rps
    return replace(full, ramp=replace(full.ramp, options=options), pace=replace(full.pace, unit="rps"))


def native_rate_rps(scenario: Scenario) -> float:
    """The mean rate of the trace that is replayed, in requests a second."""
    return instants_of(scenario).rate_rps * turns_of(scenario)


def without_files(scenario: Scenario) -> Scenario:
    """The scenario as it is sent to another process, which reads the files itself."""
    return replace(scenario, corpora={})


def skipped_rows(scenario: Scenario) -> list[str]:
    """One line a file: rows, what was skipped and why."""
    return list(dict.fromkeys(rows.tally.words() for rows in scenario.corpora.values()))


def bad_rows(scenario: Scenario) -> list[str]:
    """The first rows of each file that cannot be used, one a line; of a file with one, ``skipped_rows`` names it."""
    tallies = {rows.tally.file: rows.tally for rows in scenario.corpora.values()}
    return [
        f"{tally.file}: {problem}" for tally in tallies.values() for problem in tally.problems if tally.problems[1:]
    ]


def not_followed(scenario: Scenario, model: str = "") -> list[str]:
    """What rows say and the run does not do, one line each; ``model``: the one that is asked, where it is known."""
    lines = [
        line for rows in scenario.corpora.values() for line in ignored_settings(rows.tally, scenario.target, model)
    ]
    return list(dict.fromkeys(lines))


def notes(scenario: Scenario) -> list[InputFile]:
    """The same as data, for run.json."""
    names = [column.name for column in fields(InputFile) if column.name != "table"]
    return [
        InputFile(where, **clean_all({name: getattr(rows.tally, name) for name in names}))
        for where, rows in scenario.corpora.items()
    ]


def find(scenario: Scenario, name: str) -> Path:
    """Where the file is: beside the scenario, else in the working directory."""
    beside = Path(scenario.folder) / name
    return beside if beside.exists() or not Path(name).exists() else Path(name)


def _read(scenario: Scenario, choice: Choice, options: dict[str, Any]) -> Any:
    name = str(choice.options["file"])
    opened = Opened(find(scenario, name))
    rows = READERS[choice.kind](opened.chunks(), name, **options)
    rows.tally.sha256 = opened.sha256
    return rows


def _replayed(scenario: Scenario) -> bool:
    """The arrivals follow the rows of ``[prompts]``: their order is the trace's."""
    return reads_a_file(scenario.arrivals.function) and not scenario.arrivals.options.get("file")
