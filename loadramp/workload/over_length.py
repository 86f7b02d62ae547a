"""Which share of a workload's requests is longer than its model takes: said before the first of them is sent. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

from loadramp.record.types import Step
from loadramp.scenario.scenario import Scenario
from loadramp.units import percent, plural
from loadramp.workload.prefix_reuse import PrefixHistory
from loadramp.workload.preview import foresee
from loadramp.workload.profile import MOST_REQUESTS, prompts_of_plan
from loadramp.workload.prompts.source import models_of

Length = Callable[[str], int | None]
"""The ``max_model_len`` of the model called so ("": of the target's), in tokens; None: not known."""


@dataclass(slots=True, frozen=True)
class Overlong:
    """What was found among the first requests of a plan."""

    requests: int
    """Those whose model's ``max_model_len`` is known."""
    longer: int
    """Of these, those whose prompt and answer together are longer."""
    max_model_len: int
    """The smallest that is exceeded; where none is, the smallest."""
    estimated: bool
    """The tokens of one that is longer were guessed from its characters."""

    def words(self) -> str:
        """What it means, in a sentence; "" where nothing is too long."""
        if not self.longer:
            return ""
        about = "about " if self.estimated else ""
        return (
            f"{about}{percent(self.longer / self.requests)} of the requests ({self.longer:,} of the first "
            f"{plural(self.requests, 'request')}) are longer than max_model_len = "
            f"{plural(self.max_model_len, 'token')}, "
            "prompt and answer together: the server will refuse them or cut them short, whatever the load. Shorten "
            "them or leave them out, or serve the model with a larger max_model_len."
        )


def overlong(scenario: Scenario, length_of: Length, overhead_tokens: float = 0.0) -> Overlong | None:
    """Look at the first MOST_REQUESTS requests of the ramp; None where no model's length is known.

    Args:
        scenario: with its files read.
        length_of: the longest context of each model.
        overhead_tokens: what the chat template adds to a given text; made-up prompts are written with it in mind.
    """
    if not any(length_of(name) for name in ("", *_models(scenario))):
        return None
    seen, lengths, exceeded = PrefixHistory(), set[int](), set[int]()
    requests = longer = 0
    estimated = False
    for prompt in prompts_of_plan(scenario, _steps(scenario)):
        most = length_of(prompt.model or "")
        for size in seen.sizes(prompt) if most else ():
            requests += 1
            lengths.add(most or 0)
            prompt_tokens = size.input_tokens + (overhead_tokens if size.estimated else 0.0)
            if prompt_tokens + (size.output_tokens or 1) > (most or 0):
                longer += 1
                exceeded.add(most or 0)
                estimated = estimated or size.estimated
    return Overlong(requests, longer, min(exceeded or lengths), estimated) if requests else None


def _steps(scenario: Scenario) -> list[Step]:
    """The first steps of the ramp, as many as have MOST_REQUESTS requests; of a closed loop, which has no arrivals, a
    few."""
    steps: list[Step] = []
    requests = 0
    for foreseen in islice(foresee(scenario), 8):
        steps.append(foreseen.step)
        requests += foreseen.requests or 0
        if requests >= MOST_REQUESTS:
            break
    if steps and steps[0].role == "settle":
        return steps
    return [replace(step, index=step.index - 1) for step in steps]  # as the run will number them, and draw lengths


def _models(scenario: Scenario) -> tuple[str, ...]:
    return tuple(models_of(scenario.prompts, scenario.prompt_options))
