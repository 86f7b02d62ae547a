"""What sends one request and times its answer: what a worker and a probe need of it, and the kinds there are."""

from collections.abc import Callable, Iterable
from typing import Protocol

from loadramp.client.comparison_clients import HttpxClient, OpenaiClient
from loadramp.client.http.pool import ActiveRequest, Counts
from loadramp.client.measuring_client import MeasuringClient
from loadramp.record.types import Arrival, Record
from loadramp.workload.prompts.content import Content


class Client(Protocol):
    """One endpoint, from one event loop. A failed request is a record, never an exception."""

    @property
    def counts(self) -> Counts:
        """How the client fares, over its whole life; cheap to read."""

    def meanwhile(self, call: Callable[[], None]) -> None:
        """Call ``call`` between two pieces of work, for what must not wait for all of them."""

    def prepare(self, arrival: Arrival, content: Content) -> bytes:
        """The request, built before it is due. Raises ScenarioError for a body that cannot be measured."""

    async def send(self, arrival: Arrival, request: bytes) -> Record:
        """Send ``request`` now and read its answer. Never raises; a cancelled one is a record of what arrived."""

    def start(
        self, arrival: Arrival, request: bytes, done: Callable[[ActiveRequest, Record], None], *, patient: bool
    ) -> ActiveRequest | None:
        """As ``send``, and ``done`` gets what this returns, and the record; ``patient``: it may get them 20 ms late.
        None, and nothing is sent: this one must be sent by ``send``."""

    def cut(self, active: ActiveRequest) -> None:
        """Stop waiting for the answer of a request that was started: its record is what arrived."""

    def snapshot(self) -> Iterable[Record]:
        """Copies of the records of all requests in flight, with what has arrived so far; not of those that end before
        it is their turn."""

    async def close(self) -> None:
        """Close all connections."""


CLIENTS: dict[str, Callable[..., Client]] = {"direct": MeasuringClient, "httpx": HttpxClient, "openai": OpenaiClient}
"""By ``[target] via``. They are made with the arguments of ``MeasuringClient``."""
