"""``loadramp.compare``: stored runs side by side, for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import escape

from loadramp.analysis.thresholds import Status
from loadramp.comparison.compare_runs import comparison_of, read_side
from loadramp.comparison.document import comparison_document
from loadramp.comparison.page import comparison_html
from loadramp.comparison.pairs import Comparison

if TYPE_CHECKING:
    import pandas as pd

Paths = str | Path | Sequence[str | Path]


@dataclass(slots=True, frozen=True)
class ComparisonResult:
    """Two configurations, judged: is the second one worse than the first?"""

    comparison: Comparison

    @property
    def verdict(self) -> Status:
        """``pass``: shown to be no worse than allowed; ``fail``: shown to be worse; else ``inconclusive``."""
        return self.comparison.decision.verdict

    @property
    def reasons(self) -> Sequence[str]:
        """Why the verdict is what it is, in words."""
        return self.comparison.decision.reasons

    @property
    def effects(self) -> pd.DataFrame:
        """One row a measure and rate: ``ratio`` (candidate / baseline) with its 95 % interval, and its status."""
        import pandas as pd

        return pd.DataFrame(self.to_dict()["checks"])

    def to_dict(self) -> dict[str, Any]:
        """The document of ``loadramp compare --json``."""
        return comparison_document(self.comparison)

    def to_html(self) -> str:
        """The report as one offline page."""
        return comparison_html(self.comparison)

    def _repr_html_(self) -> str:
        reasons = "".join(f"<li>{escape(reason)}</li>" for reason in self.reasons)
        return f"<p><b>{escape(self.verdict)}</b></p><ul>{reasons}</ul>{self.effects.to_html(index=False, border=0)}"


def compare(
    baseline: Paths, candidate: Paths, *, overrides: Sequence[str] = (), anyway: bool = False
) -> ComparisonResult:
    """Compare stored runs; nothing is written.

    Args:
        baseline: a run directory, or several that repeat one configuration.
        candidate: likewise.
        overrides: ``canary.key=value`` each, of the ``[canary]`` table of the baseline's scenario.
        anyway: compare although conditions differ.

    Raises:
        ScenarioError: a directory is no run, or an override cannot be.
        OSError: a file cannot be read.
    """
    base, canary = read_side(_paths(baseline), overrides)
    return ComparisonResult(comparison_of(base, read_side(_paths(candidate), overrides)[0], canary, anyway))


def _paths(given: Paths) -> list[Path]:
    return [Path(path) for path in ([given] if isinstance(given, str | Path) else given)]
