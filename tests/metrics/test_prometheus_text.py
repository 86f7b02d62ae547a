"""Prometheus text: read as the reference reader reads it, and never an exception."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metrics_pages import NAMES, page
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.utils import floatToGoString

from loadramp.metrics.prometheus_text import MetricPoint, names, parse


def reference(text: str) -> list[tuple[str, dict[str, str], float]]:
    """Without TYPE lines: with them it renames counters that do not end in ``_total``."""
    bare = "\n".join(line for line in text.split("\n") if not line.startswith("# TYPE"))
    return [(s.name, s.labels, s.value) for family in text_string_to_metric_families(bare) for s in family.samples]


def by_series(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {(point.name, frozenset(point.labels.items())): point.value for point in parse(text)}


@pytest.mark.parametrize("name", NAMES)
def test_every_page_reads_as_the_reference_parser_reads_it(name: str) -> None:
    text = page(name)
    ours = parse(text)
    assert [tuple(point) for point in ours] == reference(text)
    assert names(text) == {point.name for point in ours}


def test_only_the_wanted_names_are_read() -> None:
    text = 'a 1\nb{x="1"} 2\nb_total 3\nnot wanted at all\n'
    assert parse(text, {"b"}) == [MetricPoint("b", {"x": "1"}, 2.0)]


ODDITIES = {
    "timestamp in milliseconds": ("a 1.5 1395066363000", MetricPoint("a", {}, 1.5)),
    "OpenMetrics timestamp": ('a{b="c"} 1 1520879607.789', MetricPoint("a", {"b": "c"}, 1.0)),
    "exemplar": (
        'a_bucket{le="0.1"} 8 # {trace_id="x } y"} 0.067 1520879607.7',
        MetricPoint("a_bucket", {"le": "0.1"}, 8.0),
    ),
    "exemplar without labels": ('a_total 17 # {trace_id="x"} 0.67', MetricPoint("a_total", {}, 17.0)),
    "timestamp and exemplar": ('a_total 17 12.5 # {t="x"} 0.67', MetricPoint("a_total", {}, 17.0)),
    "trailing comma": ('a{b="c",} 3', MetricPoint("a", {"b": "c"}, 3.0)),
    "spaces everywhere": ('  a { b = "c" , d="e" }\t 4 ', MetricPoint("a", {"b": "c", "d": "e"}, 4.0)),
    "no space after the brace": ('a{b="c"}5', MetricPoint("a", {"b": "c"}, 5.0)),
    "empty braces": ("a{} 6", MetricPoint("a", {}, 6.0)),
    "escapes": (r'a{b="one\\two\"three\nfour"} 7', MetricPoint("a", {"b": 'one\\two"three\nfour'}, 7.0)),
    "braces, commas and hashes in a label": ('a{b="{x=\\"1\\"}, #"} 8', MetricPoint("a", {"b": '{x="1"}, #'}, 8.0)),
    "carriage return": ('a{b="c"} 9\r', MetricPoint("a", {"b": "c"}, 9.0)),
    "colon in the name": ("vllm:x:y 10", MetricPoint("vllm:x:y", {}, 10.0)),
    "exponent": ("a 2.754305e+06", MetricPoint("a", {}, 2754305.0)),
    "plus infinity": ("a +Inf", MetricPoint("a", {}, math.inf)),
    "minus infinity": ("a -Inf", MetricPoint("a", {}, -math.inf)),
    "quoted name": ('{"my.metric",b="c"} 11', MetricPoint("my.metric", {"b": "c"}, 11.0)),
    "quoted name alone": ('{"my.metric"} 12', MetricPoint("my.metric", {}, 12.0)),
    "unicode line separator in a label": ('a{b="x\u2028y\x0bz"} 13', MetricPoint("a", {"b": "x\u2028y\x0bz"}, 13.0)),
}  # fmt: skip


@pytest.mark.parametrize("case", ODDITIES)
def test_an_oddity_of_the_format_is_read(case: str) -> None:
    line, expected = ODDITIES[case]
    found = parse(f"# HELP a b\n# TYPE a counter\n\n{line}\n# EOF\n")
    assert found == [expected]


def test_nan_is_kept_for_the_reader_to_judge() -> None:
    assert math.isnan(parse("a NaN\n")[0].value)


def test_a_last_line_without_its_end_is_read() -> None:
    assert parse("a 1\nb 2") == [MetricPoint("a", {}, 1.0), MetricPoint("b", {}, 2.0)]


@pytest.mark.parametrize(
    "line",
    ["a", "a{", 'a{b="c" 1', 'a{b="c"}', "a one", "a 1_000", "a{b=c} 1", 'a{b="c" d="e"} 1', "a 1 2 3", "<html>",
     "1a 2", 'a{"b"} 1', "{} 1", '{b="c"} 1'],
)  # fmt: skip
def test_a_line_that_is_none_is_left_out_and_the_rest_is_read(line: str) -> None:
    found = parse(f"x 1\n{line}\ny 2\n")
    assert found == [MetricPoint("x", {}, 1.0), MetricPoint("y", {}, 2.0)]


@given(st.text())
def test_any_text_is_survived(text: str) -> None:
    found = parse(text)
    assert len(found) <= text.count("\n") + 1


@given(st.lists(st.sampled_from(["a", "{", "}", '"', "\\", ",", "=", " ", "1", "#", "\n", "\r", "n"]), max_size=60))
def test_text_made_of_the_formats_own_characters_is_survived(parts: list[str]) -> None:
    found = parse("".join(parts))
    assert len(found) <= parts.count("\n") + 1


def test_a_line_of_many_quotes_and_backslashes_takes_no_longer_than_its_length() -> None:
    assert parse('a{b="' + '\\"' * 200_000) == []
    assert parse("a{" + 'b="c",' * 50_000 + '"') == []


label_values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=20) | st.just(
    "a\nb"
)
points = st.builds(
    MetricPoint,
    st.from_regex(r"[a-z_:][a-z0-9_:]{0,8}", fullmatch=True),
    st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True), label_values, max_size=3),
    st.floats(allow_nan=False),
)


@given(st.lists(points, max_size=6))
def test_what_is_written_is_read_back(written: list[MetricPoint]) -> None:
    lines = ["# HELP f words, \\\\ and\\nlines", "# TYPE f gauge"]
    for name, labels, value in written:
        pairs = [f'{key}="{escaped(text)}"' for key, text in labels.items()]
        lines.append(f"{name}{{{','.join(pairs)}}} {floatToGoString(value)}")
    found = parse("\n".join(lines))
    assert found == written


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def test_a_page_of_the_reference_client_is_read() -> None:
    registry = CollectorRegistry()
    Gauge("g", "A gauge.", ["m"], registry=registry).labels('q"\\').set(3)
    seconds = Histogram("h", "Seconds.", ["m"], buckets=(0.1, 1.0), registry=registry).labels("x")
    for value in (0.05, 0.5, 0.75, 2.0):
        seconds.observe(value)
    found = by_series(generate_latest(registry).decode())
    of_h = {(point.name, point.labels.get("le")): point.value for point in parse(generate_latest(registry).decode())}
    assert found["g", frozenset({("m", 'q"\\')})] == 3.0
    assert [of_h["h_bucket", le] for le in ("0.1", "1.0", "+Inf")] == [1.0, 3.0, 4.0]
    assert (of_h["h_count", None], of_h["h_sum", None]) == (4.0, 3.3)


def test_an_openmetrics_page_with_exemplars_reads_the_same() -> None:
    registry = CollectorRegistry()
    Counter("c", "Count.", ["m"], registry=registry).labels("x").inc(5, exemplar={"trace": "a b"})
    text = openmetrics.generate_latest(registry).decode()
    assert "# {" in text
    assert MetricPoint("c_total", {"m": "x"}, 5.0) in parse(text)
