"""The report of a comparison: sentence, chips, charts, tables; and the table of configurations."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from canary_in_memory import SHORT, compared
from msgspec.structs import replace as changed
from rich.console import Console
from run_in_memory import ramp_in_memory, scenario_of
from test_report_html import figures

from loadramp.analysis.proportions import Proportion
from loadramp.comparison.answer_match import AnswerMatch
from loadramp.comparison.block_spread import Missing
from loadramp.comparison.charts import block_by_block, curves, forest, shifts
from loadramp.comparison.configuration_table import (
    sentence,
    tiers_csv,
    tiers_document,
    tiers_html,
    tiers_markdown,
    tiers_table,
)
from loadramp.comparison.configurations import tiers
from loadramp.comparison.decide import Decision
from loadramp.comparison.document import comparison_csv, comparison_document
from loadramp.comparison.environment import Difference
from loadramp.comparison.info import ArmInfo
from loadramp.comparison.page import comparison_html
from loadramp.comparison.pairs import Comparison, shift
from loadramp.comparison.stored_runs import Side
from loadramp.comparison.text import (
    comparison_markdown,
    comparison_sentence,
    comparison_table,
    ratio_words,
    times,
)
from loadramp.report.html import MOST_BYTES
from loadramp.simulator.profiles import PROFILES

TEXT = SHORT.replace("blocks = 8\nlooks = [4]", "blocks = 3\nlooks = []").replace(
    "rates = [8]", "rates = [8, 16]\nwarmup_s = 1"
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    small = PROFILES["small"]
    slow = replace(small, t0_s=small.t0_s * 1.05, frontend_s=0.02)
    info = {"baseline": ArmInfo("http://a/v1"), "candidate": ArmInfo("http://b/v1")}
    one = compared(scenario_of(TEXT), tmp_path_factory.mktemp("c"), candidate=slow, info=info)
    one.info.answers = AnswerMatch(10, 7, 9, (3, 12), {}, {"repeating": 1})
    return one


def printed(what: Any) -> str:
    console = Console(width=80, file=StringIO())
    console.print(what)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_sentence_says_what_is_worse_by_how_much_and_how_sure(found: Comparison) -> None:
    assert re.match(
        r"The candidate is worse than allowed: p50 TTFT at 8 req/s is 1\.\d+ times the baseline's "
        r"\(1\.\d+ to [12]\.\d+\); allowed 1\.1\.",
        comparison_sentence(found),
    )


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (
            Decision("pass", ("no primary measure is worse by 10 %", "0 of 9 failed")),
            "The candidate is no worse than allowed: no",
        ),
        (
            Decision("inconclusive", ("x", "y"), Missing(7, 4, 9)),
            "Not decided: x. Y. It would probably take 4 to 9 more blocks to know: a comparison with --set "
            "canary.blocks=12 (4 min at most).",  # 3 blocks of 10 s at two rates there are
        ),
        (Decision("inconclusive", ("x",), Missing(1, 1, 1)), "Not decided: x. It would probably take about 1 more bl"),
        (
            Decision("inconclusive", ("x",), Missing(213, 50, 867)),
            "Not decided: x. It would probably take at least 50 more blocks to know: a comparison with",
        ),
        (Decision("fail", tuple("abcde")), "The candidate is worse than allowed: a. B. C. And 2 more reasons"),
    ],
)
def test_every_verdict_has_its_words(found: Comparison, decision: Decision, words: str) -> None:
    assert comparison_sentence(replace(found, decision=decision)).startswith(words)


def test_noise_that_no_number_of_blocks_overcomes_is_said(found: Comparison) -> None:
    first, *others = [one for one in found.effects if one.primary]
    open_ = replace(first, status="open", more=None)
    unsure = replace(found, decision=Decision("inconclusive", ("x",)), effects=[open_, *others])
    assert comparison_sentence(unsure) == (
        "Not decided: x. It would take more than 200 more blocks to know: blocks scatter too much for what is allowed "
        "([canary] latency_margin)."
    )
    no_data = replace(open_, status="no_data")
    assert comparison_sentence(replace(unsure, effects=[no_data])) == "Not decided: x."


def test_the_document_holds_the_range_of_blocks(found: Comparison) -> None:
    unsure = replace(found, decision=Decision("inconclusive", ("x",), Missing(7, 4, 9)))
    told = comparison_document(unsure)
    assert (told["more_blocks"], told["more_blocks_range"]) == (7, [4, 9])
    assert comparison_document(found)["more_blocks_range"] is None


def test_an_indicative_comparison_says_so_everywhere(found: Comparison) -> None:
    unsure = replace(found, asked=replace(found.asked, run_sd=0.05))
    assert "Indicative only" in comparison_sentence(unsure)
    assert comparison_document(unsure)["indicative"] is True
    assert "(indicative)" in comparison_markdown(unsure)


def test_the_same_version_has_words_of_its_own(found: Comparison) -> None:
    same = replace(found, asked=replace(found.asked, same_version=True))
    assert comparison_sentence(same).startswith("The two hosts differ, so a comparison between them is biased:")


def test_the_page_holds_every_section_and_no_more_than_it_may(found: Comparison) -> None:
    page = comparison_html(found)
    assert len(page.encode()) < MOST_BYTES
    heads = re.findall(r"<h2>(.*?)</h2>", page)
    assert heads == [
        "What was compared", "How much worse or better", "Latency against load, both",
        "Which part of the distribution moved", "Block by block", "Failed requests", "Same answers?",
        "What else differs", "Conditions", "Glossary",
    ]  # fmt: skip
    for word in ("too slow", "within", "at most", "At worst", "1 repeating", "http://a/v1"):
        assert word in page
    assert not re.search(r"\bNaN\b|Infinity", re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL))
    assert len(figures(page)) > 3  # JSON, of which these would be no part; packed it may hold any letters


def test_failures_are_shown_for_each_rate_where_there_are_several(found: Comparison) -> None:
    page = comparison_html(found)
    assert "Difference, 95 % interval" in page
    one = replace(found, failures_at={8.0: found.failures})
    assert "Difference, 95 % interval" not in comparison_html(one)


def test_what_is_not_there_is_left_out_or_said(found: Comparison) -> None:
    bare = replace(
        found,
        info=changed(found.info, answers=None),
        pairs=[],
        effects=[],
        environment=[],
        decision=Decision("inconclusive", ("nothing",)),
    )
    page = comparison_html(bare)
    assert "Nothing was measured." in page
    assert "Block by block" not in page
    assert "Same answers?" not in page


def test_text_from_outside_cannot_become_a_tag(found: Comparison) -> None:
    evil = "<script>alert(1)</script>"
    info = changed(found.info, name=evil, candidate=ArmInfo(evil))
    page = comparison_html(replace(found, info=info, decision=Decision("fail", (evil,)), notes=[evil]))
    assert evil not in page
    assert "<script>" not in comparison_markdown(replace(found, decision=Decision("fail", (evil,))))


def test_the_document_is_strict_json_with_an_interval_for_every_ratio(found: Comparison) -> None:
    document = json.loads(json.dumps(comparison_document(found), allow_nan=False))
    assert (document["schema"], document["verdict"]) == ("loadramp.verdict/1", "fail")
    for check in document["checks"]:
        assert check["status"] in {"within", "worse", "beyond", "open", "no_data"}
        if check["value"] is not None:
            low, high = check["ci"]
            assert low <= check["value"] <= high
        else:
            assert check["reason"]
    beyond = [one for one in document["checks"] if one["id"] == "ttft_p50@8"]
    assert (beyond[0]["status"], beyond[0]["op"], beyond[0]["limit"]) == ("beyond", "<", pytest.approx(1.1))
    tokens = next(one for one in document["checks"] if one["id"] == "output_tokens_per_s@8")
    assert (tokens["op"], tokens["limit"]) == (">", pytest.approx(1 / 1.1))
    assert document["answers"]["diverged_at_token"] == [3, 12]
    errors = document["errors"]
    assert [one["rate_rps"] for one in errors["rates"]] == [8.0, 16.0]
    assert sum(one["baseline"]["requests"] for one in errors["rates"]) == errors["baseline"]["requests"] > 100
    for one in (errors, *errors["rates"]):
        low, high = one["difference_ci"]
        assert low <= one["difference_ratio"] == 0.0 <= high
    lines = comparison_csv(found).splitlines()
    assert len(lines) == len(document["checks"]) + 1


def test_the_terminal_fits_80_columns_and_shows_the_primary_measures(found: Comparison) -> None:
    shown = printed(comparison_table(found))
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.count("p50 TTFT") >= 2
    assert "too slow" in shown


def test_the_forest_has_a_point_whiskers_and_a_limit_for_each_measure(found: Comparison) -> None:
    primary = [one for one in found.effects if one.primary]
    figure = forest(primary, "x")
    assert figure is not None
    assert len(figure.data) == len(primary) == len(figure.layout["yaxis"]["ticktext"])
    assert len([shape for shape in figure.layout["shapes"] if shape["line"]["dash"] == "dot"]) == len(primary)
    assert forest([], "x") is None


def test_curves_blocks_and_shifts_of_both(found: Comparison) -> None:
    assert [figure.title.split(":")[0] for figure in curves(found)] == ["TTFT", "ITL", "TPOT", "E2E"]
    assert len(block_by_block(found)) == 8
    assert [len(figure.data) for figure in shifts(found)] == [2, 2, 2, 2]
    points = shift(found.pairs, "ttft")
    assert all(low <= ratio <= high for _, ratio, low, high in points)
    assert next(ratio for q, ratio, _, _ in points if q == 0.5) > 1.3


@pytest.mark.parametrize(
    ("ratio", "words"), [(1.0, "1.000"), (0.98765, "0.988"), (12.34, "12.3"), (None, ""), (0.05, "0.05")]
)
def test_ratios_line_up(ratio: float | None, words: str) -> None:
    assert times(ratio) == words


def test_too_few_blocks_give_no_interval_in_words(found: Comparison) -> None:
    wild = replace(found.effects[0], mean=0.04, low=-12.0, high=12.0, n=2)
    assert ratio_words(wild) == "1.041 (no interval)"


LADDER = """
seed = 2
[slo]
ttft_s = 1
[prompts]
kind = "fixed"
input_tokens = 60
output_tokens = 10
[ramp]
kind = "ladder"
rates = [6, 12, 24]
warmup_s = 1
measure_s = 12
settle_s = 1
settle_requests = 0
tail_s = 1
"""


@pytest.fixture(scope="module")
def configurations(tmp_path_factory: pytest.TempPathFactory) -> list[Side]:
    small = PROFILES["small"]
    made = []
    for name, profile in (
        ("default", small),
        ("tuned", replace(small, t0_s=0.015)),
        ("small", replace(small, max_num_seqs=3)),
    ):
        run = ramp_in_memory(scenario_of(LADDER), tmp_path_factory.mktemp(name), profile=profile)
        made.append(Side(name, [run]))
    return made


def test_a_table_of_configurations(configurations: list[Side]) -> None:
    found = tiers(configurations, 0.05)
    found.environment = [[] for _ in configurations]
    assert found.rates == [6.0, 12.0, 24.0]
    assert found.rate_rps == 12.0 or found.rate_rps == 24.0
    tuned = found.figures[1]["itl_p50"]
    assert tuned.ratio is not None and tuned.ratio == pytest.approx(0.69, abs=0.06)
    assert tuned.low is not None and tuned.high is not None and tuned.low < tuned.ratio < tuned.high
    assert found.figures[0]["itl_p50"].ratio is None
    document = json.loads(json.dumps(tiers_document(found), allow_nan=False))
    assert [one["name"] for one in document["configurations"]] == ["default", "tuned", "small"]
    page = tiers_html(found)
    assert len(page.encode()) < MOST_BYTES
    assert "Configurations" in page and "Latency against load" in page
    markdown = tiers_markdown(found)
    assert len([line for line in markdown.splitlines() if line.startswith("| ")]) == 4
    assert "default" in printed(tiers_table(found))
    assert len(tiers_csv(found).splitlines()) > 10


def test_a_configuration_that_never_reached_its_ceiling_is_not_called_lower(configurations: list[Side]) -> None:
    said = sentence(tiers(configurations, 0.05))
    assert said.startswith(
        "default and tuned showed no ceiling up to the highest rate offered; the highest that was found"
    )
    assert "is that of small, 13" in said


def test_requests_at_once_have_an_interval_too(configurations: list[Side]) -> None:
    found = tiers(configurations, 0.05)
    tuned = found.figures[1]["at_once"]
    assert tuned.ratio is not None and tuned.low is not None and tuned.high is not None
    assert tuned.low < tuned.ratio < tuned.high < 1.0


def test_a_configuration_measured_under_other_conditions_is_marked_everywhere(configurations: list[Side]) -> None:
    found = tiers(configurations, 0.05)
    found.environment = [
        [],
        [Difference("flags", "subject", "unknown", "--enforce-eager")],
        [Difference("gpu", "condition", "H100", "L4"), Difference("driver", "condition", "unknown", "570")],
    ]
    words = "small was measured under other conditions than the first: gpu (H100 → L4)."
    assert found.broken == [("small", [found.environment[2][0]])]
    for shown in (tiers_html(found), tiers_markdown(found), " ".join(printed(tiers_table(found)).split())):
        assert words in shown
    told = [one["other_conditions"] for one in tiers_document(found)["configurations"]]
    assert told == [[], [], ["gpu"]]


def test_configurations_without_a_common_rate_say_so(configurations: list[Side]) -> None:
    other = replace(
        configurations[1].runs[0],
        rows=[replace(row, rate_rps=(row.rate_rps or 0.0) * 1.1) for row in configurations[1].runs[0].rows],
    )
    found = tiers([configurations[0], Side("other", [other])], 0.05)
    found.environment = [[], []]
    assert found.rates == []
    assert "no rate in common" in tiers_markdown(found)


def test_failures_are_said_to_be_of_what_is_compared_and_none_of_nothing(found: Comparison) -> None:
    shares = (Proportion(0, 26), Proportion(1, 26))  # 18 of 47 failed in all, which stopped it at once
    said = comparison_markdown(replace(found, failures=shares))
    assert "failed requests among those compared: baseline 0 of 26, candidate 1 of 26 (at most 17 %" in said
    assert "failed requests: none were compared" in comparison_markdown(
        replace(found, failures=(Proportion(), Proportion()))
    )
