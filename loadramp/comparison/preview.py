"""What ``loadramp plan`` shows of ``loadramp canary``: its blocks, chosen by the functions that the command uses."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from loadramp.comparison.judge import outlook
from loadramp.comparison.noise import LAST, expected
from loadramp.comparison.table import asked_warmup_s, block_rates, canary_of, climb_rates, order_of, turn_warmup_s
from loadramp.record.types import Step
from loadramp.runner.preview import offered_notes, with_offered
from loadramp.scenario.scenario import SHORTEST_WARMUP_S, Scenario
from loadramp.units import counted, often, plural
from loadramp.workload.preview import PreviewPart, PreviewStep, add_step, settle_s, times


def canary_parts(scenario: Scenario, _: Callable[[Sequence[str]], Scenario]) -> list[PreviewPart]:
    """The blocks of ``loadramp canary``."""
    canary = canary_of(scenario)
    steps = tuple(foresee_canary(scenario))
    blocks = list({replace(step.step, index=0, begin_s=0.0): step for step in steps}.values())
    if canary.design == "mirrored":
        how = "both endpoints at once, each with these requests"
        spare = f"A round that a client spoils is offered again, at most {often(canary.blocks // 2)}."
        looks = " or ".join(str(look) for look in canary.look_at[:-1])
        ends = (
            f"It ends after {counted(looks, 'block')} where that settles it." if looks else "It takes all its blocks."
        )
        notes = [ends, spare, *(["The climb ends when both are overloaded."] if canary.ceiling else [])]
    else:
        how = f"the endpoints in turn ({canary.design}), the blocks of both"
        notes = ["Switches, and the time until no request is in flight after each block, come on top."]
    if canary.answers:
        notes.append(f"Before it {plural(canary.answers, 'question', 'are')} asked, the baseline twice.")
    notes += [*offered_notes(scenario, with_offered(scenario, blocks)), *outlook(scenario)]
    noise = LAST.read() if canary.design != "a_then_b" else None
    notes += [words for words in [expected(canary, noise) if noise else ""] if words]
    return [PreviewPart(f"canary: {how}", steps, tuple(notes))]


def foresee_canary(scenario: Scenario) -> Iterator[PreviewStep]:
    """The blocks of a canary that is never sure before its last one. Both endpoints get them at once; where they take
    turns, the blocks of both, one after the other. Requests are counted once for all blocks alike."""
    counted: dict[Step, PreviewStep] = {}
    at_s = 0.0
    for index, step in enumerate(_canary_steps(scenario)):
        if step not in counted:
            counted[step] = add_step(scenario, step, 0)[2]
        placed = replace(step, index=index, begin_s=at_s)
        at_s = placed.end_s
        yield replace(counted[step], step=placed, cumulative_s=at_s)


def _canary_steps(scenario: Scenario) -> Iterator[Step]:
    canary = canary_of(scenario)
    if canary.design != "mirrored":
        warmup_s = turn_warmup_s(scenario)
        for _ in order_of(canary):
            for rate_rps in canary.rates:
                yield Step(0, rate_rps=rate_rps, warmup_s=warmup_s, measure_s=canary.block_s)
        return
    seconds = settle_s(scenario, canary.rates[0])
    if seconds:
        yield Step(0, role="settle", rate_rps=canary.rates[0], warmup_s=0.0, measure_s=seconds)
    before_rps = canary.rates[0] if seconds else None
    for number in range(canary.blocks):
        for rate_rps, warms in block_rates(canary, number, before_rps):
            warmup_s = _canary_warmup_s(scenario, canary.block_s) if warms else 0.0
            yield Step(0, rate_rps=rate_rps, warmup_s=warmup_s, measure_s=canary.block_s)
            before_rps = rate_rps
    for rate_rps in climb_rates(canary) if canary.ceiling else ():
        measure_s = times(scenario, Step(0, rate_rps=rate_rps))[1]
        yield Step(0, rate_rps=rate_rps, warmup_s=_canary_warmup_s(scenario, measure_s), measure_s=measure_s)


def _canary_warmup_s(scenario: Scenario, measure_s: float) -> float:
    asked = asked_warmup_s(scenario)
    return min(SHORTEST_WARMUP_S, measure_s * 2 / 3) if asked is None else asked
