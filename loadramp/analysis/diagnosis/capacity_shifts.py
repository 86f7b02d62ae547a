"""Did the capacity change while it was measured? Replicas that came, went or changed their size. Pure.

Rule: only the servers' own pages say that. A jump of the pace may have any cause, and is merely possible.
"""

from __future__ import annotations

from collections.abc import Sequence

from loadramp.analysis.diagnosis.symptoms import Case, StepSeen, indices
from loadramp.analysis.diagnosis.unstable_engine import calm, unstable
from loadramp.analysis.step_time_jumps import jump_of
from loadramp.record.types import Confidence, Finding, Sample

GONE_S = 10.0


def autoscaler_moved(case: Case) -> Finding | None:
    """The capacity changed during the ramp: replicas came, went or changed their size, as their metrics pages show.

    Without that a jump of the pace that stayed is possible evidence, unless the engine's pace comes and goes anyway; so
    is a step that was overloaded where a higher one was not.
    """
    replicas = replicas_moved(case.run.samples)
    jumps = [(one, jump) for one in case.steps if (jump := jump_of(one))]
    if not replicas and jumps and unstable(calm(case)).comes_and_goes:
        jumps = []
    steps = [one for one, _ in jumps]
    evidence = [*replicas, *(jump.words(one.at) for one, jump in jumps)]
    sure: Confidence = "likely" if replicas else "possible"
    if not evidence:
        steps, evidence = _recovered(case)
    elif not replicas:
        evidence.append("nothing that the server shows says that replicas came, went or changed their size")
    return Finding("autoscaler_moved", sure, tuple(evidence[-4:]), indices(steps)) if evidence else None


def replicas_moved(samples: Sequence[Sample]) -> list[str]:
    """Words on engines' metrics pages that began or ceased to answer in mid-run, and on capacity that they say changed.

    A page that comes or goes tells of a replica where there are several. One that is only late (time-outs, as of a
    server under load) is not gone.
    """
    by_url: dict[str, list[Sample]] = {}
    for s in samples:
        by_url.setdefault(s.url, []).append(s)
    pages = [own for own in by_url.values() if any(not name.startswith("gpu_") for s in own for name in s.values)]
    out = []
    for number, own in enumerate(pages, start=1):
        told = [s.t_s for s in own if s.values]
        silent = [s for s in own if s.t_s > told[-1]]
        if told[0] - own[0].t_s > GONE_S and len(pages) > 1:
            out.append(f"replica {number} appeared {told[0]:.0f} s into the run")
        if own[-1].t_s - told[-1] > GONE_S and len(pages) > 1 and any(s.error != "timeout" for s in silent):
            out.append(f"replica {number} fell silent {told[-1]:.0f} s into the run")
        for name, words in (("kv_blocks", "KV blocks"), ("max_num_seqs", "largest batch")):
            levels = list(dict.fromkeys(s.values[name] for s in own if name in s.values))
            if len(levels) > 1:
                out.append(f"the {words} of replica {number} changed from {levels[0]:.0f} to {levels[-1]:.0f}")
    return out


def _recovered(case: Case) -> tuple[list[StepSeen], list[str]]:
    """Steps that were overloaded although a later one at a rate a quarter higher was not."""
    steps, words = [], []
    for one in case.climb:
        later = [b for b in case.climb if b.load > 1.25 * one.load and not (b.row["saturated"] or b.row["deficit"])]
        if one.row["saturated"] and one.row["deficit"] and later:
            steps.append(one)
            words.append(f"overloaded {one.at} but not {later[0].at}: capacity was added, or a hiccup passed")
    return steps, words
