"""A comparison in words: the sentence, summary.md, the table for a terminal. Pure; no ratio without its interval."""

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from loadramp.comparison.noninferior import Effect
from loadramp.comparison.pairs import Comparison
from loadramp.comparison.sample_size import MOST_BLOCKS, Missing
from loadramp.report.markdown import escaped
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


def comparison_sentence(found: Comparison) -> str:
    """The headline as one line of text."""
    return " ".join(phrase.text for phrase in comparison_headline(found))


def comparison_headline(found: Comparison) -> list[Phrase]:
    """The verdict in plain words, the reasons, and what it would take to know more."""
    decision = found.decision
    reasons = [redact(reason) for reason in decision.reasons]
    lead = _lead(found)
    tone = TONES[decision.verdict]
    parts = [Phrase(f"{lead}{reasons[0]}." if reasons else lead, tone)]
    parts += [Phrase(sentence(reason), tone, minor=True) for reason in reasons[1:MOST_REASONS]]
    if len(reasons) > MOST_REASONS:
        parts.append(
            Phrase(f"And {plural(len(reasons) - MOST_REASONS, 'more reason')}, in the table below.", minor=True)
        )
    if decision.verdict == "inconclusive":
        parts += [Phrase(words, minor=True) for words in [it_takes(found)] if words]
    if found.indicative:
        parts.append(
            Phrase(
                "Indicative only: one run of each, made at different times, cannot tell the version from the hour.",
                "warn", minor=True,
            )
        )  # fmt: skip
    return parts


def it_takes(found: Comparison) -> str:
    """What it would probably take to know: blocks, and the time of a comparison that has them."""
    decision, asked = found.decision, found.asked
    stored = found.info.kind == "compare"
    if decision.more is None:
        waiting = [one for one in found.effects if one.primary and one.status in ("open", "worse")]
        if stored or found.indicative or all(one.more is not None for one in waiting):
            return ""
        return (
            f"It would take more than {MOST_BLOCKS} more blocks to know: blocks scatter too much for what is allowed "
            "([canary] latency_margin)."
        )
    sentence = f"It would probably take {more_words(decision.more)} to know"
    if not asked.round_s or stored:
        return f"{sentence}."
    whole = min(asked_blocks(found) + decision.more.high, MOST_BLOCKS)
    return f"{sentence}: a comparison with --set canary.blocks={whole} ({span(whole * asked.round_s)} at most)."


def asked_blocks(found: Comparison) -> int:
    """Blocks that there are at the rate which has the most."""
    return max((one.n for one in found.effects if one.primary), default=0)


def more_words(more: Missing) -> str:
    """``40 to 80 more blocks``; ``about 50 more blocks`` where one figure is known; ``at least 90 more blocks`` where
    nobody would want as many as it may be."""
    if more.low == more.high:
        return f"about {plural(more.blocks, 'more block')}"
    if more.blocks > MOST_BLOCKS:
        return f"at least {plural(more.low, 'more block')}"
    return f"{more.low:,} to {plural(more.high, 'more block')}"


def _lead(found: Comparison) -> str:
    if found.asked.same_version:
        return {
            "pass": "The two hosts can be compared: ",
            "fail": "The two hosts differ, so a comparison between them is biased: ",
            "inconclusive": "Whether the two hosts differ is open: ",
        }[found.decision.verdict]
    return {
        "pass": "The candidate is no worse than allowed: ",
        "fail": "The candidate is worse than allowed: ",
        "inconclusive": "Not decided: ",
    }[found.decision.verdict]


def minutes(found: Comparison) -> float | None:
    """From the first request to the last, in minutes."""
    ends = [run.steps[-1].end_s for run in (found.baseline, found.candidate) if run.steps]
    return round(max(ends) / 60.0, 2) if ends and found.info.kind != "compare" else None


def value_words(one: Effect, value: float | None) -> str:
    """A measure's value: a latency, tokens or requests a second."""
    if value is None:
        return NOTHING
    if one.metric == "output_tokens_per_s":
        return f"{count(value)} tok/s"
    return f"{sig(value)} req/s" if one.metric in ("good_rps", "ceiling") else latency(value)


def times(ratio: float | None) -> str:
    """A ratio near 1 to three decimals, so that columns line up; others to three digits."""
    number = finite(ratio)
    return "" if number is None else f"{number:.3f}" if 0.1 <= number < 10.0 else sig(number)


def ratio_words(one: Effect) -> str:
    """``1.020 (1.001-1.039)``."""
    if one.mean is None:
        return NOTHING
    if one.vague:
        return f"{times(one.ratio())} (no interval)"
    return f"{times(one.ratio())} ({times(one.ratio('low'))}-{times(one.ratio('high'))})"


def limit_words(one: Effect) -> str:
    """``at most 1.039, allowed 1.1``."""
    if one.high is None or one.vague:
        return one.reason or f"{plural(one.n, 'block', 'are')} too few"
    side = "most" if one.worse > 0 else "least"
    return f"at {side} {times(one.worst_ratio)}, allowed {sig(one.allowed_ratio)}"


def where(one: Effect) -> str:
    return f"{sig(one.rate_rps)} req/s" if one.rate_rps else "all rates" if one.metric != "ceiling" else NOTHING


def effect_words(one: Effect) -> tuple[str, ...]:
    """Measure, rate, both values, ratio and limit."""
    values = (value_words(one, one.base), value_words(one, one.candidate))
    return (one.words, where(one), *values, ratio_words(one), limit_words(one))


def status_words(one: Effect) -> str:
    if one.status == "beyond" and (one.worse < 0 or one.metric == "ceiling"):
        return "too low"
    if one.status == "no_data" and one.base is not None and one.candidate is not None:
        return "too few"
    return STATUS_WORDS[one.status]


def comparison_markdown(found: Comparison) -> str:
    """summary.md: sentence, measures, errors, what differs."""
    bold = [f"**{escaped(p.text)}**" if p.tone != "plain" else escaped(p.text) for p in comparison_headline(found)]
    lines = ["# loadramp: comparison", "", " ".join(bold), "", f"Verdict: **{found.decision.verdict}**" + (
        " (indicative)" if found.indicative else "")]  # fmt: skip
    lines += [
        "",
        "| measure | at | baseline | candidate | ratio (95 %) | limit | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in [one for one in found.effects if one.primary]:
        lines.append("| " + " | ".join(escaped(cell) for cell in (*effect_words(one), status_words(one))) + " |")
    lines += ["", *(f"- {escaped(text)}" for text in facts(found))]
    return "\n".join(lines) + "\n"


def facts(found: Comparison) -> list[str]:
    """Errors, answers, what differs, and how it was done: one line each."""
    base, candidate = found.failures
    out = [
        f"failed requests: baseline {base.failed:,} of {base.requests:,}, candidate {candidate.failed:,} of "
        f"{candidate.requests:,} (at most {percent(candidate.upper())}, allowed {percent(found.asked.error_ratio)})"
    ]
    seen = found.info.answers
    if seen is not None:
        out.append(
            f"answers: {seen.equal} of {seen.prompts} equal; the baseline repeats {seen.equal_to_itself} of its own; "
            f"broken: baseline {sum(seen.broken_base.values())}, candidate {sum(seen.broken_candidate.values())}"
        )
    if found.environment:
        changed = ", ".join(f"{one.key} ({one.base} → {one.candidate})" for one in found.environment[:12])
        out.append(redact(f"different: {changed}"))
    return [*out, *found.notes]


def comparison_table(found: Comparison) -> Group:
    """Sentence, measures and facts for a terminal of 80 columns."""
    sentence = Text(" ").join(Text(phrase.text, style=STYLES[phrase.tone]) for phrase in comparison_headline(found))
    table = RichTable(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for head in ("Measure", "req/s", "Baseline", "Candidate", "Ratio (95 %)", "Allowed", "Verdict"):
        table.add_column(head, justify="left" if head in ("Measure", "Verdict") else "right", no_wrap=head != "Measure")
    for one in found.effects:
        if one.primary:
            table.add_row(
                one.words, sig(one.rate_rps) or NOTHING, value_words(one, one.base), value_words(one, one.candidate),
                ratio_words(one), sig(one.allowed_ratio), Text(status_words(one), style=STATUS_STYLES[one.status]),
            )  # fmt: skip
    rule = "It passes when the whole interval of every ratio lies on the good side of what is allowed."
    dim = [Text(fact, style="dim") for fact in (rule, *facts(found))]
    return Group(sentence, Text(""), table, Text(""), *dim)
