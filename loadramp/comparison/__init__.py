"""Two endpoints, or stored runs, side by side: is one worse than the other?"""

from loadramp.registry import Feature

FEATURE = Feature(
    tables={"canary": "loadramp.comparison.table:bind_canary"},
    commands="loadramp.comparison.commands:commands",
    previews={"canary": "loadramp.comparison.preview:canary_parts"},
    evidence={"rollback": "loadramp.comparison.switch_command:rollback_of"},
    library={"compare": "loadramp.comparison.library:compare"},
    directories={"comparison.json": "loadramp.comparison.commands:again"},
)
