"""The verdict that a rollout obeys: pass, fail or inconclusive, with its reasons in words. Pure.

pass: shown to be no worse than allowed. fail: shown to be worse, or broken. inconclusive: neither; it says what more it
would take. Nothing measured, errors on either side and NaN never pass; nor do they where both serve the same (A/A).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from loadramp.analysis.group_sequential import holm
from loadramp.analysis.proportions import Proportion, difference, fisher, needed
from loadramp.analysis.thresholds import Status
from loadramp.comparison.answer_match import AnswerMatch, findings
from loadramp.comparison.block_spread import LEAST_RATIO, Missing, Noise
from loadramp.comparison.noninferior import ALPHA, Effect, Looks
from loadramp.comparison.table import Canary
from loadramp.scenario.scenario import Count, NotNegative
from loadramp.units import multiple, percent, plural, times_of

STEADY = "step_time"


@dataclass(slots=True, frozen=True)
class DecisionRules(Canary):
    """What a comparison is judged by: the ``[canary]`` table, and what is known of these two arms."""

    looks: Sequence[Count] = ()
    """The looks that there are, the last one included; none where everything is judged at the end."""
    run_sd: NotNegative = 0.0
    """Above 0 where there is one run of each: then the verdict is indicative."""
    same_version: bool = False
    """A/A: both arms serve the same; either way of being different counts."""
    noise: Sequence[Noise] = ()
    """Of the last comparison of equal versions, in blocks of this length; only for how many blocks are missing."""


@dataclass(slots=True, frozen=True)
class Decision:
    """The verdict and why. ``more``: pairs of blocks that would probably settle it, None: unknown or settled."""

    verdict: Status
    reasons: tuple[str, ...]
    more: Missing | None = None

    @property
    def more_blocks(self) -> int | None:
        return self.more.blocks if self.more else None


def decide(
    asked: DecisionRules,
    effects: Sequence[Effect],
    shares: tuple[Proportion, Proportion],
    looks: Looks,
    *,
    final: bool = True,
    rollback: str = "",
    stopped: str = "",
    answers: AnswerMatch | None = None,
    block_requests: float = 0.0,
) -> Decision:
    """The verdict.

    Args:
        asked: margins and what must hold.
        effects: of all measures; only the primary ones decide.
        shares: failures of baseline and candidate.
        looks: which look this is.
        final: no more blocks will come.
        rollback: why it was ended at once; then it fails.
        stopped: why it could not be brought to its end; then it does not pass.
        answers: whether both gave the same ones.
        block_requests: requests of one arm in one block, to say how many blocks are missing.
    """
    primary = [effect for effect in effects if effect.primary]
    answers_fail, answers_doubt = findings(answers, asked.min_match_ratio) if answers else ([], [])
    worse, unsure = _differing(primary) if asked.same_version else _worsening(primary, final)
    of_errors = _unequal if asked.same_version else _errors
    if unsure and not asked.same_version:
        worse += _slower(effects, final)
    error_fails, error_doubts, error_more = of_errors(asked, shares, looks, block_requests)
    fails = [*([rollback] if rollback else []), *worse, *error_fails, *answers_fail]
    if fails:
        return Decision("fail", tuple(fails))
    doubts = [stopped] if stopped else []
    doubts += unsure or ([] if primary else ["no primary measure was measured"])
    doubts += error_doubts + answers_doubt
    if doubts:
        return Decision("inconclusive", tuple(doubts), _more(primary, error_more))
    if asked.same_version:
        return Decision("pass", (_equal(asked), _few_both(*shares)))
    return Decision("pass", (_passed(primary, asked), _few(shares[1])))


def _worsening(primary: Sequence[Effect], final: bool) -> tuple[list[str], list[str]]:
    """Measures in which the candidate is shown to be worse, and those in which it may be."""
    fails = [_beyond(effect) for effect in primary if effect.status == "beyond"]
    fails += [_worse(effect) for effect in primary if effect.status == "worse" and final]
    return fails, [_open(effect) for effect in primary if effect.status != "within"]


def _slower(effects: Sequence[Effect], final: bool) -> list[str]:
    """Where slow stretches of the engines leave primary measures open: a step time outside of them that is shown to be
    worse is a difference between the versions, not of how long either was slow. It never lets a candidate pass."""
    shown = ("beyond", "worse") if final else ("beyond",)
    steady = [effect for effect in effects if effect.metric == STEADY and not effect.primary and effect.status in shown]
    return [
        _beyond(effect) if effect.status == "beyond" else _worse(effect)
        for effect in steady
        if effect.rate_rps is not None
    ]


def _differing(primary: Sequence[Effect]) -> tuple[list[str], list[str]]:
    """A/A: measures in which the two differ, whichever is worse, and those in which they are not shown to be equal
    within the margin."""
    either = holm(
        [2.0 * min(effect.p or 0.0, effect.p_other or 0.0, 0.5) for effect in primary if effect.p is not None]
    )
    known = [effect for effect in primary if effect.p is not None]
    differ = [e for e, p in zip(known, either, strict=True) if p <= ALPHA and abs(e.mean or 0.0) > log(LEAST_RATIO)]
    loose = [
        effect for effect in primary if effect.status != "within" or effect.low is None or effect.low < -effect.margin
    ]
    return [f"the same version differs: {_ratio(effect)}" for effect in differ], [_open(effect) for effect in loose]


def _errors(
    asked: DecisionRules, shares: tuple[Proportion, Proportion], looks: Looks, block_requests: float
) -> tuple[list[str], list[str], int | None]:
    """Why the failures fail it, why they keep it from passing, and how many blocks more they need."""
    base, candidate = shares
    limit, alpha = asked.error_ratio, ALPHA / len(looks.times)
    counts = _failed(candidate, "candidate")
    more_than_base = fisher(base, candidate)
    if base.lower(alpha) > limit and candidate.lower(alpha) > limit and more_than_base >= alpha:
        of_base = f"{base.failed:,} of {base.requests:,} of the baseline"
        return [], [f"both fail, and the candidate is not shown to fail more: {counts}, {of_base}"], None
    if candidate.requests and candidate.failed == candidate.requests:
        return [f"all {plural(candidate.requests, 'request')} of the candidate failed"], [], 0
    if candidate.lower(alpha) > limit:
        return [f"{counts}, at least {percent(candidate.lower(alpha))}; allowed {percent(limit)}"], [], 0
    shown = candidate.upper() < limit
    if not shown and more_than_base < alpha:
        apart = difference(base, candidate)
        points = f", {percent(apart[1])} to {percent(apart[2])} more" if apart else ""
        return [f"{counts}, {base.failed:,} of {base.requests:,} of the baseline{points}"], [], 0
    doubts, more = _unshown(candidate, "candidate", limit, block_requests)
    if base.requests == 0:
        doubts.append("no request of the baseline has ended in a block that can be used")
    elif base.lower(alpha) > limit:
        doubts.append(f"the baseline itself fails: {base.failed:,} of {plural(base.requests, 'request')}")
    return [], doubts, more


def _unequal(
    asked: DecisionRules, shares: tuple[Proportion, Proportion], looks: Looks, block_requests: float
) -> tuple[list[str], list[str], int | None]:
    """A/A: the same of both. One that fails more often than the other, by Fisher's test both ways, is a difference;
    but where both are shown to fail less than is allowed. Blocks are None where no number of them would help."""
    base, candidate = shares
    limit, alpha = asked.error_ratio, ALPHA / len(looks.times)
    shown = max(base.upper(), candidate.upper()) < limit
    if not shown and 2.0 * min(fisher(base, candidate), fisher(candidate, base)) <= alpha:
        counts = f"{_failed(candidate, 'candidate')}, {base.failed:,} of {base.requests:,} of the baseline"
        return [f"the same version differs: {counts}"], [], 0
    doubts: list[str] = []
    blocks: int | None = 0
    for whose, share in (("baseline", base), ("candidate", candidate)):
        if share.lower(alpha) > limit:
            doubts.append(f"the {whose} itself fails: {share.failed:,} of {plural(share.requests, 'request')}")
            blocks = None
            continue
        why, more = _unshown(share, whose, limit, block_requests)
        doubts += why
        blocks = None if blocks is None else max(blocks, more)
    return [], doubts, blocks


def _unshown(share: Proportion, whose: str, limit: float, block_requests: float) -> tuple[list[str], int]:
    """Why it is not shown that fewer fail than ``limit``, and how many blocks more would show it; nothing: it is."""
    if share.upper() < limit:
        return [], 0
    wanted = needed(share.failed, limit)
    so_far = (
        f"{_failed(share, whose)}, at most {percent(share.upper())}"
        if share.requests
        else f"no request of the {whose} has ended in a block that can be used"
    )
    without = "an error" if share.failed == 0 else f"more than these {share.failed}"
    more = -(-(wanted - share.requests) // max(1, int(block_requests))) if block_requests else 0
    words = (
        f"an error rate below {percent(limit)} is not shown ({so_far}): needs {plural(wanted, 'request')} without "
        f"{without}"
    )
    return [words], more


def _failed(share: Proportion, whose: str) -> str:
    return f"{share.failed:,} of {plural(share.requests, 'request')} of the {whose} failed"


def _more(primary: Sequence[Effect], errors: int | None) -> Missing | None:
    """Blocks that the measure in most need of them takes; None where one of them cannot be settled."""
    waiting = [effect for effect in primary if effect.status in ("open", "worse")]
    if (
        errors is None
        or any(effect.status == "no_data" for effect in primary)
        or any(effect.more is None for effect in waiting)
    ):
        return None
    most = Missing.most([Missing(errors, errors, errors), *(effect.more for effect in waiting if effect.more)])
    return most if most.blocks else None


def _ratio(effect: Effect) -> str:
    """``p99 ITL at 8 req/s is 1.23 times the baseline's (1.18 to 1.28)``."""
    low, high = effect.ratio("low"), effect.ratio("high")
    known = low is not None and high is not None
    none = f" (from {plural(effect.n, 'block')}: no interval)"
    between = f" ({low:.3g} to {high:.3g})" if known and not effect.vague else none
    ratio = effect.ratio()
    ratio_words = "cannot be compared with the baseline's" if ratio is None else times_of(ratio, "the baseline's")
    return f"{effect.words}{_where(effect)} {ratio_words}{between}"


def _where(effect: Effect) -> str:
    return f" at {effect.rate_rps:.4g} req/s" if effect.rate_rps else ""


def _beyond(effect: Effect) -> str:
    return f"{_ratio(effect)}; allowed {effect.allowed_ratio:.3g}"


def _worse(effect: Effect) -> str:
    return f"{_ratio(effect)}: worse, and not shown to stay within {effect.allowed_ratio:.3g}"


def _open(effect: Effect) -> str:
    if effect.status == "no_data" or effect.mean is None:
        return f"{effect.words}{_where(effect)}: {effect.reason}"
    return f"{_ratio(effect)}, not shown to stay within {effect.allowed_ratio:.3g}"


def _passed(primary: Sequence[Effect], asked: DecisionRules) -> str:
    worst = max(primary, key=lambda effect: (effect.high or 0.0) / effect.margin)
    return (
        f"no primary measure is worse by {percent(asked.latency_margin)}: the least certain, {worst.words}, is at "
        f"{'most' if worst.worse > 0 else 'least'} {multiple(worst.worst_ratio or 1.0)} the baseline's"
    )


def _equal(asked: DecisionRules) -> str:
    return f"the two are equal within {percent(asked.latency_margin)} in every primary measure"


def _few_both(base: Proportion, candidate: Proportion) -> str:
    return (
        f"{base.failed:,} of {plural(base.requests, 'request')} of the baseline and {candidate.failed:,} of "
        f"{candidate.requests:,} of the candidate failed, at most {percent(max(base.upper(), candidate.upper()))}"
    )


def _few(candidate: Proportion) -> str:
    return (
        f"{candidate.failed:,} of {plural(candidate.requests, 'request')} failed, at most {percent(candidate.upper())}"
    )
