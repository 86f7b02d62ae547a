"""Numbers to words for people: three significant digits, milliseconds or seconds as fits. Pure.

Rule: a finding, an error and a table write the same figure alike, so every room words its numbers here, and this module
knows nobody. Nothing here prints a number that is not there: None, NaN and infinity give an empty string or None.
"""

import math
from collections.abc import Sequence
from typing import Any

NOTHING = "–"


def finite(value: Any) -> float | None:
    """``value`` as a float, or None where it is absent, not a number or infinite."""
    if value is None or isinstance(value, bool | str):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def sig(value: float | None, digits: int = 3, *, trim: bool = True) -> str:
    """``digits`` significant digits, no exponent, thousands separated; ``""`` for no number.

    ``trim`` drops zeros after the decimal point (48.0 is 48); tables keep them so that columns line up.
    """
    number = finite(value)
    if number is None:
        return ""
    if number == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(number))))
    rounded = round(number, digits - 1 - math.floor(math.log10(abs(number))))
    if rounded != 0:  # 9.996 becomes 10.0, not 10.00
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    text = f"{rounded:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if trim and "." in text else text


def latency(value_s: float | None, *, trim: bool = True) -> str:
    """A latency given in seconds: ``48.4 ms`` below one second, ``1.23 s`` below ten minutes, else minutes."""
    number = finite(value_s)
    if number is None:
        return ""
    if 0 < abs(number) < 9.995e-5:
        return f"{sig(number * 1e6, trim=trim)} µs"
    if abs(number) < 0.9995:
        return f"{sig(number * 1e3, trim=trim)} ms"
    return f"{sig(number, trim=trim)} s" if abs(number) < 600 else span(number)


def latency_span(low_s: float | None, high_s: float | None) -> str:
    """An interval of latencies, ``29 to 31 ms``; an upper limit that is not known is said so."""
    low, high = latency(low_s), latency(high_s)
    if not low or not high:
        return f"at least {low}" if low else f"at most {high}" if high else ""
    return f"{low.partition(' ')[0] if low.partition(' ')[2] == high.partition(' ')[2] else low} to {high}"


def span(value_s: float | None) -> str:
    """How long something took, for people: ``45 s``, ``5 min``, ``1 h 5 min``."""
    number = finite(value_s)
    if number is None:
        return ""
    if number < 90:
        return f"{sig(number, 2)} s"
    minutes = number / 60
    if minutes < 10 and abs(minutes - round(minutes)) > 0.05:
        return f"{sig(minutes, 2)} min"
    whole = round(minutes)
    if whole < 90:
        return f"{whole} min"
    return f"{whole // 60} h" + (f" {whole % 60} min" if whole % 60 else "")


def percent(ratio: float | None, digits: int = 3) -> str:
    """A share 0..1 as percent."""
    number = finite(ratio)
    return "" if number is None else f"{sig(number * 100, digits)} %"


def capital(text: str) -> str:
    """``text`` as a sentence begins: with a capital, but for names such as ``p99``."""
    return text if text[1:2].isdigit() else text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """``text`` as a sentence: a capital at the front, a full stop at the end; empty text stays empty."""
    text = text.strip()
    return text and capital(text) + ("" if text[-1] in ".!?" else ".")


def signed(ratio: float | None, digits: int = 3) -> str:
    """A change as percent with its sign: ``+12 %``, ``-3.4 %``."""
    number = finite(ratio)
    return "" if number is None else f"{'+' if number > 0 else ''}{percent(number, digits)}"


def count(value: float | None) -> str:
    """A whole number with thousands separated."""
    number = finite(value)
    return "" if number is None else f"{round(number):,}"


_OF_ONE = {"are": "is", "were": "was", "have": "has"}


def plural(value: int, noun: str, verb: str = "") -> str:
    """``1 request``, ``1,200 requests``, ``2 slow stretches``; with a verb ``1 request was``, ``0 requests were``."""
    return counted(f"{value:,}", noun) + (f" {agreed(value, verb)}" if verb else "")


def counted(shown: str, noun: str) -> str:
    """The same for a number that is words already: ``1 token``, ``1.5 tokens``, ``0 tokens``."""
    if shown == "1":
        return f"1 {noun}"
    return f"{shown} {noun}" + ("es" if noun.endswith(("ch", "sh", "s", "x")) else "s")


def agreed(value: int, verb: str) -> str:
    """``are``, ``were`` or ``have`` as one or several take it: ``1 of 5 was``, ``2 of 5 were``."""
    return _OF_ONE[verb] if value == 1 else verb


def often(value: int) -> str:
    """How often something is done at most: ``once``, ``twice``, ``3 times``."""
    return {1: "once", 2: "twice"}.get(value, f"{value:,} times")


def multiple(ratio: float) -> str:
    """A factor, ``1.23 times``; of one that three digits do not tell from 1, ``1.00 times``."""
    shown = sig(ratio) or f"{ratio:g}"
    return "1.00 times" if shown == "1" else f"{shown} times"


def times_of(ratio: float, whose: str) -> str:
    """``is 1.23 times the baseline's``; ``equals the baseline's`` where three digits show no difference."""
    shown = sig(ratio)
    return f"equals {whose}" if shown == "1" else f"is {multiple(ratio)} {whose}"


def span_of(low: float | None, high: float | None) -> str:
    """An interval of rates, ``15.2-16.7``; one side may be unknown."""
    low_text, high_text = sig(low), sig(high)
    if low_text and high_text:
        return f"{low_text}-{high_text}"
    return f"at least {low_text}" if low_text else f"at most {high_text}" if high_text else ""


def left_out_words(models: Sequence[str]) -> str:
    """``series of 1 other model left out: busy``."""
    return f"series of {plural(len(models), 'other model')} left out: {_listed(models)}"


def unasked_words(models: Sequence[str]) -> str:
    """For metrics pages that name models, but none that is asked."""
    return f"no series has the name of the model that is asked, so the series of all models count: {_listed(models)}"


def _listed(models: Sequence[str], most: int = 8) -> str:
    return ", ".join(models[:most]) + (f" and {len(models) - most} more" if len(models) > most else "")
