"""The forms for a terminal and for Markdown."""

import io

from curve_rows import changed
from report_runs import row, served, served_rows
from rich.console import Console

from loadramp.record.table import Run, Table
from loadramp.record.types import Check
from loadramp.report import summary_markdown, terminal_table, verdict_sentence


def printed(run: Run, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False, color_system=None)
    console.print(terminal_table(run))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_terminal_shows_sentence_steps_and_checks_within_80_columns() -> None:
    text = printed(served())
    assert " ".join(text.split()).startswith(verdict_sentence(served()))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "overloaded" in text
    assert "warn" in text
    assert "58 %" in text
    assert "few_samples" not in text


def test_a_null_in_the_terminal_is_a_dash_with_its_reason() -> None:
    rows = served_rows()
    rows[0] = changed(
        rows[0], ttft_p99_s=None, reasons={"ttft_p99_s": "60 requests cannot carry a p99: needs about 308 more"}
    )
    text = printed(served(rows=rows), 120)
    assert "– [1]" in text
    assert "[1] 60 requests cannot carry a p99: needs about 308 more" in text


def test_a_value_whose_interval_is_wide_is_grey_and_said_to_be() -> None:
    def shown(value: float, low: float | None, high: float | None) -> tuple[str, str]:
        rows = served_rows()
        rows[0] = changed(rows[0], itl_p99_s=value, itl_p99_low_s=low, itl_p99_high_s=high)
        return summary_markdown(served(rows=rows)), printed(served(rows=rows), 120)

    for low, high in ((0.08, 0.14), (0.08, None)):
        markdown, terminal = shown(0.1, low, high)
        assert "| ~100 ms |" in markdown
        assert "~: its interval reaches further than 25 % from it" in markdown
        assert "dimmed: its interval reaches further than 25 % from it" in terminal
    for low, high in ((0.08, 0.12), (None, None)):
        markdown, terminal = shown(0.1, low, high)
        assert "| 100 ms |" in markdown
        assert "reaches further" not in markdown + terminal


def test_square_brackets_in_outside_text_are_no_markup() -> None:
    text = printed(served(checks=[Check("x", "warn", "[bold red]not markup[/bold red]")]))
    assert "[bold red]not markup[/bold red]" in text


def test_an_empty_run_prints() -> None:
    assert "nothing was measured" in printed(served(rows=[], table=Table.of([]), estimates={}, checks=[]))


def test_the_summary_has_sentence_numbers_checks_steps_and_conditions() -> None:
    text = summary_markdown(served())
    assert "Sustains 13.6 req/s (soaked 5 min); ceiling 15.9 (15.2-16.7)" in text
    assert "| Ceiling | 15.9 (sustained 13.6) | 15.2 to 16.7 | found | between 12 and 28 req/s |" in text
    assert "- **warn** `busy_client` The busiest worker used 58 % of its processor. (28 req/s) Add workers." in text
    assert "- seed: 42" in text
    steps = [line for line in text.splitlines() if line.startswith("| 12 |")]
    assert len(steps) == 1
    assert "48.4 ms" in steps[0]


def test_every_table_line_of_the_summary_has_as_many_cells_as_its_head() -> None:
    blocks = summary_markdown(served(rows=[row(0, 1.0, signals=["a|b"])])).split("\n\n")
    for block in blocks:
        lines = [line for line in block.splitlines() if line.startswith("|")]
        assert len({line.replace("\\|", "").count("|") for line in lines}) <= 1


def test_outside_text_cannot_become_markdown_or_html() -> None:
    evil = "<img src=x> [link](http://x) | cell\n# head `code`"
    text = summary_markdown(served(checks=[Check("x", "void", evil)]))
    assert "<img" not in text.replace("\\<", "")
    assert "\n# head" not in text
    assert "\\| cell" in text


def test_secrets_do_not_reach_the_summary() -> None:
    run = served()
    run.info.argv = ["loadramp", "run", "--base-url", "http://user:pw@host:1", "--header", "X-Api-Key=sk-test-123"]
    text = summary_markdown(run)
    assert not any(secret in text for secret in ("user:pw", "sk-test-123"))
