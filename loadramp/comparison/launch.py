"""From a scenario and two addresses to a comparison on disk: what ``loadramp canary`` does around the loop.

Everything for people goes to ``say``; the answer is the exit code.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from loadramp import __version__
from loadramp.client import input_files
from loadramp.client.endpoint import endpoint_of
from loadramp.client.fleet import worker_count
from loadramp.client.probe import SingleRequests
from loadramp.comparison import greedy_answers
from loadramp.comparison.answer_match import AnswerMatch, GreedyAnswer
from loadramp.comparison.answer_match import compare as same
from loadramp.comparison.canary_run import CanaryRun, Switch
from loadramp.comparison.document import comparison_csv, comparison_document
from loadramp.comparison.info import ArmInfo, ComparisonInfo
from loadramp.comparison.judge import ARMS, outlook, read
from loadramp.comparison.noise import LAST, noise_of
from loadramp.comparison.page import comparison_html
from loadramp.comparison.pairs import Comparison
from loadramp.comparison.switch_command import switch_of
from loadramp.comparison.table import Canary, canary_of
from loadramp.comparison.text import comparison_markdown
from loadramp.record.run_directory import RunDir, RunDirError, check_place, put
from loadramp.registry import CannotMeasure, ScenarioError, error_message
from loadramp.report.progress import Progress, Watch
from loadramp.runner.finish import COULD_NOT_MEASURE, EXIT
from loadramp.runner.launch import Reached, Say, info_of, reach, sent, session_of
from loadramp.runner.run_session import RunSession
from loadramp.runner.scenarios import Options, with_target
from loadramp.scenario.scenario import Scenario
from loadramp.units import agreed, plural


@dataclass(slots=True, frozen=True)
class CanaryOptions:
    """What the command line adds to a scenario for two endpoints. ``candidate`` differs from ``baseline`` in its URL at
    least; commands are split as a shell would, and run without one."""

    baseline: Options
    candidate: Options
    switch_command: str = ""
    swap_command: str = ""
    same_version: bool = False
    argv: Sequence[str] = ()


async def canary(scenario: Scenario, ask: CanaryOptions, say: Say, watch: Watch) -> tuple[Comparison, int]:
    """Compare two endpoints, judge and report: the comparison and the exit code. What was measured is on disk whatever
    happens.

    Raises:
        ScenarioError: the scenario or the command line is wrong; nothing was sent.
        CannotMeasure: an endpoint is not there, or a command failed, before anything was measured.
        OSError: the comparison cannot be written.
    """
    check(scenario, ask)
    check_place(ask.baseline.out)
    scenario = input_files.ready(_sharing(scenario))
    began_at = datetime.now(UTC)
    for note in outlook(scenario, bool(ask.swap_command)):
        say(f"note: {note}")
    switch = switch_of("--switch-command", ask.switch_command, scenario, ask.baseline, ask.candidate, say)
    swap = switch_of("--swap-command", ask.swap_command, scenario, ask.baseline, ask.candidate, say)
    reached = await _reach_both(scenario, ask, switch, say)

    def redact(text: str) -> str:
        return reached[0].endpoint.redact(reached[1].endpoint.redact(text))

    top = RunDir.create(ask.baseline.out, f"{scenario.name}-canary", redact(scenario.source), began_at)
    say(f"writing {top.path}")
    answers = await _answers(reached, scenario, top, ask, switch, say)
    about = _about(scenario, ask, reached, began_at, answers, redact)
    t0_s = time.monotonic()
    arms: list[RunSession] = []
    for name, side, salt in zip(ARMS, reached, _salts(scenario), strict=True):
        rundir = _arm_dir(top, name, side.scenario.source)
        info = info_of(side, salt=salt, argv=about.argv, began_at=began_at)
        shown = watch if name == "candidate" else _unwatched
        text = ask.baseline.save_text
        arms.append(await session_of(RunSession, side, rundir, info, say, shown, save_text=text, t0_s=t0_s))
    duel = CanaryRun(scenario, top, arms[0], arms[1], about, say, switch, swap)
    caught, failure = await sent(arms, duel.run, say)
    return _judged(duel, caught, failure, say)


def _sharing(scenario: Scenario) -> Scenario:
    """Two fleets share this machine where each alone would take half of its cores."""
    if scenario.fleet.workers != "auto" or canary_of(scenario).design != "mirrored":
        return scenario
    return replace(scenario, fleet=replace(scenario.fleet, workers=max(1, worker_count("auto") // 2)))


def check(scenario: Scenario, ask: CanaryOptions) -> None:
    """Refuse what cannot be compared, before anything is sent. Raises ScenarioError."""
    design = canary_of(scenario).design
    if scenario.fleet.kind == "ray":
        raise ScenarioError("[fleet] kind: a canary sends from one machine; expected 'local', got 'ray'")
    if not ask.baseline.base_url or not ask.candidate.base_url:
        raise ScenarioError("--baseline and --candidate: both URLs are needed")
    targets = [with_target(scenario, options).target for options in (ask.baseline, ask.candidate)]
    same = endpoint_of(targets[0]) == endpoint_of(targets[1]) and targets[0].model == targets[1].model
    if same and not (design != "mirrored" and ask.switch_command):
        raise ScenarioError(
            "--candidate: the same URL as --baseline; one machine needs [canary] design = 'abba' and --switch-command"
        )
    if design == "mirrored" and ask.switch_command:
        raise ScenarioError("--switch-command: both arms are loaded at once; it is for [canary] design = 'abba'")
    if design != "mirrored" and ask.swap_command:
        raise ScenarioError("--swap-command: only for [canary] design = 'mirrored'")
    if design != "mirrored" and canary_of(scenario).ceiling:
        raise ScenarioError("[canary] ceiling: both must be loaded at once to compare ceilings: design = 'mirrored'")
    if ask.swap_command and canary_of(scenario).blocks < 4:
        raise ScenarioError("[canary] blocks: a swap half-way needs 4 at least")


def write_derived(comparison: Comparison) -> None:
    """Write everything derived of a comparison.

    Raises:
        OSError: the files cannot be written.
    """
    rundir = RunDir(Path(comparison.path))
    rundir.write_json("verdict.json", comparison_document(comparison))
    rundir.write("comparison.csv", comparison_csv(comparison))
    rundir.write("summary.md", comparison_markdown(comparison))
    rundir.write("report.html", comparison_html(comparison))


async def _reach_both(scenario: Scenario, ask: CanaryOptions, switch: Switch | None, say: Say) -> list[Reached]:
    """Both endpoints ready, with the request fields that both take and the baseline's count of words, so that both get
    the same bytes. Where one machine serves both in turn, each is switched to once before anything is measured."""
    sides = []
    for name, options in zip(ARMS, (ask.baseline, ask.candidate), strict=True):
        if switch is not None:
            say(f"switching to the {name}")
            await switch(name)
        sides.append(await reach(scenario, options, say))
    fields = sides[0].known.fields & sides[1].known.fields
    for name, side in zip(ARMS, sides, strict=True):
        if side.known.fields - fields:
            more = ", ".join(sorted(side.known.fields - fields))
            say(f"note: the {name} takes {more}, the other does not: not asked of either")
    calibration = sides[0].known.calibration
    return [replace(side, known=replace(side.known, fields=fields, calibration=calibration)) for side in sides]


async def _answers(
    reached: Sequence[Reached], scenario: Scenario, top: RunDir, ask: CanaryOptions, switch: Switch | None, say: Say
) -> AnswerMatch | None:
    """Whether both give the same answers: each asked alone, the baseline twice."""
    wanted = canary_of(scenario).answers
    if not wanted:
        return None
    say(f"asking {plural(wanted, 'question')} of both")
    questions = greedy_answers.prompts(wanted)
    texts: dict[str, list[GreedyAnswer]] = {}
    for turn, which in (("baseline", 0), ("again", 0), ("candidate", 1)):
        side = reached[which]
        if switch is not None and turn != "again":
            await switch(ARMS[which])
        requests = SingleRequests(side.scenario.target, side.endpoint, side.known.model, time.monotonic)
        tokens = canary_of(scenario).answer_tokens
        texts[turn] = await greedy_answers.ask(requests, side.known.fields, questions, tokens)
    if ask.baseline.save_text:
        lines = [msgspec.json.encode({"question": q, **{name: answers[i].text for name, answers in texts.items()}})
                 for i, q in enumerate(questions)]  # fmt: skip
        top.write("answers.jsonl", "".join(line.decode() + "\n" for line in lines))
    match = same(texts["baseline"], texts["again"], texts["candidate"])
    say(
        f"{match.equal} of {plural(match.prompts, 'answer')} {agreed(match.equal, 'are')} equal; the baseline "
        f"repeats {match.equal_to_itself} of its own"
    )
    return match


def _salts(scenario: Scenario) -> tuple[int, int]:
    """Mirrored: the same texts to both. One machine: other texts of the same lengths, so that no cache of the first
    version's prompts helps the second."""
    first = secrets.randbits(60)
    return first, first if canary_of(scenario).design == "mirrored" else secrets.randbits(60)


def _arm_dir(top: RunDir, name: str, text: str) -> RunDir:
    path = top.path / name
    path.mkdir()
    put(path / "scenario.toml", text.encode())
    return RunDir(path)


def _about(
    scenario: Scenario,
    ask: CanaryOptions,
    reached: Sequence[Reached],
    began_at: datetime,
    answers: AnswerMatch | None,
    redact: Callable[[str], str],
) -> ComparisonInfo:
    """What comparison.json says before anything was measured. Holds no secret."""
    baseline, candidate = (ArmInfo(side.endpoint.url, redact(side.known.model)) for side in reached)
    return ComparisonInfo(
        name=scenario.name,
        kind="same_version" if ask.same_version else "canary",
        design=canary_of(scenario).design,
        began_at=began_at.isoformat(timespec="seconds"),
        loadramp=__version__,
        argv=[redact(word) for word in ask.argv],
        overrides=[redact(override) for override in scenario.overrides],
        baseline=baseline,
        candidate=candidate,
        switch_command=redact(ask.switch_command) or None,
        swap_command=redact(ask.swap_command) or None,
        same_version=ask.same_version,
        noise=LAST.read() if canary_of(scenario).design != "a_then_b" else None,
        answers=answers,
    )


def _judged(duel: CanaryRun, caught: Sequence[int], failure: Exception | None, say: Say) -> tuple[Comparison, int]:
    """Judge what there is, and write the report."""
    try:
        comparison = read(duel.rundir.path)
        write_derived(comparison)
    except (OSError, RunDirError) as error:
        if failure is None and isinstance(error, RunDirError):
            raise
        kept = f"what was measured is kept in {duel.rundir.path}"
        raise CannotMeasure(f"{error_message(failure or error)}; {kept}") from error
    keep_noise(comparison, duel.canary, say)
    if failure is not None:
        say(f"stopped: {error_message(failure)}")
        return comparison, COULD_NOT_MEASURE
    return comparison, 128 + caught[0] if caught else EXIT[comparison.decision.verdict]


def keep_noise(comparison: Comparison, canary: Canary, say: Say) -> None:
    """Of two that serve the same: how far blocks scatter, for what ``plan`` expects of later comparisons."""
    noise = noise_of(comparison, datetime.now(UTC), canary.block_s)
    if noise is None:
        return
    try:
        LAST.keep(noise)
    except (OSError, RuntimeError) as error:  # RuntimeError: nobody has a home here
        say(f"note: the noise is not kept for later plans: {error}")


def _unwatched(_: Progress) -> None:
    """The baseline gets the same load at the same instants; one of the two is enough to look at."""
