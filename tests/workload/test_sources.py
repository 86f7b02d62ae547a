"""Prompt sources: shared prefixes, sessions, mixtures, models by weight, and sources that go through a file."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadramp.client import input_files
from loadramp.record.types import Prompt, Step
from loadramp.registry import ScenarioError, options_of
from loadramp.runner.scenarios import load
from loadramp.scenario.scenario import Scenario
from loadramp.workload.prefix_reuse import PrefixHistory
from loadramp.workload.prompts import PROMPTS, READERS, synthetic
from loadramp.workload.prompts.source import models_of, tables_of
from loadramp.workload.schedule import SAMPLE, instants_of, plan_step, samples_of, session_sample, turns_of

DATA = Path(__file__).parents[1] / "data" / "workloads"
STEP = Step(1, rate_rps=50.0, begin_s=10.0, warmup_s=0.0, measure_s=20.0)


def scenario(text: str, folder: Path = DATA) -> Scenario:
    return input_files.ready(replace(load(f"seed = 4\n{text}", "t.toml"), folder=str(folder)))


def prompts(read: Scenario, step: Step = STEP, first_seq: int = 0, salt: int = 1) -> list[Prompt]:
    return [arrival.prompt for arrival in plan_step(read, step, first_seq, salt)]


def reuse_ratio(found: list[Prompt]) -> float:
    seen = PrefixHistory()
    sizes = [size for prompt in found for size in seen.sizes(prompt)]
    return sum(size.reused_tokens for size in sizes) / sum(size.input_tokens for size in sizes)


@pytest.mark.parametrize("kind", ["fixed", "uniform", "lognormal"])
def test_a_share_has_the_prompts_of_the_whole_and_builds_no_others(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = prompts(scenario(f'[prompts]\nkind = "{kind}"'))
    built = []

    def counted(**given: Any) -> Prompt:
        built.append(1)
        return Prompt(**given)

    monkeypatch.setattr(synthetic, "Prompt", counted)
    share = [arrival.prompt for arrival in plan_step(scenario(f'[prompts]\nkind = "{kind}"'), STEP, 0, 1)[3::100]]
    assert share == whole[3::100]
    assert len(built) == len(share) == 10


@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.8])
def test_shared_prefixes_reuse_as_much_as_was_asked(ratio: float) -> None:
    text = f'[prompts]\nkind = "shared_prefix"\ngroups = 4\nreuse_ratio = {ratio}\ninput_tokens = 500'
    found = prompts(scenario(text))
    assert reuse_ratio(found) == pytest.approx(ratio, abs=0.02)
    assert np.median([prompt.input_tokens for prompt in found]) == pytest.approx(500, rel=0.05)


def test_skew_makes_some_groups_common_and_others_rare() -> None:
    text = '[prompts]\nkind = "shared_prefix"\ngroups = 10\nskew = {}\nreuse_ratio = 0.5'
    shares = []
    for skew in (0.0, 1.0):
        first = [
            prompt.segments[0][0] for prompt in prompts(scenario(text.format(skew)), replace(STEP, rate_rps=200.0))
        ]
        _, counts = np.unique(np.array(first, dtype=object), return_counts=True)
        assert len(counts) == 10
        shares.append(counts.max() / counts.sum())
    assert shares[0] == pytest.approx(0.1, abs=0.02)
    assert shares[1] == pytest.approx(1 / sum(1 / k for k in range(1, 11)), abs=0.03)


def test_ds06_a_shared_prefix_is_the_same_in_every_step_of_a_run_and_another_in_the_next_run() -> None:
    read = scenario('[prompts]\nkind = "shared_prefix"\ngroups = 2')

    def heads(**more: Any) -> set[int]:
        return {prompt.segments[0][0] for prompt in prompts(read, **more)}

    assert heads() == heads(step=replace(STEP, index=2), first_seq=5000)
    assert not heads() & heads(salt=2)
    always = scenario('[prompts]\nkind = "shared_prefix"\ngroups = 2\nshare = "always"')
    assert {p.segments[0][0] for p in prompts(always)} == {p.segments[0][0] for p in prompts(always, salt=2)}


def test_sessions_have_the_turns_pauses_and_context_that_were_asked() -> None:
    text = '[prompts]\nkind = "sessions"\nturns = 5\nvary_turns = false\nsystem_tokens = 100\nthink_s = 3\nthink_cv = 0'
    found = prompts(scenario(text + "\ninput_cv = 0\noutput_cv = 0\ninput_tokens = 20\noutput_tokens = 30"))
    assert {len(prompt.following) for prompt in found} == {4}
    chain = [found[0], *found[0].following]
    assert [prompt.input_tokens for prompt in chain] == [120, 170, 220, 270, 320]
    assert [prompt.turn for prompt in chain] == [0, 1, 2, 3, 4]
    assert {prompt.think_s for prompt in chain} == {3.0}
    assert len({prompt.session for prompt in found}) == len(found)
    assert {len(prompt.segments) for prompt in found} == {2}
    assert {len(prompt.segments) for prompt in found[0].following} == {1}


def test_the_number_of_turns_varies_around_its_mean() -> None:
    read = scenario('[prompts]\nkind = "sessions"\nturns = 6\nmax_context_tokens = 1000000')
    turns = [1 + len(prompt.following) for prompt in session_sample(read)]
    assert len(turns) == SAMPLE
    assert np.mean(turns) == pytest.approx(6, rel=0.08)
    assert turns_of(read) == pytest.approx(np.mean(turns))
    assert min(turns) == 1


def test_a_session_ends_before_its_context_is_too_long() -> None:
    text = '[prompts]\nkind = "sessions"\nturns = 60\nvary_turns = false\nmax_context_tokens = 900'
    for prompt in prompts(scenario(text)):
        for turn in (prompt, *prompt.following)[1:]:
            assert (turn.input_tokens or 0) + (turn.output_tokens or 0) <= 900


def test_sessions_begin_so_often_that_turns_come_at_the_rate() -> None:
    read = scenario('[prompts]\nkind = "sessions"\nturns = 4\nvary_turns = false\n[arrivals]\nkind = "constant"')
    assert len(plan_step(read, STEP)) == 50 * 20 / 4


MIX = """
[prompts]
kind = "mix"
label = "rest"
[[prompts.sources]]
label = "chat"
weight = 3
kind = "fixed"
input_tokens = 10
[[prompts.sources]]
kind = "fixed"
input_tokens = 1000
body = { temperature = 0 }
"""


def test_a_mixture_draws_each_source_by_its_weight() -> None:
    found = prompts(scenario(MIX), replace(STEP, rate_rps=200.0))
    chat = [prompt for prompt in found if prompt.label == "chat"]
    assert len(chat) / len(found) == pytest.approx(0.75, abs=0.02)
    assert {prompt.input_tokens for prompt in chat} == {10}
    others = [prompt for prompt in found if prompt.label == "rest"]
    assert {prompt.input_tokens for prompt in others} == {1000}
    assert all(prompt.body == {"temperature": 0} for prompt in others)
    assert len({prompt.segments for prompt in found}) == len(found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('kind = "mix"\nsources = [{ kind = "fixd" }]', "[prompts] sources 1 kind: no 'fixd'"),
        ('kind = "mix"\nsources = [{}, { input_token = 3 }]', "[prompts] sources 2 input_token: unknown key"),
        ('kind = "mix"\nsources = [{ weight = 0 }]', "[prompts] sources 1 weight"),
        ('kind = "mix"\nsources = []', "[prompts] sources"),
        ('kind = "mix"', "[prompts] sources: missing"),
        ("lable = 'x'", "and for every kind: body, image_pixels, images, label, models"),
        ("models = { a = -1 }", "[prompts] models"),
        ("image_pixels = [3, 3]", "[prompts] image_pixels"),
        ('kind = "trace"', "[prompts] file: missing"),
        ('kind = "trace"\nfile = "x"\nformat = "excel"', "[prompts] format"),
    ],
)
def test_errors_in_sources_name_the_place(text: str, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(f"[prompts]\n{text}", "t.toml")
    assert words in str(caught.value)


def test_what_an_api_cannot_carry_is_found_before_a_run() -> None:
    with pytest.raises(ScenarioError, match="api = 'completions' takes none"):
        load('[target]\napi = "completions"\n[prompts]\nimages = 1')
    with pytest.raises(ScenarioError, match="only api = 'completions' takes them"):
        load("[target]\ntoken_ids = true")


def test_models_are_drawn_by_weight_and_stay_for_a_session() -> None:
    read = scenario('[prompts]\nkind = "sessions"\nturns = 2\nmodels = { a = 6, b = 3, c = 1 }')
    found = prompts(read, replace(STEP, rate_rps=400.0))
    share = {name: sum(prompt.model == name for prompt in found) / len(found) for name in "abc"}
    assert share == {
        "a": pytest.approx(0.6, abs=0.03),
        "b": pytest.approx(0.3, abs=0.03),
        "c": pytest.approx(0.1, abs=0.02),
    }
    assert all(turn.model == prompt.model for prompt in found for turn in prompt.following)
    assert models_of(read.prompts, read.prompt_options) == ("a", "b", "c")
    other = [prompt.model for prompt in prompts(read, replace(STEP, rate_rps=400.0), salt=9)]
    assert other == [prompt.model for prompt in found]


def test_one_request_of_each_sort_that_carries_more_than_text_is_tried_first() -> None:
    assert samples_of(scenario("")) == []
    (plain,) = samples_of(scenario(MIX))
    assert (plain.label, plain.body) == ("rest", {"temperature": 0})
    assert len(samples_of(scenario("[prompts]\nimages = 1"))[0].images) == 1


def test_images_go_with_every_first_request_and_differ() -> None:
    found = prompts(scenario("[prompts]\nimages = 2\nimage_pixels = [64, 32]"))
    assert {len(prompt.images) for prompt in found} == {2}
    assert {image[1:] for prompt in found for image in prompt.images} == {(64, 32)}
    seeds = [image[0] for prompt in found for image in prompt.images]
    assert len(set(seeds)) == len(seeds)


def test_equal_block_ids_of_a_trace_are_equal_text_and_the_last_block_is_partial() -> None:
    one, two, three, *_ = prompts(scenario('[prompts]\nkind = "trace"\nfile = "mooncake.jsonl"'))
    assert [tokens for _, tokens in one.segments] == [512, 512, 76]
    assert [tokens for _, tokens in two.segments] == [512, 512, 512]
    assert one.segments[:2] == two.segments[:2]
    assert one.segments[2][0] != two.segments[2][0]
    assert three.segments[0][0] not in {seed for seed, _ in one.segments}
    assert (one.input_tokens, one.output_tokens) == (1100, 42)


def test_a_file_that_is_gone_through_again_gets_new_text() -> None:
    found = prompts(scenario('[prompts]\nkind = "trace"\nfile = "mooncake.jsonl"'))
    first, again = found[0], found[3]
    assert [tokens for _, tokens in first.segments] == [tokens for _, tokens in again.segments]
    assert first.segments[0][0] != again.segments[0][0]
    kept = prompts(scenario('[prompts]\nkind = "trace"\nfile = "mooncake.jsonl"\nshare = "run"'))
    assert kept[0].segments == kept[3].segments
    run, other = (prompts(scenario('[prompts]\nkind = "trace"\nfile = "mooncake.jsonl"'), salt=s) for s in (1, 2))
    assert run[0].segments != other[0].segments


def test_longer_prompts_of_a_trace_are_cut_with_their_blocks() -> None:
    text = '[prompts]\nkind = "trace"\nfile = "mooncake.jsonl"\nmax_input_tokens = 600\nmax_output_tokens = 5'
    one, two, *_ = prompts(scenario(text))
    assert [tokens for _, tokens in one.segments] == [512, 88]
    assert one.segments == two.segments
    assert (one.input_tokens, one.output_tokens) == (600, 5)


def test_a_replayed_trace_begins_with_its_first_row_in_every_step_but_with_other_text() -> None:
    read = scenario('[prompts]\nkind = "trace"\nfile = "qwen_bailian.jsonl"\n[arrivals]\nkind = "replay"')
    step = replace(STEP, rate_rps=instants_of(read).rate_rps)
    first = list(plan_step(read, step, 0, 1))
    second = list(plan_step(read, replace(step, index=2), 777, 1))
    assert [arrival.due_s - 10.0 for arrival in first[:3]] == pytest.approx([0.0, 1.5, 2.25])
    assert [a.prompt.input_tokens for a in first] == [a.prompt.input_tokens for a in second]
    assert first[0].prompt.segments[:2] == first[1].prompt.segments[:2]
    assert first[0].prompt.segments != second[0].prompt.segments
    assert [arrival.prompt.label for arrival in first[:3]] == ["text", "text", "search"]


def test_a_ramp_by_speed_is_in_multiples_of_the_trace_s_own_rate() -> None:
    text = '[prompts]\nkind = "trace"\nfile = "plain.csv"\n[arrivals]\nkind = "replay"\n'
    text += '[ramp]\nkind = "{}"\nunit = "speed"\n{}'
    own_rps = 2 / 0.5
    ladder = scenario(text.format("ladder", "rates = [0.5, 3]"))
    assert ladder.ramp([]).rate_rps == pytest.approx(0.5 * own_rps)
    assert ladder.ramp.options["rates"] == pytest.approx([0.5 * own_rps, 3 * own_rps])
    climb = scenario(text.format("ceiling", ""))
    assert climb.ramp([]).rate_rps == pytest.approx(own_rps)
    assert input_files.ready(climb).ramp([]).rate_rps == pytest.approx(own_rps)
    with pytest.raises(ScenarioError, match=r"unit = 'speed' needs \[arrivals\] kind = 'replay'"):
        scenario("[ramp]\nunit = 'speed'")


def test_arrivals_of_one_file_may_carry_prompts_of_another_kind() -> None:
    read = scenario('[arrivals]\nkind = "replay"\nfile = "azure_2023.csv"\n[prompts]\nkind = "fixed"')
    assert read.corpora.keys() == {"arrivals"}
    found = plan_step(read, replace(STEP, rate_rps=instants_of(read).rate_rps))
    assert found.due_s[:3] - 10.0 == pytest.approx([0.0, 0.7765434, 0.7765434])
    with pytest.raises(ScenarioError, match="no trace to follow"):
        scenario('[arrivals]\nkind = "replay"')
    with pytest.raises(ScenarioError, match="has no time stamps"):
        scenario('[arrivals]\nkind = "replay"\n[prompts]\nkind = "conversations"\nfile = "lmsys.jsonl"')


def test_rows_of_text_open_with_a_tag_of_the_run_and_pass() -> None:
    text = '[prompts]\nkind = "conversations"\nfile = "sharegpt.json"'
    found = prompts(scenario(text))
    assert found[0].tag == found[1].tag != found[2].tag
    assert {found[0].text, found[1].text} == {"Name three rivers of Europe.", "Hello there, how are you?"}
    assert prompts(scenario(text), salt=2)[0].tag != found[0].tag
    assert {prompt.tag for prompt in prompts(scenario(text + "\nunique = false"))} == {None}


def test_conversations_become_sessions_with_pauses() -> None:
    text = '[prompts]\nkind = "conversations"\nfile = "sharegpt.json"\nturns = 0\nthink_s = 2\nthink_cv = 0'
    found = prompts(scenario(text))
    longer = next(prompt for prompt in found if prompt.following)
    assert (longer.text, longer.following[0].text) == ("Name three rivers of Europe.", "And one in Asia?")
    assert {longer.think_s, longer.following[0].think_s} == {2.0}
    assert turns_of(scenario(text)) == 1.5


def test_plain_text_is_put_together_to_a_length() -> None:
    text = '[prompts]\nkind = "text"\nfile = "lines.txt"\noutput_tokens = 9\n'
    found = prompts(scenario(text))
    assert {prompt.output_tokens for prompt in found} == {9}
    assert len(found[0].text or "") < 60
    long = prompts(scenario(text + "input_tokens = 200"))
    assert np.mean([len(prompt.text or "") for prompt in long]) == pytest.approx(800, rel=0.1)


def test_a_file_can_be_gone_through_once() -> None:
    read = scenario('[prompts]\nkind = "trace"\nfile = "mooncake.jsonl"\nat_end = "stop"')
    assert len(plan_step(read, STEP)) == 3
    assert len(plan_step(read, STEP, first_seq=2)) == 1
    assert len(plan_step(read, STEP, first_seq=40)) == 0


EVERY = (
    MIX,
    '[prompts]\nkind = "conversations"\nfile = "sharegpt.json"\nturns = 0',
    '[prompts]\nkind = "trace"\nfile = "mooncake.jsonl"',
    '[prompts]\nkind = "sessions"\nmodels = { a = 1, b = 2 }',
)


@pytest.mark.long
def test_dx03_two_processes_choose_the_same_rows_whatever_their_hash_seed() -> None:
    code = (
        "import hashlib, test_sources as t\n"
        "print(hashlib.sha256(repr([t.prompts(t.scenario(x)) for x in t.EVERY]).encode()).hexdigest())\n"
    )
    digests = set()
    for hash_seed in ("1", "2"):
        env = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[:2])),
        }
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        digests.add(done.stdout)
    assert len(digests) == 1


def test_a_reader_and_its_source_have_the_same_defaults() -> None:
    for kind, reader in READERS.items():
        if kind in PROMPTS:
            own = options_of(PROMPTS[kind])
            assert {name: own[name][1] for name in options_of(reader)} == {
                name: default for name, (_, default) in options_of(reader).items()
            }


def test_tables_within_tables_have_names_of_their_own() -> None:
    read = load(MIX + '[[prompts.sources]]\nkind = "mix"\nsources = [{ kind = "fixed" }]')
    assert [where for where, _ in tables_of(read.prompts)] == [
        "prompts", "prompts.0", "prompts.1", "prompts.2", "prompts.2.0",
    ]  # fmt: skip
