"""What a controller reads of a comparison: verdict.json (``loadramp.verdict/1``) and the effects as CSV. Pure."""

from pathlib import PurePath
from typing import Any

from loadramp.analysis.proportions import Proportion, difference, fisher, needed
from loadramp.comparison.block_spread import Missing
from loadramp.comparison.noninferior import Effect
from loadramp.comparison.pairs import Comparison
from loadramp.comparison.text import comparison_sentence, minutes
from loadramp.record.codec import plain_data
from loadramp.report.document import csv_text
from loadramp.report.redact import redact

SCHEMA = "loadramp.verdict/1"
COLUMNS = (
    "metric", "rate_rps", "primary", "status", "baseline", "candidate", "ratio", "ratio_low", "ratio_high",
    "allowed_ratio", "blocks", "block_sd", "p_worse", "more_blocks", "reason",
)  # fmt: skip


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """The document of ``canary --json``, ``compare --json`` and verdict.json: strict JSON data."""
    used = [pair for pair in comparison.pairs if pair.usable]
    info = comparison.info.document()
    document = {
        "schema": SCHEMA,
        "kind": comparison.info.kind,
        "verdict": comparison.decision.verdict,
        "indicative": comparison.indicative,
        "sentence": comparison_sentence(comparison),
        "reasons": [redact(reason) for reason in comparison.decision.reasons],
        "more_blocks": comparison.decision.more_blocks,
        "more_blocks_range": _range(comparison.decision.more),
        "run_id": PurePath(comparison.path).name,
        "comparison_dir": comparison.path,
        "state": comparison.info.state,
        "started_at": comparison.info.began_at,
        "minutes": minutes(comparison),
        "design": comparison.info.design,
        "blocks": {"used": len(used), "not_used": len(comparison.pairs) - len(used), "looks": info.get("looks", [])},
        "baseline": info.get("baseline"),
        "candidate": info.get("candidate"),
        "checks": [check(effect) for effect in comparison.effects],
        "errors": {
            **errors(*comparison.failures),
            "limit_ratio": comparison.asked.error_ratio,
            "needed_requests": needed(comparison.failures[1].failed, comparison.asked.error_ratio),
            "rates": [{"rate_rps": rate, **errors(*shares)} for rate, shares in comparison.failures_at.items()],
        },
        "answers": _answers(comparison),
        "rollback": comparison.info.rollback,
        "environment": [
            {
                "key": difference.key,
                "kind": difference.kind,
                "baseline": difference.base,
                "candidate": difference.candidate,
            }
            for difference in comparison.environment
        ],
        "notes": comparison.notes,
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


def check(effect: Effect) -> dict[str, Any]:
    """One measure at one rate: what it was, what was allowed, how sure it is."""
    upward = effect.worse > 0
    return {
        "id": effect.metric if effect.rate_rps is None else f"{effect.metric}@{effect.rate_rps:g}",
        "metric": effect.metric,
        "rate_rps": effect.rate_rps,
        "primary": effect.primary,
        "status": effect.status,
        "op": "<" if upward else ">",
        "limit": effect.allowed_ratio,
        "value": effect.ratio(),
        "ci": [effect.ratio("low"), effect.ratio("high")],
        "n": effect.n,
        "block_sd": effect.sd,
        "p_worse": effect.p,
        "baseline": effect.base,
        "candidate": effect.candidate,
        "more_blocks": effect.more.blocks if effect.more else None,
        "more_blocks_range": _range(effect.more),
        "reason": effect.reason,
    }


def _range(more: Missing | None) -> list[int] | None:
    return [more.low, more.high] if more else None


def comparison_csv(comparison: Comparison) -> str:
    """One line an effect. Empty is unknown; ``reason`` says why."""
    lines = []
    for effect in comparison.effects:
        plain = plain_data(check(effect))
        named = plain | {"ratio": plain["value"], "ratio_low": plain["ci"][0], "ratio_high": plain["ci"][1],
                        "allowed_ratio": plain["limit"], "blocks": plain["n"]}  # fmt: skip
        lines.append([named[column] for column in COLUMNS])
    return csv_text(COLUMNS, lines)


def _answers(comparison: Comparison) -> dict[str, Any] | None:
    match = comparison.info.answers
    if match is None:
        return None
    sure = Proportion(match.equal, match.prompts)
    return {
        "prompts": match.prompts,
        "match_ratio": match.match_ratio,
        "match_ci": [sure.lower(0.025), sure.upper(0.025)],
        "baseline_repeats_itself_ratio": match.itself_ratio,
        "diverged_at_token": sorted(match.diverged_at),
        "broken_baseline": match.broken_base,
        "broken_candidate": match.broken_candidate,
        "min_match_ratio": comparison.asked.min_match_ratio,
    }
