"""Judges two arms: pairs of blocks, effects, the verdict. The same functions while they go on and from their files."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec

from loadramp.comparison.answer_match import AnswerMatch
from loadramp.comparison.decide import Decision, DecisionRules, decide
from loadramp.comparison.environment import differences, fingerprint
from loadramp.comparison.noise import earlier
from loadramp.comparison.noninferior import Effect, Looks, judge
from loadramp.comparison.pairs import (
    Comparison,
    Pair,
    Round,
    blocks_done,
    ceiling_effect,
    failures,
    failures_at,
    pair,
    series,
)
from loadramp.comparison.power import Offered, prospects
from loadramp.comparison.sample_size import Noise
from loadramp.comparison.table import Canary, canary_of
from loadramp.record.run_directory import RunDirError
from loadramp.record.table import Run
from loadramp.runner.assess import assess
from loadramp.runner.scenarios import load, read_run
from loadramp.scenario.scenario import Scenario
from loadramp.units import agreed, percent, plural
from loadramp.workload.schedule import session_sample

COMPARISON = "comparison.json"
SCHEMA = 1
ARMS = ("baseline", "candidate")


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
    table = {one.name: getattr(canary, one.name) for one in fields(Canary)}
    table |= {"looks": () if sequential or swap else canary.look_at, "run_sd": canary.run_sd if sequential else 0.0}
    return DecisionRules(**table, same_version=same_version, noise=tuple(noise))


def asked_about(canary: Canary, info: Mapping[str, Any]) -> DecisionRules:
    """``asked_of`` a comparison that ``info`` (comparison.json) is about."""
    swap = bool(info.get("swap_command"))
    return asked_of(canary, bool(info.get("same_version")), swap, earlier(canary, info.get("noise")))


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
    return [done[i] if i in done else pair(one, baseline, candidate, scenario.slo) for i, one in enumerate(rounds)]


def weigh(
    asked: DecisionRules,
    pairs: Sequence[Pair],
    *,
    final: bool,
    rollback: str = "",
    stopped: str = "",
    sameness: AnswerMatch | None = None,
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
    usable = [one for one in pairs if one.usable]
    each = sum(one.candidate.failures.requests for one in usable) / max(1, done)
    decision = decide(
        asked,
        effects,
        failures(pairs),
        looks,
        final=final,
        rollback=rollback,
        stopped=stopped or _too_few(pairs, done),
        sameness=sameness,
        block_requests=each,
    )
    return effects, looks, decision


def _too_few(pairs: Sequence[Pair], done: int) -> str:
    spoilt = [one for one in pairs if not one.usable]
    if done >= 2 or not spoilt:
        return ""
    return f"{len(spoilt)} of {plural(len(pairs), 'pair')} of blocks cannot be used: {'; '.join(spoilt[-1].whys)}"


def read(path: Path) -> Comparison:
    """The comparison in ``path``, judged anew from the records of both arms.

    Raises:
        RunDirError: it is none.
        OSError: a file cannot be read.
    """
    try:
        info = json.loads((path / COMPARISON).read_bytes())
        schema = info.pop("schema", None)
        rounds = [msgspec.convert(one, Round) for one in info.get("rounds", [])]
        answers = msgspec.convert(info.get("answers"), AnswerMatch | None)
        earlier(Canary(), info.get("noise"))
    except FileNotFoundError:
        raise RunDirError(f"{path}: no {COMPARISON} here") from None
    except (ValueError, LookupError, TypeError, AttributeError, msgspec.ValidationError) as error:
        raise RunDirError(f"{path / COMPARISON}: not a comparison: {error}") from None
    if schema != SCHEMA:
        raise RunDirError(f"{path / COMPARISON}: schema {schema!r}; this version reads {SCHEMA}")
    text = (path / "scenario.toml").read_bytes().decode()
    scenario = load(text, str(path / "scenario.toml"), info.get("overrides", []))
    runs = [assess(read_run(path / arm, scenario)[0]) for arm in ARMS]
    return contrast(info, rounds, runs[0], runs[1], scenario, answers, str(path))


def contrast(
    info: dict[str, Any],
    rounds: Sequence[Round],
    baseline: Run,
    candidate: Run,
    scenario: Scenario,
    sameness: AnswerMatch | None = None,
    path: str = "",
) -> Comparison:
    """All of a comparison from two judged runs."""
    asked = asked_about(canary_of(scenario), info)
    pairs = paired(rounds, baseline, candidate, scenario)
    climbed = bool(info.get("climb_from") is not None)
    ceiling = None
    if asked.ceiling and climbed:
        arms = [climb_of(run, int(info["climb_from"])) for run in (baseline, candidate)]
        found = arms[0].estimates["ceiling"], arms[1].estimates["ceiling"]
        ceiling = ceiling_effect((arms[0].rows, arms[1].rows), found, asked.ceiling_margin)
    stopped = str(info.get("stopped") or "")
    if asked.ceiling and not climbed and not stopped:
        stopped = "the ceilings were not compared: it ended before the climb"
    effects, looks, decision = weigh(
        asked,
        pairs,
        final=True,
        rollback=str(info.get("rollback") or ""),
        stopped=stopped,
        sameness=sameness,
        ceiling=ceiling,
    )
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
        sameness=sameness,
        looks=looks,
        notes=notes(canary_of(scenario), pairs, info),
        path=path,
    )


def climb_of(run: Run, first_step: int) -> Run:
    """The part of an arm that climbed to its ceiling, judged by itself."""
    steps = [step for step in run.steps if step.index >= first_step]
    return assess(replace(run, steps=steps, rows=[], estimates={}, checks=[]))


def _of_before(info: Mapping[str, Any]) -> str:
    """That an earlier comparison of the same version is part of how many blocks it would take."""
    noise = info.get("noise")
    if not noise:
        return ""
    return (
        f"How many blocks it would take also rests on the last comparison of the same version "
        f"({str(noise['measured_at'])[:10]}), for measures that scattered alike in both."
    )


def notes(canary: Canary, pairs: Sequence[Pair], info: Mapping[str, Any]) -> list[str]:
    """What a reader must know of how it was done: shortness, spoilt blocks, order, swaps."""
    out = []
    if canary.block_s < 60.0:
        out.append(
            f"Blocks of {canary.block_s:g} s are shorter than the method's 60 s: slow swings do not average out within "
            "a block, and tails rest on fewer requests."
        )
    out += [words for words in [_of_before(info)] if words]
    if canary.blocks < 5:
        out.append(
            f"{plural(canary.blocks, 'block', 'are')} fewer than the method's 5: the spread between them is "
            f"itself uncertain."
        )
    spoilt = [one for one in pairs if not one.usable]
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
    if any(one.round.swapped for one in pairs):
        out.append("The hosts were swapped half-way, so a difference between them cancels.")
    elif canary.design == "mirrored" and not info.get("same_version"):
        out.append(
            "A difference between the two hosts would look like the version: compare the same version first (--aa), or "
            "swap them half-way (--swap-command)."
        )
    return out
