"""The features that stand on the core: without its folder and its two lines here a feature is gone.

They know the core and not one another; what they add to it is in their ``FEATURE``.
"""

from loadramp.advise import FEATURE as ADVISE
from loadramp.campaign import FEATURE as CAMPAIGN
from loadramp.comparison import FEATURE as COMPARISON
from loadramp.importers import FEATURE as IMPORTERS
from loadramp.nightly import FEATURE as NIGHTLY
from loadramp.registry import FEATURES
from loadramp.tune import FEATURE as TUNE

FEATURES["comparison"] = COMPARISON
FEATURES["nightly"] = NIGHTLY
FEATURES["campaign"] = CAMPAIGN
FEATURES["advise"] = ADVISE
FEATURES["importers"] = IMPORTERS
FEATURES["tune"] = TUNE
