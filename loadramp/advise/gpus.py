"""How much memory a GPU has, as its driver shows it, and which numbers it computes with. Pure data.

Memory is what nvidia-smi (rocm-smi, hl-smi) shows as the card's total, with ECC on where it is by default. It differs a
little between drivers and boards: ``--gpu-memory-gb`` (the shown MiB times 0.001048576) is exact.
"""

import difflib
import re
from dataclasses import dataclass

from loadramp.registry import ScenarioError

GB = 1e9
MIB_GB = 2.0**20 / GB

CARDS: dict[str, tuple[int, int, str]] = {
    "T4": (16, 15360, "Turing"), "V100-16": (16, 16160, "Volta"), "V100-32": (32, 32510, "Volta"),
    "L4": (24, 23034, "Ada"), "A10": (24, 23028, "Ampere"), "A10G": (24, 23028, "Ampere"),
    "A30": (24, 24576, "Ampere"), "A40": (48, 46068, "Ampere"), "A16": (16, 15356, "Ampere"),
    "L20": (48, 46068, "Ada"), "L40": (48, 46068, "Ada"), "L40S": (48, 46068, "Ada"),
    "A100-40": (40, 40960, "Ampere"), "A100-80": (80, 81920, "Ampere"), "A800-80": (80, 81920, "Ampere"),
    "H100": (80, 81559, "Hopper"), "H100-NVL": (94, 95830, "Hopper"), "H800": (80, 81559, "Hopper"),
    "H20": (96, 97871, "Hopper"), "H200": (141, 143771, "Hopper"), "GH200-96": (96, 97871, "Hopper"),
    "GH200-144": (144, 146831, "Hopper"), "B200": (180, 183359, "Blackwell"), "GB200": (186, 188416, "Blackwell"),
    "B300": (288, 275040, "Blackwell"), "GB300": (288, 275040, "Blackwell"),
    "RTX-3090": (24, 24576, "Ampere"), "RTX-4090": (24, 24564, "Ada"), "RTX-5090": (32, 32607, "Blackwell"),
    "RTX-A6000": (48, 46068, "Ampere"), "RTX-6000-ADA": (48, 46068, "Ada"), "RTX-PRO-6000": (96, 97887, "Blackwell"),
    "MI210": (64, 65520, "CDNA 2"), "MI250X": (128, 131040, "CDNA 2"), "MI300X": (192, 196592, "CDNA 3"),
    "MI325X": (256, 262128, "CDNA 3"), "MI350X": (288, 294896, "CDNA 4"), "MI355X": (288, 294896, "CDNA 4"),
    "GAUDI-2": (96, 98304, "Gaudi 2"), "GAUDI-3": (128, 131072, "Gaudi 3"),
}  # fmt: skip
"""Name to (GB of its name, MiB that the driver shows, generation)."""
GPUS: dict[str, float] = {name: mib * MIB_GB for name, (_, mib, _) in CARDS.items()}
"""Name to GB (10^9 bytes) of one card."""
NO_BF16 = frozenset({"Turing", "Volta"})
"""They compute in float16 only: NVIDIA cards before compute capability 8.0."""
NO_FP8 = frozenset({"Turing", "Volta", "Ampere", "CDNA 2"})
"""They compute in 16 bit with FP8 weights: they were made before Ada and Hopper."""
NO_FP8_KV = NO_FP8 | {"Ada"}
"""An FP8 KV cache is emulated there: stored in 8 bits, widened for each step. Native from Hopper on."""

_NOISE = re.compile(r"NVIDIA|GEFORCE|TESLA|AMD|INSTINCT|INTEL|SXM\d?|PCIE|HBM\d?E?|GB\b")


@dataclass(slots=True, frozen=True)
class Gpu:
    """One card. ``generation`` is empty where it is not known."""

    name: str
    memory_bytes: float
    generation: str = ""

    @property
    def has_bf16(self) -> bool:
        """False only where it is known that there is none."""
        return self.generation not in NO_BF16


def gpu_of(name: str, memory_gb: float | None = None) -> Gpu:
    """The card called ``name``; ``memory_gb`` wins over the table, and is needed for a card that is not in it.

    Raises:
        ScenarioError: not in the table, ambiguous, or a size that no card has.
    """
    wanted = _plain(name)
    exact = [known for known in GPUS if wanted in {_plain(known), f"{_plain(known)}{CARDS[known][0]}"}]
    alike = exact or [known for known in GPUS if wanted and _plain(known).startswith(wanted)]
    if memory_gb is not None:
        if not 1.0 <= memory_gb <= 2000.0:
            raise ScenarioError(f"GPU memory: {memory_gb:g} GB is no card's; expected 1 to 2000")
        generations = {CARDS[known][2] for known in alike}
        return Gpu(name or f"{memory_gb:g} GB", memory_gb * GB, generations.pop() if len(generations) == 1 else "")
    if len(alike) == 1:
        return Gpu(alike[0], GPUS[alike[0]] * GB, CARDS[alike[0]][2])
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
