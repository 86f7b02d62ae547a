"""An unknown kind suggests the one that was probably meant."""

import pytest

from loadramp.registry import hint
from loadramp.workload.prompts import PROMPTS


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sharegpt", " (did you mean 'conversations'?)"),
        ("ShareGPT", " (did you mean 'conversations'?)"),
        ("mooncake", " (did you mean 'trace'?)"),
        ("prefix-repetition", " (did you mean 'shared_prefix'?)"),
        ("lognormall", " (did you mean 'lognormal'?)"),
        ("qqq", ""),
    ],
)
def test_an_unknown_kind_suggests_the_right_one(name: str, words: str) -> None:
    assert hint(name, PROMPTS) == words
