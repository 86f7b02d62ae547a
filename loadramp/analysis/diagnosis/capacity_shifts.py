"""Did the capacity change while it was measured? Replicas that came, went or changed their size. Pure.

Rule: only the servers' own pages say that. A jump of the pace may have any cause, and is merely possible.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from loadramp.analysis.diagnosis.lost_connections import broke_midway
from loadramp.analysis.diagnosis.symptoms import Case, StepSeen, indices
from loadramp.analysis.diagnosis.unstable_engine import comparable_steps, unstable
from loadramp.analysis.server_window import engine_pages
from loadramp.record.types import Confidence, Finding, Sample

GONE_S = 10.0


@dataclass(slots=True, frozen=True)
class ReplicaMove:
    """A replica that came, went or changed its size. ``silent_from_s``: its page ceased to answer then."""

    words: str
    silent_from_s: float | None = None


def autoscaler_moved(case: Case) -> Finding | None:
    """The capacity changed during the ramp: replicas came, went or changed their size, as their metrics pages show.

    Without that a jump of the pace that stayed is possible evidence, unless the engine's pace comes and goes anyway; so
    is a step that was overloaded where a higher one was not.
    """
    moves = replica_moves(case.run.samples)
    replicas = [one.words for one in moves]
    jumps = [(one, one.jump) for one in case.steps if one.jump]
    if not replicas and jumps and unstable(comparable_steps(case)).comes_and_goes:
        jumps = []
    steps = [one for one, _ in jumps]
    evidence = [*replicas, *(jump.words(one.at) for one, jump in jumps)]
    sure: Confidence = "likely" if any(not _may_be_refused(one, case) for one in moves) else "possible"
    if not evidence:
        steps, evidence = _recovered(case)
    elif replicas and sure == "possible":
        evidence.append("in overload, and no stream broke: it may be the page alone that was refused")
    elif not replicas:
        evidence.append("nothing that the server shows says that replicas came, went or changed their size")
    return Finding("autoscaler_moved", sure, tuple(evidence[-4:]), indices(steps)) if evidence else None


def _may_be_refused(move: ReplicaMove, case: Case) -> bool:
    """A page fell silent in overload and no stream broke: an engine that went away would have broken its own."""
    if move.silent_from_s is None or broke_midway(case.run.table):
        return False
    over = {one.index for one in case.over}
    begins = [step.begin_s for step in case.run.steps if step.index in over]
    return any(begin_s <= move.silent_from_s + GONE_S for begin_s in begins)


def replica_moves(samples: Sequence[Sample]) -> list[ReplicaMove]:
    """Engines' metrics pages that began or ceased to answer in mid-run, and capacity that they say changed.

    A page that comes or goes tells of a replica where there are several. One that is only late (time-outs, as of a
    server under load) is not gone.
    """
    pages = engine_pages(samples)
    out = []
    for number, own in enumerate(pages, start=1):
        read_s = [s.t_s for s in own if s.values]
        silent = [s for s in own if s.t_s > read_s[-1]]
        if read_s[0] - own[0].t_s > GONE_S and len(pages) > 1:
            out.append(ReplicaMove(f"replica {number} appeared {read_s[0]:.0f} s into the run"))
        if own[-1].t_s - read_s[-1] > GONE_S and len(pages) > 1 and any(s.error != "timeout" for s in silent):
            out.append(ReplicaMove(f"replica {number} fell silent {read_s[-1]:.0f} s into the run", read_s[-1]))
        for name, words in (("kv_blocks", "KV blocks"), ("max_num_seqs", "largest batch")):
            levels = list(dict.fromkeys(s.values[name] for s in own if name in s.values))
            if len(levels) > 1:
                change = f"changed from {levels[0]:.0f} to {levels[-1]:.0f}"
                out.append(ReplicaMove(f"the {words} of replica {number} {change}"))
    return out


def _recovered(case: Case) -> tuple[list[StepSeen], list[str]]:
    """Steps that were overloaded although a later one at a rate a quarter higher was not."""
    steps, words = [], []
    for one in case.climb:
        later = [b for b in case.climb if b.load > 1.25 * one.load and not (b.row.saturated or b.row.deficit)]
        if one.row.saturated and one.row.deficit and later:
            steps.append(one)
            words.append(f"overloaded {one.at} but not {later[0].at}: capacity was added, or a hiccup passed")
    return steps, words
