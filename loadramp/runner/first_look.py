"""What ``doctor`` and ``init`` ask of an endpoint: who serves what, where its metrics page is, and one reply."""

import time
from dataclasses import dataclass, replace

from loadramp.client.endpoint import Endpoint, endpoint_of
from loadramp.client.permission import check_hosts
from loadramp.client.preflight import EndpointFacts, examine_endpoint
from loadramp.client.probe import SingleRequests
from loadramp.metrics.model_series import asked_of
from loadramp.metrics.scraper import find_metrics
from loadramp.record.types import Record
from loadramp.runner.scenarios import Options, target_of
from loadramp.scenario.scenario import Target

WAIT_S = 5.0
"""For an endpoint that does not answer: somebody is waiting, and a run waits longer by itself."""
PROBE_WORDS, PROBE_TOKENS = "Count from one to one hundred in words.", 64


@dataclass(slots=True, frozen=True)
class FirstLook:
    """An endpoint that answers."""

    target: Target
    endpoint: Endpoint
    known: EndpointFacts
    page: tuple[str, str] | None
    """Address and dialect of its metrics page; None: none was found."""

    async def one_reply(self) -> Record:
        """A request of ``PROBE_TOKENS`` tokens, while nothing else is asked."""
        requests = SingleRequests(self.target, self.endpoint, self.known.model, time.monotonic)
        return await requests.send(PROBE_WORDS, PROBE_TOKENS, self.known.fields)


async def first_look(options: Options) -> FirstLook:
    """A few requests, none of them a measurement.

    Raises:
        ScenarioError: a public host without permission, or no model to choose.
        Unreachable: the endpoint does not answer as it must.
    """
    target = replace(target_of(Target(), options), ready_timeout_s=WAIT_S)
    endpoint = endpoint_of(target)
    check_hosts(endpoint, target, options.yes_i_may_load_test)
    known = await examine_endpoint(target, endpoint, lambda _: None)
    asked = asked_of([known.model], known.cards)
    page = await find_metrics(
        endpoint.server, endpoint.headers, asked=asked, ca_file=target.ca_file, insecure=target.insecure
    )
    return FirstLook(target, endpoint, known, page)
