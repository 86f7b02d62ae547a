"""TOML text to a Scenario. Pure: the caller reads the file. Every error names file, table, key and what is allowed."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Annotated, Any, Literal

from msgspec import Meta

from loadramp.registry import FEATURES, Choice, ScenarioError, bind_options, convert, hint, reach

Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
Quantile = Annotated[float, Meta(ge=0.5, lt=1)]
ERROR_RATIO = 0.01
"""Share of the requests that may fail where nobody said."""


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
    """Metadata to record with the run, such as ``gpu`` or ``flags``: kept in run.json, compared by ``compare``."""


@dataclass(slots=True, frozen=True)
class Slo:
    """``[slo]``: what a good answer is. A request is good when it succeeds within every limit that is set."""

    ttft_s: Positive | None = None
    itl_s: Positive | None = None
    tpot_s: Positive | None = None
    e2e_s: Positive | None = None
    quantile: Quantile = 0.99
    """The quantile of each latency that must be within its limit."""
    error_ratio: Ratio = ERROR_RATIO
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
SHORTEST_WARMUP_S = 10.0
"""Of a step whose warm-up nobody set, before anything is known of the server."""


SureOf = Literal[
    "ttft_mean", "ttft_p50", "ttft_p90", "ttft_p95", "ttft_p99", "itl_mean", "itl_p50", "itl_p90", "itl_p95", "itl_p99",
    "tpot_mean", "tpot_p50", "tpot_p90", "tpot_p95", "tpot_p99", "e2e_mean", "e2e_p50", "e2e_p90", "e2e_p95", "e2e_p99",
    "throughput",
]  # fmt: skip


@dataclass(slots=True, frozen=True)
class RampOptions:
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
    max_error_ratio: Ratio = ERROR_RATIO
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


Weight = Annotated[float, Meta(gt=0)]
Pixels = Annotated[int, Meta(ge=8, le=8192)]


@dataclass(slots=True, frozen=True)
class PromptOptions:
    """Keys of ``[prompts]`` that every kind takes."""

    label: str = ""
    """Class of traffic: its requests get rows of their own."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """Extra request fields: tools, tool_choice, response_format, temperature, ..."""
    models: Mapping[str, Weight] = field(default_factory=dict)
    """Model or LoRA adapter to weight; empty: the target's model."""
    images: Annotated[int, Meta(ge=0, le=64)] = 0
    """Images a request."""
    image_pixels: Annotated[list[Pixels], Meta(min_length=2, max_length=2)] = field(default_factory=lambda: [512, 512])
    """Width and height."""


@dataclass(slots=True, frozen=True)
class Metrics:
    """``[metrics]``: where the server's own metrics are. Empty ``url``: ``/metrics`` of the target, if it answers."""

    url: str = ""
    urls: Sequence[str] = ()
    enabled: bool = True
    period_s: Positive = 1.0


@dataclass(slots=True, frozen=True)
class FleetOptions:
    """``[fleet]``: how many processes send. ``inline`` sends from the conducting process itself, ``ray`` from the nodes
    of a Ray cluster."""

    kind: Literal["local", "inline", "ray"] = "local"
    workers: Count | Literal["auto"] = "auto"
    """With ``ray``: on each node."""
    address: str = ""
    """Of the Ray cluster; empty: that of ``RAY_ADDRESS``, else a cluster of this machine alone."""
    nodes: Count | None = None
    """How many nodes of the Ray cluster send; None: all that have processors."""


@dataclass(slots=True, frozen=True)
class Gates:
    """``[gates]``: thresholds that the run is judged by (docs/gates.md)."""

    rules: Sequence[str] = ()
    when_unsure: Literal["inconclusive", "pass", "fail", "point"] = "inconclusive"
    """What a rule comes to whose interval holds the limit; ``point``: its value is judged as if it had none."""
    abort: bool = False
    """End the ramp once a rule on a step (``@``) is missed beyond doubt."""


@dataclass(slots=True, frozen=True, eq=False)
class Scenario:
    """How to ramp. ``source`` is the text that was read, byte for byte; ``overrides`` what ``--set`` changed.

    One is equal to itself alone: what takes long to find out of it can be kept.
    """

    name: str
    seed: int
    target: Target
    slo: Slo
    prompts: Choice
    arrivals: Choice
    ramp: Choice
    pace: RampOptions
    knee: Choice
    metrics: Metrics
    fleet: FleetOptions
    gates: Gates = field(default_factory=Gates)
    features: Mapping[str, Any] = field(default_factory=dict)
    """The tables of features by name, each as the feature that knows it bound it."""
    prompt_options: PromptOptions = field(default_factory=PromptOptions)
    asked: Mapping[str, Any] = field(default_factory=dict)
    """What is written there, overrides included, as TOML gives it: without defaults, so a new one changes nothing."""
    source: str = ""
    overrides: tuple[str, ...] = ()
    folder: str = ""
    """Where relative file names count from."""
    corpora: Mapping[str, Any] = field(default_factory=dict)
    """What was read from files: name of the table (``prompts``, ``prompts.0``, ``arrivals``) to rows."""

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that it has, those that overrides add included; the others hold what they hold by default."""
        return tuple(key for key, value in self.asked.items() if isinstance(value, dict))

    def without(self, redact: Callable[[str], str]) -> Scenario:
        """The scenario as it may be written down: its text and what ``--set`` changed without what ``redact`` hides."""
        overrides = tuple(redact(override) for override in self.overrides)
        return replace(self, source=redact(self.source), overrides=overrides, asked=_redacted(self.asked, redact))


_TABLES = {"target": Target, "slo": Slo, "metrics": Metrics, "fleet": FleetOptions, "gates": Gates}
_CHOICES = ("prompts", "arrivals", "ramp", "knee")


@dataclass(slots=True, frozen=True)
class Binders:
    """Who knows the kinds of a table: ``f(table, where)``. This room knows none; the caller hands them over."""

    prompts: Callable[[Mapping[str, Any], str], tuple[Choice, PromptOptions]]
    arrivals: Callable[[Mapping[str, Any], str], Choice]
    ramp: Callable[[Mapping[str, Any], str], tuple[Choice, RampOptions]]
    knee: Callable[[Mapping[str, Any], str], Choice]
    check: Callable[[Target, Choice, PromptOptions], None]
    """Raises ScenarioError where the endpoint cannot be sent what is asked."""


def read_tables(text: str, overrides: Sequence[str] = (), name: str = "scenario.toml") -> dict[str, Any]:
    """The tables of a scenario as they are written, with what ``--set`` changed; nothing is checked or filled in.

    Args:
        text: the TOML text, with or without a byte order mark.
        overrides: ``table.key=value`` in TOML's value syntax (a bare word is a string); they win over the text.
        name: how errors call it.

    Raises:
        ScenarioError: it is not TOML, or an override is not ``table.key=value``.
    """
    try:
        raw = tomllib.loads(text.removeprefix("\ufeff"))  # the mark that some editors put first
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{name}: not TOML: {error}") from None
    for override in overrides:
        _apply_override(raw, override)
    return raw


def parse(text: str, name: str, overrides: Sequence[str], binders: Binders) -> Scenario:
    """Read a scenario.

    Args:
        text: the TOML text.
        name: how errors call it.
        overrides: ``table.key=value`` in TOML's value syntax (a bare word is a string); they win over the text.
        binders: who knows the kinds of its tables.

    Raises:
        ScenarioError: anything is misspelt, of the wrong type or out of range.
    """
    raw = read_tables(text, overrides, name)
    of_features = {table: reach(bound) for feature in FEATURES.values() for table, bound in feature.tables.items()}
    _check_keys(raw, {"name", "seed", *of_features, *_TABLES, *_CHOICES}, name)
    tables: dict[str, Any] = {
        key: kind(**bind_options(raw.get(key, {}), kind, f"{name}: [{key}]")) for key, kind in _TABLES.items()
    }
    features = {key: bound(raw.get(key, {}), f"{name}: [{key}]") for key, bound in of_features.items()}
    ramp, pace = binders.ramp(raw.get("ramp", {}), f"{name}: [ramp]")
    prompts, prompt_options = binders.prompts(raw.get("prompts", {}), f"{name}: [prompts]")
    try:
        binders.check(tables["target"], prompts, prompt_options)
    except ScenarioError as error:
        raise ScenarioError(f"{name}: {error}") from None
    return Scenario(
        name=convert(raw.get("name", name.rsplit("/", 1)[-1].removesuffix(".toml")), str, f"{name}: name"),
        seed=convert(raw.get("seed", 0), Annotated[int, Meta(ge=0)], f"{name}: seed"),
        prompts=prompts,
        prompt_options=prompt_options,
        arrivals=binders.arrivals(raw.get("arrivals", {}), f"{name}: [arrivals]"),
        ramp=ramp,
        pace=pace,
        knee=binders.knee(raw.get("knee", {}), f"{name}: [knee]"),
        asked=raw,
        source=text,
        overrides=tuple(overrides),
        features=features,
        **tables,
    )


def _redacted(value: Any, redact: Callable[[str], str]) -> Any:
    """``value`` as TOML gives it, each text in it without what ``redact`` hides."""
    if isinstance(value, dict):
        return {key: _redacted(item, redact) for key, item in value.items()}
    if isinstance(value, list):
        return [_redacted(item, redact) for item in value]
    return redact(value) if isinstance(value, str) else value


def _check_keys(raw: Mapping[str, Any], allowed: set[str], name: str) -> None:
    for key, value in raw.items():
        if key not in allowed:
            near, there = hint(key, allowed), ", ".join(sorted(allowed))
            raise ScenarioError(f"{name}: {key}: no such key or table{near}; there are {there}")
        if key not in {"name", "seed"} and not isinstance(value, dict):
            raise ScenarioError(f"{name}: {key}: expected a table [{key}]; got {value!r}")


def split_override(override: str) -> tuple[list[str], str]:
    """``--set table.key=value`` as keys and value.

    Raises:
        ScenarioError: it is none.
    """
    path, equals, value = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise ScenarioError(f"--set {override}: expected table.key=value")
    return keys, value


def toml_value(value: Any) -> str:
    """A value in TOML's syntax, as ``--set`` takes it; keys of a table that hold None are left out."""
    if isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key} = {toml_value(each)}' for key, each in value.items() if each is not None)}}}"
    return repr(float(value)) if isinstance(value, float) else repr(value)


def _apply_override(raw: dict[str, Any], override: str) -> None:
    keys, value = split_override(override)
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
