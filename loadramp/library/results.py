"""A judged run as notebooks see it: frames, the three numbers, what was found, charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from loadramp.library import frames
from loadramp.library.figures import figure
from loadramp.record.types import Check, Estimate, Finding, GateResult
from loadramp.report import build_html, verdict_document, verdict_sentence
from loadramp.report.document import EXTRA_KEYS
from loadramp.report.verdict_text import verdict
from loadramp.units import sig, span_of

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from loadramp.runner.finish import Finished
    from loadramp.scenario.scenario import Scenario

_SHOWN = ("rate_rps", "requests", "error_ratio", "throughput_rps", "ttft_p50_s", "ttft_p99_s", "itl_p50_s", "itl_p99_s",
          "saturated", "void")  # fmt: skip


class RunResult:
    """A run that was judged. Made by ``loadramp.read``, ``run``, ``run_async`` and ``judge``; never changed.

    Frames are built when they are first asked for and then kept; docs/library.md lists their columns.
    """

    def __init__(self, finished: Finished) -> None:
        self._run = finished.run
        self.exit_code = finished.exit_code
        """0 pass or no threshold asked, 1 could not measure, 3 inconclusive or void, 99 a threshold failed."""

    @property
    def path(self) -> Path | None:
        """The run directory; None where the run is in memory only."""
        return Path(self._run.path) if self._run.path else None

    @property
    def scenario(self) -> Scenario:
        """What was asked for."""
        return self._run.scenario

    @property
    def info(self) -> Mapping[str, Any]:
        """What run.json says of target, host, versions and how the run ended."""
        return MappingProxyType(self._run.info.document())

    @property
    def verdict(self) -> str:
        """``pass``, ``fail``, ``inconclusive`` or ``void``."""
        return verdict(self._run)

    @property
    def sentence(self) -> str:
        """The headline of the report."""
        return verdict_sentence(self._run)

    @property
    def ceiling(self) -> Estimate:
        """The rate the endpoint can sustain, with its interval, or the reason why there is none."""
        return self._run.estimates["ceiling"]

    @property
    def p99_itl_knee(self) -> Estimate:
        """The rate from which p99 inter-token latency grows faster than the load."""
        return self._run.estimates["p99_itl_knee"]

    @property
    def slo_capacity(self) -> Estimate:
        """The highest rate that meets the scenario's ``[slo]``."""
        return self._run.estimates["slo_capacity"]

    @property
    def findings(self) -> Sequence[Finding]:
        """Why the endpoint gives way, the first cause first, each with its evidence and cures."""
        return tuple(self._run.findings)

    @property
    def checks(self) -> Sequence[Check]:
        """What was found about the measurement itself."""
        return tuple(self._run.checks)

    @property
    def gates(self) -> Sequence[GateResult]:
        """The thresholds of ``[gates]``, judged."""
        return tuple(self._run.gates)

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row a request, failed ones included."""
        return frames.requests_frame(self._run.table)

    @cached_property
    def tokens(self) -> pd.DataFrame:
        """One row an output event of every request: when it arrived, the gap before it, its tokens."""
        return frames.tokens_frame(self._run.table)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row a measured step: the curve."""
        return frames.steps_frame(self._run.rows)

    @cached_property
    def server(self) -> pd.DataFrame:
        """One row a scrape of the server's metrics."""
        return frames.server_frame(self._run.samples)

    @cached_property
    def client(self) -> pd.DataFrame:
        """One row a second and worker: lag and CPU share of the load generator."""
        return frames.client_frame(self._run.client)

    def figure(self, name: str) -> go.Figure:
        """A chart of the report: ``ttft``, ``itl``, ``tpot``, ``e2e``, ``throughput``, ``goodput`` or ``timeline``.

        Raises:
            ScenarioError: no such figure, or the run has nothing to show in it.
        """
        return figure(self._run, name)

    def to_dict(self) -> dict[str, Any]:
        """The document of ``loadramp run --json``."""
        return verdict_document(self._run)

    def to_html(self) -> str:
        """The whole report as one offline page."""
        return build_html(self._run)

    def __repr__(self) -> str:
        return f"<loadramp run {self.path or 'in memory'}: {self.verdict}. {self.sentence}>"

    def _repr_html_(self) -> str:
        """The sentence, the three numbers and the steps, as a notebook shows them."""
        import pandas as pd
        from markupsafe import escape

        numbers = pd.DataFrame([_number_line(name, self._run.estimates[name]) for name in EXTRA_KEYS])
        shown = self.steps[[name for name in _SHOWN if name in self.steps.columns]]
        tables = [frame.to_html(index=False, na_rep="–", float_format=sig, border=0) for frame in (numbers, shown)]
        return f"<p><b>{escape(self.verdict)}</b>: {escape(self.sentence)}</p>{''.join(tables)}"


def _number_line(name: str, estimate: Estimate) -> dict[str, Any]:
    return {
        "number": name,
        "status": estimate.status,
        "req/s": estimate.rate_rps,
        "95 % interval": span_of(estimate.low_rps, estimate.high_rps) or "–",
        "reason": estimate.reason,
    }
