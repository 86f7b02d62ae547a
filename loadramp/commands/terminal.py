"""The terminal while a run goes on: a small live table, or plain lines where there is no terminal to draw on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loadramp.commands.options import strict_json
from loadramp.record.sanitize import clean
from loadramp.registry import error_message
from loadramp.report.progress import Progress, Watch, clock, left_words, line, panel, row_line, step_words

if TYPE_CHECKING:
    from loadramp.runner.finish import Finished

LEAST_WIDTH = 80
LOG_PERIOD_S = 10.0
BAR_CHARS = 24


def say(words: str) -> None:
    """One line for people; stdout is for the answer."""
    click.echo(clean(words, lines=True), err=True)


def answer(*parts: object) -> None:
    """The answer on stdout: text, or what rich draws. Tables need 80 columns: in fewer they would lose digits.

    A reader that has left (``| head -1``) takes nothing from the verdict: the exit code stays what it was.
    """
    from rich.console import Console

    console = Console(highlight=False)
    console.width = max(console.width, LEAST_WIDTH)
    with console.capture() as drawn:
        for part in parts:
            console.out(part, highlight=False) if isinstance(part, str) else console.print(part)
    try:
        click.echo(drawn.get(), nl=False)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is flushed at the end


def show(finished: Finished, as_json: bool) -> int:
    """A judged run on stdout: JSON for programs; a table, the sentence and the report's path for people. Returns the
    exit code."""
    from loadramp.report import terminal_table, verdict_document

    run, page = finished.run, Path(finished.run.path) / "report.html"
    if as_json:
        answer(strict_json(verdict_document(run)))
    else:
        answer(terminal_table(run), *([f"\nreport: {page}"] if page.is_file() else []))
    return finished.exit_code


def try_to_write(write: Callable[[], None]) -> None:
    """Write what is derived, or say which file could not be written: on a full or read-only disk the answer is still
    worth having."""
    try:
        write()
    except OSError as error:
        say(f"not written: {error_message(error)}; the answer follows all the same")


def asks(yes: bool, as_json: bool) -> bool:
    """Whether somebody is there to be asked: never for programs, never where stdin is no terminal (it would hang)."""
    return sys.stdin.isatty() and not yes and not as_json


def confirm(hosts: Iterable[str], question: Callable[[], str]) -> None:
    """Ask before another machine than this one is loaded; ``question`` is worded only then.

    Raises:
        click.Abort: the answer was no.
    """
    from loadramp.client.endpoint import LOOPBACK

    if not LOOPBACK.issuperset(hosts):
        click.confirm(question(), default=True, abort=True, err=True)


def nothing(_: object) -> None:
    """For --quiet."""


@contextmanager
def watching(quiet: bool) -> Iterator[tuple[Callable[[str], None], Watch]]:
    """How to speak and what to show once a second: (say, watch)."""
    if quiet:
        yield nothing, nothing
    elif sys.stderr.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb":
        yield from _live()
    else:
        yield say, _plain()


def _plain() -> Watch:
    """A log is read later: each step as it begins and ends, and every ten seconds how it stands."""
    shown = 0
    last = (-1, 0.0)

    def watch(progress: Progress) -> None:
        nonlocal shown, last
        for row in progress.rows[shown:]:
            say(row_line(row))
        shown = len(progress.rows)
        index, logged_s = last
        if progress.step.index != index or progress.t_s >= logged_s + LOG_PERIOD_S:
            last = (progress.step.index, progress.t_s)
            say(line(progress))

    return watch


def _live() -> Iterator[tuple[Callable[[str], None], Watch]]:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    console = Console(stderr=True, highlight=False)
    shown = 0
    # drawn in the conductor, never in a process that measures
    with Live(console=console, refresh_per_second=2, transient=True) as live:

        def speak(words: str) -> None:
            console.print(Text(words))

        def watch(progress: Progress) -> None:
            nonlocal shown
            for row in progress.rows[shown:]:
                style = "bold red" if row.void else "yellow" if row.saturated else ""
                console.print(Text(row_line(row), style=style))
            shown = len(progress.rows)
            step = progress.step
            left_s = max(step.end_s - progress.t_s, 0.0)
            done = 1.0 - left_s / max(step.end_s - step.begin_s, 1e-9)
            head = f"{_bar(done)} {step_words(step)}, {left_s:.0f} s left of this step; {clock(progress.t_s)} so far"
            head += f", {left_words(progress.left_s)}" if progress.left_s else ""
            grid = Table.grid(padding=(0, 2))
            for name, words in panel(progress):
                style = "bold red" if name == "failed" and progress.failed else ""
                grid.add_row(Text(name, style="dim"), Text(words, style=style))
            live.update(Group(Text(head, style="bold"), grid))

        yield speak, watch


def _bar(done: float) -> str:
    filled = round(min(max(done, 0.0), 1.0) * BAR_CHARS)
    return "━" * filled + "·" * (BAR_CHARS - filled)
