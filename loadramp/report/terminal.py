"""The verdict and the table of steps for a terminal. Pure: builds what rich can print, prints nothing."""

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from loadramp.record.table import Run
from loadramp.report import diagnosis, steptable
from loadramp.report.sections import checks_by_code
from loadramp.report.thresholds import gate_line
from loadramp.report.verdict_text import headline

STYLES = {"plain": "bold", "warn": "bold yellow", "bad": "bold red"}
LEVEL_STYLES = {"void": "bold red", "warn": "yellow", "note": "dim"}
MOST_CHECKS = 12
MOST_FINDINGS = 4


def terminal_table(run: Run) -> Group:
    """Sentence, steps, causes and checks; fits 80 columns."""
    sentence = Text(" ").join(Text(phrase.text, style=STYLES[phrase.tone]) for phrase in headline(run))
    parts: list[Text | RichTable] = [sentence]
    if run.rows:
        shown = steptable.sheet(run.rows, steptable.short_columns(run.rows))
        parts += [Text(""), _table(shown), *_notes(shown)]
    causes = diagnosis.lines(run, short=True)[:MOST_FINDINGS]
    parts += [Text("")] if causes else []
    parts += [Text.assemble(("why ", "bold"), (f"{what}: ", "bold"), why) for what, why in causes]
    if run.gates:
        styles = {"✓": "green", "✗": "bold red", "?": "yellow"}
        parts += [Text(""), *(Text(line, style=styles[line[0]]) for line in map(gate_line, run.gates))]
    groups = [group for group in checks_by_code(run) if group.level != "note"]
    parts += [Text("")] if groups else []
    for group in groups[:MOST_CHECKS]:
        parts.append(Text.assemble((f"{group.level} ", LEVEL_STYLES[group.level]), group.words()))
    return Group(*parts)


def _table(shown: steptable.Sheet) -> RichTable:
    table = RichTable(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for column in shown.columns:
        last = column is shown.columns[-1]
        head = f"{column.group}\n{column.head}" if column.group else f"\n{column.head}"
        table.add_column(head, justify="left" if last else "right", no_wrap=not last, overflow="fold")
    for row, cells in shown.lines:
        style = "red" if row.void else "yellow" if row.saturated else ""
        texts = [
            Text(cell.text + (f" [{cell.note}]" if cell.note else ""), style=f"{style} dim" if cell.rough else style)
            for cell in cells
        ]
        failed = row.failed
        if failed:
            texts[2].stylize("bold red")
        table.add_row(*texts)
    return table


def _notes(shown: steptable.Sheet) -> list[Text]:
    notes = [Text(f"[{i}] {note}", style="dim") for i, note in enumerate(shown.notes, start=1)]
    return [*notes, Text(f"dimmed: {steptable.ROUGH_WORDS}", style="dim")] if shown.rough else notes
