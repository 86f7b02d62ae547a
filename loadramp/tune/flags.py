"""Flags as a command line has them: split, put together, and what of a cure can be tried as it stands. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache

from loadramp.record.types import Cure
from loadramp.registry import ScenarioError

PORT, FLAGS = "{port}", "{flags}"
_NEGATED = re.compile(r"--(?:no|disable)-(?:enable-)?(.+)")
_PLACEHOLDER = re.compile(r"(?:^|\s)N(?:$|\s)|\(|\)|\.\.\.|,")
NEEDS_MORE = {
    "replicas": "it needs more GPUs or hosts",
    "larger_gpu": "it needs other hardware",
}
"""Cures that are no other way to run the same machine, and why they are not tried."""


def words_of(text: str, option: str) -> list[str]:
    """``text`` split as a shell would.

    Raises:
        ScenarioError: a quotation is not closed.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ScenarioError(f"{option}: {error}: {text}") from None


@lru_cache(maxsize=4096)
def knobs_of(flags: str, option: str = "--try") -> Mapping[str, Sequence[str]]:
    """Flag to its words, in order: ``--a 1 --b`` is ``{"--a": ["--a", "1"], "--b": ["--b"]}``; ``--no-b`` is a value of
    ``--b``. A flag that is given twice counts as its last one.

    Raises:
        ScenarioError: it does not begin with a flag.
    """
    knobs: dict[str, list[str]] = {}
    name = ""
    for word in words_of(flags, option):
        if word.startswith("-") and not _is_number(word):
            name = _name(word)
            knobs[name] = [word]
        elif not name:
            raise ScenarioError(f"{option} {flags!r}: expected flags, such as '--max-num-seqs 128'")
        else:
            knobs[name].append(word)
    return knobs


def text_of(knobs: Mapping[str, Sequence[str]]) -> str:
    """The flags of ``knobs`` as one text, by name: a configuration is the same whatever order led to it."""
    return shlex.join(word for name in sorted(knobs) for word in knobs[name])


def merged(base: str, more: str) -> str:
    """``base`` with the flags of ``more``, which replace its own of the same name."""
    return text_of({**knobs_of(base), **knobs_of(more)})


def tidy(flags: str, option: str = "--try") -> str:
    """``flags`` as they are known by: one space between words, each flag once, by name."""
    return text_of(knobs_of(flags, option))


def apart(base: str, other: str) -> str:
    """What ``other`` has that ``base`` has not."""
    before = knobs_of(base)
    return text_of({name: words for name, words in knobs_of(other).items() if before.get(name) != words})


def command_of(template: str, flags: str, port: int) -> list[str]:
    """The words that start a server: ``{port}`` and ``{flags}`` of ``template`` filled in; flags go to the end where it
    has no place for them.

    Raises:
        ScenarioError: the template cannot be split into words.
    """
    flag_words = words_of(flags, "--try")
    out: list[str] = []
    for word in words_of(template, "--server"):
        if word == FLAGS:
            out += flag_words
        else:
            out.append(word.replace(PORT, str(port)).replace(FLAGS, shlex.join(flag_words)))
    return out if FLAGS in template else [*out, *flag_words]


def has_already(template: str, flags: str) -> bool:
    """The command sets all ``flags`` to these values, whatever is filled in."""
    words = [word for word in words_of(template, "--server") if word != FLAGS]
    first = next((k for k, word in enumerate(words) if word.startswith("-")), len(words))
    knobs = knobs_of(shlex.join(words[first:]))
    return all(knobs.get(name) == wanted for name, wanted in knobs_of(flags).items())


def of_cure(cure: Cure) -> tuple[str, str]:
    """The flags of a cure and "", or "" and why it is not tried."""
    if cure.name in NEEDS_MORE:
        return "", NEEDS_MORE[cure.name]
    if not cure.change:
        return "", "no flag of this engine is known for it"
    if not cure.change.startswith("--") or _PLACEHOLDER.search(cure.change) or " and " in cure.change:
        return "", f"no flag that could be tried as it stands: {cure.change}"
    return tidy(cure.change), ""


def slug(flags: str) -> str:
    """A short name for directories: ``max-num-seqs-128``; ``baseline`` of none."""
    return re.sub(r"[^a-z0-9.]+", "-", flags.lower()).strip("-")[:48].strip("-") or "baseline"


def _name(word: str) -> str:
    name = word.partition("=")[0]
    if negated := _NEGATED.fullmatch(name):
        return f"--{negated[1]}"
    return f"--{name.removeprefix('--enable-')}" if name.startswith("--enable-") else name


def _is_number(word: str) -> bool:
    return re.fullmatch(r"-\d+(\.\d+)?", word) is not None


HIDDEN = "***"
_SECRET = re.compile(r"--?[\w-]*(?:key|token|passw|secret|credential)[\w-]*", re.IGNORECASE)


def without_secrets(command: str) -> str:
    """A command with the values of flags that sound like secrets hidden: ``--api-key X`` is ``--api-key ***``."""
    out: list[str] = []
    for word in words_of(command, "--server"):
        name, equals, _ = word.partition("=")
        if equals and _SECRET.fullmatch(name):
            out.append(f"{name}={HIDDEN}")
        elif out and _SECRET.fullmatch(out[-1]) and not word.startswith("-") and not word.isdecimal():
            out.append(HIDDEN)
        else:
            out.append(word if PORT in word or FLAGS in word else shlex.quote(word))
    return " ".join(out)
