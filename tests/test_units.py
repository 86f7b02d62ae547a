"""Numbers to words."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from loadramp.units import latency, latency_span, percent, plural, sig, signed, span, span_of

PACKAGE = Path(__file__).parent.parent / "loadramp"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (48.4, "48.4"), (48.0, "48"), (9.996, "10"), (999.6, "1,000"), (12345.0, "12,300"), (0.012345, "0.0123"),
     (-3.456, "-3.46"), (None, ""), (math.nan, ""), (math.inf, ""), (np.float64(2.5), "2.5"), (True, "")],
)  # fmt: skip
def test_three_significant_digits_without_exponent(value: float | None, text: str) -> None:
    assert sig(value) == text


def test_tables_keep_the_zeros_that_sentences_drop() -> None:
    assert sig(48.0, trim=False) == "48.0"
    assert sig(9.996, trim=False) == "10.0"


@pytest.mark.parametrize(
    ("value_s", "text"),
    [(0.0484, "48.4 ms"), (0.9996, "1 s"), (1.234, "1.23 s"), (0.000099, "99 µs"), (0.0, "0 ms"), (0.0005, "0.5 ms"),
     (300.0, "300 s"), (900.0, "15 min"), (None, "")],
)  # fmt: skip
def test_latencies_choose_their_unit(value_s: float | None, text: str) -> None:
    assert latency(value_s) == text


def test_an_interval_names_its_unit_once_and_says_when_a_side_is_unknown() -> None:
    assert latency_span(0.029, 0.031) == "29 to 31 ms"
    assert latency_span(0.9, 1.1) == "900 ms to 1.1 s"
    assert latency_span(0.402, None) == "at least 402 ms"
    assert latency_span(None, None) == ""
    assert span_of(15.2, 16.7) == "15.2-16.7"
    assert span_of(None, 16.7) == "at most 16.7"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(45, "45 s"), (90, "1.5 min"), (300, "5 min"), (3600, "60 min"), (7500, "2 h 5 min"), (7200, "2 h")],
)
def test_spans_of_time_read_as_people_say_them(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_shares_and_counts() -> None:
    assert percent(0.99) == "99 %"
    assert percent(0.00123) == "0.123 %"
    assert percent(0.004) == "0.4 %"
    assert percent(None) == ""
    assert plural(1, "request") == "1 request"
    assert plural(1200, "request") == "1,200 requests"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.123, "+12.3 %"), (-0.034, "-3.4 %"), (0.0, "0 %"), (-0.0, "0 %"), (25.0, "+2,500 %"), (None, "")],
)
def test_a_change_has_its_sign(ratio: float | None, text: str) -> None:
    assert signed(ratio) == text


def test_no_module_words_a_percentage_by_itself() -> None:
    """``:.0%`` makes ``0%`` of 0.004, and never a space. Plotly knows the format too, and has the space as little."""
    own = re.compile(r":[^{}\s]*%\}|\}%(?!\})|\b100(\.0)? \* [^{}]*\} %|\* 100(\.0)?(:[^{}]*)?\} %")
    lines = [(path.name, line) for path in PACKAGE.rglob("*.py") for line in path.read_text().splitlines()]
    assert [(name, line) for name, line in lines if own.search(line)] == []
