"""Which flags make one server do more: each configuration started, ramped and stopped, the best one proved."""

from loadramp.registry import Feature

FEATURE = Feature(
    tables={"tune": "loadramp.tune.table:bind_tune"},
    commands="loadramp.tune.commands:commands",
    previews={"tune": "loadramp.tune.preview:tune_parts"},
    exports={"a tuning": "loadramp.tune.export:exported_tuning"},
    directories={"tune.json": "loadramp.tune.commands:again"},
)
