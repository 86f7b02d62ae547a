"""Short definitions for the end of the report, which must explain itself offline; docs/method.md has the formulas."""

from __future__ import annotations

GLOSSARY: tuple[tuple[str, str, str], ...] = (
    (
        "due",
        "due, sent, lag",
        "A request is due when the plan says so, not when the client gets round to it. Lag is sent minus due. "
        "Because latencies count from due, a server that makes the client wait cannot hide it.",
    ),
    (
        "ttft",
        "TTFT",
        "Time to first token: first output event minus due. Output is content, reasoning, a refusal or a tool "
        "call; an event that only names the role is not output.",
    ),
    (
        "itl",
        "ITL",
        "Inter-token latency: time between output events, per token. An event that brings k tokens after a "
        "gap g counts as k times g/k. Percentiles pool all tokens of the window in which they arrived.",
    ),
    (
        "gap",
        "gap",
        "Time between two output events of a request, whatever number of tokens they bring.",
    ),
    (
        "tpot",
        "TPOT",
        "Time per output token of a request: (last output - first output) / (output tokens - tokens of the "
        "first event). Percentiles pool requests; none for answers of one token.",
    ),
    (
        "e2e",
        "E2E",
        "End to end: last output event minus due.",
    ),
    (
        "percentile",
        "p50, p95, p99",
        "Half, one in twenty, one in a hundred took longer. Of successful requests; failed ones are counted "
        "beside them. A percentile whose sample is too small is not printed; the report says how many "
        "requests it needs.",
    ),
    (
        "interval",
        "interval",
        "A 95 % interval: measured again in the same way, about 19 of 20 such intervals would hold the true "
        "value. It comes from blocks of time, because tokens of one engine step are no independent "
        "observations. Where the engine's pace has regimes, it is wide enough for the long run, not for this minute "
        "alone, if the run saw slow stretches come and go; otherwise it speaks of the minutes that were measured. No "
        "interval is given where a signal of overload fired. What a restart, a neighbour on the machine or another "
        "hour changes one run cannot know; several ramps (--repeats 3) show that.",
    ),
    (
        "ceiling",
        "ceiling",
        "The rate above which the queue grows without end. Signals (queue, backlog, rising TTFT) show that a step "
        "lies above it; what the server delivered while it was overloaded says where it is.",
    ),
    (
        "sustained",
        "sustained",
        "The rate at which a soak, minutes long and below the ceiling, stayed quiet. The number to plan with.",
    ),
    (
        "knee",
        "p99 ITL knee",
        "The rate from which p99 ITL grows faster than the rate itself. It may lie far below the ceiling or "
        "not exist. 'Prefill mixing' means that prompts processed between tokens lift the tail, which is not "
        "a limit of capacity.",
    ),
    (
        "slo",
        "SLO capacity",
        "The highest rate at which the service level of the scenario holds, from a monotone curve through the steps.",
    ),
    (
        "delivered",
        "delivered",
        "Output tokens received in the window, divided by the window and by the mean number of output tokens "
        "a request: requests a second, without the bias of counting only those that happened to finish.",
    ),
    (
        "good",
        "good, goodput",
        "A request is good when it succeeds within every limit of the service level. Goodput is good requests "
        "a second, or their share of all requests, failed ones included.",
    ),
    (
        "saturated",
        "overloaded",
        "At least one signal fired (queue, backlog, rising TTFT, the server's waiting queue) and less than 85 "
        "% of what was due was delivered. A lone signal without that deficit is an alarm that the next step "
        "must confirm.",
    ),
    (
        "settled",
        "not settled",
        "The step was measured while its load still filled up: its numbers hold for that moment, not for that rate.",
    ),
    (
        "elasticity",
        "elasticity",
        "By how many percent p99 ITL grows when the rate grows by one percent, from this step to the next. "
        "Above 1 is super-linear.",
    ),
    (
        "void",
        "void",
        "The client could not deliver the step as planned. Its numbers are shown and never used.",
    ),
    (
        "inflight",
        "in flight, waiting",
        "In flight: due and not finished. Waiting: due and without a first token yet.",
    ),
    (
        "stall",
        "stall",
        "A gap above ten times the request's median gap and above 250 ms. One preemption is one stall of one "
        "request, which pooled ITL percentiles hardly show.",
    ),
    (
        "preemption",
        "preemption",
        "The server ran out of KV cache and threw a running request out, to compute it again later.",
    ),
    (
        "ccdf",
        "CCDF",
        "Complementary distribution: the share of values above each value. It shows the tail that a "
        "percentile cuts off.",
    ),
    (
        "soak",
        "soak",
        "One long step below the ceiling that has to stay quiet before a rate is called sustained.",
    ),
    (
        "openloop",
        "open and closed loop",
        "Open loop: requests are due at planned times whether or not earlier ones were answered, as with many "
        "independent callers. Closed loop: a fixed number of users who wait for their answer, so overload "
        "shows as slowness and never as a growing queue.",
    ),
)
"""Anchor (the report links to ``#g-anchor``), words, definition."""
