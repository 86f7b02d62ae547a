"""A vLLM-shaped engine as plain arithmetic: scheduling, paged KV blocks, costs. No clock, no loop, no wire.

``Engine`` is one engine, a step at a time; ``Offline`` and ``simulate`` run it straight to a table of records.
"""

from loadramp.simulator.engine.core import Engine
from loadramp.simulator.engine.offline import Offline, capacity_rps, simulate
from loadramp.simulator.engine.request import RefusedError, Request, StepOutcome

__all__ = ["Engine", "Offline", "RefusedError", "Request", "StepOutcome", "capacity_rps", "simulate"]
