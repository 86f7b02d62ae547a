"""run.json: what a run says of itself, by one definition for who writes it, who reads it and the tests. Pure.

What is not known is None, and is not written. Keys of other versions are kept.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from loadramp.record.codec import plain_data
from loadramp.record.types import Calibration, Check, Estimate, Step, StopCause, Verdict
from loadramp.scenario.scenario import Slo
from loadramp.units import percent, plural

Fact = str | int | None
"""What a server says of itself: it may say anything."""


@dataclass(slots=True, frozen=True)
class TargetInfo:
    """The endpoint: where it is, how it is spoken to, and what it says of itself. Without secrets."""

    base_url: str | None = None
    model: str | None = None
    api: str | None = None
    via: str | None = None
    insecure: bool | None = None
    ca_file: str | None = None
    server: Fact = None
    version: Fact = None
    max_model_len: Fact = None
    engine: Fact = None
    """Who owns the model, by the list of models."""


@dataclass(slots=True)
class MetricsInfo:
    """What was found on the server's metrics pages."""

    dialect: str | None = None
    left_out: list[str] | None = None
    """Models whose numbers do not count, since nobody asked for them."""
    unasked: list[str] | None = None
    """Models whose numbers count although nobody asked for them: the pages have no other."""
    problem: str | None = None
    """Why the process that reads the pages ended before the run did."""


@dataclass(slots=True, frozen=True)
class HostInfo:
    """The machine that sends, as far as it can bend a measurement."""

    system: str = ""
    machine: str = ""
    cpu: str = ""
    cores: int | None = None
    load_1m: float | None = None


@dataclass(slots=True, frozen=True)
class SelfcheckInfo:
    """The last result of ``loadramp selfcheck``, in short; None: not known, or no limit was met."""

    measured_at: str | None = None
    cpu_per_token_s: float | None = None
    reader: str | None = None
    """How sockets are read: ``c`` or ``python``."""
    most_tokens_per_s: float | None = None
    most_streams: int | None = None
    limit: str | None = None
    lag_p99_s_at_10_rps: float | None = None
    lag_p99_s_at_100_rps: float | None = None
    lag_p99_s_at_1000_rps: float | None = None


@dataclass(slots=True, frozen=True)
class InputFile:
    """A file that the prompts or arrivals come from: what was read of it, and what was not."""

    table: str = ""
    file: str = ""
    sha256: str = ""
    format: str = ""
    rows: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    blocks: int | None = None
    settings: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class ColdStart:
    """Time to first token of the first request for a model and of its second, before the run."""

    first_ttft_s: float | None = None
    second_ttft_s: float | None = None


@dataclass(slots=True, frozen=True)
class WorkerDeath:
    """A worker that ended while it was needed."""

    t_s: float
    reason: str


@dataclass(slots=True, frozen=True)
class OverLength:
    """How many of the first requests of a plan are longer than their model takes."""

    requests: int
    """Those whose model's ``max_model_len`` is known."""
    longer: int
    """Of these, those whose prompt and answer together are longer."""
    max_model_len: int
    """The smallest that is exceeded; if none is, the smallest."""
    estimated: bool = False
    """The tokens of one that is longer were guessed from its characters."""

    def words(self) -> str:
        """What it means, in a sentence; "" if nothing is too long."""
        if not self.longer:
            return ""
        about = "about " if self.estimated else ""
        return (
            f"{about}{percent(self.longer / self.requests)} of the requests ({self.longer:,} of the first "
            f"{plural(self.requests, 'request')}) are longer than max_model_len = "
            f"{plural(self.max_model_len, 'token')}, "
            "prompt and answer together: the server will refuse them or cut them short, whatever the load. Shorten "
            "them or leave them out, or serve the model with a larger max_model_len."
        )


@dataclass(slots=True, frozen=True)
class ImportedInfo:
    """Where the records of a run come from that another tool made."""

    format: str = ""
    files: list[str] = field(default_factory=list)
    requests: int = 0
    lacks: Mapping[str, str] = field(default_factory=dict)
    """What these files do not tell, to what that means."""


@dataclass(slots=True, frozen=True)
class ClockOffset:
    """How far another clock was ahead of one of ours when they were compared."""

    of: str = ""
    """Whose clock."""
    offset_s: float = 0.0
    error_s: float = 0.0
    """The true offset is within so many seconds of ``offset_s``."""
    moved_s: float | None = None
    """By how much more it was ahead at the end of the run; None: it was not compared again."""


@dataclass(slots=True)
class ShardInfo:
    """One of the processes on several machines that each send a share of one plan."""

    index: int
    """From 0."""
    of: int
    start_at: str = ""
    """When the plan begins (ISO 8601, UTC)."""
    clock: ClockOffset | None = None
    """Of the endpoint, against the wall clock of this host; None: the endpoint does not tell the time."""
    late_s: dict[int, float] = field(default_factory=dict)
    """Index of a step to how much later than planned it began, by this host's wall clock."""
    host: HostInfo | None = None
    run: str | None = None
    """The directory that was merged."""
    lost_s: float | None = None
    """Nothing is known of this shard from there on; None: it went on to the end."""

    @property
    def name(self) -> str:
        return f"shard {self.index}/{self.of}"


@dataclass(slots=True)
class RunInfo:
    """What run.json holds beside its schema."""

    name: str | None = None
    began_at: str | None = None
    loadramp: str | None = None
    argv: list[str] | None = None
    seed: int | None = None
    prompt_salt: int | None = None
    overrides: list[str] | None = None
    slo: Slo | None = None
    target: TargetInfo = field(default_factory=TargetInfo)
    labels: Mapping[str, str] | None = None
    over_length: OverLength | None = None
    fields: list[str] | None = None
    """The optional request fields that the server takes."""
    preflight_warnings: list[str] | None = None
    calibration: Calibration | None = None
    files: list[InputFile] | None = None
    models: Mapping[str, ColdStart] | None = None
    workers: int | None = None
    arrivals: str | None = None
    """The kind of ``[arrivals]``."""
    host: HostInfo | None = None
    selfcheck: SelfcheckInfo | UnsetType | None = UNSET
    """The last result of ``loadramp selfcheck`` on the machine that sends; None: it was never run there."""
    versions: Mapping[str, str] | None = None
    metrics: MetricsInfo | None = None
    quick: bool | None = None
    """Made by ``run --quick``."""
    imported: ImportedInfo | None = None
    state: str | None = None
    """``running``, ``complete`` or ``stopped``."""
    ended_at: str | None = None
    ending: str | None = None
    """Why the ramp ended."""
    stop_cause: StopCause | None = None
    repeats: int | None = None
    steps: list[Step] = field(default_factory=list)
    dead_workers: list[WorkerDeath] = field(default_factory=list)
    lengthened: dict[int, float] = field(default_factory=dict)
    """Index of a step that went on to the seconds that it was to be measured for."""
    clocks: list[ClockOffset] | None = None
    """The monotonic clocks of the other hosts that sent, against that of the one that conducts."""
    shard: ShardInfo | None = None
    """This directory holds one share of a run and is still to be merged with the others."""
    shards: list[ShardInfo] | None = None
    """The shares that were merged."""
    killed: bool | None = None
    """Nobody wrote down how it ended, and nobody writes any more."""
    verdict: Verdict | None = None
    skipped_lines: int | None = None
    estimates: dict[str, Estimate] | None = None
    checks: list[Check] | None = None
    more: dict[str, Any] = field(default_factory=dict)
    """Keys that this version does not know."""

    def document(self) -> dict[str, Any]:
        """The keys of run.json, in order."""
        values = {column.name: getattr(self, column.name) for column in fields(self) if column.name != "more"}
        values |= {"target": _known(self.target) or None, "lengthened": self.lengthened or None}
        values["metrics"] = None if self.metrics is None else _known(self.metrics)
        nullable = {"selfcheck", *(("ended_at", "ending") if self.state is not None else ())}
        known = {key: value for key, value in values.items() if value is not UNSET}
        known = {key: value for key, value in known.items() if value is not None or key in nullable}
        document: dict[str, Any] = plain_data(known | self.more)
        return document

    @property
    def dialect(self) -> str | None:
        """The engine whose metrics were read; None: not known."""
        return self.metrics.dialect if self.metrics else None


def read_info(document: Mapping[str, Any]) -> RunInfo:
    """What ``document``, the contents of run.json, says.

    Raises:
        msgspec.ValidationError: a key that this version knows is not of its type.
    """
    names = {column.name for column in fields(RunInfo)} - {"more"}
    info = msgspec.convert({key: document[key] for key in document if key in names}, RunInfo, str_keys=True)
    info.more = {key: value for key, value in document.items() if key not in names}
    return info


def _known(value: TargetInfo | MetricsInfo) -> dict[str, Any]:
    return {key: item for key, item in asdict(value).items() if item is not None}
