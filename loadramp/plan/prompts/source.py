"""A ``[prompts]`` table, or one source of a mixture: the function its kind picks, and what every kind takes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from loadramp.plan import returned
from loadramp.plan.prompts.draw import Draw
from loadramp.plan.prompts.shared import pick
from loadramp.record.types import Prompt
from loadramp.registry import Choice, ScenarioError, bind, bind_options, convert, options_of

Weight = Annotated[float, Meta(gt=0)]
Pixels = Annotated[int, Meta(ge=8, le=8192)]


@dataclass(slots=True, frozen=True)
class Manner:
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
class Part:
    """One source of a mixture."""

    weight: float
    choice: Choice
    manner: Manner


def bind_source(
    table: Mapping[str, Any], registry: Mapping[str, Callable[..., Any]], where: str
) -> tuple[Choice, Manner]:
    """The choice and the manner of a ``[prompts]`` table; the sources of a mixture become Parts.

    Raises:
        ScenarioError: a key is unknown to the kind and to Manner, or a value does not fit.
    """
    common = options_of(Manner)
    own = {key: value for key, value in table.items() if key not in common}
    try:
        choice = bind(own, registry, where, "lognormal", returned.prompts)
    except ScenarioError as error:
        every = f"; and for every kind: {', '.join(sorted(common))}" if "allowed: " in str(error) else ""
        raise ScenarioError(f"{error}{every}") from None
    manner = Manner(**bind_options({k: v for k, v in table.items() if k in common}, Manner, where))
    if "sources" in choice.options:
        parts = [
            _part(one, registry, f"{where} sources {i}") for i, one in enumerate(choice.options["sources"], start=1)
        ]
        choice = replace(choice, options={**choice.options, "sources": parts})
    return choice, manner


def _part(table: Mapping[str, Any], registry: Mapping[str, Callable[..., Any]], where: str) -> Part:
    own = dict(table)
    weight = convert(own.pop("weight", 1.0), Weight, f"{where} weight")
    return Part(weight, *bind_source(own, registry, where))


def tables_of(choice: Choice, where: str = "prompts") -> list[tuple[str, Choice]]:
    """(name, choice) of a table and of all sources within it."""
    parts: Sequence[Part] = choice.options.get("sources", ())
    return [
        (where, choice),
        *(one for i, part in enumerate(parts) for one in tables_of(part.choice, f"{where}.{i}")),
    ]


def models_of(choice: Choice, manner: Manner) -> tuple[str, ...]:
    """Every model that requests may ask for by name, in the order in which the scenario lists them."""
    parts: Sequence[Part] = choice.options.get("sources", ())
    names = [*manner.models, *(name for part in parts for name in models_of(part.choice, part.manner))]
    return tuple(dict.fromkeys(names))


def names_all(choice: Choice, manner: Manner) -> bool:
    """Every request asks for a model by name, so that the target's is asked for nothing."""
    parts: Sequence[Part] = choice.options.get("sources", ())
    return bool(manner.models) or (bool(parts) and all(names_all(part.choice, part.manner) for part in parts))


def images_of(choice: Choice, manner: Manner) -> bool:
    """Whether some requests carry images."""
    parts: Sequence[Part] = choice.options.get("sources", ())
    own = manner.images > 0 or bool(choice.options.get("use_images"))
    return own or any(images_of(part.choice, part.manner) for part in parts)


def mix(draw: Draw, *, sources: Annotated[list[Any], Meta(min_length=1)]) -> list[Prompt]:
    """Requests from several sources, each drawn with its ``weight``."""
    parts: Sequence[Part] = sources
    weights = np.array([part.weight for part in parts])
    which = pick(draw.choices, weights / weights.sum(), draw.n)
    mixed: list[Prompt | None] = [None] * draw.n
    for i, part in enumerate(parts):
        at = np.flatnonzero(which == i)
        if len(at):
            share = draw.part(at, f"{draw.where}.{i}")
            for place, prompt in zip(at.tolist(), dress(part.choice(share), part.manner, share), strict=True):
                mixed[place] = prompt
    return [prompt for prompt in mixed if prompt is not None]


def dress(prompts: Sequence[Prompt], manner: Manner, draw: Draw) -> list[Prompt]:
    """``prompts`` with what their table says of every one of them; what a prompt has itself stays."""
    if manner == Manner():
        return list(prompts)
    names = list(manner.models)
    weights = np.array([manner.models[name] for name in names])
    models = pick(draw.choices, weights / weights.sum(), len(prompts)).tolist() if names else []
    width, height = manner.image_pixels
    seeds = draw.texts.integers(0, 2**62, len(prompts)).tolist() if manner.images else []
    dressed = []
    for i, prompt in enumerate(prompts):
        images = tuple((seeds[i] + k, width, height) for k in range(manner.images)) if manner.images else ()
        more: dict[str, Any] = {
            "label": prompt.label or manner.label,
            "body": {**manner.body, **(prompt.body or {})} or None,
            "model": prompt.model or (names[models[i]] if names else None),
        }
        later = tuple(replace(turn, **more) for turn in prompt.following)
        dressed.append(replace(prompt, images=prompt.images or images, following=later, **more))
    return dressed
