"""How long a step takes: the cost formula, noise, stalls, regimes, changes of speed. Pure; all chance from one rng."""

from collections import OrderedDict

import numpy as np

from loadramp.simulator.profiles import EngineProfile
from loadramp.simulator.regimes import RegimePath, Stall

_DRAWN_AT_ONCE = 4096


class StepTimeModel:
    """The cost model of one engine that starts at ``start_s``."""

    def __init__(self, profile: EngineProfile, rng: np.random.Generator, start_s: float) -> None:
        self._profile = profile
        noise_rng, self._stall_rng, regime_rng = rng.spawn(3)
        self._noise = _Noise(profile.noise_ratio, noise_rng)
        self._stalls = (*profile.stalls, *profile.regimes.stalls)
        self._stall_due_s = [start_s + s.every_s * self._stall_rng.uniform(0.0, 1.5) for s in self._stalls]
        self._regimes = RegimePath(profile.regimes, regime_rng, start_s) if profile.regimes.changes else None
        self._speeds = [(start_s + t_s, factor) for t_s, factor in sorted(profile.speeds)]
        self._speed = 1.0

    def duration_s(self, now_s: float, decodes: int, context_tokens: int, prefill_tokens: int) -> float:
        """Time of a step begun at ``now_s``: ``t0 + c_dec*decodes + c_kv*context + c_pf*prefill``, noise, stalls."""
        p = self._profile
        while self._speeds and self._speeds[0][0] <= now_s:
            self._speed = self._speeds.pop(0)[1]
        cost_s = p.t0_s + p.context_s * context_tokens + p.prefill_s * prefill_tokens
        cost_s += p.decode_s * decodes * (1 + p.draft_tokens)
        if decodes and p.draft_tokens:
            cost_s += p.draft_s * p.draft_tokens
        slower = self.slower(now_s)
        cost_s = max(cost_s, p.host_s * slower) if p.host_s else cost_s * slower
        duration_s = cost_s * self._noise.factor() / self._speed
        if self._stalls:
            for which, stall in enumerate(self._stalls):
                duration_s += self._stalled_s(which, stall, now_s, now_s + duration_s)
        return duration_s

    def slower(self, t_s: float) -> float:
        """How many times as long the engine takes at ``t_s``, by its regimes."""
        return self._regimes.factor(t_s) if self._regimes is not None else 1.0

    def _stalled_s(self, which: int, stall: Stall, begin_s: float, end_s: float) -> float:
        """Time added by the stalls that fall due before ``end_s``; those of an idle engine are not felt."""
        added_s = 0.0
        while self._stall_due_s[which] < end_s:
            if self._stall_due_s[which] >= begin_s:
                added_s += self._stall_rng.exponential(stall.duration_s) if stall.exponential else stall.duration_s
            self._stall_due_s[which] += stall.every_s * (1.0 if stall.periodic else self._stall_rng.uniform(0.5, 1.5))
        return added_s


class Adapters:
    """The LoRA adapters an engine holds; the least recently used makes room."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: OrderedDict[str, None] = OrderedDict()

    def use(self, adapter: str) -> bool:
        """Whether ``adapter`` has to be loaded now."""
        loaded = adapter not in self._held
        if loaded and len(self._held) >= self._most:
            self._held.popitem(last=False)
        self._held[adapter] = None
        self._held.move_to_end(adapter)
        return loaded


class _Noise:
    """Factors around 1, drawn many at a time."""

    __slots__ = ("_left", "_ratio", "_rng")

    def __init__(self, ratio: float, rng: np.random.Generator) -> None:
        self._ratio = ratio
        self._rng = rng
        self._left: list[float] = []

    def factor(self) -> float:
        if not self._left:
            drawn = 1.0 + self._ratio * self._rng.standard_normal(_DRAWN_AT_ONCE)
            self._left = np.maximum(drawn, 0.1).tolist()
        return self._left.pop()
