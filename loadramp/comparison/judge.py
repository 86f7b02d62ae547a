"""Judges two arms: pairs of blocks, effects, the verdict. The same functions while they go on and from their files."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from math import log
from pathlib import Path

import numpy as np

from loadramp.comparison.answer_match import AnswerMatch
from loadramp.comparison.block_spread import Noise
from loadramp.comparison.decide import Decision, DecisionRules, decide
from loadramp.comparison.environment import differences, fingerprint
from loadramp.comparison.info import ComparisonInfo, Round, read_info
from loadramp.comparison.noise import earlier
from loadramp.comparison.noninferior import Effect, Looks, judge
from loadramp.comparison.pairs import (
    Comparison,
    Pair,
    blocks_done,
    ceiling_effect,
    failures,
    failures_at,
    pair,
    series,
    shift,
)
from loadramp.comparison.power import Offered, prospects
from loadramp.comparison.table import Canary, canary_of
from loadramp.record.row import SHORT_NAMES
from loadramp.record.table import Run
from loadramp.runner.assess import measured
from loadramp.runner.scenarios import load, read_run
from loadramp.scenario.scenario import Scenario
from loadramp.units import agreed, count, counted, percent, plural
from loadramp.workload.schedule import session_sample

ARMS = ("baseline", "candidate")
OWN = ("process_start_s", "e2e_s_sum", "ttft_s_sum", "itl_s_sum")
"""Figures of a metrics page that two servers do not share."""
ONE_SERVER_RATIO = 1.5
UNLIKE_RATIO = 0.05


def asked_of(
    canary: Canary, same_version: bool = False, swap: bool = False, noise: Sequence[Noise] = ()
) -> DecisionRules:
    """What the ``[canary]`` table asks. A swap of hosts must be seen whole: no look before.

    Args:
        canary: the table.
        same_version: both arms serve the same.
        swap: the hosts are swapped half-way.
        noise: of the last comparison of the same version.
    """
    sequential = canary.design == "a_then_b"
    table = {field.name: getattr(canary, field.name) for field in fields(Canary)}
    table |= {"looks": () if sequential or swap else canary.look_at, "run_sd": canary.run_sd if sequential else 0.0}
    return DecisionRules(**table, same_version=same_version, noise=tuple(noise))


def asked_about(canary: Canary, info: ComparisonInfo) -> DecisionRules:
    """``asked_of`` a comparison that ``info`` is about."""
    return asked_of(canary, info.same_version, bool(info.swap_command), earlier(canary, info.noise))


def outlook(scenario: Scenario, swap: bool = False) -> list[str]:
    """Why a canary cannot be expected to pass, or not at its first look, before anything is sent.

    Args:
        scenario: with its files read.
        swap: the hosts will be swapped half-way.
    """
    canary = canary_of(scenario)
    turns = [turn for prompt in session_sample(scenario) for turn in (prompt, *prompt.following)]
    known = [turn.output_tokens for turn in turns if turn.output_tokens is not None]
    gaps = sum(known) / len(known) - 1.0 if known and len(known) == len(turns) else None
    block = [(rate_rps, rate_rps * canary.block_s) for rate_rps in canary.rates]
    offered = [Offered(rate_rps, n, None if gaps is None else gaps * n) for rate_rps, n in block]
    return prospects(asked_of(canary, swap=swap), offered, bool(scenario.slo.limits))


def paired(
    rounds: Sequence[Round], baseline: Run, candidate: Run, scenario: Scenario, known: Mapping[int, Pair] | None = None
) -> list[Pair]:
    """The rounds measured; ``known`` are pairs (by place in ``rounds``) in which nothing can change any more."""
    done = known or {}
    return [
        done[i] if i in done else pair(round_, baseline, candidate, scenario.slo) for i, round_ in enumerate(rounds)
    ]


def weigh(
    asked: DecisionRules,
    pairs: Sequence[Pair],
    *,
    final: bool,
    rollback: str = "",
    stopped: str = "",
    answers: AnswerMatch | None = None,
    ceiling: Effect | None = None,
) -> tuple[list[Effect], Looks, Decision]:
    """Effects, the look they were taken at, and what they come to."""
    done = blocks_done(pairs)
    looks = Looks.at(done, asked.looks, asked.blocks) if asked.looks else Looks()
    effects = judge(
        series(pairs),
        looks,
        margin=asked.latency_margin,
        primary=asked.primary,
        run_sd=asked.run_sd,
        noise=asked.noise,
    )
    effects += [ceiling] if ceiling else []
    usable = [pair for pair in pairs if pair.usable]
    each = sum(pair.candidate.failures.requests for pair in usable) / max(1, done)
    decision = decide(
        asked,
        effects,
        failures(pairs),
        looks,
        final=final,
        rollback=rollback,
        stopped=stopped or _too_few(pairs, done),
        answers=answers,
        block_requests=each,
    )
    return effects, looks, decision


def _too_few(pairs: Sequence[Pair], done: int) -> str:
    spoilt = [pair for pair in pairs if not pair.usable]
    if done >= 2 or not spoilt:
        return ""
    return f"{len(spoilt)} of {plural(len(pairs), 'pair')} of blocks cannot be used: {'; '.join(spoilt[-1].whys)}"


def read(path: Path) -> Comparison:
    """The comparison in ``path``, judged anew from the records of both arms.

    Raises:
        RunDirError: it is none.
        OSError: a file cannot be read.
    """
    info = read_info(path)
    text = (path / "scenario.toml").read_bytes().decode()
    scenario = load(text, str(path / "scenario.toml"), info.overrides)
    baseline, candidate = (measured(read_run(path / arm, scenario)[0]) for arm in ARMS)
    return contrast(info, baseline, candidate, scenario, str(path))


def contrast(info: ComparisonInfo, baseline: Run, candidate: Run, scenario: Scenario, path: str) -> Comparison:
    """All of a comparison from two judged runs."""
    asked = asked_about(canary_of(scenario), info)
    pairs = paired(info.rounds, baseline, candidate, scenario)
    ceiling = None
    if asked.ceiling and info.climb_from is not None:
        arms = [climb_of(run, info.climb_from) for run in (baseline, candidate)]
        ceilings = arms[0].estimates["ceiling"], arms[1].estimates["ceiling"]
        ceiling = ceiling_effect((arms[0].rows, arms[1].rows), ceilings, asked.ceiling_margin)
    stopped = info.stopped or ""
    if asked.ceiling and ceiling is None and not stopped:
        stopped = "the ceilings were not compared: it ended before the climb"
    effects, looks, decision = weigh(
        asked, pairs, final=True, rollback=info.rollback or "", stopped=stopped, answers=info.answers, ceiling=ceiling
    )
    if asked.design == "mirrored" and (one := one_server(baseline, candidate)):
        decision = Decision("inconclusive", (one,))
    prints = [fingerprint(run) for run in (baseline, candidate)]
    return Comparison(
        info=info,
        baseline=baseline,
        candidate=candidate,
        asked=asked,
        decision=decision,
        effects=effects,
        pairs=pairs,
        failures=failures(pairs),
        failures_at=failures_at(pairs),
        environment=differences(prints[0], prints[1]),
        looks=looks,
        shifts={family: shift(pairs, family) for family in SHORT_NAMES},
        notes=[*notes(canary_of(scenario), pairs, info), *unlike_prompts(baseline, candidate)],
        path=path,
    )


def one_server(baseline: Run, candidate: Run) -> str:
    """Words where one server has answered for both arms: a sum of seconds on its page, or the instant at which its
    process began, is the same to the last digit in both, and it counted more requests than either arm has sent."""
    pages = []
    for run in (baseline, candidate):
        samples = [sample.values for sample in run.samples if "requests_done" in sample.values]
        pages.append({(k, v) for page in samples for k, v in page.items() if k in OWN and v > 0.0})
        grown = samples[-1]["requests_done"] - samples[0]["requests_done"] if samples else 0.0
        if grown < ONE_SERVER_RATIO * max(1, len(run.table)):
            return ""
    if not pages[0] & pages[1]:
        return ""
    return (
        "both addresses lead to one server: its metrics page is the same in both arms, and counts the requests of "
        "both; so nothing was compared"
    )


def unlike_prompts(baseline: Run, candidate: Run) -> list[str]:
    """What the same requests were to the two servers, where that alone makes latencies differ."""
    both = baseline.table.seq[baseline.table.ok], candidate.table.seq[candidate.table.ok]
    tables = [run.table.select(run.table.ok & np.isin(run.table.seq, np.intersect1d(*both)))
              for run in (baseline, candidate)]  # fmt: skip
    prompts = [float(table.prompt_tokens.mean()) if len(table) else np.nan for table in tables]
    out: list[str] = []
    if not min(prompts) > 0.0:  # a side does not tell
        return out
    if abs(log(prompts[1] / prompts[0])) > UNLIKE_RATIO:
        out.append(
            f"The same prompts are {counted(count(prompts[0]), 'token')} each to the baseline and "
            f"{count(prompts[1])} to the candidate: another tokenizer or chat template; latencies "
            "include the difference."
        )
    reused = [float(table.cached_tokens.mean()) / tokens for table, tokens in zip(tables, prompts, strict=True)]
    if abs(reused[1] - reused[0]) > UNLIKE_RATIO:
        out.append(
            f"{percent(reused[0])} of the prompt tokens came from a prefix cache at the baseline, {percent(reused[1])} "
            "at the candidate: TTFT may tell how warm the caches were, not which version is faster."
        )
    return out


def climb_of(run: Run, first_step: int) -> Run:
    """The part of an arm that climbed to its ceiling, judged by itself."""
    steps = [step for step in run.steps if step.index >= first_step]
    return measured(replace(run, steps=steps, rows=[], estimates={}, checks=[]))


def notes(canary: Canary, pairs: Sequence[Pair], info: ComparisonInfo) -> list[str]:
    """What a reader must know of how it was done: shortness, spoilt blocks, order, swaps."""
    out = []
    if canary.block_s < 60.0:
        out.append(
            f"Blocks of {canary.block_s:g} s are shorter than the method's 60 s: slow swings do not average out within "
            "a block, and tails rest on fewer requests."
        )
    if info.noise is not None:
        out.append(
            f"How many blocks it would take also rests on the last comparison of the same version ({info.noise.date}), "
            "for measures that scattered alike in both."
        )
    if canary.blocks < 5:
        out.append(
            f"{plural(canary.blocks, 'block', 'are')} fewer than the method's 5: the spread between them is "
            f"itself uncertain."
        )
    spoilt = [pair for pair in pairs if not pair.usable]
    if spoilt:
        out.append(
            f"{len(spoilt)} of {plural(len(pairs), 'pair')} of blocks {agreed(len(spoilt), 'are')} not used: "
            f"{spoilt[0].whys[0]}."
        )
    if canary.design == "a_then_b":
        out.append(
            f"Indicative: one version after the other, so what changed with time looks like the version. A spread from "
            f"run to run of {percent(canary.run_sd)} is assumed."
        )
    if any(pair.round.swapped for pair in pairs):
        out.append("The hosts were swapped half-way, so a difference between them cancels.")
    elif canary.design == "mirrored" and not info.same_version:
        out.append(
            "A difference between the two hosts would look like the version: compare the same version first (--aa), or "
            "swap them half-way (--swap-command)."
        )
    return out
