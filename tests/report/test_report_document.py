"""What programs read: strict JSON and CSV."""

import csv
import io
import json
import math
from typing import Any

import numpy as np
from curve_rows import changed
from report_runs import row, served, served_rows

from loadramp.record.types import Check, Estimate
from loadramp.report import curve_csv, verdict_document


def strict_json(document: dict[str, Any]) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(json.dumps(document, allow_nan=False), parse_constant=refuse)


def test_the_document_has_exactly_the_keys_that_programs_rely_on() -> None:
    document = strict_json(verdict_document(served()))
    shared = {"status", "rate_rps", "low_rps", "high_rps", "sustained_rps", "detector", "reason"}
    assert set(document) == {
        "run_dir", "state", "verdict", "sentence", "ceiling", "p99_itl_knee", "slo_capacity", "steps", "checks",
        "diagnosis", "gates",
    }  # fmt: skip
    assert set(document["ceiling"]) == shared
    assert set(document["p99_itl_knee"]) == shared | {"cause"}
    assert set(document["slo_capacity"]) == shared | {"limit"}
    assert document["ceiling"]["rate_rps"] == 15.9
    assert document["checks"][0] == {
        "code": "few_samples", "level": "note", "message": "too few requests for a p99 of TTFT",
        "advice": "Lengthen the steps.", "step": 0,
    }  # fmt: skip
    assert (document["state"], document["verdict"], len(document["steps"])) == ("complete", "pass", 6)


def test_rp01_nan_and_infinity_become_null_with_a_reason() -> None:
    odd = row(0, 1.0, ttft_mean_s=math.nan, itl_p99_s=np.float64("inf"), signals=("queue",))
    odd = changed(odd, rate_rps=math.inf, reasons={"itl_p99_s": "cut"})
    step = strict_json(verdict_document(served(rows=[odd])))["steps"][0]
    assert (step["rate_rps"], step["ttft_mean_s"], step["itl_p99_s"]) == (None, None, None)
    assert step["reasons"] == {
        "rate_rps": "not a finite number",
        "ttft_mean_s": "not a finite number",
        "itl_p99_s": "cut",
    }
    assert step["signals"] == ["queue"]


def test_a_run_without_estimates_or_rows_still_gives_a_document() -> None:
    document = strict_json(verdict_document(served(rows=[], estimates={}, checks=[], info={"state": "running"})))
    assert document["state"] == "stopped"
    assert document["ceiling"]["status"] == "not_measurable"
    assert document["steps"] == []


def test_infinite_estimates_are_null() -> None:
    run = served(estimates={"ceiling": Estimate("found", 3.0, 2.0, math.inf)})
    assert strict_json(verdict_document(run))["ceiling"]["high_rps"] is None


def test_the_curve_reads_back_as_it_was() -> None:
    rows = served_rows()
    rows[0] = changed(rows[0], tpot_p99_s=None, errors={"reset": 1})
    back = list(csv.DictReader(io.StringIO(curve_csv(served(rows=rows)))))
    assert len(back) == 6
    assert list(back[0])[:4] == ["step", "role", "rate_rps", "users"]
    assert float(back[3]["itl_p99_s"]) == rows[3].of("itl").p99.value
    assert (back[0]["tpot_p99_s"], back[0]["void"], back[4]["saturated"]) == ("", "false", "true")
    assert json.loads(back[0]["errors"]) == {"reset": 1}


def test_a_curve_without_rows_is_a_line_of_names() -> None:
    assert curve_csv(served(rows=[])).startswith("step,role,rate_rps")


def test_text_that_a_spreadsheet_would_run_is_defused() -> None:
    back = next(csv.DictReader(io.StringIO(curve_csv(served(rows=[row(0, 1.0, token_source="=HYPERLINK(1)")])))))
    assert back["token_source"] == "'=HYPERLINK(1)"


def test_negative_numbers_are_no_formulas() -> None:
    back = next(csv.DictReader(io.StringIO(curve_csv(served(rows=[row(0, 1.0, p99_itl_elasticity=-0.25)])))))
    assert float(back["p99_itl_elasticity"]) == -0.25


def test_checks_keep_their_text() -> None:
    run = served(checks=[Check("x", "warn", 'a "quoted" </script> message')])
    assert strict_json(verdict_document(run))["checks"][0]["message"] == 'a "quoted" </script> message'
