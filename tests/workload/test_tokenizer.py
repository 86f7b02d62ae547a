"""Exact lengths from a tokenizer file made here: words of one token, and ids of their own."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from loadramp.client.tokenizer import basis_of, single_words
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Target
from loadramp.workload.prompts.vocabulary import WORDS, render, render_ids


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE that has some of our words whole and must cut the others into pieces."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        special_tokens=["<s>"],
    )
    common = list(WORDS[:80])
    bpe.train_from_iterator([" ".join(common), *common, " ".join(WORDS)] * 20, trainer)
    path = tmp_path_factory.mktemp("model") / "tokenizer.json"
    bpe.save(str(path))
    return path


def tokens(file: Path, text: str) -> int:
    encoded: Any = Tokenizer.from_file(str(file)).encode(text, add_special_tokens=False)
    return len(encoded.ids)


def test_usual_words_are_not_one_token_each_here(file: Path) -> None:
    assert tokens(file, " ".join(WORDS)) > 1.2 * len(WORDS)


def test_ds01_with_the_tokenizer_every_word_is_one_token(file: Path) -> None:
    basis = basis_of(Target(tokenizer=str(file)))
    assert len(basis.words) == 256
    for seed, length in ((1, 1), (2, 17), (3, 500), (4, 2048), (5, 8192)):
        assert tokens(file, render(((seed, length),), basis)) == length


def test_a_directory_of_a_model_is_taken_as_well(file: Path) -> None:
    assert basis_of(Target(tokenizer=str(file.parent))) == basis_of(Target(tokenizer=str(file)))


def test_ids_of_words_are_sent_where_ids_are_asked_for(file: Path) -> None:
    basis = basis_of(Target(tokenizer=str(file), token_ids=True, api="completions"))
    ids = render_ids(((1, 40),), basis)
    assert len(ids) == 40
    decoded = Tokenizer.from_file(str(file)).decode(ids)
    assert decoded.split() == render(((1, 40),), basis).split()
    assert "<s>" not in decoded


def test_without_a_tokenizer_ids_are_those_of_plain_text_in_most_vocabularies() -> None:
    basis = basis_of(Target(token_ids=True, api="completions"))
    assert (min(basis.ids), max(basis.ids)) == (1000, 1255)
    assert basis_of(Target()).ids == ()


def test_words_of_one_token_are_so_whatever_stands_beside_them(file: Path) -> None:
    tokenizer = Tokenizer.from_file(str(file))
    words = single_words(tokenizer)
    assert len(words) >= 32
    text = " ".join(words[::-1] + words)
    assert len(tokenizer.encode(text, add_special_tokens=False).ids) == 2 * len(words)


@pytest.mark.parametrize(
    ("content", "words"), [(None, "no such file"), ("{}", "is no tokenizer.json"), ("x", "is no tok")]
)
def test_a_file_that_is_none_is_named(content: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ScenarioError, match=words):
        basis_of(Target(tokenizer=str(path)))
