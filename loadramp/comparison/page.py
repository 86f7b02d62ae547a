"""The report of a comparison as one HTML file that needs no network, in the look of a run's report. Pure."""

from collections.abc import Callable, Sequence

from markupsafe import Markup

from loadramp.analysis.proportions import Proportion, difference, fisher
from loadramp.comparison import charts as pictures
from loadramp.comparison.noninferior import Effect
from loadramp.comparison.pairs import Comparison
from loadramp.comparison.text import (
    STATUS_CHIPS,
    comparison_headline,
    comparison_sentence,
    effect_words,
    minutes,
    more_words,
    status_words,
)
from loadramp.registry import data_of
from loadramp.report import charts as c
from loadramp.report.charts import Cell
from loadramp.report.glossary import glossary
from loadramp.report.html import page
from loadramp.report.redact import redact
from loadramp.report.sections import conditions
from loadramp.units import NOTHING, count, percent, plural, sig, span

KINDS = {"subject": "what is compared", "condition": "condition", "noted": "noted"}
"""What a difference is, for people."""
TERMS = ("ttft", "itl", "tpot", "e2e", "percentile", "interval", "ceiling", "good", "void")


def comparison_html(comparison: Comparison) -> str:
    """The whole report of two arms."""
    made = [text for make in SECTIONS if (text := make(comparison))]
    return page(f"loadramp: {comparison.info.name or 'comparison'}", comparison_sentence(comparison), made)


def opening(comparison: Comparison) -> str:
    return c.opening(subtitle(comparison), comparison_headline(comparison), comparison.decision.verdict)


def subtitle(comparison: Comparison) -> list[str]:
    """Scenario, both endpoints, date, size: one short fact each."""
    arms = (comparison.info.baseline, comparison.info.candidate)
    sides = [" ".join(part for part in (arm.model, arm.base_url, *arm.run_dir) if part) for arm in arms]
    used = sum(pair.usable for pair in comparison.pairs)
    facts = [
        comparison.info.name or "",
        f"baseline: {sides[0]}" if sides[0] else "",
        f"candidate: {sides[1]}" if sides[1] else "",
        comparison.info.began_at or "",
        f"{plural(used, 'pair')} of blocks" if comparison.pairs else "",
        span((minutes(comparison) or 0.0) * 60.0),
        {"mirrored": "mirrored", "abba": "one machine, in turn (ABBA)", "a_then_b": "one after the other"}.get(
            comparison.info.design or "", ""),
    ]  # fmt: skip
    return [redact(fact) for fact in facts if fact and fact != "0 s"]


def measures_section(comparison: Comparison) -> str:
    """What the verdict rests on: every primary measure with its ratio, interval and limit."""
    primary, others = comparison.primary, [effect for effect in comparison.effects if not effect.primary]
    body = [_grid(primary)] if primary else []
    if others:
        body.append(c.render("fold.html.j2", title="Other measures, which do not decide", body=_grid(others)))
    words = (
        f"All of these must be shown to stay within the limit ({percent(comparison.asked.latency_margin)} worse). "
        "The interval is of the ratio over pairs of blocks; its worse end is held against what is allowed."
    )
    return c.section("measures", "What was compared", *body, words=words if primary else "Nothing was measured.")


def _grid(effects: Sequence[Effect]) -> Markup:
    heads = ["Measure", "At", "Baseline", "Candidate", "Ratio, 95 % interval", "At worst", "Blocks", "Verdict"]
    lines: list[c.Line] = [
        [
            *effect_words(effect),
            count(effect.n) if effect.n else NOTHING,
            Cell(status_words(effect), STATUS_CHIPS[effect.status], more_words(effect.more) if effect.more else ""),
        ]
        for effect in effects
    ]
    return c.grid(heads, lines, chips=True)


def ratios_section(comparison: Comparison) -> str | None:
    """Forest plots: primary measures, then all latencies."""
    others = [e for e in comparison.effects if not e.primary and (e.rate_rps is not None or e.metric == "ceiling")]
    shown = (
        pictures.forest(comparison.primary, "Primary measures"),
        pictures.forest(others[:24], "All other measures"),
    )
    return c.chart_section("ratios", "How much worse or better", shown)


def curves_section(comparison: Comparison) -> str | None:
    keys = (pictures.BASE, pictures.CANDIDATE)
    return c.chart_section("curves", "Latency against load, both", pictures.curves(comparison), key=keys)


def blocks_section(comparison: Comparison) -> str | None:
    return c.chart_section("blocks", "Block by block", pictures.block_by_block(comparison))


def shifts_section(comparison: Comparison) -> str | None:
    words = "A faster median can hide a slower tail: this is the ratio at every quantile, not at one of them."
    return c.chart_section("shift", "Which part of the distribution moved", pictures.shifts(comparison), words=words)


def errors_section(comparison: Comparison) -> str:
    """Failures of both arms, exact limits, and the difference; with several rates also of each."""
    base, candidate = comparison.failures
    apart = difference(base, candidate)
    heads = ["", "Failed", "Requests", "Share", "At most (95 %)", "Allowed"]
    lines = [
        [name, count(side.failed), count(side.requests), percent(side.ratio) or NOTHING, percent(side.upper()), allowed]
        for name, side, allowed in (
            ("baseline", base, NOTHING),
            ("candidate", candidate, percent(comparison.asked.error_ratio)),
        )
    ]
    words = "Exact limits: how high the true share may still be."
    if apart:
        words += (
            f" The candidate's share is {percent(apart[0])} above the baseline's "
            f"({percent(apart[1])} to {percent(apart[2])}); Fisher's exact test: p = {sig(fisher(base, candidate), 2)}."
        )
    body = [c.grid(heads, lines)]
    if len(comparison.failures_at) > 1:
        body.append(_errors_by_rate(comparison))
    return c.section("errors", "Failed requests", *body, words=words)


def _errors_by_rate(comparison: Comparison) -> Markup:
    heads = ["At", "Baseline", "Candidate", "Candidate at most (95 %)", "Difference, 95 % interval"]
    lines = []
    for rate, (base, candidate) in comparison.failures_at.items():
        apart = difference(base, candidate)
        between = f"{percent(apart[0])} ({percent(apart[1])} to {percent(apart[2])})" if apart else NOTHING
        failed = [f"{side.failed:,} of {side.requests:,}" for side in (base, candidate)]
        lines.append([f"{sig(rate)} req/s", *failed, percent(candidate.upper()) or NOTHING, between])
    return c.grid(heads, lines)


def answers_section(comparison: Comparison) -> str | None:
    """Same answers? Counts and positions, never text."""
    match = comparison.info.answers
    if match is None:
        return None
    heads = ["", "Equal to the baseline's", "Broken", "Of which"]
    rows = (
        ("baseline, asked again", match.equal_to_itself, match.broken_base),
        ("candidate", match.equal, match.broken_candidate),
    )
    lines = [
        [name, f"{equal} of {match.prompts}", count(sum(kinds.values())),
         ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())) or NOTHING]
        for name, equal, kinds in rows
    ]  # fmt: skip
    at = sorted(match.diverged_at)
    sure = Proportion(match.equal, match.prompts)
    words = (
        f"The same questions at temperature 0, one at a time. Equal: {percent(match.match_ratio)} "
        f"({percent(sure.lower(0.025))} to {percent(sure.upper(0.025))})."
    )
    if at:
        words += (
            f" Where answers differ, they part at token {at[len(at) // 2]} in the middle case ({at[0]} to {at[-1]})."
        )
    return c.section("answers", "Same answers?", c.grid(heads, lines), words=words)


def environment_section(comparison: Comparison) -> str:
    """What is different between the two, and how the comparison was done."""
    heads = ["Key", "Kind", "Baseline", "Candidate"]
    lines: list[c.Line] = [
        [difference.key, Cell(KINDS[difference.kind], "hot" if difference.kind == "condition" else ""),
         redact(difference.base), redact(difference.candidate)]
        for difference in comparison.environment
    ]  # fmt: skip
    body = [c.grid(heads, lines)] if lines else []
    body.append(c.render("notes.html.j2", notes=comparison.notes))
    return c.section(
        "environment", "What else differs", *body, words="" if lines else "Nothing that either side tells."
    )


def conditions_section(comparison: Comparison) -> str:
    shown = {k: value for k, value in comparison.info.document().items() if k not in {"rounds", "looks", "answers"}}
    return conditions(shown, comparison.baseline.scenario.source, comparison.path)


def glossary_section(comparison: Comparison) -> str:
    return glossary(TERMS, data_of(__package__, "glossary.toml"))


SECTIONS: list[Callable[[Comparison], str | None]] = [
    opening,
    measures_section,
    ratios_section,
    curves_section,
    shifts_section,
    blocks_section,
    errors_section,
    answers_section,
    environment_section,
    conditions_section,
    glossary_section,
]
