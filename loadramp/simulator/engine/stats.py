"""What the engine counts about itself: counters since it started and histograms in vLLM's buckets. Pure."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from loadramp.simulator.engine.request import FinishReason, Request


class Histogram:
    """Observations counted in buckets with upper bounds ``bounds`` and one for all above."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds: Sequence[float] = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        return sum(self.counts)


# Bounds as vLLM V1 exposes them (its metrics page; see docs/simulator.md).
_FIRST_TOKEN_S = (
    .001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
_TOKEN_S = (.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)  # fmt: skip
_REQUEST_S = (.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)  # fmt: skip
_ITERATION_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
_PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)


def _one_two_five(most: int) -> list[float]:
    """1, 2, 5, 10, ... up to ``most``."""
    return [m * 10.0**e for e in range(9) for m in (1, 2, 5) if m * 10**e <= most]


@dataclass(slots=True)
class Stats:
    """Counters and histograms of one engine since it started."""

    max_model_len: int
    preemptions: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    done: dict[FinishReason, int] = field(default_factory=lambda: {"length": 0, "stop": 0})
    aborted: int = 0
    rejected: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    ttft_s: Histogram = field(default_factory=lambda: Histogram(_FIRST_TOKEN_S))
    itl_s: Histogram = field(default_factory=lambda: Histogram(_TOKEN_S))
    tpot_s: Histogram = field(default_factory=lambda: Histogram(_TOKEN_S))
    e2e_s: Histogram = field(default_factory=lambda: Histogram(_REQUEST_S))
    queue_s: Histogram = field(default_factory=lambda: Histogram(_REQUEST_S))
    inference_s: Histogram = field(default_factory=lambda: Histogram(_REQUEST_S))
    prefill_s: Histogram = field(default_factory=lambda: Histogram(_REQUEST_S))
    decode_s: Histogram = field(default_factory=lambda: Histogram(_REQUEST_S))
    iteration_tokens: Histogram = field(default_factory=lambda: Histogram(_ITERATION_TOKENS))
    request_preemptions: Histogram = field(default_factory=lambda: Histogram(_PREEMPTIONS))
    request_prompt_tokens: Histogram = field(init=False)
    request_output_tokens: Histogram = field(init=False)

    def __post_init__(self) -> None:
        self.request_prompt_tokens = Histogram(_one_two_five(self.max_model_len))
        self.request_output_tokens = Histogram(_one_two_five(self.max_model_len))

    def ended(self, request: Request, end_s: float) -> None:
        """Count a request whose last token came at ``end_s``."""
        first_s, scheduled_s = request.first_s, request.scheduled_s
        assert first_s is not None
        assert scheduled_s is not None
        self.done[request.finish] += 1
        self.e2e_s.observe(end_s - request.arrival_s)
        self.inference_s.observe(end_s - scheduled_s)
        self.prefill_s.observe(first_s - scheduled_s)
        self.decode_s.observe(end_s - first_s)
        self.tpot_s.observe((end_s - first_s) / max(1, request.output_tokens - 1))
        self.request_prompt_tokens.observe(request.prompt_tokens)
        self.request_output_tokens.observe(request.output_tokens)
        self.request_preemptions.observe(request.preemptions)

    def canonical(self) -> dict[str, float]:
        """The counters in canonical names (metrics.dialects): what a scrape of the metrics page would give."""
        counters: dict[str, float] = {
            "preemptions": self.preemptions,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "prefix_queries": self.prefix_queries,
            "prefix_hits": self.prefix_hits,
            "requests_done": sum(self.done.values()),
            "requests_aborted": 0,  # as vLLM: a client that leaves is not counted, only its tokens are
            "requests_failed": 0,
            "requests_rejected": self.rejected,
            "engine_steps": self.iteration_tokens.count,
        }
        for name in ("queue_s", "prefill_s", "decode_s", "ttft_s", "itl_s", "tpot_s", "e2e_s"):
            histogram: Histogram = getattr(self, name)
            counters[f"{name}_sum"] = histogram.sum
            counters[f"{name}_count"] = histogram.count
        if self.draft_tokens:
            counters["spec_draft_tokens"] = self.draft_tokens
            counters["spec_accepted_tokens"] = self.accepted_tokens
        return counters
