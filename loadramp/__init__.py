"""loadramp: ramp load testing for LLM serving."""

__version__ = "0.1.0"

from loadramp import features as features  # what they add is there before anything asks for it
