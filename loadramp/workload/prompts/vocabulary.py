"""Text out of numbers: a segment's seed gives its words. Pure, and the same in every process and Python version.

The words are short and common, so that most tokenizers spend about one token on each; how many they really spend is
measured before a run (``Calibration``) and the server's own count is checked during it.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from loadramp.record.types import Calibration

WORDS: tuple[str, ...] = tuple(
    """
    time year people way day man thing woman life child world school state family student group country problem hand
    part place case week company system program question work night point home water room mother area money story fact
    month lot right study book eye job word business issue side kind head house service friend father power hour game
    line end member law car city name team minute idea body back parent face level office door health person art war
    history party result change morning reason research girl guy moment air teacher force education foot boy age policy
    music market sense nation plan college interest death course someone experience behind reach local six road wait
    able make like him into good see than then now look only come its over think also after use two how our first well
    even new want because any these give most us find tell ask seem feel try leave call old great big high small large
    next early young few public bad same own long little other last light north south east west white black green blue
    red summer winter spring table paper river sea tree stone fire wind rain snow sun moon star bird fish horse dog cat
    farm field land street bridge wall window floor glass metal wood gold bread milk coffee tea sugar fruit meat dinner
    train plane ship bus ticket map key box bag coat shoe hat ring song dance film picture letter phone radio news page
    print price tax bank trade store camp gate hill lake stage path coast shore
    """.split()  # noqa: SIM905 (a list of 256 quoted words takes 256 lines)
)
assert len(WORDS) >= 256, len(WORDS)
_ONE_BYTE = WORDS[:256]
_NO_UTF8 = b"\xff"
_LATEST: dict[int, tuple[tuple[str, ...], NDArray[np.bytes_]]] = {}


TAG_WORDS = 4


def render(segments: Iterable[tuple[int, int]], calibration: Calibration, *, whole: bool = True) -> str:
    """The text of a prompt. Equal leading segments give equal leading text.

    Args:
        segments: (seed, tokens) pairs; the same seed always begins with the same words.
        calibration: how many words make those tokens, and which words.
        whole: it is all of a prompt: the overhead is taken off, once, from the last segment.
    """
    letters = np.frombuffer(_letters(segments, calibration, whole), dtype=np.uint8)
    text = _rows(calibration.words or _ONE_BYTE).take(letters).tobytes().translate(None, _NO_UTF8)
    return text[1:].decode("utf-8", "surrogatepass")


def _rows(words: tuple[str, ...]) -> NDArray[np.bytes_]:
    """Each word behind a space, all of one width: joining 500 words one by one takes five times as long."""
    known = _LATEST.get(id(words))  # by identity: to hash 256 words takes as long as the rest
    if known is None or known[0] is not words:
        _LATEST.clear()
        known = _LATEST[id(words)] = words, _rows_of(words)
    return known[1]


def _rows_of(words: tuple[str, ...]) -> NDArray[np.bytes_]:
    rows = [b" " + word.encode("utf-8", "surrogatepass") for word in words]
    width = max(map(len, rows))
    return np.array([row.ljust(width, _NO_UTF8) for row in rows])


def render_ids(segments: Iterable[tuple[int, int]], calibration: Calibration) -> list[int]:
    """The same as token ids."""
    return list(map(calibration.ids.__getitem__, _letters(segments, calibration, True)))


def tag_of(seed: int) -> str:
    """A few words that stand before a given text, to tell this use of it from all others."""
    return render(((seed, TAG_WORDS),), Calibration())


def _letters(segments: Iterable[tuple[int, int]], calibration: Calibration, whole: bool) -> bytes:
    """One byte a word. Segments end where the rounded number of words so far ends, so roundings do not add up."""
    parts = list(segments)
    letters = bytearray()
    tokens = 0
    for position, (seed, length) in enumerate(parts, start=1):
        tokens += length
        words = max(1, calibration.count(tokens, whole=whole and position == len(parts)) - len(letters))
        # an extendable hash: as many bytes as words, the first ones the same whatever the length
        letters += hashlib.shake_128(seed.to_bytes(16, "little")).digest(words)
    return bytes(letters)
