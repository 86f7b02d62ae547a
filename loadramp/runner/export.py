"""From a directory to the text of another program's format: reads a run or a history, judges it, hands it on."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from loadramp.record.run_directory import put
from loadramp.registry import FEATURES, CannotMeasure, ScenarioError, reach
from loadramp.report.exporters import EXPORTERS
from loadramp.report.exporters.points import Files
from loadramp.runner.finish import judge
from loadramp.units import plural


def exported(source: Path, form: str, slo: Sequence[str] = ()) -> Files:
    """The files that ``form`` makes of the run in ``source``, or of a directory that a feature knows, as a history.

    Args:
        source: a run directory, or a feature's.
        form: a name of EXPORTERS or one of the feature's, or ``list``.
        slo: thresholds to judge the run by in place of its scenario's.

    Raises:
        ScenarioError: no such format, the source is neither, or a threshold is none.
    """
    if form == "list":
        return {"formats.txt": listing()}
    for kind, export in _others().items():
        files: Files | None = reach(export)(source, form)
        if files is not None and slo:
            raise ScenarioError(f"--slo: {kind} has no thresholds to judge; it judges runs")
        if files is not None:
            return files
    if form not in EXPORTERS:
        raise no_format(form, "a run", EXPORTERS)
    return EXPORTERS[form](judge(source, rules=slo).run)


def no_format(form: str, kind: str, formats: Iterable[str]) -> ScenarioError:
    """The error of a format that there is not."""
    return ScenarioError(f"--format {form}: no such format of {kind}; there are {', '.join(sorted(formats))}")


def _others() -> dict[str, str]:
    """Kinds of directories that features export."""
    return {kind: export for feature in FEATURES.values() for kind, export in feature.exports.items()}


def single(files: Files, form: str) -> str | bytes:
    """The content of the only file, for stdout.

    Raises:
        ScenarioError: there are several.
        CannotMeasure: there is none, because no step of the run may be used.
    """
    if len(files) > 1:
        raise ScenarioError(
            f"--format {form} makes {plural(len(files), 'file')} ({', '.join(files)}): say where with --output DIR"
        )
    if not files:
        raise CannotMeasure("nothing to export: no step of this run may be used")
    return next(iter(files.values()))


def write(files: Files, output: Path) -> list[Path]:
    """Write one file to ``output`` itself, several (or one, where ``output`` is a directory) below it."""
    below = len(files) > 1 or output.is_dir()
    paths = []
    for name, content in files.items():
        path = output / name if below else output
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path, content if isinstance(content, bytes) else content.encode())
        paths.append(path)
    return paths


def listing() -> str:
    """The names that --format takes."""
    others = {kind: sorted(reach(export)(None, "")) for kind, export in _others().items()}
    formats = {"a run": sorted(EXPORTERS), **others}
    return "".join(f"of {kind}:\n" + "".join(f"  {name}\n" for name in names) for kind, names in formats.items())
