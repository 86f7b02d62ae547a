"""comparison.json: what is known of a comparison beside its two runs, by one definition for writer, reader and tests.

What is not known holds its default, and is not written.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from loadramp.comparison.answer_match import AnswerMatch
from loadramp.comparison.block_spread import Noise
from loadramp.comparison.blocks import MEASURES
from loadramp.record.state_file import read_state, write_state

COMPARISON = "comparison.json"


class KeptNoise(msgspec.Struct, frozen=True):
    """How far blocks scattered in the last comparison of the same version."""

    measured_at: str
    block_s: Annotated[float, msgspec.Meta(gt=0)]
    noise: tuple[Noise, ...]

    def __post_init__(self) -> None:
        if unknown := {entry.metric for entry in self.noise} - MEASURES.keys():
            raise ValueError(f"no measure {min(unknown)!r}")

    @property
    def date(self) -> str:
        return self.measured_at[:10]


class ArmInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One side: an endpoint, or the directories of stored runs."""

    base_url: str | None = None
    model: str | None = None
    run_dir: tuple[str, ...] = ()


class Round(msgspec.Struct, frozen=True):
    """One pair of blocks as it was run: the step of each arm. ``swapped``: the baseline's host served the candidate."""

    number: int
    rate_rps: float
    baseline_step: int
    candidate_step: int
    swapped: bool = False


class Switched(msgspec.Struct, frozen=True):
    """One use of the switch command: seconds since the comparison began."""

    arm: str
    begin_s: float
    ready_s: float
    """The endpoint answers again."""
    command_s: float | None = None
    """What the command itself took."""


class Look(msgspec.Struct, frozen=True):
    """What a look before the end came to."""

    blocks: int
    verdict: str


class ComparisonInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What comparison.json holds beside its schema."""

    name: str | None = None
    kind: Literal["canary", "same_version", "compare"] = "canary"
    design: str | None = None
    began_at: str | None = None
    loadramp: str | None = None
    argv: list[str] = []
    overrides: list[str] = []
    baseline: ArmInfo = ArmInfo()
    candidate: ArmInfo = ArmInfo()
    switch_command: str | None = None
    swap_command: str | None = None
    same_version: bool = False
    noise: KeptNoise | None = None
    """Known when it began."""
    rollback: str | None = None
    """Why it was ended at once: the candidate's fault."""
    stopped: str | None = None
    """Why it did not come to its end."""
    swapped_at_s: float | None = None
    climb_from: int | None = None
    """The first step of the climb to the ceilings."""
    switches: list[Switched] = []
    looks: list[Look] = []
    state: Literal["running", "complete", "stopped"] | None = None
    rounds: list[Round] = []
    answers: AnswerMatch | None = None

    def document(self) -> dict[str, Any]:
        """As JSON data."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document

    def write(self, path: Path) -> None:
        """Replace comparison.json in ``path``."""
        write_state(path, COMPARISON, self.document())


def read_info(path: Path) -> ComparisonInfo:
    """comparison.json in the directory ``path``.

    Raises:
        RunDirError: it is not there, or is not of this schema.
        OSError: it cannot be read.
    """
    return read_state(path, COMPARISON, ComparisonInfo, "comparison")
