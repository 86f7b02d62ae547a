"""A run's numbers for benchmark dashboards: Bencher, github-action-benchmark, PyTorch's. Pure."""

from typing import Any

from loadramp.record.table import Run
from loadramp.report.exporters.points import Files, NamedNumber, document, identity, points
from loadramp.units import sig


def bencher(run: Run) -> Files:
    """Bencher Metric Format: one benchmark for the run and one a step, named by its rate."""
    scenario = identity(run).get("scenario", "loadramp")
    made: dict[str, dict[str, Any]] = {}
    for point in points(run):
        name = f"{scenario} @ {point.place}" if point.place else scenario
        measure = {"value": point.value, "lower_value": point.low, "upper_value": point.high}
        known = {key: value for key, value in measure.items() if value is not None}
        made.setdefault(name, {})[point.name.replace("_", "-")] = known
    return {"bencher.json": document(made)}


def benchmark_action(run: Run) -> Files:
    """``tool: customBiggerIsBetter`` reads the first file, ``customSmallerIsBetter`` the second.

    Its own alert is a ratio to the last run and knows no noise: gate on ``loadramp nightly`` instead.
    """
    extra = "\n".join(f"{key}: {value}" for key, value in identity(run).items())
    numbers = points(run)
    return {
        f"{name}-is-better.json": document([_entry(p, extra) for p in numbers if p.better == better])
        for name, better in (("bigger", "higher"), ("smaller", "lower"))
    }


def _entry(point: NamedNumber, extra: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": point.full_name, "unit": point.unit, "value": point.value, "extra": extra}
    if point.low is None or point.high is None:
        return entry
    return entry | {"range": f"{sig(point.low, 4)} to {sig(point.high, 4)}"}


def pytorch_hud(run: Run) -> Files:
    """The records of PyTorch's dashboard and of vLLM's own benchmarks: the step's rate stands in the arguments."""
    facts = identity(run)
    about = {key: value for key, value in facts.items() if key != "model"}
    records = []
    for point in points(run):
        args: dict[str, Any] = {"request_rate": None if point.row is None else point.row.rate_rps}
        if point.row is not None and point.row.users:
            args["users"] = point.row.users
        name = f"loadramp {facts.get('scenario', '')}".strip()
        limits = {"unit": point.unit, "low": point.low, "high": point.high}
        records.append(
            {
                "benchmark": {"name": name, "extra_info": {"args": args | about}},
                "model": {"name": facts.get("model", "unknown")},
                "metric": {"name": point.name, "benchmark_values": [point.value], "extra_info": limits},
            }
        )
    return {"pytorch-hud.json": document(records)}
