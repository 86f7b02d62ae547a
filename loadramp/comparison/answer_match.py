"""Do two versions give the same answers? Greedy answers as text, and answers no healthy model gives. Pure.

Only findings leave this module: positions, counts and kinds, never text.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from loadramp.units import plural

LONGEST_PERIOD = 8
REPEATS = 24
"""Words at the end of an answer that follow one pattern of at most LONGEST_PERIOD words: it runs in circles."""
LONGEST_RUN = 16
"""So many of one character in a row is what a model writes whose numbers are not numbers."""
UNPRINTABLE_RATIO = 0.05
BROKEN_RATIO = 0.1
DRAWN = frozenset(" -=_*.#~\n")
"""Characters that people, too, repeat: rules, dots, blanks."""
_NOT_A_NUMBER = frozenset({"nan", "inf", "-inf", "none", "null", "<unk>", "[unk]"})


@dataclass(slots=True, frozen=True)
class GreedyAnswer:
    """One greedy answer; ``text`` None: the request failed."""

    text: str | None
    tokens: int | None = None


@dataclass(slots=True, frozen=True)
class AnswerMatch:
    """What came of asking both, and the baseline twice, the same prompts at temperature 0."""

    prompts: int = 0
    equal: int = 0
    equal_to_itself: int = 0
    """Of the baseline's two answers: what chance in the engine alone does."""
    diverged_at: tuple[int, ...] = ()
    """First token that differs, of each answer that does (counted in words, scaled to the answer's tokens)."""
    broken_base: dict[str, int] = field(default_factory=dict)
    broken_candidate: dict[str, int] = field(default_factory=dict)

    @property
    def match_ratio(self) -> float | None:
        return self.equal / self.prompts if self.prompts else None

    @property
    def itself_ratio(self) -> float | None:
        return self.equal_to_itself / self.prompts if self.prompts else None

    @property
    def broken(self) -> int:
        """Broken answers of the candidate beyond those of the baseline."""
        return sum(self.broken_candidate.values()) - sum(self.broken_base.values())


def compare(
    base: Sequence[GreedyAnswer], again: Sequence[GreedyAnswer], candidate: Sequence[GreedyAnswer]
) -> AnswerMatch:
    """Compare answers to the same prompts, in the same order: baseline, baseline once more, candidate."""
    pairs = list(zip(base, again, candidate, strict=True))
    differ = [(b, c) for b, _, c in pairs if not _equal(b, c)]
    return AnswerMatch(
        prompts=len(pairs),
        equal=len(pairs) - len(differ),
        equal_to_itself=sum(_equal(b, a) for b, a, _ in pairs),
        diverged_at=tuple(divergence(b, c) for b, c in differ if b.text is not None and c.text is not None),
        broken_base=_kinds(base),
        broken_candidate=_kinds(candidate),
    )


def divergence(answer: GreedyAnswer, other: GreedyAnswer) -> int:
    """Number of the first token that differs (0: the first one).

    Texts have no token boundaries: the words that agree are counted and scaled by the answer's tokens a word.
    """
    left, right = (answer.text or "").split(), (other.text or "").split()
    same = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        same += 1
    scale = answer.tokens / len(left) if answer.tokens and left else 1.0
    return round(same * scale)


def broken(answer: GreedyAnswer) -> str:
    """What is wrong with an answer by itself: ``error``, ``empty``, ``garbage``, ``repeating``, or nothing."""
    text = answer.text
    if text is None:
        return "error"
    if not text.strip():
        return "empty"
    strange = sum(1 for c in text if c == "\ufffd" or (not c.isprintable() and c not in "\n\t\r"))
    runs = (len(list(run)) for c, run in groupby(text) if c not in DRAWN)
    words = text.split()
    nothing = sum(word.lower().strip(".,") in _NOT_A_NUMBER for word in words)
    if strange > UNPRINTABLE_RATIO * len(text) or max(runs, default=0) >= LONGEST_RUN or 2 * nothing > len(words):
        return "garbage"
    return "repeating" if _circles(words) else ""


def findings(match: AnswerMatch, min_match_ratio: float) -> tuple[list[str], list[str]]:
    """Why the answers fail the candidate, and why they keep it from passing. ``min_match_ratio`` 0: they are meant to
    differ, so only broken ones count."""
    if not match.prompts:
        return [], []
    fails, doubts = [], []
    kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(match.broken_candidate.items()))
    count = sum(match.broken_candidate.values())
    broken = f"{count} of {plural(match.prompts, 'answer')} {'is' if count == 1 else 'are'} broken ({kinds})"
    if match.broken >= max(2.0, BROKEN_RATIO * match.prompts):
        fails.append(broken)
    elif match.broken > 0:
        doubts.append(f"{broken}: ask more prompts ([canary] answers)")
    itself = match.itself_ratio or 0.0
    if match.equal < min_match_ratio * itself * match.prompts:
        where = f", from token {sorted(match.diverged_at)[len(match.diverged_at) // 2]} on" if match.diverged_at else ""
        doubts.append(
            f"the answers differ: {match.equal} of {match.prompts} are equal{where}, while the baseline repeats "
            f"{match.equal_to_itself}; if that is meant, set [canary] min_match_ratio"
        )
    if itself == 0.0 and min_match_ratio > 0.0:
        doubts.append("the baseline does not give the same answer twice: answers cannot be compared here")
    return fails, doubts


def _equal(answer: GreedyAnswer, other: GreedyAnswer) -> bool:
    return answer.text is not None and answer.text == other.text


def _kinds(answers: Sequence[GreedyAnswer]) -> dict[str, int]:
    return dict(Counter(kind for answer in answers if (kind := broken(answer))))


def _circles(words: Sequence[str]) -> bool:
    end = words[-REPEATS:]
    if len(end) < REPEATS:
        return False
    return any(all(end[i] == end[i - p] for i in range(p, REPEATS)) for p in range(1, LONGEST_PERIOD + 1))
