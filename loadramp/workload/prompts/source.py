"""A ``[prompts]`` table, or one source of a mixture: the function its kind picks, and what every kind takes. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from loadramp.record.types import Prompt
from loadramp.registry import Choice, bind_with, convert
from loadramp.scenario.scenario import PromptOptions, Weight
from loadramp.workload.prompts.draw import Draw
from loadramp.workload.prompts.synthetic import pick


@dataclass(slots=True, frozen=True)
class MixtureSource:
    """One source of a mixture."""

    weight: float
    choice: Choice
    options: PromptOptions


def bind_source(
    table: Mapping[str, Any], registry: Mapping[str, Callable[..., Any]], where: str
) -> tuple[Choice, PromptOptions]:
    """The choice and the options of a ``[prompts]`` table; the sources of a mixture become MixtureSources.

    Raises:
        ScenarioError: a key is unknown to the kind and to PromptOptions, or a value does not fit.
    """
    choice, options = bind_with(table, registry, where, "lognormal", PromptOptions, check_prompts)
    if "sources" in choice.options:
        parts = [
            _part(table, registry, f"{where} sources {i}") for i, table in enumerate(choice.options["sources"], start=1)
        ]
        choice = replace(choice, options={**choice.options, "sources": parts})
    return choice, options


def check_prompts(result: Any, draw: Draw) -> str:
    """What was expected of a source from outside the repository if it returned something else; empty if all is well."""
    fine = (
        isinstance(result, Sequence) and len(result) == draw.n and all(isinstance(prompt, Prompt) for prompt in result)
    )
    return "" if fine else f"expected a list of {draw.n} Prompts"


def _part(table: Mapping[str, Any], registry: Mapping[str, Callable[..., Any]], where: str) -> MixtureSource:
    options = dict(table)
    weight = convert(options.pop("weight", 1.0), Weight, f"{where} weight")
    return MixtureSource(weight, *bind_source(options, registry, where))


def sources_of(choice: Choice) -> Sequence[MixtureSource]:
    """The sources of a mixture; none for any other kind."""
    sources: Sequence[MixtureSource] = choice.options.get("sources", ())
    return sources


def tables_of(choice: Choice, where: str = "prompts") -> list[tuple[str, Choice]]:
    """(name, choice) of a table and of all sources within it."""
    inner = [tables_of(source.choice, f"{where}.{i}") for i, source in enumerate(sources_of(choice))]
    return [(where, choice), *(table for tables in inner for table in tables)]


def models_of(choice: Choice, options: PromptOptions) -> tuple[str, ...]:
    """Every model that requests may ask for by name, in the order in which the scenario lists them."""
    inner = [models_of(source.choice, source.options) for source in sources_of(choice)]
    return tuple(dict.fromkeys([*options.models, *(name for names in inner for name in names)]))


def names_all(choice: Choice, options: PromptOptions) -> bool:
    """Whether every request asks for a model by name, so that the target's model gets none."""
    sources = sources_of(choice)
    return bool(options.models) or (
        bool(sources) and all(names_all(source.choice, source.options) for source in sources)
    )


def images_of(choice: Choice, options: PromptOptions) -> bool:
    """Whether some requests carry images."""
    with_images = options.images > 0 or bool(choice.options.get("use_images"))
    return with_images or any(images_of(source.choice, source.options) for source in sources_of(choice))


def mix(draw: Draw, *, sources: Annotated[list[Any], Meta(min_length=1)]) -> list[Prompt]:
    """Requests from several sources, each drawn with its ``weight``."""
    parts: Sequence[MixtureSource] = sources
    weights = np.array([part.weight for part in parts])
    which = pick(draw.choices, weights / weights.sum(), draw.n)
    mixed: list[Prompt | None] = [None] * draw.n
    for i, part in enumerate(parts):
        at = np.flatnonzero(which == i)
        if len(at):
            share = draw.part(at, f"{draw.where}.{i}")
            for place, prompt in zip(at.tolist(), dress(part.choice(share), part.options, share), strict=True):
                mixed[place] = prompt
    return [prompt for prompt in mixed if prompt is not None]


def dress(prompts: Sequence[Prompt], options: PromptOptions, draw: Draw) -> Sequence[Prompt]:
    """``prompts`` with what their table says of every one of them; what a prompt has itself stays."""
    if options == PromptOptions():
        return prompts
    names = list(options.models)
    weights = np.array([options.models[name] for name in names])
    models = pick(draw.choices, weights / weights.sum(), len(prompts)).tolist() if names else []
    width, height = options.image_pixels
    seeds = draw.texts.integers(0, 2**62, len(prompts)).tolist() if options.images else []
    dressed = []
    for i, prompt in enumerate(prompts):
        images = tuple((seeds[i] + k, width, height) for k in range(options.images)) if options.images else ()
        more: dict[str, Any] = {
            "label": prompt.label or options.label,
            "body": {**options.body, **(prompt.body or {})} or None,
            "model": prompt.model or (names[models[i]] if names else None),
        }
        later = tuple(replace(turn, **more) for turn in prompt.following)
        dressed.append(replace(prompt, images=prompt.images or images, following=later, **more))
    return dressed
