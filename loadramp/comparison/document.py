"""What a controller reads of a comparison: verdict.json (``loadramp.verdict/1``) and the effects as CSV. Pure."""

from pathlib import PurePath
from typing import Any

from loadramp.analysis.proportions import Proportion, difference, fisher, needed
from loadramp.comparison.noninferior import Effect
from loadramp.comparison.pairs import Comparison
from loadramp.comparison.sample_size import Missing
from loadramp.comparison.text import comparison_sentence, minutes
from loadramp.record.codec import plain_data
from loadramp.report.document import csv_text
from loadramp.report.redact import redact

SCHEMA = "loadramp.verdict/1"
COLUMNS = (
    "metric", "rate_rps", "primary", "status", "baseline", "candidate", "ratio", "ratio_low", "ratio_high",
    "allowed_ratio", "blocks", "block_sd", "p_worse", "more_blocks", "reason",
)  # fmt: skip


def comparison_document(found: Comparison) -> dict[str, Any]:
    """The document of ``canary --json``, ``compare --json`` and verdict.json: strict JSON data."""
    used = [one for one in found.pairs if one.usable]
    info = found.info.document()
    document = {
        "schema": SCHEMA,
        "kind": found.info.kind,
        "verdict": found.decision.verdict,
        "indicative": found.indicative,
        "sentence": comparison_sentence(found),
        "reasons": [redact(reason) for reason in found.decision.reasons],
        "more_blocks": found.decision.more_blocks,
        "more_blocks_range": _range(found.decision.more),
        "run_id": PurePath(found.path).name,
        "comparison_dir": found.path,
        "state": found.info.state,
        "started_at": found.info.began_at,
        "minutes": minutes(found),
        "design": found.info.design,
        "blocks": {"used": len(used), "not_used": len(found.pairs) - len(used), "looks": info.get("looks", [])},
        "baseline": info.get("baseline"),
        "candidate": info.get("candidate"),
        "checks": [check(one) for one in found.effects],
        "errors": {
            **errors(*found.failures),
            "limit_ratio": found.asked.error_ratio,
            "needed_requests": needed(found.failures[1].failed, found.asked.error_ratio),
            "rates": [{"rate_rps": rate, **errors(*shares)} for rate, shares in found.failures_at.items()],
        },
        "answers": _answers(found),
        "rollback": found.info.rollback,
        "environment": [
            {"key": one.key, "kind": one.kind, "baseline": one.base, "candidate": one.candidate}
            for one in found.environment
        ],
        "notes": found.notes,
    }
    checked: dict[str, Any] = plain_data(document)
    return checked


def errors(base: Proportion, candidate: Proportion) -> dict[str, Any]:
    """Failures of both arms, and how far apart they are."""
    apart = difference(base, candidate)
    return {
        "baseline": {"failed": base.failed, "requests": base.requests},
        "candidate": {"failed": candidate.failed, "requests": candidate.requests, "upper_ratio": candidate.upper()},
        "difference_ratio": apart[0] if apart else None,
        "difference_ci": list(apart[1:]) if apart else None,
        "fisher_p": fisher(base, candidate),
    }


def check(one: Effect) -> dict[str, Any]:
    """One measure at one rate: what it was, what was allowed, how sure it is."""
    upward = one.worse > 0
    return {
        "id": one.metric if one.rate_rps is None else f"{one.metric}@{one.rate_rps:g}",
        "metric": one.metric,
        "rate_rps": one.rate_rps,
        "primary": one.primary,
        "status": one.status,
        "op": "<" if upward else ">",
        "limit": one.allowed_ratio,
        "value": one.ratio(),
        "ci": [one.ratio("low"), one.ratio("high")],
        "n": one.n,
        "block_sd": one.sd,
        "p_worse": one.p,
        "baseline": one.base,
        "candidate": one.candidate,
        "more_blocks": one.more.blocks if one.more else None,
        "more_blocks_range": _range(one.more),
        "reason": one.reason,
    }


def _range(more: Missing | None) -> list[int] | None:
    return [more.low, more.high] if more else None


def comparison_csv(found: Comparison) -> str:
    """One line an effect. Empty is unknown; ``reason`` says why."""
    lines = []
    for one in found.effects:
        plain = plain_data(check(one))
        named = plain | {"ratio": plain["value"], "ratio_low": plain["ci"][0], "ratio_high": plain["ci"][1],
                        "allowed_ratio": plain["limit"], "blocks": plain["n"]}  # fmt: skip
        lines.append([named[column] for column in COLUMNS])
    return csv_text(COLUMNS, lines)


def _answers(found: Comparison) -> dict[str, Any] | None:
    seen = found.info.answers
    if seen is None:
        return None
    sure = Proportion(seen.equal, seen.prompts)
    return {
        "prompts": seen.prompts,
        "match_ratio": seen.match_ratio,
        "match_ci": [sure.lower(0.025), sure.upper(0.025)],
        "baseline_repeats_itself_ratio": seen.itself_ratio,
        "diverged_at_token": sorted(seen.diverged_at),
        "broken_baseline": seen.broken_base,
        "broken_candidate": seen.broken_candidate,
        "min_match_ratio": found.asked.min_match_ratio,
    }
