"""Flags: split, put together, what of a cure can be tried, what a command becomes."""

import pytest

from loadramp.record.types import Cure
from loadramp.registry import ScenarioError
from loadramp.tune.flags import (
    apart,
    command_of,
    has_already,
    knobs_of,
    merged,
    of_cure,
    slug,
    tidy,
    without_secrets,
)

SERVER = "vllm serve m --port {port} {flags}"


def test_what_the_command_sets_itself_is_known() -> None:
    assert has_already("vllm serve m --port {port} --max-model-len 1024 {flags}", "--max-model-len 1024")
    assert not has_already("vllm serve m --port {port} --max-model-len 2048 {flags}", "--max-model-len 1024")
    assert not has_already("", "--max-model-len 1024")


def test_flags_are_split_by_their_names() -> None:
    assert knobs_of("--max-num-seqs 128 --enforce-eager --dtype=half") == {
        "--max-num-seqs": ["--max-num-seqs", "128"],
        "--enforce-eager": ["--enforce-eager"],
        "--dtype": ["--dtype=half"],
    }


def test_a_flag_and_its_negation_are_one_knob() -> None:
    assert merged("--enable-chunked-prefill --a 1", "--no-enable-chunked-prefill") == (
        "--a 1 --no-enable-chunked-prefill"
    )


def test_flags_of_one_name_replace_one_another() -> None:
    assert merged("--max-num-seqs 64 --a b", "--max-num-seqs 128") == "--a b --max-num-seqs 128"
    assert tidy("--n  1   --n 2") == "--n 2"
    assert merged("--b 1", "--a 1") == merged("--a 1", "--b 1")
    assert apart("--a 1 --b 2", "--a 1 --b 3 --c") == "--b 3 --c"


def test_a_negative_number_is_a_value() -> None:
    assert knobs_of("--seed -1") == {"--seed": ["--seed", "-1"]}


@pytest.mark.parametrize("flags", ["128", "max-num-seqs 128", "--a 'b"])
def test_what_is_no_flag_is_refused(flags: str) -> None:
    with pytest.raises(ScenarioError, match="--try"):
        knobs_of(flags)


def test_port_and_flags_are_filled_in() -> None:
    assert command_of(SERVER, "--n 1", 81) == ["vllm", "serve", "m", "--port", "81", "--n", "1"]
    assert command_of("serve --at=:{port}", "--n 1", 81) == ["serve", "--at=:81", "--n", "1"]
    assert command_of("sh -c 'x {flags}'", "--n 1", 0) == ["sh", "-c", "x --n 1"]


@pytest.mark.parametrize(
    ("name", "change", "flags", "why"),
    [
        ("more_sequences", "--max-num-seqs 128", "--max-num-seqs 128", ""),
        ("fp8_kv_cache", "--cache-type-k q8_0 --cache-type-v q8_0", "--cache-type-k q8_0 --cache-type-v q8_0", ""),
        ("replicas", "--data-parallel-size 2", "", "it needs more GPUs or hosts"),
        ("queue_limit", "--max-queued-requests N", "", "no flag that could be tried as it stands"),
        ("prefix_caching", "--enable-prefix-caching (on by default since V1)", "", "no flag that could be tried"),
        ("fp8_kv_cache", "kv_cache_config.dtype: fp8 in the YAML", "", "no flag that could be tried"),
        ("logs", "", "", "no flag of this engine is known for it"),
    ],
)
def test_a_cure_is_tried_where_it_is_a_flag_as_it_stands(name: str, change: str, flags: str, why: str) -> None:
    found, told = of_cure(Cure(name, "", "", change))
    assert found == flags
    assert told.startswith(why)


def test_a_short_name_for_directories() -> None:
    assert slug("--max-num-seqs 128") == "max-num-seqs-128"
    assert slug("") == "baseline"


def test_secrets_in_a_command_are_hidden() -> None:
    assert without_secrets("vllm serve m --api-key abc --port {port} {flags}") == (
        "vllm serve m --api-key *** --port {port} {flags}"
    )
    assert without_secrets("x --token=abc --max-tokens 5") == "x --token=*** --max-tokens 5"
