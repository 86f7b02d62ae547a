"""TOML text to a Scenario. Pure: the caller reads the file. Every error names file, table, key and what is allowed."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import Meta

from loadramp.plan import placeholders, returned
from loadramp.plan.arrivals import ARRIVALS
from loadramp.plan.campaign import Campaign, bind_campaign
from loadramp.plan.canary import Canary
from loadramp.plan.nightly import Gates, Nightly
from loadramp.plan.prompts import PROMPTS
from loadramp.plan.prompts.source import Manner, bind_source, images_of
from loadramp.plan.ramps import RAMPS
from loadramp.registry import Choice, ScenarioError, bind, bind_options, convert, hint, options_of

Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
Quantile = Annotated[float, Meta(ge=0.5, lt=1)]


@dataclass(slots=True, frozen=True)
class Target:
    """``[target]``: the endpoint and how to talk to it. Times in seconds."""

    base_url: str = ""
    """With or without ``/v1``; empty: ``OPENAI_BASE_URL``."""
    model: str = ""
    """Empty: the only model the server lists."""
    api: Literal["chat", "completions", "responses"] = "chat"
    via: Literal["direct", "httpx", "openai"] = "direct"
    api_key_env: str = "OPENAI_API_KEY"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    """Extra request fields, sent as they are."""
    force_length: bool = True
    """Ask for the exact output length (``ignore_eos``, ``min_tokens``) where the server takes these fields."""
    stream: bool = True
    connect_timeout_s: Positive = 10.0
    first_timeout_s: Positive = 120.0
    """Longest wait for the first output event; comments do not reset it."""
    idle_timeout_s: Positive = 60.0
    """Longest silence between two output events; comments do not reset it."""
    timeout_s: Positive = 600.0
    grace_s: NotNegative = 5.0
    """How long a stream may stay open after its finish reason before it is closed as done."""
    ready_timeout_s: NotNegative = 60.0
    tokenizer: str = ""
    """A ``tokenizer.json`` of the model (needs the extra ``tokenizers``): made-up text then has exact lengths."""
    token_ids: bool = False
    """Completions only: send made-up prompts as token ids, where the server takes them."""
    max_rps: Positive | None = None
    """A guard (asyncio-throttle), never a pacer: what it holds back shows as lag."""
    max_event_bytes: Annotated[int, Meta(ge=65_536)] = 4 << 20
    """Longest event, or whole JSON reply, that is read (unpacked): a reply beyond it fails."""
    max_events: Annotated[int, Meta(ge=1)] | None = None
    """Most output events of one answer; None: four times the tokens asked for, at least 100,000."""
    ca_file: str = ""
    insecure: bool = False
    proxy: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What the endpoint does not tell of itself, as ``gpu`` or ``flags``: kept in run.json, compared by ``compare``."""


@dataclass(slots=True, frozen=True)
class Slo:
    """``[slo]``: what a good answer is. A request is good when it succeeds within every limit that is set."""

    ttft_s: Positive | None = None
    itl_s: Positive | None = None
    tpot_s: Positive | None = None
    e2e_s: Positive | None = None
    quantile: Quantile = 0.99
    """The quantile of each latency that must be within its limit."""
    error_ratio: Ratio = 0.01
    good_ratio: Ratio | None = None
    """Also ask that this share of all requests is good."""
    malformed_ratio: Ratio | None = None
    """Also ask that at most this share of the answers has events that cannot be read."""

    @property
    def limits(self) -> dict[str, float]:
        """The latency limits that are set: metric (``ttft``, ``itl``, ``tpot``, ``e2e``) to seconds."""
        named = {"ttft": self.ttft_s, "itl": self.itl_s, "tpot": self.tpot_s, "e2e": self.e2e_s}
        return {metric: limit_s for metric, limit_s in named.items() if limit_s is not None}


SHORTEST_MEASURE_S, LONGEST_MEASURE_S = 60.0, 300.0
"""Of the measured part of a step whose length nobody set."""


SureOf = Literal[
    "ttft_mean", "ttft_p50", "ttft_p90", "ttft_p95", "ttft_p99", "itl_mean", "itl_p50", "itl_p90", "itl_p95", "itl_p99",
    "tpot_mean", "tpot_p50", "tpot_p90", "tpot_p95", "tpot_p99", "e2e_mean", "e2e_p50", "e2e_p90", "e2e_p95", "e2e_p99",
    "throughput",
]  # fmt: skip


@dataclass(slots=True, frozen=True)
class Pace:
    """The keys of ``[ramp]`` that every kind takes: how long a step lasts and what ends a ramp early."""

    unit: Literal["rps", "speed"] = "rps"
    """What the kind's rates are: requests a second, or multiples of the mean rate of the trace that is replayed."""
    warmup_s: NotNegative | None = None
    """Start of each step that is not measured; None: from the fill-up time of the requests seen so far."""
    measure_s: Positive | None = None
    """Measured part of each step; None: at least 60 s and enough requests, at most 300 s."""
    until_sure: Positive | None = None
    """A step goes on until the interval of ``sure_of`` reaches no further than this ratio from its value; None: not."""
    sure_of: SureOf = "itl_p50"
    """A latency, or ``throughput``, on which the ceiling rests."""
    longest_s: NotNegative | None = None
    """Most measured seconds of a step that goes on; None: 300 s with ``until_sure``, else three times its usual length,
    at most 600 s; 0: none goes on."""
    min_requests: Count = 300
    """Requests that fall due in 99 of 100 steps of unset length."""
    settle_s: NotNegative = 30.0
    """Discarded load at the first rate, before the first step."""
    settle_requests: Annotated[int, Meta(ge=0)] = 50
    tail_s: NotNegative | None = None
    """Load offered after the last step while its requests finish; None: their p99 end-to-end time, at most 60 s."""
    max_requests: Count | None = None
    max_minutes: Positive | None = None
    max_in_flight: Count | None = None
    """A request beyond it is recorded as failed, and the step is void. None: as many as files may be open."""
    max_error_ratio: Ratio = 0.01
    """A step above it ends the ramp."""
    give_up_s: Positive = 5.0
    """So long without a single success (and 20 failures in a row) ends the run: nobody is answering any more."""

    def limit_s(self, rate_rps: float | None) -> float:
        """Measured part of a step that is never sure, seconds."""
        length_s = self.length_s(rate_rps)
        longest_s = 300.0 if self.longest_s is None else self.longest_s
        return length_s if self.until_sure is None else max(length_s, longest_s)

    def length_s(self, rate_rps: float | None) -> float:
        """Measured part of a step at ``rate_rps`` (None: a number of users), seconds.

        Poisson arrivals are at least n in 99 of 100 windows in which n + z sqrt(n) + (z*z - 1) / 3 are expected, z the
        99 % quantile of the normal distribution (Cornish-Fisher for the gamma distribution of the n-th arrival).
        """
        if self.measure_s is not None:
            return self.measure_s
        if not rate_rps:
            return SHORTEST_MEASURE_S
        n = self.min_requests
        expected = n + 2.326 * sqrt(n) + 1.47
        return min(max(SHORTEST_MEASURE_S, expected / rate_rps), LONGEST_MEASURE_S)


@dataclass(slots=True, frozen=True)
class Metrics:
    """``[metrics]``: where the server's own metrics are. Empty ``url``: ``/metrics`` of the target, if it answers."""

    url: str = ""
    urls: Sequence[str] = ()
    enabled: bool = True
    period_s: Positive = 1.0


@dataclass(slots=True, frozen=True)
class Fleet:
    """``[fleet]``: how many processes send. ``inline`` sends from the conducting process itself."""

    kind: Literal["local", "inline"] = "local"
    workers: Count | Literal["auto"] = "auto"


@dataclass(slots=True, frozen=True)
class Scenario:
    """How to ramp. ``source`` is the text that was read, byte for byte; ``overrides`` what ``--set`` changed."""

    name: str
    seed: int
    target: Target
    slo: Slo
    prompts: Choice
    arrivals: Choice
    ramp: Choice
    pace: Pace
    knee: Choice
    metrics: Metrics
    fleet: Fleet
    canary: Canary = field(default_factory=Canary)
    gates: Gates = field(default_factory=Gates)
    nightly: Nightly = field(default_factory=Nightly)
    campaign: Campaign = field(default_factory=Campaign)
    manner: Manner = field(default_factory=Manner)
    tables: tuple[str, ...] = ()
    """The tables that it has, those that overrides add included; the others hold what they hold by default."""
    source: str = ""
    overrides: tuple[str, ...] = ()
    folder: str = ""
    """Where relative file names count from."""
    corpora: Mapping[str, Any] = field(default_factory=dict)
    """What was read from files: name of the table (``prompts``, ``prompts.0``, ``arrivals``) to rows."""


_TABLES = {
    "target": Target, "slo": Slo, "metrics": Metrics, "fleet": Fleet, "canary": Canary, "gates": Gates,
    "nightly": Nightly,
}  # fmt: skip
_CHOICES = ("prompts", "arrivals", "ramp", "knee")


def load(
    text: str,
    name: str = "scenario.toml",
    overrides: Sequence[str] = (),
    knees: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
) -> Scenario:
    """Read a scenario.

    Args:
        text: the TOML text.
        name: how errors call it.
        overrides: ``table.key=value`` in TOML's value syntax (a bare word is a string); they win over the text.

        knees: the knee detectors by kind; the caller hands them over, because this room knows no other.

    Raises:
        ScenarioError: anything is misspelt, of the wrong type or out of range.
    """
    try:
        raw = tomllib.loads(text.removeprefix("\ufeff"))  # the mark that some editors put first
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{name}: not TOML: {error}") from None
    for override in overrides:
        _apply(raw, override)
    allowed = {"name", "seed", "campaign", *_TABLES, *_CHOICES}
    for key, value in raw.items():
        if key not in allowed:
            near, there = hint(key, allowed), ", ".join(sorted(allowed))
            raise ScenarioError(f"{name}: {key}: no such key or table{near}; there are {there}")
        if key not in {"name", "seed"} and not isinstance(value, dict):
            raise ScenarioError(f"{name}: {key}: expected a table [{key}]; got {value!r}")
    tables: dict[str, Any] = {
        key: kind(**bind_options(raw.get(key, {}), kind, f"{name}: [{key}]")) for key, kind in _TABLES.items()
    }
    tables["campaign"] = bind_campaign(raw.get("campaign", {}), f"{name}: [campaign]")
    ramp, pace = _ramp(raw.get("ramp", {}), f"{name}: [ramp]")
    prompts, manner = bind_source(raw.get("prompts", {}), PROMPTS, f"{name}: [prompts]")
    _suits(tables["target"], images_of(prompts, manner), name)
    return Scenario(
        name=convert(raw.get("name", name.rsplit("/", 1)[-1].removesuffix(".toml")), str, f"{name}: name"),
        seed=convert(raw.get("seed", 0), Annotated[int, Meta(ge=0)], f"{name}: seed"),
        prompts=prompts,
        manner=manner,
        arrivals=bind(raw.get("arrivals", {}), ARRIVALS, f"{name}: [arrivals]", "poisson", returned.instants),
        ramp=ramp,
        pace=pace,
        knee=bind(raw.get("knee", {}), knees, f"{name}: [knee]", "ceiling", returned.estimate),
        tables=tuple(key for key, value in raw.items() if isinstance(value, dict)),
        source=text,
        overrides=tuple(overrides),
        **tables,
    )


def _suits(target: Target, images: bool, name: str) -> None:
    """What an API cannot carry, and placeholders that there are not, are found before a run."""
    try:
        placeholders.check(target.headers, target.body)
    except ScenarioError as error:
        raise ScenarioError(f"{name}: {error}") from None
    if target.token_ids and target.api != "completions":
        raise ScenarioError(f"{name}: [target] token_ids: only api = 'completions' takes them; got {target.api!r}")
    if images and target.api == "completions":
        raise ScenarioError(f"{name}: [prompts] images: api = 'completions' takes none; there are chat and responses")


def _apply(raw: dict[str, Any], override: str) -> None:
    path, equals, value = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise ScenarioError(f"--set {override}: expected table.key=value")
    try:
        parsed = tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    table = raw
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise ScenarioError(f"--set {override}: {key} is not a table")
    table[keys[-1]] = parsed


def _ramp(table: Mapping[str, Any], where: str) -> tuple[Choice, Pace]:
    """``[ramp]`` carries the kind's own options and those of Pace; an unknown key is reported against both."""
    shared = options_of(Pace)
    own = {key: value for key, value in table.items() if key not in shared}
    try:
        choice = bind(own, RAMPS, where, "ceiling", returned.step)
    except ScenarioError as error:
        every = f"; and for every kind: {', '.join(sorted(shared))}" if "allowed: " in str(error) else ""
        raise ScenarioError(f"{error}{every}") from None
    takes = options_of(choice.function)
    if {"start_rps", "max_rps"} <= takes.keys():
        start_rps, max_rps = (choice.options.get(key, takes[key][1]) for key in ("start_rps", "max_rps"))
        if start_rps > max_rps:
            raise ScenarioError(f"{where} start_rps: {start_rps:g} is above max_rps = {max_rps:g}: no step is left")
    return choice, Pace(**bind_options({k: v for k, v in table.items() if k in shared}, Pace, where))
