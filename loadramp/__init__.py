"""loadramp: ramp load testing for LLM serving."""

__version__ = "0.1.0"
