"""Plain data for charts and JSON: rounded, without what neither can hold, and compressed for a page. Pure."""

import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

ALPHABET = bytes(code for code in range(33, 127) if chr(code) not in '"<\\')
"""91 printable characters; 91 * 91 >= 2 ** 13."""
BITS = 13


def rounded(values: Iterable[float | None] | np.ndarray[Any, Any], digits: int = 4) -> list[float | None]:
    """``values`` to ``digits`` significant digits for a chart; what is not finite becomes None."""
    array = np.array([np.nan if v is None else v for v in values], dtype=np.float64)
    usable = np.isfinite(array)
    magnitude = np.zeros_like(array)
    nonzero = usable & (array != 0)
    magnitude[nonzero] = np.floor(np.log10(np.abs(array[nonzero])))
    scale = 10.0 ** (digits - 1 - magnitude)
    short = np.round(np.where(usable, array, 0.0) * scale) / scale
    return [_shortest(v, digits) if ok else None for v, ok in zip(short.tolist(), usable.tolist(), strict=True)]


def _shortest(value: float, digits: int) -> float:
    """The float whose JSON text is short (division leaves 0.30000000000000004)."""
    exact = float(f"{value:.{digits}g}")
    return int(exact) if exact.is_integer() and abs(exact) < 2**53 else exact


def packed(text: str) -> str:
    """``text``, compressed, in printable ASCII without quotes, ``<`` and backslash."""
    squeezer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, 9)
    data = squeezer.compress(text.encode()) + squeezer.flush()
    held = np.frombuffer(data + bytes(BITS), dtype=np.uint8).astype(np.int32)
    at = np.arange(-(-len(data) * 8 // BITS)) * BITS  # the first bit of each number; it ends two bytes on at most
    three = held[at >> 3] << 16 | held[(at >> 3) + 1] << 8 | held[(at >> 3) + 2]
    numbers = three >> (24 - BITS - (at & 7)) & (1 << BITS) - 1
    letters = np.frombuffer(ALPHABET, dtype=np.uint8)
    pairs = np.stack((letters[numbers // 91], letters[numbers % 91]), axis=1)
    return f"{len(data)}:{pairs.tobytes().decode('ascii')}"
