"""A KEDA scaler from what one replica was shown to carry. Pure."""

from loadramp.advise.alerts import origin, yaml_text
from loadramp.advise.contract import PLANNED, Contract
from loadramp.registry import ScenarioError
from loadramp.units import percent


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
