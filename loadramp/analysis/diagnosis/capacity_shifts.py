"""Did the capacity change while it was measured? Replicas that came, went or changed their size. Pure.

Rule: only the servers' own pages say that. A jump of the pace may have any cause, and is merely possible.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from loadramp.analysis.diagnosis.lost_connections import broke_midway
from loadramp.analysis.diagnosis.symptoms import Case, StepView, indices
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
    replicas = [move.words for move in moves]
    jumps = [(step, step.jump) for step in case.steps if step.jump]
    if not replicas and jumps and unstable(comparable_steps(case)).comes_and_goes:
        jumps = []
    steps = [step for step, _ in jumps]
    evidence = [*replicas, *(jump.words(step.at) for step, jump in jumps)]
    sure: Confidence = "likely" if any(not _may_be_refused(move, case) for move in moves) else "possible"
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
    over = {step.index for step in case.over}
    begins = [step.begin_s for step in case.run.steps if step.index in over]
    return any(begin_s <= move.silent_from_s + GONE_S for begin_s in begins)


def replica_moves(samples: Sequence[Sample]) -> list[ReplicaMove]:
    """Engines' metrics pages that began or ceased to answer in mid-run, and capacity that they say changed.

    A page that comes or goes tells of a replica where there are several. One that is only late (time-outs, as of a
    server under load) is not gone.
    """
    pages = engine_pages(samples)
    out = []
    for number, scrapes in enumerate(pages, start=1):
        read_s = [s.t_s for s in scrapes if s.values]
        silent = [s for s in scrapes if s.t_s > read_s[-1]]
        if read_s[0] - scrapes[0].t_s > GONE_S and len(pages) > 1:
            out.append(ReplicaMove(f"replica {number} appeared {read_s[0]:.0f} s into the run"))
        if scrapes[-1].t_s - read_s[-1] > GONE_S and len(pages) > 1 and any(s.error != "timeout" for s in silent):
            out.append(ReplicaMove(f"replica {number} fell silent {read_s[-1]:.0f} s into the run", read_s[-1]))
        for name, words in (("kv_blocks", "KV blocks"), ("max_num_seqs", "largest batch")):
            levels = list(dict.fromkeys(s.values[name] for s in scrapes if name in s.values))
            if len(levels) > 1:
                change = f"changed from {levels[0]:.0f} to {levels[-1]:.0f}"
                out.append(ReplicaMove(f"the {words} of replica {number} {change}"))
    return out


def _recovered(case: Case) -> tuple[list[StepView], list[str]]:
    """Steps that were overloaded although a later one at a rate a quarter higher was not."""
    steps, words = [], []
    for step in case.climb:
        later = [b for b in case.climb if b.load > 1.25 * step.load and not (b.row.saturated or b.row.deficit)]
        if step.row.saturated and step.row.deficit and later:
            steps.append(step)
            words.append(f"overloaded {step.at} but not {later[0].at}: capacity was added, or a hiccup passed")
    return steps, words
