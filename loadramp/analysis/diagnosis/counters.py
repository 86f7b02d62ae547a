"""Rules about what only the server's counters tell: accepted drafts and hits of the prefix cache. Pure."""

from loadramp.analysis.checks.answer_checks import template_ratio
from loadramp.analysis.diagnosis.symptoms import Case, indices
from loadramp.record.prompt_facts import always_new, prefix_reuse_unknown
from loadramp.record.types import Finding
from loadramp.units import percent

PREFIX_RATIO = 0.35
ACCIDENTAL_RATIO = 0.01
ACCEPT_RATIO = 0.60


def speculation_weak(case: Case) -> Finding | None:
    """Less than 60 % of the proposed tokens are accepted: the draft costs more than it brings."""
    steps = case.where(
        lambda step: step.row.spec_accept_ratio is not None and step.row.spec_accept_ratio < ACCEPT_RATIO
    )
    if not steps:
        return None
    worst = min(steps, key=lambda step: step.row.spec_accept_ratio or 0.0)
    accepted = percent(worst.row.spec_accept_ratio)
    words = f"{accepted} of the proposed tokens were accepted {worst.at}, as the server counts"
    return Finding("speculation_weak", "certain", (words,), indices(steps))


def prefix_cache(case: Case) -> Finding | None:
    """Prefixes that hardly repeat, or prompts meant to be new that were in the cache already."""
    steps = case.where(lambda step: step.row.prefix_hit_ratio is not None)
    if not steps:
        return None
    best = max(steps, key=lambda step: step.row.prefix_hit_ratio or 0.0)
    most = best.row.prefix_hit_ratio or 0.0
    if always_new(case.run):
        if most - template_ratio(case.run) < ACCIDENTAL_RATIO:
            return None
        hits = f"{percent(most)} of the prompt tokens {best.at} were found in the prefix cache"
        words = f"{hits}, though every prompt is new"
        return Finding("prefix_cache_accidental", "certain", (words,), indices(steps))
    if most >= PREFIX_RATIO or prefix_reuse_unknown(case.run):
        return None
    words = f"at most {percent(most)} of the prompt tokens were found in the prefix cache ({best.at})"
    return Finding("prefix_cache_idle", "certain", (words,), indices(steps))
