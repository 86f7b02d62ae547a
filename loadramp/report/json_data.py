"""Plain data for charts and JSON: rounded, and without what neither can hold. Pure."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


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


def strict(value: Any) -> Any:
    """``value`` as plain JSON data: numpy unwrapped, NaN and infinity None, unknown objects as text."""
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, str) or value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, np.generic):
        return strict(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, np.ndarray):
        return strict(value.tolist())
    if isinstance(value, set | frozenset):
        return [strict(item) for item in sorted(value, key=str)]
    return [strict(item) for item in value] if isinstance(value, Iterable) else str(value)
