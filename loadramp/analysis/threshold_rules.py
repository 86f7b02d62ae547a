"""The language of thresholds: ``p99(ttft_s) < 0.8 @ rate <= 8`` to a Rule. Pure; grammar: docs/gates.md.

What it does not know is a ScenarioError that names what there is: a threshold on a misspelt metric never passes.
"""

import difflib
import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from loadramp.registry import ScenarioError

Op = Literal["<", "<=", ">", ">=", "="]
Field = Literal["rate", "users", "step", "soak"]

AGGREGATES = ("mean", "p50", "p90", "p95", "p99")
LATENCIES = ("ttft_s", "sent_ttft_s", "itl_s", "gap_s", "tpot_s", "e2e_s", "all_ttft_s", "all_e2e_s")
ESTIMATES = {
    "ceiling_rps": "ceiling",
    "knee_rps": "p99_itl_knee",
    "sustained_rps": "ceiling",
    "slo_capacity_rps": "slo_capacity",
}
SHARES = ("error_ratio", "good_ratio", "malformed_ratio")
COUNTS = ("preemptions", "waiting_max", "kv_used_ratio_max", "stalled_ratio", "output_tokens_per_s", "good_rps")
NAMES = (*ESTIMATES, *SHARES, *COUNTS)
UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "%": 1e-2}

_SUBJECT = r"(?:(?P<aggregate>\w+)\s*\(\s*(?P<inner>\w+)\s*\)|(?P<name>\w+))"
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RULE = re.compile(
    rf"\s*{_SUBJECT}\s*(?P<op><=|>=|==|=|<|>)\s*(?P<limit>{_NUMBER})\s*(?P<unit>ms|s|%)?\s*(?:@\s*(?P<place>.+?))?\s*"
)
_PLACE = re.compile(
    rf"(?P<field>rate|users|step)\s*(?P<op><=|>=|==|=|<|>)?\s*(?P<at>{_NUMBER})(?:\s*(?:rps|req/s))?|(?P<soak>soak)"
)


@dataclass(slots=True, frozen=True)
class Place:
    """Which steps a rule speaks of."""

    field: Field
    op: Op = "="
    at: float = 0.0


@dataclass(slots=True, frozen=True)
class ThresholdRule:
    """One threshold. ``aggregate`` is empty for a plain name; without ``place`` it speaks of the whole run."""

    text: str
    name: str
    op: Op
    limit: float
    aggregate: str = ""
    place: Place | None = None

    @property
    def upper(self) -> bool:
        """The value must stay below the limit."""
        return self.op in {"<", "<="}


def parse(text: str, names: Collection[str] = NAMES) -> ThresholdRule:
    """A rule from its text.

    Args:
        text: the rule.
        names: the plain names that may stand in it; aggregates of latencies are known only with the names of a run.

    Raises:
        ScenarioError: it is no rule, or what it names does not exist.
    """
    match = _RULE.fullmatch(text)
    if match is None:
        raise ScenarioError(f"gate {text!r}: expected METRIC OPERATOR NUMBER [@ PLACE], as 'p99(ttft_s) < 0.8'")
    if match["op"] in {"=", "=="}:
        raise ScenarioError(f"gate {text!r}: a measured value never equals a number; use <, <=, > or >=")
    aggregate, name = _subject(text, match, names)
    unit = match["unit"] or ""
    place = _place(text, match["place"])
    if place is not None and name in ESTIMATES:
        raise ScenarioError(f"gate {text!r}: {name} is a number of the whole run and takes no @")
    if place is None and name.startswith("all_"):
        raise ScenarioError(f"gate {text!r}: {name} is known per step: add @ rate <= ... or @ step N")
    limit = float(match["limit"]) * UNITS[unit]
    if not math.isfinite(limit):
        raise ScenarioError(f"gate {text!r}: the limit must be a finite number")
    return ThresholdRule(" ".join(text.split()), name, match["op"], limit, aggregate, place)  # type: ignore[arg-type]  # by the pattern


def _subject(text: str, match: re.Match[str], names: Collection[str]) -> tuple[str, str]:
    if match["name"]:
        if match["name"] in LATENCIES and names is NAMES:
            raise ScenarioError(f"gate {text!r}: {match['name']} needs an aggregate, as p99({match['name']})")
        if match["name"] not in names:
            raise ScenarioError(f"gate {text!r}: no metric {match['name']!r}; {_known(match['name'], names)}")
        return "", match["name"]
    if names is not NAMES:
        raise ScenarioError(f"gate {text!r}: expected one of {', '.join(names)}")
    aggregate, inner = match["aggregate"], match["inner"]
    if aggregate not in AGGREGATES:
        raise ScenarioError(f"gate {text!r}: no aggregate {aggregate!r}; there are {', '.join(AGGREGATES)}")
    if inner not in LATENCIES:
        raise ScenarioError(f"gate {text!r}: no latency {inner!r}; {_known(inner, LATENCIES)}")
    if inner.startswith("all_") and aggregate == "mean":
        raise ScenarioError(f"gate {text!r}: {inner} counts failures as endless, so it has no mean")
    return aggregate, inner


def _place(text: str, words: str | None) -> Place | None:
    if words is None:
        return None
    match = _PLACE.fullmatch(words)
    if match is None:
        raise ScenarioError(f"gate {text!r}: after @ expected rate, users or step with a number, or soak")
    if match["soak"]:
        return Place("soak")
    op = match["op"] or "="
    return Place(match["field"], "=" if op == "==" else op, float(match["at"]))  # type: ignore[arg-type]  # by the pattern


def _known(name: str, names: Collection[str]) -> str:
    close = difflib.get_close_matches(name, list(names), n=1)
    return (f"did you mean {close[0]!r}? " if close else "") + f"there are {', '.join(names)}"
