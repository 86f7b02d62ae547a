"""Whole campaigns in memory, in simulated time: five phases, a killed server, an interruption, one verdict."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from campaign_in_memory import rehearse_in_memory

from loadramp.campaign.assess import exit_code, write_campaign
from loadramp.campaign.state import CAMPAIGN as CAMPAIGN_FILE
from loadramp.campaign.state import CampaignState, read_state, resume, save_state
from loadramp.campaign.text import CampaignView
from loadramp.record.run_directory import RunDir
from loadramp.registry import ScenarioError
from loadramp.simulator.faults import Faults
from loadramp.simulator.profiles import PROFILES

BASE = """
name = "chat"
seed = 5
[slo]
ttft_s = 0.5
itl_s = 0.08
quantile = 0.95
[prompts]
kind = "lognormal"
input_tokens = 40
output_tokens = 12
[ramp]
start_rps = 4
warmup_s = 3
measure_s = 15
settle_s = 2
settle_requests = 0
soak_s = 15
tail_s = 2
"""
CAMPAIGN = """
[campaign.baseline]
measure_s = 10
warmup_s = 2
[campaign.sustained]
measure_s = 200
error_ratio = 0.005
[campaign.overload]
measure_s = 40
stage_s = 40
warmup_s = 3
[campaign.chaos]
after_s = 15
warmup_s = 3
measure_s = 70
recovery_s = 45
"""
SMALL = replace(PROFILES["small"], max_num_seqs=8, max_queue=20)
"""Sustains about 20 req/s of these, and refuses what would wait too long."""
SMALLER = replace(SMALL, max_num_seqs=4, max_queue=10)
"""Half of that: half the requests, where no statistics of them matter."""
KILLED = Faults(crash_kind="process", restart_s=15.0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> CampaignView:
    """All five phases at 60 % of what the ramp shows, the server killed in the last."""
    text = BASE + "[campaign]\ntarget_ratio = 0.65\n" + CAMPAIGN
    finished, code = rehearse_in_memory(text, tmp_path_factory.mktemp("campaign"), SMALL, KILLED)
    assert code == 0
    return finished


def criteria(finished: CampaignView, phase: str) -> dict[str, str]:
    return {one.code: one.status for one in finished.criteria[phase]}


def states(finished: CampaignView) -> dict[str, str]:
    return {line.item.id: line.state for line in finished.card.lines}


def test_all_five_phases_run_one_after_the_other_and_pass(whole: CampaignView) -> None:
    told = whole
    assert [told.phase_verdict(phase) for phase in told.wanted] == ["pass"] * 4 + ["inconclusive"]
    target_rps = told.state.target_rps
    assert 5 < target_rps < 15
    rates = [row.rate_rps for row in told.measured["overload"].rows]
    assert rates == pytest.approx([target_rps, 1.2 * target_rps, 2 * target_rps, target_rps])
    assert told.measured["baseline"].rows[0].users == 1
    assert told.measured["sustained"].rows[0].window_end_s - told.measured["sustained"].rows[0].window_begin_s == 200


def test_a_killed_server_is_felt_and_back_when_it_has_restarted(whole: CampaignView) -> None:
    assert criteria(whole, "chaos") == {
        "delivered": "pass", "struck": "pass", "felt": "pass", "recovery": "pass", "nothing_lost": "pass",
        "retried": "inconclusive", "absorbed": "inconclusive",
    }  # fmt: skip
    seen = whole.measured["chaos"]
    assert seen.strike is not None
    failed_s = seen.run.table.due_s[seen.run.table.failed]
    assert failed_s.min() >= seen.strike.begin_s - 2.0
    assert failed_s.max() == pytest.approx(seen.strike.begin_s + 15.0, abs=1.0)
    recovery = next(one for one in whole.criteria["chaos"] if one.code == "recovery")
    assert recovery.observed.startswith(("after 14 s", "after 15 s", "after 16 s"))


def test_the_campaign_fills_the_scorecard_and_asks_for_the_rest(whole: CampaignView) -> None:
    short = {"slo", "memory", "double_load", "overload_recovery", "chaos_recovery", "nothing_lost", "health",
             "baseline"}  # fmt: skip
    found = states(whole)
    assert {found[item] for item in short} == {"open"}  # a soak of 200 s and an overload of 40 s prove nothing
    words = {line.item.id: line.words for line in whole.card.lines}
    assert words["memory"].startswith("not shown: measured for 3.3 min of 60 min")
    assert found["sustained_hour"] == found["max_model_len"] == found["rollback"] == "open"
    assert (whole.verdict, exit_code(whole)) == ("open", 3)
    answers = (Path(whole.path) / "answers.toml").read_text()
    assert "[answers.rollback]" in answers
    assert "[answers.max_num_seqs]" not in answers


@pytest.mark.long
def test_a_rehearsal_runs_every_phase_and_shows_nothing(tmp_path: Path) -> None:
    text = BASE + "[campaign]\n[campaign.chaos]\nrecovery_s = 45\n"
    finished, code = rehearse_in_memory(text, tmp_path, SMALLER, KILLED, rehearsal=True)
    assert code == 0
    told = finished
    assert told.missing == []
    lengths = {phase: round(told.measured[phase].rows[0].window_end_s - told.measured[phase].rows[0].window_begin_s)
               for phase in ("baseline", "sustained", "chaos")}  # fmt: skip
    assert lengths == {"baseline": 15, "sustained": 60, "chaos": 90}
    assert criteria(finished, "overload")["refusals"] == criteria(finished, "chaos")["recovery"] == "pass"
    assert "shown" not in states(finished).values()
    assert "gap" not in states(finished).values()
    assert (told.verdict, exit_code(finished)) == ("open", 3)
    sentence = json.loads((Path(told.path) / "verdict.json").read_text())["sentence"]
    assert sentence.startswith("Not decided: this was a rehearsal, too short to prove anything.")


@pytest.mark.long
def test_a_rehearsal_whose_ramp_found_nothing_tries_every_phase_all_the_same(tmp_path: Path) -> None:
    text = BASE.replace("start_rps = 4", "kind = 'ladder'\nrates = [6, 7]").replace("soak_s = 15\n", "")
    text = text.replace("ttft_s = 0.5", "ttft_s = 0.001") + '[campaign]\nphases = ["ramp", "sustained"]\n'
    finished, code = rehearse_in_memory(text, tmp_path, SMALL, rehearsal=True)
    assert code == 0
    assert finished.missing == []
    assert finished.state.target_rps == 6
    assert "a rehearsal tries every phase" in finished.state.target_reason
    finished, _ = rehearse_in_memory(text, tmp_path, SMALL)
    assert finished.missing == ["sustained"]


def test_answers_make_it_a_go_and_one_no_a_no_go(whole: CampaignView, tmp_path: Path) -> None:
    answers = tmp_path / "mine.toml"
    text = (Path(whole.path) / "answers.toml").read_text().replace('answer = ""', 'answer = "yes"')
    answers.write_text(text)
    path = tmp_path / "campaign"
    shutil.copytree(whole.path, path)
    gone = write_campaign(path, answers)
    assert (gone.verdict, exit_code(gone)) == ("go", 0)
    assert write_campaign(path).verdict == "go"  # the answers are kept
    answers.write_text(text.replace('[answers.on_call]\nanswer = "yes"', '[answers.on_call]\nanswer = "no"'))
    stopped = write_campaign(path, answers)
    assert (stopped.verdict, exit_code(stopped)) == ("no-go", 99)
    assert (
        "No go: 1 critical item not met: there is an on-call rotation"
        in json.loads((path / "verdict.json").read_text())["sentence"]
    )


def test_the_directory_holds_runs_that_stand_alone_and_reports_of_all(whole: CampaignView) -> None:
    path = Path(whole.path)
    state = read_state(path)
    assert [phase.state for phase in state.phases.values()] == ["done"] * 5
    for phase in state.phases.values():
        assert (path / phase.run / "run.json").is_file()
        assert len((path / phase.run / "health.jsonl").read_text().splitlines()) > 10
    again = write_campaign(path)
    assert again.card == whole.card
    for name in ("report.html", "summary.md", "scorecard.md", "scorecard.toml", "scenario.toml"):
        assert (path / name).stat().st_size > 200
    document = json.loads((path / "verdict.json").read_text())
    assert [phase["verdict"] for phase in document["phases"]] == ["pass"] * 4 + ["inconclusive"]


@pytest.mark.long
def test_an_endless_queue_does_not_recover_in_time_and_that_is_no_go(tmp_path: Path) -> None:
    short = "[campaign.overload]\nmeasure_s = 21\nstage_s = 21\nwarmup_s = 1\nrecovery_s = 10\n"
    text = BASE + '[campaign]\nphases = ["overload"]\ntarget_rps = 13\n' + short
    finished, code = rehearse_in_memory(text, tmp_path, replace(SMALL, max_queue=None))
    assert code == 0
    assert criteria(finished, "overload")["refusals"] == "pass"
    assert criteria(finished, "overload")["recovery"] == "fail"
    assert (finished.verdict, exit_code(finished)) == ("no-go", 99)


@pytest.mark.long
def test_a_ramp_is_never_written_down_as_done_without_the_target_that_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between the two would leave a campaign that takes the ramp for done and knows no target."""
    text = BASE + '[campaign]\nphases = ["baseline", "ramp"]\n' + CAMPAIGN
    kept: list[dict[str, Any]] = []
    write = RunDir.write

    def watched(self: RunDir, name: str, content: str) -> None:
        if name == CAMPAIGN_FILE:
            kept.append(json.loads(content))
        write(self, name, content)

    monkeypatch.setattr(RunDir, "write", watched)
    rehearse_in_memory(text, tmp_path, SMALLER)
    done = [state for state in kept if state["phases"].get("ramp", {}).get("state") == "done"]
    assert done
    assert all(state["target_rps"] > 0 for state in done)


def test_a_kill_at_any_moment_leaves_a_state_to_go_on_from(tmp_path: Path) -> None:
    text = BASE + '[campaign]\nphases = ["baseline", "sustained"]\ntarget_rps = 3\n' + CAMPAIGN
    finished, _ = rehearse_in_memory(text.replace("measure_s = 200", "measure_s = 30"), tmp_path, SMALL)
    path = Path(finished.path)
    state = json.loads((path / "campaign.json").read_text())
    sustained = state["phases"]["sustained"]
    killed = {
        "between": {"baseline": state["phases"]["baseline"]},
        "before its directory": {**state["phases"], "sustained": {"state": "running", "target_rps": 3}},
        "within": {**state["phases"], "sustained": {"state": "running", "target_rps": 3, "run": sustained["run"]}},
    }
    for phases in killed.values():
        (path / "campaign.json").write_text(json.dumps({**state, "state": "running", "phases": phases}))
        sent: list[str] = []
        again, code = rehearse_in_memory(
            text.replace("measure_s = 200", "measure_s = 30"), tmp_path, SMALL, resumed=path, sent=sent
        )
        assert (code, sent, again.missing) == (0, ["sustained"], [])
    assert read_state(path).phases["sustained"].attempts == [sustained["run"]]


def test_an_interrupted_phase_is_repeated_and_the_ones_before_are_not(tmp_path: Path) -> None:
    text = BASE + '[campaign]\nphases = ["baseline", "sustained"]\ntarget_rps = 3\n' + CAMPAIGN
    text = text.replace("measure_s = 200", "measure_s = 30")
    finished, code = rehearse_in_memory(text, tmp_path, SMALL, stop_in="sustained")
    assert code == 130
    state = read_state(Path(finished.path))
    assert {phase: told.state for phase, told in state.phases.items()} == {
        "baseline": "done",
        "sustained": "stopped",
    }
    assert finished.missing == ["sustained"]
    first = state.phases["sustained"].run
    sent: list[str] = []
    path = Path(finished.path)
    with pytest.raises(ScenarioError, match="was begun with another scenario"):
        resume(path, text + "\n", [])
    with pytest.raises(ScenarioError, match="was begun with no --set"):
        resume(path, text, ["seed=9"])
    save_state(path, CampaignState(name=state.name, phases=state.phases, endpoint="http://a/v1"))
    with pytest.raises(ScenarioError, match=r"was begun against http://a/v1; got http://b/v1: phases of two endpoints"):
        resume(path, text, [], "http://b/v1")
    save_state(path, state)
    finished, code = rehearse_in_memory(text, tmp_path, SMALL, resumed=path, sent=sent)
    assert (code, sent) == (0, ["sustained"])
    told = read_state(path).phases["sustained"]
    assert told.state == "done"
    assert told.attempts == [first]
    assert told.run != first
    assert finished.missing == []


def test_without_a_command_chaos_is_left_out_and_stays_open(tmp_path: Path) -> None:
    text = BASE + '[campaign]\nphases = ["chaos"]\ntarget_rps = 6\n'
    finished, _ = rehearse_in_memory(text, tmp_path, SMALL, command=None)
    assert finished.phase_verdict("chaos") == "not run"
    assert finished.missing == ["chaos"]
    assert exit_code(finished) == 3


def test_a_command_that_fails_is_told_and_proves_nothing(tmp_path: Path) -> None:
    text = BASE + '[campaign]\nphases = ["chaos"]\ntarget_rps = 6\n' + CAMPAIGN
    finished, _ = rehearse_in_memory(text, tmp_path, SMALL, command=(4, "no such pod"))
    found = criteria(finished, "chaos")
    assert (found["struck"], found["felt"]) == ("inconclusive", "inconclusive")
    assert states(finished)["chaos_recovery"] == "open"


@pytest.mark.long
def test_a_leak_and_a_slowing_engine_are_found_in_the_soak(tmp_path: Path) -> None:
    slower = tuple((20.0 + 10.0 * k, 1.0 / (1.0 + 0.03 * k)) for k in range(20))
    faults = Faults(leak_bytes_per_s=1e6, speeds=slower)
    text = BASE + '[campaign]\nphases = ["sustained"]\ntarget_rps = 8\n' + CAMPAIGN
    finished, _ = rehearse_in_memory(text, tmp_path, SMALL, faults)
    found = criteria(finished, "sustained")
    assert (found["memory"], found["drift_itl"]) == ("fail", "fail")
    assert exit_code(finished) == 99


def test_what_is_no_campaign_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"no campaign\.json here"):
        read_state(tmp_path)
    (tmp_path / "campaign.json").write_text("{")
    with pytest.raises(ScenarioError, match="not a campaign: "):
        read_state(tmp_path)
    (tmp_path / "campaign.json").write_text('{"schema": 7}')
    with pytest.raises(ScenarioError, match="schema 7; this version reads 1"):
        read_state(tmp_path)
