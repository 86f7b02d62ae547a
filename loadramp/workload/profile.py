"""The shape of a workload in a few figures: lengths, reuse, burstiness, classes, requests that are too long. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from loadramp.record.run_info import OverLength
from loadramp.record.table import Run
from loadramp.record.types import Prompt, Step
from loadramp.scenario.scenario import Scenario
from loadramp.workload.prefix_reuse import PrefixHistory, PromptSize
from loadramp.workload.preview import preview_steps
from loadramp.workload.prompts.source import models_of
from loadramp.workload.schedule import beginning, plan_step

Floats = NDArray[np.float64]
LengthOf = Callable[[str], int | None]
"""Name of a model ("": the target's) to its ``max_model_len`` in tokens; None: not known."""
MOST_REQUESTS = 5000
"""Requests of a plan that are looked at."""
LONGEST_S = 600.0
QUANTILES = (0.5, 0.95, 0.99)


@dataclass(slots=True, frozen=True)
class LengthSummary:
    """Tokens: mean, p50, p95, p99; None where nothing is known."""

    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None

    @staticmethod
    def of(tokens: Floats) -> LengthSummary:
        known = tokens[~np.isnan(tokens)]
        if not len(known):
            return LengthSummary()
        return LengthSummary(float(known.mean()), *(float(q) for q in np.quantile(known, QUANTILES)))


@dataclass(slots=True, frozen=True)
class WorkloadProfile:
    """A workload in figures."""

    requests: int
    """How many it was taken from."""
    input_tokens: LengthSummary
    output_tokens: LengthSummary
    estimated_ratio: float
    """Share of the prompts whose tokens were guessed from their characters (four a token)."""
    prefix_reuse_ratio: float | None
    """Plan: share of prompt tokens that began an earlier prompt, to a cache that forgets nothing. Run: share that
    the server took from its cache. None: not known."""
    gap_cv: float | None
    """Coefficient of variation of the gaps between arrivals, each divided by the mean of its step: 1 is Poisson."""
    turns_mean: float = 1.0
    classes: Mapping[str, float] = field(default_factory=dict)
    """Label to share of the requests."""
    models: Mapping[str, float] = field(default_factory=dict)


def profile_of_plan(scenario: Scenario, steps: Sequence[Step]) -> WorkloadProfile:
    """The profile of the first MOST_REQUESTS requests of ``steps``, lengths and texts as they will be sent.

    Args:
        scenario: with its files read.
        steps: as ``preview_steps`` gives them; a closed loop has no arrivals, so its burstiness is not known.
    """
    history = PrefixHistory()
    sizes: list[PromptSize] = []
    labels: Counter[str] = Counter()
    models: Counter[str] = Counter()
    sessions = 0
    for prompt in prompts_of_plan(scenario, steps):
        sent = history.sizes(prompt)
        sizes += sent
        labels[prompt.label] += len(sent)
        models[prompt.model or ""] += len(sent)
        sessions += 1
        if len(sizes) >= MOST_REQUESTS:
            break
    inputs = np.array([size.input_tokens for size in sizes], dtype=np.float64)
    outputs = np.array(
        [np.nan if size.output_tokens is None else size.output_tokens for size in sizes], dtype=np.float64
    )
    total = float(inputs.sum())
    return WorkloadProfile(
        requests=len(sizes),
        input_tokens=LengthSummary.of(inputs),
        output_tokens=LengthSummary.of(outputs),
        estimated_ratio=sum(size.estimated for size in sizes) / max(1, len(sizes)),
        prefix_reuse_ratio=sum(size.reused_tokens for size in sizes) / total if total else None,
        gap_cv=burstiness([_due(scenario, step) for step in steps]),
        turns_mean=len(sizes) / sessions if sessions else 1.0,
        classes=_shares(labels),
        models=_shares(models),
    )


def profile_of_run(run: Run) -> WorkloadProfile:
    """The same of what a run recorded: lengths as the server counted them, reuse as its cache saw it."""
    table = run.table
    cached = ~np.isnan(table.cached_tokens) & ~np.isnan(table.prompt_tokens)
    counted = float(table.prompt_tokens[cached].sum())
    due = [np.sort(table.due_s[table.step == step.index]) for step in run.steps if step.users is None]
    opened = int(np.count_nonzero(table.turn == 0))
    return WorkloadProfile(
        requests=len(table),
        input_tokens=LengthSummary.of(table.input_tokens),
        output_tokens=LengthSummary.of(table.output_tokens),
        estimated_ratio=0.0,
        prefix_reuse_ratio=float(table.cached_tokens[cached].sum()) / counted if counted else None,
        gap_cv=burstiness(due),
        turns_mean=len(table) / opened if opened else 1.0,
        classes=_shares(Counter(str(label) for label in table.label)),
        models=_shares(Counter(str(model) for model in table.model)),
    )


def burstiness(steps: Sequence[Floats]) -> float | None:
    """Coefficient of variation of the gaps; None without any.

    Args:
        steps: due times of each step, ascending; gaps are divided by their step's mean before they are pooled.
    """
    usable = [np.diff(due_s) for due_s in steps if len(due_s) > 2]
    scaled = [gaps_s / gaps_s.mean() for gaps_s in usable if gaps_s.mean() > 0]
    if not scaled:
        return None
    return float(np.concatenate(scaled).std())


def prompts_of_plan(scenario: Scenario, steps: Sequence[Step]) -> Sequence[Prompt]:
    """Prompts in the order in which they will be sent, at most MOST_REQUESTS."""
    planned: list[Prompt] = []
    first_seq = 0
    for step in steps:
        if len(planned) >= MOST_REQUESTS:
            break
        if step.users is not None:
            prompts = plan_step(scenario, step, first_seq).prompts
            planned += [prompts[k] for k in range(MOST_REQUESTS // len(steps))]
            first_seq += MOST_REQUESTS
            continue
        plan = beginning(scenario, step, first_seq)
        planned += [arrival.prompt for arrival in plan[: MOST_REQUESTS - len(planned)]]
        first_seq += len(plan)
    return planned


def _due(scenario: Scenario, step: Step) -> Floats:
    """Due times of an open-loop step, of its first ten minutes at most."""
    if step.users is not None or not step.measured:
        return np.empty(0)
    due_s = beginning(scenario, step, 0).due_s
    return due_s[due_s < step.begin_s + LONGEST_S]


def _shares(counts: Counter[str]) -> dict[str, float]:
    """Names to shares, the largest first; nothing where there is only one name or none."""
    total = sum(counts.values())
    return {name or "(none)": n / total for name, n in counts.most_common(20)} if len(counts) > 1 else {}


def overlong(scenario: Scenario, length_of: LengthOf, overhead_tokens: float = 0.0) -> OverLength | None:
    """Which of the first MOST_REQUESTS requests of the ramp are too long; None if no model's length is known.

    Args:
        scenario: with its files read.
        length_of: the longest context of each model.
        overhead_tokens: what the chat template adds to a given text; made-up prompts allow for it already.
    """
    if not any(length_of(name) for name in ("", *models_of(scenario.prompts, scenario.prompt_options))):
        return None
    history = PrefixHistory()
    known = [
        (size, most)
        for prompt in prompts_of_plan(scenario, _first_steps(scenario))
        if (most := length_of(prompt.model or ""))
        for size in history.sizes(prompt)
    ]
    longer = [
        (size, most)
        for size, most in known
        if size.input_tokens + (overhead_tokens if size.estimated else 0.0) + (size.output_tokens or 1) > most
    ]
    if not known:
        return None
    shortest = min(most for _, most in longer or known)
    return OverLength(len(known), len(longer), shortest, any(size.estimated for size, _ in longer))


def _first_steps(scenario: Scenario) -> list[Step]:
    """The first steps of the ramp that together have MOST_REQUESTS requests; in a closed loop, which has no arrivals, a
    few."""
    steps: list[Step] = []
    requests = 0
    for preview in islice(preview_steps(scenario), 8):
        steps.append(preview.step)
        requests += preview.requests or 0
        if requests >= MOST_REQUESTS:
            break
    if steps and steps[0].role == "settle":
        return steps
    return [replace(step, index=step.index - 1) for step in steps]  # as the run will number them, and draw lengths
