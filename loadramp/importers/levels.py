"""A level of load as every format is read into it."""

from dataclasses import dataclass

from loadramp.record.types import Record


@dataclass(slots=True, frozen=True)
class RecordedLevel:
    """The requests of one level of load. Exactly what was asked is in ``rate_rps`` or ``users``; neither: not known."""

    records: list[Record]
    rate_rps: float | None = None
    users: int | None = None
    arrivals: str = 'kind = "replay"'
    """The ``[arrivals]`` table, in TOML."""
    model: str = ""
