"""Whose numbers a metrics page shows: the series of the models that requests ask for, apart from all others. Pure.

A router, a Prometheus server or a host of several models puts them all on one page; added up they are nobody's. Rule:
where the page names a model that is asked, only its series count, and what was chosen once stays chosen, so that
counters go on from scrape to scrape. Where it names none of them, all count, and that is told.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadramp.metrics.prometheus_text import MetricPoint

MODEL_LABELS = (
    "model_name", "model", "model_id", "served_model_name", "served_model", "target_model_name", "lora_name",
    "exported_model_name", "exported_model",
)  # fmt: skip
"""Labels in which engines, routers and relabelling Prometheus servers name a model."""
PLACE_LABELS = (
    "server", "instance", "pod", "pod_name", "exported_pod", "exported_instance", "backend", "endpoint", "worker",
    "worker_id", "WorkerId", "replica", "ReplicaId", "node", "engine", "engine_id", "dp_rank",
)  # fmt: skip
"""Labels that tell one server or engine from another: they tie a series without a model to those that name one."""
NO_NAMES = frozenset({"", "undefined", "unknown", "none", "null", "n/a"})
"""What stands in a label of models where the engine knows none (TensorRT-LLM 1.0: ``undefined``)."""
OF_THE_ENGINE = frozenset(
    {"running", "waiting", "kv_used_ratio", "preemptions", "engine_steps", "max_num_seqs", "kv_blocks", "block_size"}
    | {"prefix_queries", "prefix_hits", "prefix_hit_ratio"}
    | {"spec_draft_tokens", "spec_accepted_tokens", "spec_accept_ratio"}
)
"""Quantities of an engine as a whole: a page that counts requests by adapter shows these under the base model only."""


@dataclass(slots=True, frozen=True)
class ModelSelection:
    """The models that requests ask for, and what else the server's list calls them."""

    names: tuple[str, ...] = ()
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Asked name to other names of the same weights."""
    bases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Asked name of an adapter to the names of its base model."""


@dataclass(slots=True, frozen=True)
class ModelChoice:
    """Which series of a page count. ``names``: of the models so called; None: all, whatever they are called."""

    names: frozenset[str] | None = None
    bases: frozenset[str] = frozenset()
    """Base models of those: their series count for what they do not show themselves and is the engine's."""
    known: frozenset[str] = frozenset()
    """The asked models that were found."""
    left_out: tuple[str, ...] = ()
    """The models whose series do not count."""
    unasked: tuple[str, ...] = ()
    """The models whose series count although none of them is asked, because no asked one is there."""


def asked_of(names: Iterable[str], cards: Sequence[Mapping[str, Any]] = ()) -> ModelSelection:
    """``names`` with what the cards of a models list say of them: other names of the same ``root``, and the ``parent``
    of an adapter with its names."""
    wanted = tuple(dict.fromkeys(names))
    aliases = {name: _aliases(name, cards) for name in wanted}
    bases = {name: _bases(name, cards) for name in wanted}
    return ModelSelection(wanted, {k: v for k, v in aliases.items() if v}, {k: v for k, v in bases.items() if v})


def names_in(labels: Mapping[str, str]) -> frozenset[str]:
    """The models that the labels of a series name; none: it is not told whose it is."""
    named = (labels[label] for label in MODEL_LABELS if label in labels)
    return frozenset(name for name in named if name.lower() not in NO_NAMES)


def choose(
    points: Sequence[MetricPoint], asked: ModelSelection, before: ModelChoice | None = None, elsewhere: bool = False
) -> ModelChoice:
    """What counts on the page that has ``points``.

    Args:
        points: all that are read of it, and others that name models.
        asked: what requests ask for.
        before: what counted on this page at the last scrape. Models that were found then stay found.
        elsewhere: another page of the same run names an asked model: this one's then count only when they are asked.
    """
    shown = list(dict.fromkeys(name for point in points for name in sorted(names_in(point.labels))))
    if not asked.names or not shown:
        return ModelChoice() if before is None or before.names is None else before
    old = before if before is not None and before.names is not None else ModelChoice(frozenset())
    names, bases, known = set(old.names or ()), set(old.bases), set(old.known)
    for name in asked.names:
        matches = [] if name in known else _matching(name, asked, shown)
        if matches:
            known.add(name)
            names.update(matches)
            bases.update(base for base in asked.bases.get(name, ()) if base in shown)
    if not known and not elsewhere:
        return ModelChoice(unasked=tuple(shown))
    counted = frozenset(names)
    whose = [names_in(point.labels) for point in points]
    ours = frozenset().union(*(models for models in whose if models & (counted | bases)), counted, bases)
    others = (name for models in whose for name in sorted(models) if name not in ours)
    left_out = tuple(dict.fromkeys((*old.left_out, *others)))
    return ModelChoice(counted, frozenset(bases - counted), frozenset(known), left_out)


def select(
    points: Sequence[MetricPoint], choice: ModelChoice, around: Sequence[MetricPoint] = ()
) -> tuple[list[MetricPoint], list[MetricPoint]]:
    """The points that count, and those of base models that count where the first show nothing.

    A series without a model counts too, unless what it shares with those that have one (server, pod, rank) ties it to
    another model's alone.

    Args:
        points: of the page.
        choice: what counts.
        around: further points that tell which model is where.
    """
    if choice.names is None:
        return list(points), []
    ours: list[dict[str, str]] = []
    others: list[dict[str, str]] = []
    for point in (*points, *around):
        named = names_in(point.labels)
        if named:
            (ours if named & (choice.names | choice.bases) else others).append(_place(point.labels))
    anyones = _anyones(points, others)
    counted, base = [], []
    for point in points:
        named = names_in(point.labels)
        if named & choice.names:
            counted.append(point)
        elif named & choice.bases:
            base.append(point)
        elif not named and point.name not in anyones and not _elsewhere(_place(point.labels), ours, others):
            counted.append(point)
    return counted, base


def _anyones(points: Sequence[MetricPoint], others: Sequence[Mapping[str, str]]) -> set[str]:
    """Descriptions (``..._info``) that the page has several of, without a sign of which is ours."""
    loose = [point for point in points if point.name.endswith("_info") and not names_in(point.labels)]
    open_to_all = [
        point for point in loose if not (place := _place(point.labels)) or any(_same(place, other) for other in others)
    ]
    several = Counter(point.name for point in open_to_all)
    return {name for name, n in several.items() if n > 1 and others}


def _aliases(name: str, cards: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    roots = {str(card["root"]) for card in cards if card.get("id") == name and card.get("root")}
    same = [str(card.get("id")) for card in cards if str(card.get("root")) in roots and not card.get("parent")]
    adapter = any(card.get("id") == name and card.get("parent") for card in cards)
    return tuple(root for root in dict.fromkeys([] if adapter else [*same, *sorted(roots)]) if root != name)


def _bases(name: str, cards: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    parents = [str(card["parent"]) for card in cards if card.get("id") == name and card.get("parent")]
    return tuple(dict.fromkeys(base for parent in parents for base in (parent, *_aliases(parent, cards))))


def _matching(name: str, asked: ModelSelection, shown: Sequence[str]) -> list[str]:
    """What the page calls the model ``name``: its name, an alias, nearly its name; else its base model."""
    if name in shown:
        return [name]
    alias = [model for model in shown if model in asked.aliases.get(name, ())]
    if alias:
        return alias
    for likeness in (str.casefold, _last_part):
        like = [model for model in shown if likeness(model) == likeness(name) and model not in asked.names]
        if len(like) == 1:
            return like
    return [model for model in shown if model in asked.bases.get(name, ())]


def _last_part(name: str) -> str:
    """``Qwen/Qwen3-8B`` and ``/models/qwen3-8b/`` are both ``qwen3-8b``."""
    return name.rstrip("/").rpartition("/")[2].casefold()


def _place(labels: Mapping[str, str]) -> dict[str, str]:
    return {label: labels[label] for label in PLACE_LABELS if label in labels}


def _elsewhere(
    place: Mapping[str, str], ours: Sequence[Mapping[str, str]], others: Sequence[Mapping[str, str]]
) -> bool:
    return any(_same(place, other) for other in others) and not any(_same(place, our) for our in ours)


def _same(a: Mapping[str, str], b: Mapping[str, str]) -> bool:
    shared = a.keys() & b.keys()
    return bool(shared) and all(a[label] == b[label] for label in shared)
