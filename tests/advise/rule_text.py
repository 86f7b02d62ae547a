"""Which series a rule reads, and which there are."""

import re

from loadramp.metrics.dialects import wanted

STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
NAME = re.compile(r"[a-zA-Z_:][\w:]*")
WORDS = frozenset({"and", "or", "unless", "bool", "offset", "inf", "nan"})
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")


def series_of(engine: str) -> frozenset[str]:
    """Every series that rules may read: the engine's, the GPU exporter's, and ``up``."""
    names = wanted(engine) | wanted("dcgm") | {"up"}
    return names | {f"{name.removesuffix('_sum')}_bucket" for name in names if name.endswith("_sum")}


def series_in(expr: str) -> list[str]:
    """Names of the series that a PromQL expression reads."""
    plain = GROUPING.sub(" ", re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", STRING.sub('""', expr)))
    return [
        found[0]
        for found in NAME.finditer(plain)
        if found[0].lower() not in WORDS
        and not plain[found.end() :].lstrip().startswith("(")
        and not plain[: found.start()].endswith(tuple("0123456789."))
    ]
