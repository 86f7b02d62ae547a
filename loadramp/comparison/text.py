"""A comparison in words: the sentence, summary.md, the table for a terminal. Pure; no ratio without its interval."""

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from loadramp.comparison.block_spread import MOST_BLOCKS, Missing
from loadramp.comparison.noninferior import Effect
from loadramp.comparison.pairs import Comparison
from loadramp.report.markdown import escaped, table
from loadramp.report.redact import redact
from loadramp.report.terminal import STYLES
from loadramp.report.verdict_text import Phrase, Tone
from loadramp.units import NOTHING, count, finite, latency, percent, plural, sentence, sig, span

STATUS_WORDS = {
    "within": "within",
    "worse": "worse",
    "beyond": "too slow",
    "open": "open",
    "no_data": "no data",
}
STATUS_CHIPS = {"within": "pass", "worse": "fail", "beyond": "fail", "open": "inconclusive", "no_data": "inconclusive"}
STATUS_STYLES = {"within": "green", "worse": "red", "beyond": "bold red", "open": "yellow", "no_data": "yellow"}
TONES: dict[str, Tone] = {"pass": "plain", "fail": "bad", "inconclusive": "warn"}
MOST_REASONS = 3


def comparison_sentence(comparison: Comparison) -> str:
    """The headline as one line of text."""
    return " ".join(phrase.text for phrase in comparison_headline(comparison))


def comparison_headline(comparison: Comparison) -> list[Phrase]:
    """The verdict in plain words, the reasons, and what it would take to know more."""
    decision = comparison.decision
    reasons = [redact(reason) for reason in decision.reasons]
    lead = _lead(comparison)
    tone = TONES[decision.verdict]
    parts = [Phrase(f"{lead}{reasons[0]}." if reasons else lead, tone)]
    parts += [Phrase(sentence(reason), tone, minor=True) for reason in reasons[1:MOST_REASONS]]
    if len(reasons) > MOST_REASONS:
        parts.append(
            Phrase(f"And {plural(len(reasons) - MOST_REASONS, 'more reason')}, in the table below.", minor=True)
        )
    if decision.verdict == "inconclusive":
        parts += [Phrase(words, minor=True) for words in [it_takes(comparison)] if words]
    if comparison.indicative:
        parts.append(
            Phrase(
                "Indicative only: one run of each, made at different times, cannot tell the version from the hour.",
                "warn", minor=True,
            )
        )  # fmt: skip
    return parts


def it_takes(comparison: Comparison) -> str:
    """What it would probably take to know: blocks, and the time of a comparison that has them."""
    decision, asked = comparison.decision, comparison.asked
    stored = comparison.info.kind == "compare"
    if decision.more is None:
        waiting = [effect for effect in comparison.primary if effect.status in ("open", "worse")]
        if stored or comparison.indicative or all(effect.more is not None for effect in waiting):
            return ""
        return (
            f"It would take more than {MOST_BLOCKS} more blocks to know: blocks scatter too much for what is allowed "
            "([canary] latency_margin)."
        )
    sentence = f"It would probably take {more_words(decision.more)} to know"
    if not asked.round_s or stored:
        return f"{sentence}."
    whole = min(asked_blocks(comparison) + decision.more.high, MOST_BLOCKS)
    return f"{sentence}: a comparison with --set canary.blocks={whole} ({span(whole * asked.round_s)} at most)."


def asked_blocks(comparison: Comparison) -> int:
    """Blocks that there are at the rate which has the most."""
    return max((effect.n for effect in comparison.primary), default=0)


def more_words(more: Missing) -> str:
    """``40 to 80 more blocks``; ``about 50 more blocks`` where one figure is known; ``at least 90 more blocks`` where
    nobody would want as many as it may be."""
    if more.low == more.high:
        return f"about {plural(more.blocks, 'more block')}"
    if more.blocks > MOST_BLOCKS:
        return f"at least {plural(more.low, 'more block')}"
    return f"{more.low:,} to {plural(more.high, 'more block')}"


def _lead(comparison: Comparison) -> str:
    if comparison.asked.same_version:
        return {
            "pass": "The two hosts can be compared: ",
            "fail": "The two hosts differ, so a comparison between them is biased: ",
            "inconclusive": "Whether the two hosts differ is open: ",
        }[comparison.decision.verdict]
    return {
        "pass": "The candidate is no worse than allowed: ",
        "fail": "The candidate is worse than allowed: ",
        "inconclusive": "Not decided: ",
    }[comparison.decision.verdict]


def minutes(comparison: Comparison) -> float | None:
    """From the first request to the last, in minutes."""
    ends = [run.steps[-1].end_s for run in (comparison.baseline, comparison.candidate) if run.steps]
    return round(max(ends) / 60.0, 2) if ends and comparison.info.kind != "compare" else None


def value_words(effect: Effect, value: float | None) -> str:
    """A measure's value: a latency, tokens or requests a second."""
    if value is None:
        return NOTHING
    if effect.metric == "output_tokens_per_s":
        return f"{count(value)} tok/s"
    return f"{sig(value)} req/s" if effect.metric in ("good_rps", "ceiling") else latency(value)


def times(ratio: float | None) -> str:
    """A ratio near 1 to three decimals, so that columns line up; others to three digits."""
    number = finite(ratio)
    return "" if number is None else f"{number:.3f}" if 0.1 <= number < 10.0 else sig(number)


def ratio_words(effect: Effect) -> str:
    """``1.020 (1.001-1.039)``."""
    if effect.mean is None:
        return NOTHING
    if effect.vague:
        return f"{times(effect.ratio())} (no interval)"
    return f"{times(effect.ratio())} ({times(effect.ratio('low'))}-{times(effect.ratio('high'))})"


def limit_words(effect: Effect) -> str:
    """``at most 1.039, allowed 1.1``."""
    if effect.high is None or effect.vague:
        return effect.reason or f"{plural(effect.n, 'block', 'are')} too few"
    side = "most" if effect.worse > 0 else "least"
    return f"at {side} {times(effect.worst_ratio)}, allowed {sig(effect.allowed_ratio)}"


def where(effect: Effect) -> str:
    return (
        f"{sig(effect.rate_rps)} req/s" if effect.rate_rps else "all rates" if effect.metric != "ceiling" else NOTHING
    )


def effect_words(effect: Effect) -> tuple[str, ...]:
    """Measure, rate, both values, ratio and limit."""
    values = (value_words(effect, effect.base), value_words(effect, effect.candidate))
    return (effect.words, where(effect), *values, ratio_words(effect), limit_words(effect))


def status_words(effect: Effect) -> str:
    if effect.status == "beyond" and (effect.worse < 0 or effect.metric == "ceiling"):
        return "too low"
    if effect.status == "no_data" and effect.base is not None and effect.candidate is not None:
        return "too few"
    return STATUS_WORDS[effect.status]


def comparison_markdown(comparison: Comparison) -> str:
    """summary.md: sentence, measures, errors, what differs."""
    bold = [f"**{escaped(p.text)}**" if p.tone != "plain" else escaped(p.text) for p in comparison_headline(comparison)]
    lines = ["# loadramp: comparison", "", " ".join(bold), "", f"Verdict: **{comparison.decision.verdict}**" + (
        " (indicative)" if comparison.indicative else "")]  # fmt: skip
    heads = ("measure", "at", "baseline", "candidate", "ratio (95 %)", "limit", "verdict")
    rows = [[escaped(cell) for cell in (*effect_words(effect), status_words(effect))] for effect in comparison.primary]
    lines += ["", *table(heads, rows), "", *(f"- {escaped(text)}" for text in facts(comparison))]
    return "\n".join(lines) + "\n"


def facts(comparison: Comparison) -> list[str]:
    """Errors, answers, what differs, and how it was done: one line each."""
    out = [_failures(comparison)]
    match = comparison.info.answers
    if match is not None:
        out.append(
            f"answers: {match.equal} of {match.prompts} equal; the baseline repeats {match.equal_to_itself} of its own"
            f"; broken: baseline {sum(match.broken_base.values())}, candidate {sum(match.broken_candidate.values())}"
        )
    if comparison.environment:
        changed = ", ".join(
            f"{difference.key} ({difference.base} → {difference.candidate})"
            for difference in comparison.environment[:12]
        )
        out.append(redact(f"different: {changed}"))
    return [*out, *comparison.notes]


def _failures(comparison: Comparison) -> str:
    """What failed of the requests that are compared; what stopped a canary at once may lie outside of them."""
    base, candidate = comparison.failures
    if not base.requests or not candidate.requests:
        return "failed requests: none were compared"
    return (
        f"failed requests among those compared: baseline {base.failed:,} of {base.requests:,}, candidate "
        f"{candidate.failed:,} of {candidate.requests:,} (at most {percent(candidate.upper())}, allowed "
        f"{percent(comparison.asked.error_ratio)})"
    )


def comparison_table(comparison: Comparison) -> Group:
    """Sentence, measures and facts for a terminal of 80 columns."""
    sentence = Text(" ").join(
        Text(phrase.text, style=STYLES[phrase.tone]) for phrase in comparison_headline(comparison)
    )
    table = RichTable(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for head in ("Measure", "req/s", "Baseline", "Candidate", "Ratio (95 %)", "Allowed", "Verdict"):
        table.add_column(head, justify="left" if head in ("Measure", "Verdict") else "right", no_wrap=head != "Measure")
    for effect in comparison.effects:
        if effect.primary:
            table.add_row(
                effect.words, sig(effect.rate_rps) or NOTHING, value_words(effect, effect.base),
                value_words(effect, effect.candidate), ratio_words(effect), sig(effect.allowed_ratio),
                Text(status_words(effect), style=STATUS_STYLES[effect.status]),
            )  # fmt: skip
    rule = "It passes when the whole interval of every ratio lies on the good side of what is allowed."
    dim = [Text(fact, style="dim") for fact in (rule, *facts(comparison))]
    return Group(sentence, Text(""), table, Text(""), *dim)
