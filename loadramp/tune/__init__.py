"""Which flags make one server do more: each configuration started, ramped and stopped, the best one proved."""

from loadramp.registry import Feature
from loadramp.tune.table import bind_tune

FEATURE = Feature(
    tables={"tune": bind_tune},
    commands="loadramp.tune.commands:commands",
    previews={"tune": "loadramp.tune.preview:tune_parts"},
    directories={"tune.json": "loadramp.tune.commands:again"},
)
