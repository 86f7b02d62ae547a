"""The features that stand on the core, a line each: without its line and its folder a feature is gone.

They know the core and not one another; what they add to it is in their ``FEATURE``.
"""

from __future__ import annotations

from loadramp import advise, campaign, comparison, nightly
from loadramp.registry import FEATURES

FEATURES["comparison"] = comparison.FEATURE
FEATURES["nightly"] = nightly.FEATURE
FEATURES["campaign"] = campaign.FEATURE
FEATURES["advise"] = advise.FEATURE
