"""A tuning as summary.md. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from loadramp.tune.configurations import HEADS, table_of
from loadramp.tune.text import JudgedTuning, cautions, sentence
from loadramp.units import plural, span


def tuning_markdown(tuning: JudgedTuning) -> str:
    """summary.md."""

    def cells(row: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"

    out = [
        f"# Tuning of {tuning.state.name}",
        "",
        sentence(tuning),
        "",
        *(line for words in cautions(tuning) for line in (words, "")),
        cells(HEADS),
        "|" + "---|" * len(HEADS),
    ]
    out += [cells(row) for row in table_of(tuning)]
    if tuning.effects:
        out += ["", "What each flag did on its own:", ""]
        out += [f"- `{effect.flag}`: {effect.words(tuning.rules.sign)}" for effect in tuning.effects]
    if tuning.command:
        out += ["", "```", tuning.command, "```", "", *(f"- `{flag}`: {why}" for flag, why in tuning.reasons)]
    if tuning.verdict.now.descent.left:
        out += ["", "Not tried:", "", *(f"- `{flags}`: {why}" for flags, why in tuning.verdict.now.descent.left)]
    return "\n".join(
        [*out, "", f"{plural(len(tuning.state.visits), 'measurement')}, {span(tuning.state.spent_s)}.", ""]
    )
