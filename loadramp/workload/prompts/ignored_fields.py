"""What the rows of a file ask for and a run does not do, counted and in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from loadramp.scenario.scenario import Target
from loadramp.units import plural
from loadramp.workload.prompts.lines import RowCounts

MOST_NAMES = 3
_API = {"chat": "/chat/completions", "completions": "/completions", "responses": "/responses"}


def unfollowed(tally: RowCounts, target: Target, model: str = "") -> list[str]:
    """A line for each thing that rows say and the run does not do.

    Args:
        tally: of one file that was read.
        target: how requests are sent.
        model: the model that is asked; empty: not known yet.
    """
    asks, out = tally.asks, []
    others = {name: n for name, n in asks.get("model", {}).items() if name != model}
    if others and model:
        out.append(f"{_rows(others, 'name', 'another model')} ({_names(others)}): {model} is asked")
    elif others:
        out.append(f"{_rows(others, 'name', 'a model')} ({_names(others)}): the model of the run is asked")
    unlike = {name: n for name, n in asks.get("stream", {}).items() if (name == "yes") != target.stream}
    if unlike and target.stream:
        out.append(f"{_rows(unlike, 'ask', 'for no stream')}: streamed all the same")
    elif unlike:
        out.append(f"{_rows(unlike, 'ask', 'for a stream')}: not streamed ([target] stream = false)")
    elsewhere = {name: n for name, n in asks.get("url", {}).items() if name != _API[target.api]}
    if elsewhere:
        out.append(f"{_rows(elsewhere, 'is', 'are', verb=True)} for {_names(elsewhere)}: sent to {_API[target.api]}")
    if last := asks.get("last"):
        out.append(f"{_rows(last, 'end', 'with an assistant message')}: sent as it stands")
    if delay := asks.get("delay"):
        out.append(f"{_rows(delay, 'have', 'a delay and no time stamp')}: the delay is not followed")
    if turns := asks.get("turns"):
        out.append(f"{plural(sum(turns.values()), 'later payload')} of sessions: each is a request of its own")
    if fields := asks.get("field"):
        out.append(f"fields of rows are not sent: {_names(fields)}; [prompts] body sends them with every request")
    return [f"{tally.file}: {line}" for line in out]


def _rows(counted: Mapping[str, int], verb_: str, rest: str, *, verb: bool = False) -> str:
    """``1 row names another model``, ``2 rows name another model``."""
    n = sum(counted.values())
    if verb:
        return f"{plural(n, 'row')} {verb_ if n == 1 else rest}"
    one = {"have": "has"}.get(verb_, f"{verb_}s")
    return f"{plural(n, 'row')} {one if n == 1 else verb_} {rest}"


def _names(counted: Mapping[str, int]) -> str:
    names = sorted(counted, key=lambda name: -counted[name])
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
