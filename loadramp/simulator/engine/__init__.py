"""A vLLM-shaped engine as plain arithmetic: scheduling, paged KV blocks, costs. No clock, no loop, no wire."""

from loadramp.simulator.engine.core import Engine
from loadramp.simulator.engine.request import RefusedError, Request, StepOutcome

__all__ = ["Engine", "RefusedError", "Request", "StepOutcome"]
