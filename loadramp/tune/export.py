"""A tuning in formats that other programs read."""

from pathlib import Path

from loadramp.report.exporters.points import Files
from loadramp.runner.export import no_format
from loadramp.tune.configurations import configurations_csv, tuning_csv
from loadramp.tune.outcome import read_tuning
from loadramp.tune.state import TUNE

FORMATS = ("csv",)


def exported_tuning(source: Path | None, form: str) -> Files | None:
    """The files that ``form`` makes of the tuning in ``source``; None where it is none.

    Without a source: an empty file for each name that there is.

    Raises:
        ScenarioError: no such format.
    """
    if source is None:
        return dict.fromkeys(FORMATS, "")
    if not (source / TUNE).is_file():
        return None
    if form not in FORMATS:
        raise no_format(form, "a tuning", FORMATS)
    tuning = read_tuning(source)
    return {"configurations.csv": configurations_csv(tuning), "measurements.csv": tuning_csv(tuning)}
