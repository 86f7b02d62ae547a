"""A history of nights in formats that other programs read."""

from collections.abc import Callable, Sequence
from pathlib import Path

from loadramp.nightly.history import History, is_history
from loadramp.nightly.otava import otava
from loadramp.record.types import Entry
from loadramp.report.exporters.points import Files
from loadramp.report.exporters.tables import csv_nights
from loadramp.runner.export import no_format

HISTORY_EXPORTERS: dict[str, Callable[[Sequence[Entry]], Files]] = {
    "csv": csv_nights,
    "otava": otava,
}


def exported_history(source: Path | None, form: str) -> Files | None:
    """The files that ``form`` makes of the history in ``source``; None where it is no history.

    Without a source: an empty file for each name that there is.

    Raises:
        ScenarioError: no such format.
    """
    if source is None:
        return dict.fromkeys(HISTORY_EXPORTERS, "")
    if not is_history(source):
        return None
    if form not in HISTORY_EXPORTERS:
        raise no_format(form, "a history", HISTORY_EXPORTERS)
    entries, _ = History(source).read()
    return HISTORY_EXPORTERS[form](entries)
