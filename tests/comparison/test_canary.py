"""Whole comparisons in memory: two simulated endpoints, the real conductor, fleets, clients and judge."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from canary_in_memory import SHORT, SLOWER, compared, document
from run_in_memory import scenario_of

from loadramp.comparison import judge
from loadramp.comparison.blocks import COUNTED_OTHERWISE
from loadramp.comparison.canary_run import CanaryRun, order_of
from loadramp.comparison.info import COMPARISON
from loadramp.comparison.switch_command import rollback_of
from loadramp.comparison.table import Canary, canary_of
from loadramp.record.run_directory import RunDirError
from loadramp.record.types import Sample
from loadramp.registry import CannotMeasure, ScenarioError
from loadramp.simulator.faults import Faults
from loadramp.simulator.profiles import PROFILES
from loadramp.simulator.service import Service

SMALL = PROFILES["small"]


def effect(found: judge.Comparison, metric: str) -> judge.Effect:
    return next(one for one in found.effects if one.metric == metric)


@pytest.fixture(scope="module")
def said() -> list[str]:
    """What ``equal`` said."""
    return []


@pytest.fixture(scope="module")
def equal(tmp_path_factory: pytest.TempPathFactory, said: list[str]) -> judge.Comparison:
    return compared(scenario_of(SHORT), tmp_path_factory.mktemp("equal"), say=said.append)


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> judge.Comparison:
    return compared(scenario_of(SHORT), tmp_path_factory.mktemp("slower"), candidate=SLOWER)


def of_the_same_version(found: judge.Comparison, where: Path) -> judge.Comparison:
    """What a comparison would have come to had both arms been said to serve the same."""
    told = document(found) | {"same_version": True}
    copy = Path(shutil.copytree(found.path, where))
    (copy / COMPARISON).write_text(json.dumps(told))
    return judge.read(copy)


def test_equal_endpoints_pass_at_the_first_look(equal: judge.Comparison, said: list[str]) -> None:
    found = equal
    assert found.decision.verdict == "pass", found.decision
    assert len(found.pairs) == 4
    assert said[-1].startswith("after 4 blocks: pass")
    assert document(found)["looks"] == [{"blocks": 4, "verdict": "pass"}]
    assert document(found)["state"] == "complete"
    assert [one.status for one in found.effects if one.primary] == ["within"] * 5
    assert found.failures[1].failed == 0 and found.failures[1].requests > 250


def test_both_arms_get_the_same_requests_at_the_same_instants(equal: judge.Comparison) -> None:
    base, other = equal.baseline.table, equal.candidate.table
    assert len(base) == len(other) > 250
    assert np.array_equal(base.due_s, other.due_s)
    assert np.array_equal(base.sent_s, other.sent_s)
    assert np.array_equal(base.asked_output_tokens, other.asked_output_tokens)
    assert np.array_equal(base.prompt_tokens, other.prompt_tokens)
    assert [step.begin_s for step in equal.baseline.steps] == [step.begin_s for step in equal.candidate.steps]


def test_a_slower_engine_fails_at_the_first_look(slower: judge.Comparison) -> None:
    found = slower
    assert found.decision.verdict == "fail"
    assert len(found.pairs) == 4
    itl = effect(found, "itl_p50")
    assert itl.status == "beyond"
    assert itl.ratio() == pytest.approx(1.2, abs=0.03)
    assert effect(found, "output_tokens_per_s").status == "within"  # the same load, and it keeps up


@pytest.mark.long
def test_a_slower_first_token_alone_is_found(tmp_path: Path) -> None:
    found = compared(scenario_of(SHORT), tmp_path, candidate=replace(SMALL, frontend_s=SMALL.frontend_s + 0.02))
    assert found.decision.verdict == "fail"
    assert effect(found, "ttft_p50").status == "beyond"
    assert effect(found, "itl_p50").status == "within"


def test_tokens_that_only_one_side_counts_are_compared_with_nothing(tmp_path: Path) -> None:
    """The same engine, but five tokens an event and no usage: its ITL is five times as long, as if it were slower."""
    events = Faults(tokens_per_event=5, no_usage=True)
    found = compared(scenario_of(SHORT), tmp_path, faults=(None, events))
    assert found.decision.verdict == "inconclusive"
    itl = effect(found, "itl_p50")
    assert itl.status == "no_data"
    assert COUNTED_OTHERWISE in itl.reason
    assert effect(found, "output_tokens_per_s").status == "no_data"
    assert effect(found, "ttft_p50").status != "no_data"


def test_a_candidate_that_fails_is_stopped_at_once(tmp_path: Path) -> None:
    found = compared(scenario_of(SHORT), tmp_path, faults=(None, Faults(error_ratio=0.3)))
    assert found.decision.verdict == "fail"
    assert "the error rate is above 1 %" in found.decision.reasons[0]
    assert found.baseline.steps[-1].end_s < 30.0
    assert document(found)["rollback"].startswith("stopped at once")


@pytest.mark.long
@pytest.mark.parametrize("status", [400, 413])
def test_requests_that_both_refuse_whatever_the_load_are_no_reason_to_stop_at_once(tmp_path: Path, status: int) -> None:
    refusing = Faults(error_ratio=0.2, error_status=status)
    found = compared(scenario_of(SHORT), tmp_path, faults=(refusing, refusing))
    assert not document(found).get("rollback")
    assert len(found.pairs) == 8  # twice what was planned: nothing is decided, since both fail alike
    assert found.decision.verdict == "inconclusive"


def test_a_candidate_that_refuses_what_the_baseline_takes_is_stopped_at_once(tmp_path: Path) -> None:
    found = compared(scenario_of(SHORT), tmp_path, faults=(None, Faults(error_ratio=0.3, error_status=400)))
    assert found.decision.verdict == "fail"
    assert document(found)["rollback"].startswith("stopped at once")


def test_failures_of_the_warm_up_stop_it_before_a_block_is_measured(tmp_path: Path) -> None:
    text = SHORT.replace("settle_s = 3", "settle_s = 60")
    found = compared(scenario_of(text), tmp_path, faults=(None, Faults(error_ratio=0.5)))
    assert found.decision.verdict == "fail"
    assert found.decision.reasons[0].startswith("stopped at once")
    assert found.pairs == []
    assert found.candidate.steps[-1].end_s < 20.0


@pytest.mark.long
def test_a_slow_warm_up_is_no_reason_to_stop(tmp_path: Path) -> None:
    cold = Faults(speeds=((0.0, 0.1), (3.0, 1.0)))
    text = SHORT.replace("settle_s = 3", "settle_s = 10").replace("ttft_s = 0.5", "ttft_s = 0.2\nquantile = 0.9")
    found = compared(scenario_of(text), tmp_path, faults=(None, cold))
    assert found.decision.verdict == "pass", found.decision


def test_all_of_the_candidate_s_requests_failing_is_a_fail_not_a_crash(tmp_path: Path) -> None:
    """CR-01."""
    found = compared(scenario_of(SHORT), tmp_path, faults=(None, Faults(error_ratio=1.0)))
    assert found.decision.verdict == "fail"


def test_a_failing_baseline_never_lets_the_candidate_pass(tmp_path: Path) -> None:
    found = compared(scenario_of(SHORT), tmp_path, faults=(Faults(error_ratio=0.3), None))
    assert found.decision.verdict == "inconclusive"
    assert "the baseline cannot be compared with" in found.decision.reasons[0]


@pytest.mark.parametrize(("baseline", "candidate"), [(0.3, 0.3), (0.25, 0.35)])
def test_two_that_both_fail_tell_nothing_of_the_candidate(tmp_path: Path, baseline: float, candidate: float) -> None:
    wrong = Faults(error_ratio=baseline), Faults(error_ratio=candidate)
    found = compared(scenario_of(SHORT), tmp_path, faults=wrong)
    assert found.decision.verdict == "inconclusive"
    assert found.decision.reasons[0].startswith("both fail, and the candidate is not shown to fail more: ")
    assert found.baseline.steps[-1].end_s < 30.0


def test_a_candidate_that_fails_far_more_than_a_failing_baseline_is_worse(tmp_path: Path) -> None:
    found = compared(scenario_of(SHORT), tmp_path, faults=(Faults(error_ratio=0.1), Faults(error_ratio=0.9)))
    assert found.decision.verdict == "fail"
    assert found.decision.reasons[0].startswith("stopped at once")


def test_two_addresses_of_one_server_compare_nothing(equal: judge.Comparison) -> None:
    assert judge.one_server(equal.baseline, equal.candidate) == ""  # equal twins, each with its own requests
    n = len(equal.baseline.table)
    at = [Sample(0.0, "a", values={"requests_done": 10.0, "process_start_s": 1795980103.4}),
          Sample(90.0, "a", values={"requests_done": 10.0 + 2 * n, "process_start_s": 1795980103.4})]  # fmt: skip
    baseline, candidate = (replace(run, samples=at) for run in (equal.baseline, equal.candidate))
    assert judge.one_server(baseline, candidate).startswith("both addresses lead to one server")
    found = judge.contrast(equal.info, baseline, candidate, equal.baseline.scenario, "")
    assert found.decision.verdict == "inconclusive"
    other = [replace(sample, values={**sample.values, "process_start_s": 1795980103.5}) for sample in at]
    assert judge.one_server(baseline, replace(candidate, samples=other)) == ""  # others use both servers


def test_prompts_that_are_longer_to_one_side_and_warm_caches_are_noted(equal: judge.Comparison) -> None:
    assert judge.unlike_prompts(equal.baseline, equal.candidate) == []
    table = equal.candidate.table
    longer = replace(table, prompt_tokens=table.prompt_tokens + 300.0, cached_tokens=table.prompt_tokens)
    said = judge.unlike_prompts(equal.baseline, replace(equal.candidate, table=longer))
    assert said[0].startswith("The same prompts are 60 tokens each to the baseline and 360 to the candidate")
    assert said[1].startswith("0 % of the prompt tokens came from a prefix cache at the baseline, 16.7 % at")


def test_a_candidate_far_beyond_the_slo_is_stopped_at_once(tmp_path: Path) -> None:
    text = SHORT.replace("ttft_s = 0.5", "ttft_s = 0.02\nquantile = 0.9")
    found = compared(
        scenario_of(text), tmp_path, candidate=replace(SMALL, frontend_s=0.2), baseline=replace(SMALL, t0_s=0.004)
    )
    assert found.decision.verdict == "fail"
    assert "more than 2 times the limit of 20 ms" in found.decision.reasons[0]
    assert len(found.pairs) < 4


@pytest.mark.long
def test_two_that_are_both_beyond_the_slo_are_compared_to_the_end(tmp_path: Path) -> None:
    text = SHORT.replace("ttft_s = 0.5", "ttft_s = 0.01\nquantile = 0.9")
    found = compared(scenario_of(text), tmp_path)
    assert found.decision.verdict == "pass"


def test_a_candidate_that_dies_is_a_fail(tmp_path: Path) -> None:
    async def kill(duel: CanaryRun, services: list[Service]) -> None:
        await asyncio.sleep(25.0)
        services[1].crash()

    found = compared(scenario_of(SHORT), tmp_path, meddle=kill)
    assert found.decision.verdict == "fail"
    assert found.baseline.steps[-1].end_s < 60.0


@pytest.mark.long
def test_what_the_client_could_not_send_is_no_fault_of_the_candidate_and_proves_nothing(tmp_path: Path) -> None:
    found = compared(scenario_of(SHORT.replace("tail_s = 2", "tail_s = 2\nmax_in_flight = 1")), tmp_path)
    assert found.decision.verdict == "inconclusive"
    assert "pairs of blocks cannot be used: the client could not deliver" in found.decision.reasons[0]
    assert len(found.pairs) == 12  # eight, and half as many once more


def test_an_interrupted_comparison_does_not_pass_and_keeps_what_it_has(tmp_path: Path) -> None:
    async def interrupt(duel: CanaryRun, services: list[Service]) -> None:
        await asyncio.sleep(28.0)
        duel.stop.set()

    found = compared(scenario_of(SHORT), tmp_path, meddle=interrupt)
    assert found.decision.verdict == "inconclusive"
    assert found.decision.reasons[0] == "interrupted"
    assert len(found.pairs) == 2
    assert document(found)["state"] == "stopped"


@pytest.mark.long
def test_too_few_requests_for_the_error_rate_are_named(tmp_path: Path) -> None:
    text = SHORT.replace("error_ratio = 0.02", "error_ratio = 0.001")
    found = compared(scenario_of(text), tmp_path)
    assert found.decision.verdict == "inconclusive"
    assert "needs 2,995 requests without an error" in found.decision.reasons[0]
    assert len(found.pairs) == 8
    assert found.decision.more_blocks is not None and 25 < found.decision.more_blocks < 40


@pytest.mark.long
def test_several_rates_are_each_judged_and_shown_together(tmp_path: Path) -> None:
    text = SHORT.replace("rates = [8]", "rates = [6, 10]\nwarmup_s = 2").replace(
        "blocks = 8\nlooks = [4]", "blocks = 3"
    )
    found = compared(scenario_of(text), tmp_path, candidate=SLOWER)
    assert found.decision.verdict == "fail"
    assert [(one.number, one.rate_rps) for one in (pair.round for pair in found.pairs)] == [
        (n, rate) for n in range(3) for rate in (6.0, 10.0)
    ]
    own = [one for one in found.effects if one.metric == "itl_p50"]
    assert [(one.rate_rps, one.primary) for one in own] == [(None, False), (6.0, True), (10.0, True)]
    assert list(found.failures_at) == [6.0, 10.0]
    assert sum(candidate.requests for _, candidate in found.failures_at.values()) == found.failures[1].requests
    overall, *rest = (one.mean or 0.0 for one in own)
    assert overall == pytest.approx(sum(rest) / 2)


CLIMB = (
    SHORT.replace("blocks = 8\nlooks = [4]", "blocks = 3\nceiling = true")
    .replace("tail_s = 2", "tail_s = 2\nmeasure_s = 15\nwarmup_s = 2")
    .replace("ttft_s = 0.5", "ttft_s = 5")
)


EIGHT_SEATS = replace(SMALL, max_num_seqs=8, t0_s=2 * SMALL.t0_s)
"""About 18 of these requests a second."""


@pytest.mark.long
def test_a_lower_ceiling_is_found_by_climbing_together(tmp_path: Path) -> None:
    small = EIGHT_SEATS
    found = compared(scenario_of(CLIMB), tmp_path, candidate=replace(small, max_num_seqs=5), baseline=small)
    ceiling = effect(found, "ceiling")
    assert ceiling.status == "beyond", ceiling
    assert ceiling.ratio() == pytest.approx(5 / 8, rel=0.08)
    assert found.decision.verdict == "fail"
    assert any(reason.startswith("ceiling is") for reason in found.decision.reasons)
    rates = [step.rate_rps for step in found.candidate.steps if step.measured]
    assert rates[:4] == [8.0, 8.0, 8.0, 8.0] and rates[-1] > 30


@pytest.mark.long
def test_equal_ceilings_pass(tmp_path: Path) -> None:
    found = compared(scenario_of(CLIMB), tmp_path, candidate=EIGHT_SEATS, baseline=EIGHT_SEATS)
    assert effect(found, "ceiling").status == "within"
    assert found.decision.verdict == "pass", found.decision


ABBA = SHORT.replace("looks = [4]", "looks = [4]\ndesign = 'abba'\nwarmup_s = 2")


@pytest.mark.long
def test_one_machine_in_turn_replays_each_segment_to_both(tmp_path: Path) -> None:
    turns: list[str] = []

    def made(services: list[Service]) -> Callable[[str], Awaitable[None]]:
        async def switch(arm: str) -> None:
            turns.append(arm)
            await asyncio.sleep(10.0)

        return switch

    found = compared(scenario_of(ABBA), tmp_path, candidate=SLOWER, switch=made)
    assert found.decision.verdict == "fail"
    assert turns == ["baseline", "candidate", "baseline", "candidate", "baseline"]
    assert len(found.pairs) == 4
    for one in found.pairs:
        steps = [
            next(s for s in run.steps if s.index == index)
            for run, index in ((found.baseline, one.round.baseline_step), (found.candidate, one.round.candidate_step))
        ]
        due = [
            run.table.due_s[run.table.step == step.index] - step.begin_s
            for run, step in zip((found.baseline, found.candidate), steps, strict=True)
        ]
        assert np.allclose(due[0], due[1], atol=2e-6)
        assert steps[0].end_s <= steps[1].begin_s or steps[1].end_s <= steps[0].begin_s
    assert effect(found, "itl_p50").ratio() == pytest.approx(1.2, abs=0.03)
    assert [one.arm for one in found.info.switches] == turns
    back = rollback_of(Path(found.path))  # two of the three: the first switch comes before any load
    assert back.command_s == []  # this one tells no time of its own
    assert len(back.took_s) == 2
    assert all(10.0 < took_s < 14.0 for took_s in back.took_s), back
    later = [one.round.baseline_step for one in found.pairs[1:]]
    assert back.requests == sum(row.requests for row in found.baseline.rows if row.step in later)
    assert (back.unanswered, back.failed, back.measured_s) == (0, 0, 3 * canary_of(scenario_of(ABBA)).block_s)


def test_what_is_no_canary_times_no_rollback(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"--canary .*: no comparison.json here: it is no canary"):
        rollback_of(tmp_path)
    (tmp_path / "comparison.json").write_text('{"switches": [{"arm": 1}]}')
    with pytest.raises(ScenarioError, match=r"--canary .*: not a canary"):
        rollback_of(tmp_path)


def test_a_switch_that_fails_ends_it_without_a_verdict(tmp_path: Path) -> None:
    def made(services: list[Service]) -> Callable[[str], Awaitable[None]]:
        async def switch(arm: str) -> None:
            if arm == "candidate":
                raise CannotMeasure("the switch command failed: exit code 7")

        return switch

    found = compared(scenario_of(ABBA), tmp_path, switch=made)
    assert found.decision.verdict == "inconclusive"
    assert found.decision.reasons[0] == "the switch command failed: exit code 7"
    assert found.pairs == []
    arm = json.loads((Path(found.path) / "baseline" / "run.json").read_text())
    assert (arm["state"], arm["ending"]) == ("stopped", "the switch command failed: exit code 7")


@pytest.mark.long
def test_a_then_b_is_indicative_and_cannot_pass_by_itself(tmp_path: Path) -> None:
    text = SHORT.replace("looks = [4]", "design = 'a_then_b'\nwarmup_s = 2").replace("blocks = 8", "blocks = 4")
    same = compared(scenario_of(text), tmp_path / "same")
    assert same.indicative
    assert same.decision.verdict == "inconclusive"  # one run of each cannot show 10 %
    assert any(note.startswith("Indicative") for note in same.notes)
    worse = compared(scenario_of(text), tmp_path / "worse", candidate=replace(SMALL, t0_s=2 * SMALL.t0_s))
    assert worse.decision.verdict == "fail"
    assert worse.indicative


def test_hosts_that_differ_are_exposed_by_the_same_version(
    slower: judge.Comparison, equal: judge.Comparison, tmp_path: Path
) -> None:
    found = of_the_same_version(slower, tmp_path / "slower")
    assert found.decision.verdict == "fail"
    assert found.decision.reasons[0].startswith("the same version differs")
    found = of_the_same_version(equal, tmp_path / "equal")
    assert found.decision.verdict == "pass"
    assert found.decision.reasons[0] == "the two are equal within 10 % in every primary measure"


def test_a_host_that_fails_is_a_difference_and_two_that_fail_are_none(tmp_path: Path) -> None:
    same = {"same_version": True}
    for name, wrong in (("candidate", (None, Faults(error_ratio=0.3))), ("baseline", (Faults(error_ratio=0.3), None))):
        found = compared(scenario_of(SHORT), tmp_path / name, faults=wrong, info=same)
        assert found.decision.verdict == "fail", found.decision
        assert found.decision.reasons[0].startswith(f"stopped at once ({name}): ")
        assert found.baseline.steps[-1].end_s < 30.0
    both = Faults(error_ratio=0.3), Faults(error_ratio=0.3)
    found = compared(scenario_of(SHORT), tmp_path / "both", faults=both, info=same)
    assert found.decision.verdict == "inconclusive"
    assert document(found)["stopped"].startswith("stopped at once (baseline): ")


@pytest.mark.long
def test_failures_that_no_guard_sees_still_keep_the_same_version_from_passing(tmp_path: Path) -> None:
    text = SHORT.replace("error_ratio = 0.02", "error_ratio = 0.02\nrollback_error_ratio = 0.5")
    wrong = None, Faults(error_ratio=0.2)
    found = compared(scenario_of(text), tmp_path, faults=wrong, info={"same_version": True})
    assert found.decision.verdict == "fail"
    assert any("requests of the candidate failed, 0 of" in reason for reason in found.decision.reasons)


@pytest.mark.long
def test_a_swap_half_way_cancels_what_the_hosts_differ(tmp_path: Path) -> None:
    """The candidate's host is 20 % slower whatever it serves: with a swap the versions are equal."""
    swaps: list[str] = []

    def made(services: list[Service]) -> Callable[[str], Awaitable[None]]:
        async def swap(what: str) -> None:
            swaps.append(what)

        return swap

    found = compared(scenario_of(SHORT.replace("looks = [4]", "")), tmp_path, candidate=SLOWER, swap=made)
    assert swaps == ["swap"]
    assert [pair.round.swapped for pair in found.pairs] == [False] * 4 + [True] * 4
    assert found.decision.verdict == "pass", found.decision
    itl = effect(found, "itl_p50")
    assert itl.ratio() == pytest.approx(1.0, abs=0.01)
    assert any("swapped" in note for note in found.notes)


def test_abba_turns_the_order_round_and_a_then_b_does_not() -> None:
    b, c = "baseline", "candidate"
    assert order_of(Canary(design="abba", blocks=3)) == [(0, b), (0, c), (1, c), (1, b), (2, b), (2, c)]
    assert order_of(Canary(design="a_then_b", blocks=2)) == [(0, b), (1, b), (0, c), (1, c)]


def test_what_lies_on_disk_is_judged_as_it_was_live_and_both_arms_are_runs(equal: judge.Comparison) -> None:
    again = judge.read(Path(equal.path))
    assert again.decision == equal.decision
    assert again.effects == equal.effects
    for arm in judge.ARMS:
        info = json.loads((Path(equal.path) / arm / "run.json").read_text())
        assert info["state"] == "complete"
        assert len(info["steps"]) >= 5


def test_a_directory_that_is_no_comparison_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match=r"no comparison\.json here"):
        judge.read(tmp_path)
    (tmp_path / "comparison.json").write_text('{"schema": 99}')
    with pytest.raises(RunDirError, match="schema 99"):
        judge.read(tmp_path)
    (tmp_path / "comparison.json").write_text("[")
    with pytest.raises(RunDirError, match="not a comparison"):
        judge.read(tmp_path)
