"""Were the server's own numbers there for the whole run, and are they of the models that were asked for? Pure."""

from collections import Counter
from collections.abc import Callable

from loadramp.record.run_info import MetricsInfo
from loadramp.record.table import Run
from loadramp.record.types import Check
from loadramp.units import left_out_words, unasked_words

METRICS_GAP_S, METRICS_GAPS = 15.0, 5.0
"""A metrics page has ended that was not read for so long, and so many periods of the scraper, at the end of the last
step. Shorter gaps are those of a busy server."""
NO_FILE = "server.jsonl is missing or empty"
ALONE = "the ceiling, the knee and every cause rest on what the client saw alone"


def lost(run: Run) -> str:
    """Why nothing is left of metrics that were to be read; empty where something is, or none were to be read."""
    if run.info.metrics is None or run.samples or not run.rows:
        return ""
    return run.info.metrics.problem or NO_FILE


def missing(run: Run) -> list[Check]:
    """No numbers of the server: they are lost, no page could be read, or nobody read one."""
    if not run.rows or any(sample.values for sample in run.samples):
        return []
    if why := lost(run):
        message = f"the server's own numbers are lost: {why}"
        again = "take a whole copy of the run directory" if why == NO_FILE else "run it again"
        return [Check("metrics_lost", "warn", message, f"{ALONE}; {again}")]
    if run.samples:
        kinds = Counter((sample.url, sample.error or "no known numbers") for sample in run.samples)
        (url, error), _ = kinds.most_common(1)[0]
        message = f"the server's metrics could not be read at any time ({url or 'its page'}: {error})"
        return [Check("no_server_metrics", "warn", message, f"correct [metrics] url; {ALONE}")]
    advice = "[metrics] url = ... adds its queue, KV use and preemptions"
    return [Check("no_server_metrics", "note", "the server's metrics were not seen", advice)]


def ended(run: Run) -> list[Check]:
    """Pages that were read at first, but not at the end of the last step; and where nobody read them any more, why."""
    end_s = max((row.window_end_s for row in run.rows), default=0.0)
    last_s: dict[str, float] = {}
    for sample in run.samples:
        if sample.values:
            last_s[sample.url] = max(sample.t_s, last_s.get(sample.url, 0.0))
    problem = run.info.metrics.problem if run.info.metrics else None
    if problem and last_s:
        read_s = max(last_s.values())
        message = f"the server's metrics were last read at {read_s:.0f} s of {end_s:.0f} s: {problem}"
        return [Check("metrics_ended", "warn", message, "steps from then on are judged without them; run it again")]
    gap_s = max(METRICS_GAP_S, METRICS_GAPS * run.scenario.metrics.period_s)
    advice = "steps from then on are judged without what it shows: it is gone, or answers too slowly under load"
    return [
        Check("metrics_ended", "warn", f"the metrics page {url or 'of the server'} was last read at {read_s:.0f} s, "
              f"{end_s - read_s:.0f} s before the last step ended", advice)
        for url, read_s in sorted(last_s.items())
        if end_s - read_s > gap_s
    ]  # fmt: skip


def whose_metrics(run: Run) -> list[Check]:
    """Metrics pages that show models which nobody asked for, whether or not their numbers could be kept out."""
    metrics = run.info.metrics or MetricsInfo()
    left_out, unasked = metrics.left_out or [], metrics.unasked or []
    out = []
    if left_out:
        out.append(
            Check(
                "other_models",
                "note",
                left_out_words(left_out),
                "the metrics page shows several models; only those that requests ask for count",
            )
        )
    if unasked:
        message = f"the server's metrics: {unasked_words(unasked)}"
        advice = "if it is an alias, all is well" if len(unasked) == 1 else "queue and KV cache may be another model's"
        advice += "; else ask for the model by the name that the page has, or scrape its own server ([metrics] url)"
        out.append(Check("unasked_models", "note" if len(unasked) == 1 else "warn", message, advice))
    return out


SERVER_METRICS_CHECKS: dict[str, Callable[[Run], list[Check]]] = {
    "metrics_missing": missing,
    "metrics_ended": ended,
    "whose_metrics": whose_metrics,
}
