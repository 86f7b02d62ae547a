"""A commented scenario for an endpoint: what it serves decides lengths and time-outs."""

from dataclasses import dataclass

from loadramp.record.run_info import Fact
from loadramp.runner.first_look import first_look
from loadramp.runner.scenarios import Options, load
from loadramp.scenario.scenario import toml_value

INPUT_TOKENS, OUTPUT_TOKENS = 512, 128
"""Of a chat with a short system prompt, where the model takes that much."""
FIRST_RATES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02)
TWO_AT_ONCE = 2.0
SHARE = 8
"""A prompt gets at most this part of the model's context on average, and an answer half of that: with the scatter of
the scenario, one request in 30,000 is longer than the context."""


@dataclass(slots=True, frozen=True)
class FactsForScenario:
    """What the endpoint says, as far as the scenario needs it. None: it does not say."""

    url: str
    model: str
    engine: Fact = None
    max_model_len: int | None = None
    metrics_url: str | None = None
    token_s: float | None = None
    """Seconds between two tokens of a reply that nothing disturbs."""


async def ask(options: Options) -> FactsForScenario:
    """Ask the endpoint.

    Raises:
        ScenarioError: a public host without permission, or no model to choose.
        Unreachable: the endpoint does not answer as it must.
    """
    look = await first_look(options)
    endpoint, known, page = look.endpoint, look.known, look.page
    identity = known.identity
    length = identity.get("max_model_len")
    events = (reply := await look.one_reply()).event_s
    return FactsForScenario(
        url=endpoint.url,
        model=known.model,
        engine=page[1] if page else identity.get("engine"),
        max_model_len=length if isinstance(length, int) else None,
        metrics_url=endpoint.redact(page[0]) if page else None,
        token_s=(events[-1] - events[0]) / (len(events) - 1) if reply.ok and len(events) > 1 else None,
    )


def first_rate(token_s: float | None, answer_tokens: int) -> float:
    """Requests a second at which about two replies run at once, rounded down; at most 1."""
    alone_s = (token_s or 0.0) * answer_tokens
    return next((rate for rate in FIRST_RATES if rate * alone_s <= TWO_AT_ONCE), FIRST_RATES[-1])


def lengths(max_model_len: int | None) -> tuple[int, int]:
    """Tokens of a prompt and of an answer that the model has room for."""
    if max_model_len is None:
        return INPUT_TOKENS, OUTPUT_TOKENS
    prompt = max(8, min(INPUT_TOKENS, max_model_len // SHARE))
    return prompt, max(4, min(OUTPUT_TOKENS, prompt // 2))


def scenario_text(facts: FactsForScenario, name: str) -> str:
    """The scenario, with a line of explanation for each choice. It can be read back."""
    prompt, answer = lengths(facts.max_model_len)
    first_rps = first_rate(facts.token_s, answer)
    slow = f" An answer takes {facts.token_s * answer:.0f} s alone." if facts.token_s and first_rps < 1.0 else ""
    context = (
        f"the model takes {facts.max_model_len:,}"
        if facts.max_model_len
        else "the server does not say how many it takes"
    )
    replicas = f"# Found at the endpoint ({facts.engine}); several replicas: urls = [...]"
    missing = "# None was found. Name it, or causes and the server's own queue stay unknown."
    metrics = (
        f"{replicas}\nurl = {toml_value(facts.metrics_url)}"
        if facts.metrics_url
        else f'{missing}\n# url = "http://host:9090/metrics"'
    )
    text = f"""\
# How much can {toml_value(facts.model)} at {facts.url} take? Made by `loadramp init`; every key is in docs/scenario.md.
name = {toml_value(name)}
seed = 1

[target]
base_url = {toml_value(facts.url)}
model = {toml_value(facts.model)}
# The key is read from this environment variable and never written anywhere.
api_key_env = "OPENAI_API_KEY"

[slo]
# What a good answer is: 99 % of first tokens within ttft_s, 99 % of the pauses between tokens within itl_s.
ttft_s = 1.0
itl_s = 0.1
quantile = 0.99

[prompts]
# Lengths in tokens ({context}), scattered as those of users are.
# Prompts of your own: kind = "conversations" or "trace" with file = "...".
kind = "lognormal"
input_tokens = {prompt}
output_tokens = {answer}
input_cv = 0.6
output_cv = 0.6

[ramp]
# Doubles the rate until requests queue, then refines, then soaks at 0.85 of the ceiling. About ten minutes.{slow}
kind = "ceiling"
start_rps = {first_rps:g}
max_rps = 256

[metrics]
{metrics}
"""
    load(text)
    return text
