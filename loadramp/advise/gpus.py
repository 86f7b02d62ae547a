"""How much memory a GPU has, as its datasheet says it. Pure data.

Datasheet gigabytes are taken as 10^9 bytes: a little less than the driver shows, so nothing is promised that is not
there. ``--gpu-memory-gb`` (nvidia-smi's MiB times 0.001048576) is exact.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from loadramp.registry import ScenarioError

GB = 1e9

GPUS: dict[str, float] = {
    "T4": 16, "V100-16": 16, "V100-32": 32,
    "L4": 24, "A10": 24, "A10G": 24, "A30": 24, "A40": 48, "A16": 16, "L20": 48, "L40": 48, "L40S": 48,
    "A100-40": 40, "A100-80": 80, "A800-80": 80,
    "H100": 80, "H100-NVL": 94, "H800": 80, "H20": 96, "H200": 141, "GH200-96": 96, "GH200-144": 144,
    "B200": 180, "GB200": 186, "B300": 288, "GB300": 288,
    "RTX-3090": 24, "RTX-4090": 24, "RTX-5090": 32, "RTX-A6000": 48, "RTX-6000-ADA": 48, "RTX-PRO-6000": 96,
    "MI210": 64, "MI250X": 128, "MI300X": 192, "MI325X": 256, "MI350X": 288, "MI355X": 288,
    "GAUDI-2": 96, "GAUDI-3": 128,
}  # fmt: skip
"""Name to GB of one card."""

_NOISE = re.compile(r"NVIDIA|GEFORCE|TESLA|AMD|INSTINCT|INTEL|SXM\d?|PCIE|HBM\d?E?|GB\b")


@dataclass(slots=True, frozen=True)
class Gpu:
    """One card."""

    name: str
    memory_bytes: float


def gpu_of(name: str, memory_gb: float | None = None) -> Gpu:
    """The card called ``name``; ``memory_gb`` wins over the table, and is needed for a card that is not in it.

    Raises:
        ScenarioError: not in the table, ambiguous, or a size that no card has.
    """
    if memory_gb is not None:
        if not 1.0 <= memory_gb <= 2000.0:
            raise ScenarioError(f"GPU memory: {memory_gb:g} GB is no card's; expected 1 to 2000")
        return Gpu(name or f"{memory_gb:g} GB", memory_gb * GB)
    wanted = _plain(name)
    exact = [known for known in GPUS if wanted in {_plain(known), f"{_plain(known)}{GPUS[known]:g}"}]
    alike = exact or [known for known in GPUS if wanted and _plain(known).startswith(wanted)]
    if len(alike) == 1:
        return Gpu(alike[0], GPUS[alike[0]] * GB)
    if alike:
        raise ScenarioError(f"GPU {name!r}: which of {', '.join(alike)}?")
    close = difflib.get_close_matches(wanted, [_plain(known) for known in GPUS], n=1)
    hint = next((f" (did you mean {known}?)" for known in GPUS if close and _plain(known) == close[0]), "")
    raise ScenarioError(
        f"GPU {name!r}: not in the table{hint}; give its memory (--gpu-memory-gb), or one of {', '.join(GPUS)}"
    )


def _plain(name: str) -> str:
    """A name as the table, a driver or a cloud writes it, without maker, form factor and punctuation."""
    return re.sub(r"[^A-Z0-9]", "", _NOISE.sub("", name.upper()))
