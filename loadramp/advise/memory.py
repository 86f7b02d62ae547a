"""The memory envelope: what weights leave for the KV cache, and how many sequences that holds. Pure arithmetic.

Every GPU of a tensor-parallel group holds its share of the weights and of each token's keys and values; the blocks are
the same on all of them. docs/advise.md has the formulas.
"""

from dataclasses import dataclass, replace
from math import floor

from loadramp.advise.gpus import Gpu
from loadramp.advise.model import KV_BYTES, Model
from loadramp.registry import ScenarioError
from loadramp.units import plural

BLOCK_TOKENS = 16
NEAR_RATIO = 0.05
"""Where so little of a card is missing, its exact size decides."""
TP_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 40, 48, 64)


@dataclass(slots=True, frozen=True)
class Envelope:
    """One model on ``gpus`` cards of one kind. Bytes are of one card, but for ``sequence_bytes`` and tokens.

    Args:
        utilization: the part of each card that the engine may use.
        reserve_ratio: the part of what weights leave that is not counted on: activations, graphs, blocks in part use.
    """

    model: Model
    gpu: Gpu
    gpus: int = 1
    utilization: float = 0.90
    reserve_ratio: float = 0.10
    kv_dtype: str = "auto"

    def __post_init__(self) -> None:
        if not 0.1 <= self.utilization <= 0.99:
            raise ScenarioError(f"utilization: {self.utilization:g} of the GPU's memory; expected 0.1 to 0.99")
        if not 0.0 <= self.reserve_ratio <= 0.5:
            raise ScenarioError(f"reserve: {self.reserve_ratio:g} of what weights leave; expected 0 to 0.5")
        if not self.model.divides(self.gpus):
            heads = f"{self.model.heads} attention and " if self.model.heads else ""
            raise ScenarioError(
                f"tensor parallel over {plural(self.gpus, 'GPU')}: {heads}{self.model.kv_heads} KV heads cannot "
                f"be divided so"
            )

    @property
    def engine_bytes(self) -> float:
        """What the engine may use of one card."""
        return self.gpu.memory_bytes * self.utilization

    @property
    def weight_bytes(self) -> float:
        """Weights on one card."""
        return self.model.weight_bytes / self.gpus

    @property
    def kv_bytes(self) -> float:
        """What weights leave on one card: negative when they do not fit."""
        return self.engine_bytes - self.weight_bytes

    @property
    def usable_bytes(self) -> float:
        """``kv_bytes`` less the reserve; 0 when weights do not fit."""
        return max(0.0, self.kv_bytes * (1.0 - self.reserve_ratio))

    @property
    def token_bytes(self) -> float:
        """Keys and values of one token on one card."""
        return self.model.token_bytes(KV_BYTES[self.kv_dtype]) * self.model.share(self.gpus)

    @property
    def blocks(self) -> int:
        """Blocks of 16 tokens that one card holds, and so the group."""
        return floor(self.usable_bytes / (BLOCK_TOKENS * self.token_bytes) + 1e-9)

    @property
    def tokens(self) -> int:
        """Tokens in those blocks."""
        return self.blocks * BLOCK_TOKENS

    def sequence_bytes(self, tokens: int) -> float:
        """Keys and values of one sequence on the whole group, in whole blocks; windows keep less than the context."""
        whole = -(-max(1, tokens) // BLOCK_TOKENS) * BLOCK_TOKENS
        return self.model.context_bytes(whole, KV_BYTES[self.kv_dtype])

    def sequences(self, tokens: int) -> int:
        """How many sequences of so many tokens are there room for at once."""
        each = self.sequence_bytes(tokens) * self.model.share(self.gpus)
        return floor(self.usable_bytes / each + 1e-9)


def smallest_group(
    envelope: Envelope, context_tokens: int, sequences: int, most_gpus: int
) -> tuple[Envelope, list[tuple[int, str]]]:
    """The fewest GPUs that divide the heads, hold the weights and ``sequences`` contexts of ``context_tokens``.

    Returns the envelope (of the largest group where none holds so many), and why each smaller size will not do.

    Raises:
        ScenarioError: no size up to ``most_gpus`` holds the weights and one sequence.
    """
    refused: list[tuple[int, str]] = []
    near = ""
    best: Envelope | None = None
    for gpus in (size for size in TP_SIZES if size <= most_gpus):
        if not envelope.model.divides(gpus):
            refused.append((gpus, "the heads cannot be divided so"))
            continue
        group = replace(envelope, gpus=gpus)
        room, near = group.sequences(context_tokens), near_miss(group, context_tokens)
        if room >= max(1, sequences):
            return group, refused
        if group.kv_bytes <= 0:
            short = -group.kv_bytes / 1e9
            refused.append((gpus, f"the weights alone take {short:.3g} GB more than each card gives"))
        else:
            asked = f"{plural(max(1, sequences), 'sequence')} of {plural(context_tokens, 'token')}"
            refused.append((gpus, f"room for {room} of the {asked}"))
        best = group if room >= 1 else best
    if best is not None:
        return best, refused
    last = refused[-1] if refused else (most_gpus, "no such size")
    raise ScenarioError(
        f"{envelope.model.name or 'the model'} does not fit {most_gpus} x {envelope.gpu.name}: "
        f"with {last[0]}, {last[1]}; more GPUs (--max-gpus), larger ones, or smaller weights (--weights fp8){near}"
    )


def near_miss(envelope: Envelope, context_tokens: int) -> str:
    """What an error adds where less than 5 % of a card is missing for the weights and one sequence; else nothing."""
    share = envelope.sequence_bytes(context_tokens) * envelope.model.share(envelope.gpus)
    missing = share / (1.0 - envelope.reserve_ratio) - envelope.kv_bytes
    if missing > NEAR_RATIO * envelope.gpu.memory_bytes:
        return ""
    return (
        f"; it is a near miss of {missing / 1e9:.2g} GB: {envelope.gpu.memory_bytes / 1e9:.4g} GB is what drivers show "
        "for this card, give your own's with --gpu-memory-gb (MiB of nvidia-smi x 0.001048576)"
    )
