"""Numbers agree with their nouns, and no message prints a float to its last digit."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from curve_rows import changed, row_of

from loadramp.analysis.checks.validity import _held, _late_reads
from loadramp.comparison.charts import _hover
from loadramp.comparison.text import limit_words
from loadramp.record.types import Step
from loadramp.report.preview import profile_lines
from loadramp.report.progress import row_line, step_words
from loadramp.units import agreed, counted, left_out_words, multiple, often, plural, times_of
from loadramp.workload.ramps import _too_many_errors, geometric, ladder, users

PACKAGE = Path(__file__).parent.parent / "loadramp"
OWN_WORDS = {"simulator/request_parser.py"}
"""The simulator refuses in the words of the engines that it plays."""
NOUNS = (
    "answers|arrivals|blocks|bytes|cards|characters|checks|configurations|events|failures|files|gaps|GPUs|heads|"
    "items|jobs|layers|lines|minutes|models|moments|nights|numbers|ones|pairs|places|preemptions|questions|ramps|"
    "rates|reads|rejections|repeats|replicas|requests|rows|runs|scrapes|seconds|sequences|steps|streams|stretches|"
    "tokens|turns|users|values|words|workers"
)
AFTER_A_NUMBER = re.compile(rf" (?:(?!of|in|to|at|and|by|from|among)[a-z]+ ){{0,1}}({NOUNS})\b(?!/)")
MOST_DIGITS = 7
"""Significant digits that somebody may read."""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (plural(0, "request"), "0 requests"),
        (plural(1, "request"), "1 request"),
        (plural(2, "slow stretch"), "2 slow stretches"),
        (plural(1, "slow stretch"), "1 slow stretch"),
        (plural(1200, "health check"), "1,200 health checks"),
        (plural(0, "read", "were"), "0 reads were"),
        (plural(1, "read", "were"), "1 read was"),
        (plural(2, "block", "have"), "2 blocks have"),
        (plural(1, "block", "have"), "1 block has"),
        (counted("1", "token"), "1 token"),
        (counted("1.0", "token"), "1.0 tokens"),
        (counted("1 or 2", "block"), "1 or 2 blocks"),
        (agreed(1, "are"), "is"),
        (agreed(0, "are"), "are"),
        (often(1), "once"),
        (often(2), "twice"),
        (often(3), "3 times"),
        (multiple(1.0), "1.00 times"),
        (multiple(0.1 + 0.2), "0.3 times"),
        (multiple(1 / 3), "0.333 times"),
        (multiple(2.0), "2 times"),
    ],
)
def test_numbers_agree(words: str, said: str) -> None:
    assert words == said


def _counts_in_words(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """f-strings that put a number of the program in front of a noun that is always many."""
    for text in ast.walk(tree):
        if not isinstance(text, ast.JoinedStr):
            continue
        for value, after in zip(text.values, text.values[1:], strict=False):
            if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                found = AFTER_A_NUMBER.match(str(after.value))
                if found and not _constant(value.value):
                    yield value.lineno, f"{{{ast.unparse(value.value)}}}{found.group(0)}"


def _constant(value: ast.expr) -> bool:
    """A limit of ours, in capitals, which is not 1; or words of which the noun is no part."""
    if isinstance(value, ast.Subscript):
        value = value.value
    return isinstance(value, ast.Name) and value.id.isupper()


NOT_A_COUNT = {
    "{at} more requests",  # a rate, and requests of no number
    "{_share(step, ENGINE)} all streams",
    "{inner} counts failures",
    "{sums} numbers",
    "{self.name} seconds",
    "{scenario.arrivals.kind} arrivals",
}


def test_no_message_puts_a_number_before_a_noun_that_is_always_many() -> None:
    found = [
        (str(path.relative_to(PACKAGE)), line, words)
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, words in _counts_in_words(ast.parse(path.read_text()))
        if str(path.relative_to(PACKAGE)) not in OWN_WORDS and words not in NOT_A_COUNT
    ]
    assert found == []


def _digits(number: str) -> int:
    return len(number.replace(".", "").strip("0"))


def test_digits_are_counted_without_zeros_at_either_end() -> None:
    assert [_digits(one) for one in ("0.30000000000000004", "0.0000333", "12300.0", "0")] == [17, 3, 3, 0]


def _families(n: int, x: float) -> dict[str, str]:
    """Messages of every room, with a count and a number that is no round one."""
    effect: Any = SimpleNamespace(
        n=n, words="p99 ITL", allowed_ratio=1.0 + x, high=None, vague=False, reason="", mean=x, worse=1.0,
        ratio=lambda *_: 1.0 + x, worst_ratio=1.0 + x, rate_rps=x,
    )  # fmt: skip
    lengths = SimpleNamespace(mean=x, p50=x, p95=x, p99=x)
    profile = SimpleNamespace(
        input_tokens=lengths, output_tokens=lengths, requests=n, estimated_ratio=x, prefix_reuse_ratio=x, gap_cv=x,
        turns_mean=n + 0.001, classes={}, models={},
    )  # fmt: skip
    reached = row_of(overloaded=False, saturated=True, users=n, rate_rps=1 / 3)
    return {
        "compare, limit": limit_words(effect),
        "compare, hover": _hover(effect),
        "profile": "\n".join(profile_lines(profile)),
        "users": step_words(Step(0, users=n)),
        "users, a row": row_line(changed(reached, ok=n, requests=n, load_rps=1 / 3)),
        "held": _held([SimpleNamespace(held=n)]),  # type: ignore[list-item]
        "late reads": _late_reads([SimpleNamespace(late_reads=10 + n, tokens=10)]),  # type: ignore[list-item]
        "ladder": ladder([reached] * n, rates=[1.0] * n).reason if n else "",  # type: ignore[union-attr]
        "users all": users([reached] * n, users=[1] * n).reason if n else "",  # type: ignore[union-attr]
        "saturated": geometric([reached] * n, overload_steps=n).reason if n else "",  # type: ignore[union-attr]
        "models": left_out_words(["busy"] * n),
        "ratio": times_of(1.0 + x, "the baseline's"),
        "errors": _too_many_errors([changed(reached, overloaded=True)]).reason,
    }


@pytest.mark.parametrize("number", [0.1 + 0.2, 1 / 3, 1e-9 / 3, 1234567.891234567])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_messages_with_counts_and_numbers(count: int, number: float) -> None:
    for name, words in _families(count, number).items():
        assert not re.search(rf"(?<![\d.,])1 (?:[a-z]+ )?({NOUNS})\b(?!/)", words), (name, words)
        assert not re.search(r"\b1 [a-z]+ (were|are|have)\b", words), (name, words)
        assert max(map(_digits, re.findall(r"[\d.]+", words)), default=0) <= MOST_DIGITS, (name, words)
        assert not re.search(r"(?<![\d.])1 times", words), (name, words)
