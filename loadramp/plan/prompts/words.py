"""Text out of numbers: a segment's seed gives its words. Pure, and the same in every process and Python version.

The words are short and common, so that most tokenizers spend about one token on each; how many they really spend is
measured before a run (``Calibration``) and the server's own count is checked during it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

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


@dataclass(slots=True, frozen=True)
class Calibration:
    """How a server's tokenizer counts our words: ``prompt_tokens = overhead_tokens + tokens_per_word * words``.

    ``overhead_tokens`` is what the chat template and special tokens add to every request.
    """

    tokens_per_word: float = 1.0
    overhead_tokens: float = 0.0

    def words(self, tokens: int) -> int:
        """Words that make a prompt of ``tokens`` tokens; at least one, since an empty prompt is refused."""
        return max(1, round((tokens - self.overhead_tokens) / self.tokens_per_word))


def render(segments: Iterable[tuple[int, int]], calibration: Calibration) -> str:
    """The text of a prompt. Equal leading segments give equal leading text.

    Args:
        segments: (seed, tokens) pairs.
        calibration: how many words make those tokens; its overhead is taken off once, from the last segment.
    """
    parts = list(segments)
    text: list[str] = []
    for position, (seed, tokens) in enumerate(parts):
        if position == len(parts) - 1:
            words = calibration.words(tokens)
        else:
            words = max(1, round(tokens / calibration.tokens_per_word))
        # an extendable hash: as many bytes as words, the first ones the same whatever the length
        digest = hashlib.shake_128(seed.to_bytes(16, "little")).digest(words)
        text.extend(map(_ONE_BYTE.__getitem__, digest))
    return " ".join(text)
