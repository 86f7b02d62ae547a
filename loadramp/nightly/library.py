"""``loadramp.history``: the nights of a history as a frame."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from loadramp.nightly.export import csv_nights
from loadramp.nightly.history import FILE, History, is_history
from loadramp.registry import ScenarioError

if TYPE_CHECKING:
    import pandas as pd


def history(path: str | Path) -> pd.DataFrame:
    """The lines of the history in the directory ``path``, oldest first: one a run and metric.

    Columns: ``night`` (UTC time stamp), ``scenario``, ``kind`` (measured, failed, accepted, alarm), ``metric``,
    ``value`` with ``low`` and ``high`` (95 % interval, in the unit that the metric's name ends in), ``repeat``,
    ``rerun``, ``run``, ``exit_code``, ``reason``, and a column for each key of the fingerprint.

    Raises:
        ScenarioError: there is no history.
        OSError: it cannot be read.
    """
    import pandas as pd

    folder = Path(path)
    if not is_history(folder):
        raise ScenarioError(f"{folder}: no {FILE} here; expected the directory that `loadramp nightly --history` names")
    entries, _ = History(folder).read()
    text = csv_nights(entries)["history.csv"]
    return pd.read_csv(io.StringIO(str(text)), parse_dates=["night"])
