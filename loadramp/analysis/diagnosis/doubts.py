"""What makes a finding less sure: pages that nothing ties to the load, several models on one, an engine that changes by
itself."""

from collections.abc import Sequence
from dataclasses import replace

from loadramp.analysis.diagnosis.symptoms import Case
from loadramp.analysis.diagnosis.unstable_engine import by_itself
from loadramp.analysis.page_ties import Untied
from loadramp.record.table import Run
from loadramp.record.types import Confidence, Finding
from loadramp.units import plural

FROM_METRICS = frozenset(
    {"kv_eviction", "kv_full", "scheduler_oversubscription", "speculation_weak"}
    | {"prefix_cache_accidental", "prefix_cache_idle"}
)
"""What the server's metrics show, or are most of the evidence for."""
OF_PAGES = FROM_METRICS | {"server_down", "autoscaler_moved"}
"""What they may show."""
SURE: tuple[Confidence, ...] = ("possible", "likely", "certain")


def as_tied(alone: Sequence[Finding], both: Sequence[Finding], doubt: Untied) -> list[Finding]:
    """Where nothing ties the pages to the load, what they show is at most as sure as the client's own times make it.

    Args:
        alone: found by the client's own times.
        both: found by these and the pages.
        doubt: where the pages differ from what was sent, only what they show besides is taken from ``both``.
    """
    sure = {finding.code: finding.confidence for finding in alone}
    words = f"nothing ties the metrics page to the load that was sent: {doubt.why}"
    weaker = [
        _at_most(finding, sure.get(finding.code, "possible"), words) if finding.code in OF_PAGES else finding
        for finding in both
    ]
    if not doubt.against:
        return weaker
    return [*alone, *(finding for finding in weaker if finding.code in OF_PAGES and finding.code not in sure)]


def unasked_models(run: Run, finding: Finding) -> Finding:
    """A finding from the server's metrics is merely possible where these add up models that nobody asked for."""
    unasked = run.info.metrics.unasked if run.info.metrics else None
    if not unasked or len(unasked) < 2 or finding.code not in FROM_METRICS:
        return finding
    words = (
        f"the metrics are of {plural(len(unasked), 'model')}, none of them by the name that is asked: any of them "
        f"may be meant"
    )
    return replace(finding, confidence="possible", evidence=(*finding.evidence, words))


def steps_by_themselves(case: Case, finding: Finding) -> Finding:
    """That steps take longer under load is merely possible where their time changes as much by itself."""
    if finding.code != "compute_bound" or case.quiet is None:
        return finding
    step = next(step for step in case.steps if step.index == finding.steps[-1])
    quiet_s, over_s = case.quiet.row.of("itl").p50.value, step.row.of("itl").p50.value
    if not quiet_s or not over_s or over_s / quiet_s > 1.1 * by_itself(case):
        return finding
    return _at_most(finding, "possible", "the engine's step time changes as much by itself in this run")


def _at_most(finding: Finding, confidence: Confidence, why: str) -> Finding:
    if SURE.index(finding.confidence) < SURE.index(confidence):
        return finding
    if finding.confidence == confidence != "possible":
        return finding
    return replace(finding, confidence=confidence, evidence=(*finding.evidence, why))
