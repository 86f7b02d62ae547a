"""GPU metrics where no exporter page can be reached: one instant query to a Prometheus server. Pure.

``[metrics] urls`` may name a DCGM exporter's page, or a Prometheus server's ``/api/v1/query``: without a ``query`` of
its own that address is completed with one that fetches all that the ``dcgm`` dialect reads.
"""

import json
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit, urlunsplit

from loadramp.metrics.dialects import wanted
from loadramp.metrics.prometheus_text import MetricPoint

QUERY_PATH = "/api/v1/query"


def query_url(url: str, selector: str = "") -> str:
    """``url`` with the GPU query, where it is the address of a Prometheus query without one; else ``url`` itself.

    Args:
        url: any address of ``[metrics] urls``.
        selector: further matchers that pick the machine, e.g. ``Hostname="gpu-3"``.
    """
    parts = urlsplit(url)
    if not parts.path.endswith(QUERY_PATH) or "query" in parse_qs(parts.query):
        return url
    fields = sorted(name for name in wanted("dcgm") if name.startswith("DCGM_"))
    matchers = ",".join(filter(None, (f'__name__=~"{"|".join(fields)}"', selector)))
    asked = f"query={quote('{' + matchers + '}', safe='')}"
    return urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, asked)))))


def points_of_query(body: str) -> list[MetricPoint] | None:
    """The points of an instant query's answer (``resultType`` vector), None when ``body`` is no such answer."""
    if not body.lstrip().startswith("{") or '"resultType"' not in body:
        return None
    try:
        data = json.loads(body)["data"]
        return [_point(series) for series in data["result"]] if data["resultType"] == "vector" else None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return None


def _point(series: dict[str, Any]) -> MetricPoint:
    labels = {str(name): str(value) for name, value in series["metric"].items()}
    return MetricPoint(labels.pop("__name__", ""), labels, float(series["value"][1]))
