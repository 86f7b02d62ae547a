"""How long a request each model takes: from the server's list of models, else from a label."""

from collections.abc import Mapping, Sequence
from typing import Any

from loadramp.analysis.checks.labels import claims
from loadramp.client.endpoint import endpoint_of
from loadramp.client.preflight import facts_of
from loadramp.client.readiness import choose_model, list_models
from loadramp.scenario.scenario import Scenario
from loadramp.workload.profile import LengthOf


def lengths(scenario: Scenario, model: str = "", cards: Sequence[Mapping[str, Any]] = ()) -> LengthOf:
    """The ``max_model_len`` by name of the model.

    Args:
        scenario: its labels (``max_model_len``, or ``--max-model-len`` among ``flags``) speak for its own model.
        model: the model that is asked where a request names none.
        cards: of the server's list.
    """
    _, label = claims(scenario.target.labels).get("max_model_len", ("", ""))
    number = int(label) if label.isdigit() and int(label) else None

    def length_of(name: str) -> int | None:
        longest = facts_of(name or model, cards)["max_model_len"]
        known = longest if type(longest) is int and longest > 0 else None
        return known if known is not None or name else number

    return length_of


async def asked_lengths(scenario: Scenario) -> LengthOf:
    """The same, read from the list of models of the scenario's endpoint; nothing else is asked of it.

    Raises:
        Unreachable: it does not list any.
        ScenarioError: no model is named, and it lists several.
    """
    target = scenario.target
    endpoint = endpoint_of(target)
    cards = await list_models(target, endpoint)
    return lengths(scenario, choose_model(target, tuple(card["id"] for card in cards), endpoint.redact), cards)
