"""From a run to alert rules, a Grafana board or a KEDA scaler."""

import re
from collections.abc import Mapping
from pathlib import Path

from loadramp.advise.alerts import origin, prometheus_rules, yaml_text
from loadramp.advise.contract import PLANNED, Contract, matched
from loadramp.advise.grafana import grafana_board
from loadramp.metrics.dialects import DIALECTS, Source, spellings
from loadramp.record.run_directory import safe_name
from loadramp.record.table import Run
from loadramp.registry import ScenarioError
from loadramp.report.rows import kept_up
from loadramp.runner.finish import judge
from loadramp.units import percent

MATCHER = r'[a-zA-Z_]\w*\s*(?:=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*"'
"""A label matcher of PromQL."""
OF_MODEL = frozenset({"model_name", "model", "engine", "served_model_name", "finished_reason"})
"""Labels that an engine's own series carry; ``up`` and a GPU exporter's do not."""


def alert_text(
    source: Path,
    form: str,
    engine: str | None = None,
    replicas: int = 1,
    selector: str = "",
    gpu_selector: str | None = None,
) -> str:
    """Rules, board or scaler from the run in ``source``.

    Args:
        source: a run directory.
        form: ``prometheus``, ``grafana`` or ``keda``.
        engine: a dialect; None: the one that the run's metrics were read in.
        replicas: servers behind the endpoint that was measured.
        selector: matchers of the engine's series, ``namespace="prod",job="vllm",model_name="m"``.
        gpu_selector: those of the GPU exporter's; None: those of ``selector`` that both share.

    Raises:
        ScenarioError: it is no run, the engine is not known, or a selector is none.
    """
    makers = {"prometheus": prometheus_rules, "grafana": grafana_board, "keda": keda_scaler}
    return makers[form](contract_of(judge(source).run, engine, replicas, selector, gpu_selector))


def contract_of(
    run: Run, engine: str | None = None, replicas: int = 1, selector: str = "", gpu_selector: str | None = None
) -> Contract:
    """What the run's scenario promises and what the run has shown; see ``alert_text``."""
    labels, gpu_own = _matchers(selector, "--selector"), _matchers(gpu_selector or "", "--gpu-selector")
    shared = {k: v for k, v in labels.items() if k not in {*OF_MODEL, "job", "instance", "pod", "container", "service"}}
    gpu_matchers = shared if gpu_selector is None else gpu_own
    chosen = engine or run.info.dialect or ""
    if chosen not in DIALECTS or chosen == "dcgm":
        known = ", ".join(sorted(set(DIALECTS) - {"dcgm"}))
        saw = any(sample.values for sample in run.samples)
        why = "the run does not say whose metrics it saw" if saw else "the run saw no metrics"
        problem = f"no engine {chosen!r}" if chosen else f"{why}, so whose names to use is not known"
        raise ScenarioError(f"{problem}: give --engine, one of {known}")
    capacity_rps, low_rps, missed = _capacity(run)
    in_flight = [(row.axis_load, row.in_flight_mean) for row in kept_up(run)]
    return Contract(
        scenario=safe_name(run.info.name or "llm"),
        engine=chosen,
        names={name: matched(series, _joined(labels)) for name, series in names_of_engine(chosen).items()},
        slo=run.scenario.slo,
        capacity_rps=capacity_rps,
        capacity_low_rps=low_rps,
        missed=missed,
        in_flight=[(rate, n) for rate, n in in_flight if rate and n],
        replicas=replicas,
        target=_joined({k: v for k, v in labels.items() if k not in OF_MODEL}),
        gpu=_gpu_names(run, _joined(gpu_matchers), asked=gpu_selector is not None),
    )


def _gpu_names(run: Run, matchers: str, *, asked: bool) -> dict[str, str]:
    """What the GPU exporter shows: what the run has seen of it, or all where its matchers are given."""
    shown = {name for sample in run.samples for name in sample.values}
    every = names_of_engine("dcgm")
    return {name: matched(series, matchers) for name, series in every.items() if asked or name in shown}


def _matchers(text: str, option: str) -> dict[str, str]:
    """``a="b",c=~"d"`` as label to matcher; braces around it are allowed.

    Raises:
        ScenarioError: it is not made of matchers.
    """
    plain = text.strip().removeprefix("{").removesuffix("}").strip().removesuffix(",")
    if not plain:
        return {}
    if not re.fullmatch(rf"{MATCHER}(\s*,\s*{MATCHER})*", plain):
        raise ScenarioError(f'{option} {text}: expected matchers such as namespace="prod",job="vllm",model_name="m"')
    return {re.split(r"\s*[=!]", matcher[0])[0]: matcher[0] for matcher in re.finditer(MATCHER, plain)}


def _joined(matchers: Mapping[str, str]) -> str:
    return ",".join(matchers.values())


def _capacity(run: Run) -> tuple[float | None, float | None, str]:
    """The lower of SLO capacity and sustained rate (or ceiling), and the lower of their low ends. None where the
    latencies promised were met at no rate that was shown, and why."""
    ceiling, slo = run.estimates.get("ceiling"), run.estimates.get("slo_capacity")
    if slo is not None and run.scenario.slo.limits:
        if slo.status == "below_range":
            return None, None, "the service level was missed at the lowest rate"
        if slo.status == "inconclusive" and slo.high_rps is not None:
            return None, None, "no rate was shown to meet the service level"
    pairs = []
    if ceiling and ceiling.status == "found":
        held = ceiling.sustained_rps
        pairs.append((held or ceiling.rate_rps, held or ceiling.low_rps or ceiling.rate_rps))
    if slo and slo.status == "found":
        pairs.append((slo.rate_rps, slo.low_rps or slo.rate_rps))
    rates, lows = ([rate for rate in side if rate] for side in zip(*pairs, strict=True)) if pairs else ([], [])
    return min(rates, default=None), min(lows, default=None), ""


def names_of_engine(engine: str) -> dict[str, str]:
    """Canonical name to what stands on the engine's page today, as a PromQL selector."""
    return {canonical: _selector(sources[0], canonical) for canonical, sources in DIALECTS[engine].items() if sources}


def _selector(source: Source, canonical: str) -> str:
    if isinstance(source, str):
        return spellings(source, canonical)[0]
    only = [f'{label}=~"{"|".join(values)}"' for label, values in source.only.items()]
    skip = [f'{label}!~"{"|".join(values)}"' for label, values in source.skip.items()]
    matchers = ",".join([*only, *skip])
    return spellings(source.name, canonical)[0] + (f"{{{matchers}}}" if matchers else "")


def keda_scaler(contract: Contract) -> str:
    """A KEDA ScaledObject that adds a replica when each carries more than PLANNED of its capacity.

    Raises:
        ScenarioError: no capacity was measured, or the engine shows no load.
    """
    if contract.planned_rps is None:
        why = f" ({contract.missed})" if contract.missed else ""
        raise ScenarioError(f"no capacity was found in this run{why}: a scaler needs a ceiling or an SLO capacity")
    query, threshold, words = _scale_on(contract)
    trigger = {
        "type": "prometheus",
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": "http://prometheus.monitoring.svc:9090",
            "query": query,
            "threshold": f"{threshold:.3g}",
        },
    }
    scaler = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": f"loadramp-{contract.scenario}"},
        "spec": {
            "scaleTargetRef": {"name": "llm"},
            "minReplicaCount": 1,
            "maxReplicaCount": 8,
            "pollingInterval": 15,
            "cooldownPeriod": 360,
            "triggers": [trigger],
        },
    }
    return yaml_text(scaler, f"{origin(contract)}\n{words}\nSet scaleTargetRef, serverAddress and maxReplicaCount.")


def in_flight_at(contract: Contract, rate_rps: float) -> float | None:
    """Requests in flight of one replica at ``rate_rps`` each, between the steps measured; None below them."""
    known = [(rate / contract.replicas, n / contract.replicas) for rate, n in contract.in_flight]
    below = [pair for pair in known if pair[0] <= rate_rps]
    above = [pair for pair in known if pair[0] >= rate_rps]
    if not below or not above:
        return known[-1][1] * rate_rps / known[-1][0] if known and below else None
    (r1, n1), (r2, n2) = below[-1], above[0]
    return n1 if r2 == r1 else n1 + (n2 - n1) * (rate_rps - r1) / (r2 - r1)


def _scale_on(contract: Contract) -> tuple[str, float, str]:
    names, planned = contract.names, contract.planned_rps or 0.0
    busy = in_flight_at(contract, planned)
    share = f"{percent(PLANNED)} of the {contract.safe_rps or 0.0:.3g} req/s that it was shown to carry"
    if busy is not None and "running" in names and "waiting" in names:
        query = f"sum({names['running']}) + sum({names['waiting']})"
        return query, max(busy, 1.0), f"Requests in flight a replica at {planned:.3g} req/s, {share}."
    if "requests_done" in names:
        query = f"sum(rate({names['requests_done']}[2m]))"
        return query, planned, f"Requests a second and replica: {share}. Past its ceiling a replica finishes no more."
    raise ScenarioError(f"{contract.engine} shows neither requests in flight nor requests done")
