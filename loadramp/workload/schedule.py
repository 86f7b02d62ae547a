"""A step to its arrivals: the whole step is planned before it starts. Pure.

The plan is a function of (scenario, step, salt) alone: any process can rebuild it; ``plan[i::n]`` is worker i's share.
Due times are an array; prompts are drawn in blocks when they are first looked at, so that a long soak takes no memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadramp.record.types import Arrival, Prompt, Step
from loadramp.registry import ScenarioError, options_of
from loadramp.scenario.scenario import Scenario
from loadramp.units import plural
from loadramp.workload.arrivals import ARRIVALS, Instants, share_of
from loadramp.workload.prompts.draw import Draw
from loadramp.workload.prompts.source import dress, tables_of

BLOCK = 256
MOST_ARRIVALS = 100_000_000
"""Of one step: more due times than a process should hold (800 MB), and a slip of the keyboard."""
LOOKED_AT = 1_000_000
"""Of a step larger than that, only the begin is looked at before a run."""
SAMPLE = 1024
"""Sessions looked at to know how many turns one has on average."""
MOST_SORTS = 8
_ARRIVALS, _LENGTHS, _TEXTS, _CHOICES, _SAMPLE = range(5)


@dataclass(slots=True, frozen=True)
class Offer:
    """What an open-loop step offers of the rate it asks for, apart from chance."""

    share: float
    """Mean rate in the measured window over the rate that was asked; 1: the arrival process is steady."""
    gap_cv: float | None
    """Coefficient of variation of the gaps, which chance makes; 0: chance has no part in it, None: not known."""


@dataclass(slots=True)
class Prompts:
    """The prompts of one step, by number. Keeps the two blocks it used last.

    ``anew``: the step goes through files from their first row, as a replay of a trace must and a closed loop may.
    """

    scenario: Scenario
    step: int
    first_seq: int
    salt: int
    anew: bool = False
    _blocks: dict[int, Sequence[Prompt]] = field(default_factory=dict)

    def __getitem__(self, k: int) -> Prompt:
        block, within = divmod(k, BLOCK)
        if block not in self._blocks:
            if len(self._blocks) > 1:
                del self._blocks[min(self._blocks)]
            self._blocks[block] = self._draw(block)
        return self._blocks[block][within]

    def runs_out_at(self) -> int | None:
        """The number behind the last one that has a row, where a file is to be gone through once."""
        rows = rows_of(self.scenario)
        return None if rows is None else rows - (0 if self.anew else self.first_seq)

    def _draw(self, block: int) -> Sequence[Prompt]:
        scenario = self.scenario
        within = np.arange(block * BLOCK, (block + 1) * BLOCK)
        numbers = self.first_seq + within
        draw = Draw(
            numbers=numbers,
            lengths=_rng(scenario.seed, _LENGTHS, self.step, block),
            texts=_rng(scenario.seed, _TEXTS, self.step, block, self.salt),
            choices=_rng(scenario.seed, _CHOICES, self.step, block),
            rows=within if self.anew else numbers,
            anew=self.step + 1 if self.anew else 0,
            salt=self.salt,
            corpora=scenario.corpora,
        )
        return dress(scenario.prompts(draw), scenario.prompt_options, draw)


@dataclass(slots=True, frozen=True)
class StepPlan:
    """Arrivals of one open-loop step, ascending in ``due_s`` (absolute). ``numbers`` are places in the whole plan."""

    step: Step
    first_seq: int
    due_s: NDArray[np.float64]
    numbers: NDArray[np.int64]
    prompts: Prompts

    def __len__(self) -> int:
        return len(self.due_s)

    def __getitem__(self, part: slice) -> StepPlan:
        return StepPlan(self.step, self.first_seq, self.due_s[part], self.numbers[part], self.prompts)

    def __iter__(self) -> Iterator[Arrival]:
        for number, due_s in zip(self.numbers.tolist(), self.due_s.tolist(), strict=True):
            yield Arrival(self.first_seq + number, self.step.index, due_s, self.prompts[number])


def plan_step(scenario: Scenario, step: Step, first_seq: int = 0, salt: int = 0, hold_s: float = 0.0) -> StepPlan:
    """All arrivals of an open-loop step, and of ``hold_s`` more at the same rate.

    The held-over arrivals are load for the moment between two steps: sent only while the next step has not begun. Where
    prompts open sessions, these are the arrivals of sessions, so many that turns come at ``rate_rps`` in the long run.

    Args:
        scenario: gives the arrival process, the prompts and the seed.
        step: with its times filled in; ``rate_rps`` 0 or None plans nothing.
        first_seq: ``seq`` of the step's first arrival.
        salt: changes the texts of the prompts and nothing else, so that no run repeats the text of another.
        hold_s: seconds past the step's end.

    Raises:
        ScenarioError: it would have more than MOST_ARRIVALS arrivals.
    """
    prompts = prompts_of(scenario, step, first_seq, salt)
    if not step.rate_rps:
        return StepPlan(step, first_seq, np.empty(0), np.empty(0, dtype=np.int64), prompts)
    arrivals_of(scenario, step, hold_s)
    rng = _rng(scenario.seed, _ARRIVALS, step.index)
    rate_rps, seconds = step.rate_rps / turns_of(scenario), step.end_s - step.begin_s + hold_s
    if reads_a_file(scenario.arrivals.function):
        due_s = step.begin_s + scenario.arrivals(instants_of(scenario), rate_rps, seconds, rng)
    else:
        due_s = step.begin_s + scenario.arrivals(rate_rps, seconds, rng)
    left = prompts.runs_out_at()
    if left is not None:
        due_s = due_s[: max(0, left)]
    return StepPlan(step, first_seq, due_s, np.arange(len(due_s)), prompts)


def arrivals_of(scenario: Scenario, step: Step, hold_s: float = 0.0) -> float:
    """How many arrivals an open-loop step has on average, without planning them.

    Raises:
        ScenarioError: more than MOST_ARRIVALS.
    """
    rate_rps, seconds = (step.rate_rps or 0.0) / turns_of(scenario), step.end_s - step.begin_s + hold_s
    if rate_rps * seconds > MOST_ARRIVALS:
        raise ScenarioError(
            f"[ramp] a step of {seconds:g} s at {rate_rps:.4g} req/s has more than {MOST_ARRIVALS:,} requests: "
            "lower its rate (max_rps), or make it shorter (measure_s)"
        )
    return rate_rps * seconds


def offer_of(scenario: Scenario, step: Step) -> Offer:
    """What ``step`` offers on average, and how much its arrivals scatter. A replay is no matter of chance.

    Needs none of the scenario's files.
    """
    arrivals = scenario.arrivals
    begin_s, end_s = (at_s - step.begin_s for at_s in step.window_s)
    share = share_of(arrivals, begin_s, end_s)
    if arrivals.kind == "constant" or reads_a_file(arrivals.function):
        return Offer(share, 0.0)
    if arrivals.kind not in ARRIVALS:
        return Offer(share, None)
    return Offer(share, float(arrivals.option("cv")) if arrivals.kind == "gamma" else 1.0)


def beginning(scenario: Scenario, step: Step, first_seq: int) -> StepPlan:
    """The plan of an open-loop step, or of so much of its begin that about LOOKED_AT arrivals are due in it."""
    arrivals = arrivals_of(scenario, step)
    if arrivals <= LOOKED_AT:
        return plan_step(scenario, step, first_seq)
    seconds = (step.end_s - step.begin_s) * LOOKED_AT / arrivals
    return plan_step(scenario, replace(step, warmup_s=0.0, measure_s=seconds), first_seq)


def prompts_of(scenario: Scenario, step: Step, first_seq: int, salt: int) -> Prompts:
    """The prompts of ``step``, open or closed loop."""
    replayed = reads_a_file(scenario.arrivals.function) and "arrivals" not in scenario.corpora
    return Prompts(scenario, step.index, first_seq, salt, anew=replayed or step.users is not None)


def instants_of(scenario: Scenario) -> Instants:
    """The instants that a replay follows.

    Raises:
        ScenarioError: there is no trace, or it has no stamps.
    """
    rows = scenario.corpora.get("arrivals", scenario.corpora.get("prompts"))
    t_s = getattr(rows, "t_s", None)
    if rows is None or t_s is None:
        what = "the file of [prompts] has no time stamps" if rows is not None else "[prompts] reads no file"
        raise ScenarioError(f"[arrivals] kind = 'replay': no trace to follow: {what}; name one ([arrivals] file)")
    return Instants(t_s, rows.span_s)


def rows_of(scenario: Scenario) -> int | None:
    """How many requests the files of ``[prompts]`` are good for; None: no end (``at_end = "repeat"``)."""
    limited = [
        len(scenario.corpora[where])
        for where, choice in tables_of(scenario.prompts)
        if choice.options.get("at_end") == "stop" and where in scenario.corpora
    ]
    return min(limited, default=None)


def lack_of_rows(scenario: Scenario, step: Step, first_seq: int) -> str:
    """Why an open-loop step cannot be offered from files that are to be gone through once; empty where it can."""
    if not step.rate_rps:
        return ""
    seconds = step.end_s - step.begin_s
    if scenario.arrivals.options.get("at_end") == "stop" and reads_a_file(scenario.arrivals.function):
        trace = instants_of(scenario)
        needed_s = seconds * step.rate_rps / turns_of(scenario) / trace.rate_rps
        if needed_s > trace.span_s:
            return f"the next step would need {needed_s:.0f} s of a trace of {trace.span_s:.0f} s (at_end = 'stop')"
    left = prompts_of(scenario, step, first_seq, 0).runs_out_at()
    needed = seconds * step.rate_rps / turns_of(scenario)
    if left is not None and needed > left:
        return (
            f"the next step would need about {plural(round(needed), 'row')}, the file has {max(0, left)} left "
            f"(at_end = 'stop')"
        )
    return ""


@lru_cache(maxsize=4)
def turns_of(scenario: Scenario) -> float:
    """Mean turns of a session, 1 where prompts open none; of a sample, the same in every process, where it varies.

    Kept: it is asked several times for each step, and the sample takes 10 ms.
    """
    if not any("turns" in options_of(choice.function) for _, choice in tables_of(scenario.prompts)):
        return 1.0
    sample = scenario.prompts(_draw_of(scenario, SAMPLE))  # not dressed: that adds no turns, and takes half the time
    return sum(1 + len(prompt.following) for prompt in sample) / len(sample)


def session_sample(scenario: Scenario, n: int = SAMPLE) -> Sequence[Prompt]:
    """Some prompts of the scenario, for what must be known of them before any is sent."""
    draw = _draw_of(scenario, n)
    return dress(scenario.prompts(draw), scenario.prompt_options, draw)


def _draw_of(scenario: Scenario, n: int) -> Draw:
    """For ``n`` prompts of a sample: the same in every process."""
    numbers = np.arange(n)
    lengths, texts, choices = (_rng(scenario.seed, _SAMPLE, k) for k in range(3))
    return Draw(numbers, lengths, texts, choices, rows=numbers, corpora=scenario.corpora)


def samples_of(scenario: Scenario) -> list[Prompt]:
    """One request of each sort that carries more than text: by label, by the fields it adds, with images or without."""
    sorts: dict[Any, Prompt] = {}
    for prompt in session_sample(scenario, BLOCK):
        if prompt.images or prompt.body:
            sorts.setdefault((prompt.label, tuple(sorted(prompt.body or ())), len(prompt.images) > 0), prompt)
    return list(sorts.values())[:MOST_SORTS]


def reads_a_file(function: object) -> bool:
    """Whether it has a key ``file``."""
    return callable(function) and "file" in options_of(function)


def _rng(seed: int, *key: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))
