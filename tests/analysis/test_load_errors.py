"""Failures that do not depend on load: no evidence about a rate, while the run goes on and in its final judgement."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from curve_rows import changed
from records_and_rows import answer, row, unfinished, window
from run_in_memory import ramp_in_memory, scenario_of

from loadramp.analysis.ceiling import ceiling
from loadramp.analysis.curve import fold
from loadramp.analysis.error_classes import class_of
from loadramp.analysis.load_errors import fails_too_often, load_error_ratio, over_length, request_errors
from loadramp.analysis.overload import shows_overload
from loadramp.analysis.slo_capacity import slo_capacity
from loadramp.analysis.threshold_rules import parse
from loadramp.analysis.thresholds import judge_rule
from loadramp.client.fleet import FleetError
from loadramp.record.row import Row
from loadramp.record.run_info import OverLength, RunInfo
from loadramp.record.table import Run, Table
from loadramp.record.types import Record, Stop
from loadramp.report.document import verdict_document
from loadramp.report.markdown import summary_markdown
from loadramp.report.verdict_text import verdict_sentence
from loadramp.runner.conductor import Conductor
from loadramp.runner.model_lengths import lengths
from loadramp.runner.preview import of_scenario
from loadramp.runner.scenarios import load, read_run
from loadramp.scenario.scenario import Slo
from loadramp.simulator.faults import Faults
from loadramp.simulator.profiles import PROFILES
from loadramp.workload.profile import overlong
from loadramp.workload.ramps import geometric

TOO_LONG = "HTTP 400 Bad Request: This model's maximum context length is 4096 tokens (BadRequestError, 400)"

SHORT = """
seed = 5
[prompts]
kind = "fixed"
input_tokens = 50
output_tokens = 6
[ramp]
warmup_s = 2
measure_s = 12
settle_s = 0
settle_requests = 0
tail_s = 1
"""


@pytest.mark.parametrize(
    ("kind", "status", "detail", "name"),
    [
        ("http_4xx", 400, TOO_LONG, "long"),
        ("http_4xx", 413, "HTTP 413 Request Entity Too Large", "long"),
        ("http_4xx", 422, "HTTP 422: Input validation error: `inputs` must have less than 1024 tokens", "invalid"),
        ("http_4xx", 404, "HTTP 404 Not Found: The model `m` does not exist. (NotFoundError, 404)", "unknown"),
        ("http_4xx", 401, "HTTP 401 Unauthorized", "denied"),
        ("http_4xx", 403, "HTTP 403: You exceeded your quota, check your billing (insufficient_quota)", "denied"),
        ("http_4xx", 400, "HTTP 400 Bad Request: The response was filtered (content_filter)", "filtered"),
        ("http_4xx", 418, "", "invalid"),
        ("http_4xx", 302, "HTTP 302 Found: redirect to https://sso.example/login", "redirected"),
        ("http_4xx", 307, "", "redirected"),
        ("http_5xx", 500, "HTTP 500: Requested tokens (5000) exceed context window of 4096", "long"),
        ("http_5xx", 501, "HTTP 501 Not Implemented", "invalid"),
        ("in_band", 400, "maximum context length is 4096 tokens (BadRequestError, 400)", "long"),
        ("in_band", 400, "temperature must be at least 0 (BadRequestError, 400)", "invalid"),
        ("in_band", 200, "temperature must be at least 0 (invalid_request_error)", "invalid"),
        ("in_band", 404, "Error code: 404 - no such thing", "unknown"),
        ("in_band", 200, "flagged (content_policy_violation)", "filtered"),
        ("empty", 200, "finished (content_filter) without any visible output", "filtered"),
    ],
)  # fmt: skip
def test_what_fails_on_an_idle_server_too_does_not_depend_on_load(
    kind: str, status: float, detail: str, name: str
) -> None:
    assert class_of(kind, detail, float(status)) == (name, False)


@pytest.mark.parametrize(
    ("kind", "status", "detail", "name"),
    [
        ("http_429", 429, "HTTP 429: reduce your prompt, maximum context length", "full"),
        ("http_4xx", 408, "HTTP 408 Request Timeout", "late"),
        ("http_4xx", 425, "HTTP 425 Too Early", "full"),
        ("http_4xx", 499, "HTTP 499", "late"),
        ("http_4xx", 400, "HTTP 400 Bad Request: the server is overloaded (invalid_request_error)", "full"),
        ("http_4xx", 400, "HTTP 400 Bad Request: Rate exceeded (ThrottlingException)", "full"),
        ("http_4xx", 400, "HTTP 400 Bad Request: request queue is full", "full"),
        ("http_4xx", 403, "HTTP 403 Forbidden: Quota exceeded for requests per minute (rateLimitExceeded)", "full"),
        ("http_4xx", 400, "HTTP 400 Bad Request: CUDA out of memory", "memory"),
        ("http_4xx", 302, "HTTP 302 Found: redirect to https://example/waiting-room", "full"),
        ("http_5xx", 500, "HTTP 500 Internal Server Error", "http_5xx"),
        ("http_5xx", 503, "HTTP 503: no channel for this model (model_not_found)", "full"),
        ("in_band", 500, "boom (InternalServerError, 500)", "in_band"),
        ("in_band", 200, "too busy (overloaded_error)", "full"),
        ("in_band", 429, "try later (RateLimitError, 429)", "full"),
        ("in_band", 200, "timed out after 450 s", "in_band"),
        ("empty", 200, "finished (stop) without any visible output", "empty"),
        ("timeout_first", None, "no output within 60 s", "late"),
        ("reset", None, "Connection reset by peer", "broken"),
    ],
)
def test_what_may_come_of_load_or_is_not_known_depends_on_it(
    kind: str, status: float | None, detail: str, name: str
) -> None:
    assert class_of(kind, detail, status) == (name, True)


def refusal(seq: int, due_s: float, after_s: float = 0.01, **more: Any) -> Record:
    plain = {"kind": "http_4xx", "detail": TOO_LONG, "status": 400} | more
    return Record(
        seq, 0, due_s, sent_s=due_s, stream_end_s=due_s + after_s, status="error",
        error=plain["kind"], error_detail=plain["detail"], http_status=plain["status"],
    )  # fmt: skip


def step_of(refused: int, of: int, rate_rps: float = 10.0, **more: Any) -> Row:
    """A row of ``of`` requests, evenly spaced, of which the first ``refused`` are refused."""
    records = [
        refusal(i, i / rate_rps, **more) if i < refused else answer(i, i / rate_rps, i / rate_rps + 0.05, [0.01] * 9)
        for i in range(of)
    ]
    end_s = of / rate_rps
    table = Table.of(records)
    return changed(fold(window(end_s, rate_rps), table), overloaded=fails_too_often(table, 0.01))


def test_two_over_long_prompts_are_errors_and_make_no_ceiling() -> None:
    steps = [step_of(0, 100), step_of(2, 20, 20.0)]
    assert (steps[1].errors, steps[1].error_ratio) == ({"http_4xx": 2}, 0.1)
    assert (steps[1].load_independent_errors, steps[1].load_error_ratio) == (2, 0.0)
    assert not steps[1].overloaded
    found = ceiling(steps)
    assert (found.status, found.rate_rps) == ("not_found_up_to", 20.0)


def test_a_redirect_is_named_with_its_address_and_what_to_do() -> None:
    login = {"status": 302, "detail": "HTTP 302 Found: redirect to https://sso.example/login"}
    records = [refusal(i, i / 10.0, **login) for i in range(100)]
    step = window(10.0, 10.0)
    run = Run(RunInfo(), load(""), [step], Table.of(records), rows=[step_of(100, 100, **login)])
    (check,) = request_errors(run)
    assert check.message.startswith(
        "100 of 100 requests, 100 %, failed for reasons that do not depend on load (100 redirected to another address; "
        "HTTP 302 Found: redirect to https://sso.example/login)"
    )
    assert check.advice.startswith("a login or a gateway on the way, most likely: send what it asks for")


def test_the_same_number_of_refusals_as_too_busy_ends_the_climb() -> None:
    steps = [step_of(0, 100), step_of(2, 20, 20.0, kind="http_429", detail="", status=429)]
    assert steps[1].overloaded
    assert ceiling(steps).status == "found"


@pytest.mark.parametrize(
    ("refused", "of", "ends"),
    [(1, 24, False), (2, 24, True), (1, 5, True), (1, 7, False), (3, 82, True), (3, 83, False)],
)
def test_a_step_ends_a_ramp_only_where_chance_does_not_explain_its_failures(refused: int, of: int, ends: bool) -> None:
    """One-sided exact limits at 5 % of 1 in 24: 0.2 %, 2 in 24: 1.5 %."""
    busy = {"kind": "http_5xx", "detail": "", "status": 503}
    step = step_of(refused, of, **busy)
    assert step.overloaded is ends
    assert shows_overload(step) is shows_overload(changed(step, overloaded=None)) is ends
    assert isinstance(geometric([step]), Stop) is ends


def test_a_step_speaks_for_the_load_that_its_refusals_left() -> None:
    half = step_of(100, 200)
    assert (half.arrival_rps, half.load_rps) == (10.0, 5.0)
    assert not half.deficit
    assert not half.saturated
    found = ceiling([half])
    assert (found.status, found.rate_rps) == ("not_found_up_to", 5.0)
    assert "quiet up to 5 req/s (10 asked)" in found.reason


def test_a_run_of_refusals_alone_measures_nothing() -> None:
    nothing = step_of(50, 50)
    found = ceiling([nothing])
    assert (found.status, found.reason) == (
        "not_measurable", "every request failed, for reasons that do not depend on load",
    )  # fmt: skip
    capacity = slo_capacity([nothing], Slo(ttft_s=1.0, good_ratio=0.9))
    assert (capacity.status, capacity.rate_rps) == ("not_measurable", None)


def test_an_slo_is_judged_by_the_requests_that_were_a_load() -> None:
    refused = {"errors": {"http_4xx": 60}, "error_ratio": 0.1, "load_independent_errors": 60, "ok": 540}
    steps = [row(rate, slo_ttft_s=0.1, slo_ttft_log_se=0.02) for rate in (5.0, 10.0)]
    steps[1] = changed(steps[1], **refused, good_ratio=0.9, good_n=600)
    assert load_error_ratio(steps[1]) == 0.0
    found = slo_capacity(steps, Slo(ttft_s=1.0, error_ratio=0.01, good_ratio=0.95))
    assert (found.status, found.rate_rps) == ("not_found_up_to", 10.0)
    steps[1] = changed(steps[1], load_independent_errors=0)
    found = slo_capacity(steps, Slo(ttft_s=1.0, error_ratio=0.01))
    assert (found.status, found.limit) == ("found", "error_ratio")


def test_failures_after_the_end_of_a_step_count_and_answers_under_way_are_no_failures() -> None:
    busy = [refusal(i, 0.1 * i, kind="http_429", detail="", status=429) for i in range(2)]
    waiting = [unfinished(i, 0.5) for i in range(2, 35)]
    assert fails_too_often(Table.of([*busy, *waiting]), 0.01)
    assert not fails_too_often(Table.of([*busy, *waiting, *(unfinished(i, 0.5) for i in range(35, 40))]), 0.01)
    answers = [answer(i, 1.0, 1.5, [0.1] * 100) for i in range(2, 200)]
    assert not fails_too_often(Table.of(answers), 0.1)
    silent = [
        Record(i, 0, 1.0, sent_s=1.0, stream_end_s=61.0, status="error", error="timeout_first") for i in range(40)
    ]
    assert fails_too_often(Table.of([*answers, *silent]), 0.1)


def test_one_refusal_among_answers_that_take_longer_than_the_step_does_not_end_it() -> None:
    cut = [replace(unfinished(i, 0.5), status="unfinished") for i in range(1, 24)]
    one = refusal(0, 0.0, kind="http_5xx", detail="", status=503)
    assert not fails_too_often(Table.of([one, *(unfinished(i, 0.5) for i in range(1, 24))]), 0.01)
    assert not fails_too_often(Table.of([one, *cut]), 0.01)


def ramp(tmp_path: Path, text: str, faults: Faults) -> tuple[Run, list[Row]]:
    """The run as judged from its files, and the rows as they were judged while it went on."""
    seen: list[Conductor] = []

    async def meddle(ramping: Conductor) -> None:
        seen.append(ramping)
        await asyncio.sleep(0.01)

    run = ramp_in_memory(scenario_of(text), tmp_path, TWO_SEATS, faults, meddle=lambda ramping, _: meddle(ramping))
    return run, seen[0].rows


TWO_SEATS = replace(PROFILES["small"], max_num_seqs=2)
"""About 14 of these requests a second."""
LADDER = SHORT + "kind = 'ladder'\nrates = [4, 8, 12]\n"
CLIMB = SHORT + "kind = 'ceiling'\nstart_rps = 8\nmax_rps = 64\nsoak_s = 12\n"


@pytest.mark.long
@pytest.mark.parametrize("text", [LADDER, CLIMB], ids=["ladder", "ceiling"])
@pytest.mark.parametrize(
    "faults",
    [
        Faults(),
        Faults(error_ratio=0.2, error_status=400),
        Faults(error_ratio=0.03, error_status=404),
        Faults(error_ratio=0.2, error_status=429),
        Faults(error_ratio=0.05, error_status=500),
        Faults(in_band_ratio=0.05, in_band_tokens=3),
        Faults(reset_ratio=0.05),
        Faults(stall_ratio=0.1, stall_s=8.0),
    ],
    ids=["fine", "400", "404", "429", "500", "in_band", "reset", "stall"],
)
def test_the_judgement_while_a_run_goes_on_and_the_final_one_agree(tmp_path: Path, text: str, faults: Faults) -> None:
    run, early = ramp(tmp_path, text, faults)
    flags = ("step", "role", "rate_rps", "overloaded", "saturated", "deficit", "void", "load_rps")
    assert [[getattr(row, flag) for flag in flags] for row in early] == [
        [getattr(row, flag) for flag in flags] for row in run.rows
    ]
    last = [row for row in early if row.role == "step"][-1]
    assert last.ceiling_rps == pytest.approx(run.rows[len([r for r in early if r.role == "step"]) - 1].ceiling_rps)


@pytest.mark.long
@pytest.mark.parametrize("status", [400, 403, 404, 413, 422])
def test_refusals_whatever_the_load_do_not_end_a_ramp(tmp_path: Path, status: int) -> None:
    run, _ = ramp(tmp_path, LADDER, Faults(error_ratio=0.3, error_status=status))
    assert run.info.state == "complete"
    assert [row.rate_rps for row in run.rows] == [4, 8, 12]
    assert all(row.error_ratio > 0.15 and row.load_error_ratio == 0.0 for row in run.rows)
    assert run.estimates["ceiling"].status == "not_found_up_to"
    assert run.estimates["ceiling"].rate_rps == pytest.approx(12 * 0.7, rel=0.15)


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_failures_that_may_come_of_load_end_a_ramp_and_the_sentence_says_so(tmp_path: Path, status: int) -> None:
    run, _ = ramp(tmp_path, LADDER, Faults(error_ratio=0.3, error_status=status))
    assert run.info.state == "stopped"
    assert len(run.rows) == 1
    assert "Stopped early (more errors at 4 req/s than max_error_ratio allows)" in verdict_sentence(run)


@pytest.mark.parametrize("text", [LADDER, CLIMB], ids=["ladder", "ceiling"])
def test_a_run_of_which_every_request_is_refused_ends_soon_and_says_why(tmp_path: Path, text: str) -> None:
    run, _ = ramp(tmp_path, text, Faults(error_ratio=1.0, error_status=404))
    assert run.info.state == "stopped"
    assert run.info.ending.startswith("every request fails, for reasons that do not depend on load (")
    assert run.info.ending.endswith("model or address unknown)")
    assert len(run.rows) == 1
    assert run.estimates["ceiling"].status == "not_measurable"
    assert run.info.ending in verdict_sentence(run)


def test_a_check_says_how_many_failed_whatever_the_load_and_what_to_change(tmp_path: Path) -> None:
    run, _ = ramp(tmp_path, LADDER, Faults(error_ratio=0.3, error_status=404))
    checks = {check.code: check for check in run.checks}
    assert "failed for reasons that do not depend on load (" in checks["request_errors"].message
    assert "model or address unknown" in checks["request_errors"].message
    assert checks["request_errors"].advice == "compare --model and --base-url with what the server lists"
    assert "errors" not in checks
    assert checks["offered"].message.startswith("4 req/s asked, 2.")
    sentence = verdict_sentence(run)
    assert ", for reasons that do not depend on load." in sentence
    assert "req/s (12 asked)" in sentence
    (finding,) = [one for one in run.findings if one.code == "errors"]
    assert finding.evidence[-1] == "none of this depends on load: such requests fail on an idle server too"


def test_failures_of_both_kinds_are_told_apart() -> None:
    records = [refusal(0, 0.0), refusal(1, 0.1), refusal(2, 0.2, kind="http_429", detail="", status=429)]
    records += [answer(i, 0.1 * i, 0.1 * i + 0.05, [0.01] * 9) for i in range(3, 100)]
    table = Table.of(records)
    found = fold(window(10.0, 10.0), table)
    assert found.error_ratio == 0.03
    assert found.load_error_ratio == pytest.approx(1 / 98)
    assert fails_too_often(table, 0.0)
    assert not fails_too_often(table, 0.01)
    run = Run(RunInfo(), load(""), [window(10.0, 10.0)], table, rows=[found])
    assert "2 of them for reasons that do not depend on load" in verdict_sentence(run)
    (check,) = request_errors(run)
    assert check.message.startswith("2 of 100 requests, 2 %, failed for reasons that do not depend on load (2 longer")
    known = judge_rule(run, parse("error_ratio < 0.005"))
    assert (known.value, known.status) == (0.03, "fail")


@pytest.mark.long
def test_a_ramp_that_failures_ended_says_so_in_the_sentence_though_a_soak_held(tmp_path: Path) -> None:
    def overload(ramping: Conductor, service: Any) -> Any:
        async def switch() -> None:
            await asyncio.sleep(30.0)
            service.faults = Faults(error_ratio=0.3, error_status=429)
            await asyncio.sleep(20.0)
            service.faults = Faults()

        return switch()

    run = ramp_in_memory(scenario_of(CLIMB), tmp_path, meddle=overload)
    assert run.estimates["ceiling"].status == "found"
    assert "where the ramp ended because " in verdict_sentence(run)
    assert run.info.state == "complete"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("max_minutes = 0.5\n", "Stopped early (the next step would end after max_minutes = 0.5)"),
        ("max_requests = 120\n", "Stopped early (the next step would exceed max_requests = 120)"),
    ],
)
def test_a_cap_that_ends_a_ramp_is_named_in_the_sentence_and_in_every_form_of_it(
    tmp_path: Path, more: str, why: str
) -> None:
    run, _ = ramp(tmp_path, LADDER + more, Faults())
    assert why in verdict_sentence(run)
    assert why.replace("_", "\\_") in summary_markdown(run)
    document = verdict_document(run)
    assert why in document["sentence"]
    assert document["ceiling"]["reason"].endswith(f"; stopped early: {run.info.ending}")


def test_a_client_that_cannot_deliver_a_step_ends_a_ramp_with_its_own_reason(tmp_path: Path) -> None:
    run, _ = ramp(tmp_path, CLIMB + "max_in_flight = 1\n", Faults())
    assert "Stopped early (the client could not deliver the last step, twice: " in verdict_sentence(run)
    assert "max_in_flight" in verdict_sentence(run)


def test_a_run_that_was_killed_says_that_it_was() -> None:
    run = Run(RunInfo(state="running"), load(""), [window(10.0, 10.0)], Table.of([]), rows=[row(4.0)])
    assert "Stopped early (killed, or still going on)" in verdict_sentence(run)


def test_a_run_whose_load_cannot_be_sent_any_more_says_why(tmp_path: Path) -> None:
    def meddle(ramping: Conductor, service: Any) -> Any:
        async def kill() -> None:
            await asyncio.sleep(12.0)
            ramping.fleet._worker.share.failure = "ValueError: broken"

        return kill()

    with pytest.raises(FleetError):
        ramp_in_memory(scenario_of(LADDER), tmp_path, meddle=meddle)
    (path,) = tmp_path.iterdir()
    found, _ = read_run(path)
    assert found.info.state == "stopped"
    assert "ValueError: broken" in found.info.ending


OVER = """
[prompts]
kind = "fixed"
input_tokens = 3000
output_tokens = 200
[ramp]
kind = "ladder"
rates = [5]
measure_s = 20
[target.labels]
"""


@pytest.mark.parametrize(
    ("labels", "share"),
    [
        ("max_model_len = '3199'", 1.0),
        ("max_model_len = '3200'", 0.0),
        ("flags = '--tensor-parallel-size 2 --max-model-len 3100'", 1.0),
        ("context_length = '2048'", 1.0),
        ("gpu = 'H100'", None),
    ],
)
def test_plan_says_which_share_is_longer_than_the_model_takes(tmp_path: Path, labels: str, share: float | None) -> None:
    path = tmp_path / "s.toml"
    path.write_text(OVER + labels + "\n")
    document, words = of_scenario(path)
    told = document.get("over_length")
    assert (told and told["ratio"]) == share
    assert ("longer than max_model_len" in words) == bool(share)


def test_each_model_has_its_own_length_and_a_card_comes_before_a_label() -> None:
    text = OVER.replace('"fixed"', '"fixed"\nmodels = { long = 1, short = 1 }') + "max_model_len = '100'\n"
    scenario = scenario_of(text)
    cards = [{"id": "long", "max_model_len": 8192}, {"id": "short", "max_model_len": 2048}, {"id": "m"}]
    found = overlong(scenario, lengths(scenario, "m", cards))
    assert found is not None
    assert found.max_model_len == 2048
    assert found.longer / found.requests == pytest.approx(0.5, abs=0.1)
    assert lengths(scenario, "m", cards)("") == 100
    assert lengths(scenario, "long", cards)("") == 8192


def test_a_run_keeps_what_was_known_of_over_long_requests() -> None:
    info = RunInfo(over_length=OverLength(500, 16, 4096))
    (check,) = over_length(Run(info, load(""), [], Table.of([])))
    assert check.message == (
        "3.2 % of the planned requests (16 of the first 500) are longer than max_model_len = 4,096 tokens, prompt and "
        "answer together"
    )
    assert over_length(Run(RunInfo(), load(""), [], Table.of([]))) == []
