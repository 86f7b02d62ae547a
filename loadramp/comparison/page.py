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


def comparison_html(found: Comparison) -> str:
    """The whole report of two arms."""
    made = [text for make in SECTIONS if (text := make(found))]
    return page(f"loadramp: {found.info.name or 'comparison'}", comparison_sentence(found), made)


def opening(found: Comparison) -> str:
    return c.opening(subtitle(found), comparison_headline(found), found.decision.verdict)


def subtitle(found: Comparison) -> list[str]:
    """Scenario, both endpoints, date, size: one short fact each."""
    arms = (found.info.baseline, found.info.candidate)
    sides = [" ".join(part for part in (arm.model, arm.base_url, *arm.run_dir) if part) for arm in arms]
    used = sum(pair.usable for pair in found.pairs)
    facts = [
        found.info.name or "",
        f"baseline: {sides[0]}" if sides[0] else "",
        f"candidate: {sides[1]}" if sides[1] else "",
        found.info.began_at or "",
        f"{plural(used, 'pair')} of blocks" if found.pairs else "",
        span((minutes(found) or 0.0) * 60.0),
        {"mirrored": "mirrored", "abba": "one machine, in turn (ABBA)", "a_then_b": "one after the other"}.get(
            found.info.design or "", ""),
    ]  # fmt: skip
    return [redact(fact) for fact in facts if fact and fact != "0 s"]


def measures_section(found: Comparison) -> str:
    """What the verdict rests on: every primary measure with its ratio, interval and limit."""
    primary = [one for one in found.effects if one.primary]
    others = [one for one in found.effects if not one.primary]
    body = [_grid(primary)] if primary else []
    if others:
        body.append(c.render("fold.html.j2", title="Other measures, which do not decide", body=_grid(others)))
    words = (
        f"All of these must be shown to stay within the limit ({percent(found.asked.latency_margin)} worse). "
        "The interval is of the ratio over pairs of blocks; its worse end is held against what is allowed."
    )
    return c.section("measures", "What was compared", *body, words=words if primary else "Nothing was measured.")


def _grid(effects: Sequence[Effect]) -> Markup:
    heads = ["Measure", "At", "Baseline", "Candidate", "Ratio, 95 % interval", "At worst", "Blocks", "Verdict"]
    lines: list[c.Line] = [
        [
            *effect_words(one),
            count(one.n) if one.n else NOTHING,
            Cell(status_words(one), STATUS_CHIPS[one.status], more_words(one.more) if one.more else ""),
        ]
        for one in effects
    ]
    return c.grid(heads, lines, chips=True)


def ratios_section(found: Comparison) -> str | None:
    """Forest plots: primary measures, then all latencies."""
    primary = [one for one in found.effects if one.primary]
    others = [one for one in found.effects if not one.primary and (one.rate_rps is not None or one.metric == "ceiling")]
    figures = [
        figure
        for effects, title in ((primary, "Primary measures"), (others[:24], "All other measures"))
        if (figure := pictures.forest(effects, title))
    ]
    return c.section("ratios", "How much worse or better", c.figures(*figures)) if figures else None


def curves_section(found: Comparison) -> str | None:
    figures = pictures.curves(found)
    if not figures:
        return None
    keys = (pictures.BASE, pictures.CANDIDATE)
    return c.section("curves", "Latency against load, both", c.figures(*figures, key=keys))


def blocks_section(found: Comparison) -> str | None:
    figures = pictures.block_by_block(found)
    return c.section("blocks", "Block by block", c.figures(*figures)) if figures else None


def shifts_section(found: Comparison) -> str | None:
    figures = pictures.shifts(found)
    if not figures:
        return None
    words = "A faster median can hide a slower tail: this is the ratio at every quantile, not at one of them."
    return c.section("shift", "Which part of the distribution moved", c.figures(*figures), words=words)


def errors_section(found: Comparison) -> str:
    """Failures of both arms, exact limits, and the difference; with several rates also of each."""
    base, candidate = found.failures
    apart = difference(base, candidate)
    heads = ["", "Failed", "Requests", "Share", "At most (95 %)", "Allowed"]
    lines = [
        [name, count(side.failed), count(side.requests), percent(side.ratio) or NOTHING, percent(side.upper()), allowed]
        for name, side, allowed in (
            ("baseline", base, NOTHING),
            ("candidate", candidate, percent(found.asked.error_ratio)),
        )
    ]
    words = "Exact limits: how high the true share may still be."
    if apart:
        words += (
            f" The candidate's share is {percent(apart[0])} above the baseline's "
            f"({percent(apart[1])} to {percent(apart[2])}); Fisher's exact test: p = {sig(fisher(base, candidate), 2)}."
        )
    body = [c.grid(heads, lines)]
    if len(found.failures_at) > 1:
        body.append(_errors_by_rate(found))
    return c.section("errors", "Failed requests", *body, words=words)


def _errors_by_rate(found: Comparison) -> Markup:
    heads = ["At", "Baseline", "Candidate", "Candidate at most (95 %)", "Difference, 95 % interval"]
    lines = []
    for rate, (base, candidate) in found.failures_at.items():
        apart = difference(base, candidate)
        between = f"{percent(apart[0])} ({percent(apart[1])} to {percent(apart[2])})" if apart else NOTHING
        failed = [f"{side.failed:,} of {side.requests:,}" for side in (base, candidate)]
        lines.append([f"{sig(rate)} req/s", *failed, percent(candidate.upper()) or NOTHING, between])
    return c.grid(heads, lines)


def answers_section(found: Comparison) -> str | None:
    """Same answers? Counts and positions, never text."""
    seen = found.info.answers
    if seen is None:
        return None
    heads = ["", "Equal to the baseline's", "Broken", "Of which"]
    rows = (
        ("baseline, asked again", seen.equal_to_itself, seen.broken_base),
        ("candidate", seen.equal, seen.broken_candidate),
    )
    lines = [
        [name, f"{equal} of {seen.prompts}", count(sum(kinds.values())),
         ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())) or NOTHING]
        for name, equal, kinds in rows
    ]  # fmt: skip
    at = sorted(seen.diverged_at)
    sure = Proportion(seen.equal, seen.prompts)
    words = (
        f"The same questions at temperature 0, one at a time. Equal: {percent(seen.match_ratio)} "
        f"({percent(sure.lower(0.025))} to {percent(sure.upper(0.025))})."
    )
    if at:
        words += (
            f" Where answers differ, they part at token {at[len(at) // 2]} in the middle case ({at[0]} to {at[-1]})."
        )
    return c.section("answers", "Same answers?", c.grid(heads, lines), words=words)


def environment_section(found: Comparison) -> str:
    """What is different between the two, and how the comparison was done."""
    heads = ["Key", "Kind", "Baseline", "Candidate"]
    lines: list[c.Line] = [
        [one.key, Cell(KINDS[one.kind], "hot" if one.kind == "condition" else ""), redact(one.base),
         redact(one.candidate)]
        for one in found.environment
    ]  # fmt: skip
    body = [c.grid(heads, lines)] if lines else []
    body.append(c.render("notes.html.j2", notes=found.notes))
    return c.section(
        "environment", "What else differs", *body, words="" if lines else "Nothing that either side tells."
    )


def conditions_section(found: Comparison) -> str:
    shown = {k: value for k, value in found.info.document().items() if k not in {"rounds", "looks", "answers"}}
    return conditions(shown, found.baseline.scenario.source, found.path)


def glossary_section(found: Comparison) -> str:
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
