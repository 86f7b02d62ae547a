"""``[nightly]``: how a night is measured and judged. Pure data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from loadramp.nightly.series import JUDGED
from loadramp.registry import bind_options
from loadramp.scenario.scenario import Count, Positive, Scenario

Share = Annotated[float, Meta(gt=0, lt=1)]


@dataclass(slots=True, frozen=True)
class Nightly:
    """``[nightly]``: how ``loadramp nightly`` measures a night and what it judges (docs/nightly.md)."""

    repeats: Count = 3
    """Runs a night; their median is the night."""
    reference_rps: Positive | None = None
    """The fixed rate at which latencies are compared; None: ``reference_ratio`` of the first ceiling found."""
    reference_ratio: Share = 0.5
    reference_s: Positive | None = None
    """Measured part of the step at that rate; None: as long as other steps."""
    metrics: Sequence[str] = JUDGED
    """Those that may raise an alarm; all are recorded and shown."""
    floors: Sequence[str] = ()
    """Absolute limits, as ``ceiling_rps >= 12``, judged from the first night on."""
    change_ratio: Share = 0.05
    """Smaller changes are no alarm."""
    rerun: bool = False
    """Measure again at once when a night looks bad, instead of waiting for the next."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Metadata to record with the night, such as ``gpu`` or ``driver``: part of its conditions."""


def bind_nightly(table: Mapping[str, Any], where: str) -> Nightly:
    """A ``[nightly]`` table."""
    return Nightly(**bind_options(table, Nightly, where))


def nightly_of(scenario: Scenario) -> Nightly:
    """The table of a scenario."""
    table: Nightly = scenario.features["nightly"]
    return table
