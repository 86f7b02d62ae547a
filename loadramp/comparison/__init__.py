"""Two endpoints, or stored runs, side by side: is one worse than the other?"""

from loadramp.plan.canary import bind_canary
from loadramp.registry import Feature

FEATURE = Feature(
    tables={"canary": bind_canary},
    commands="loadramp.commands.comparing:commands",
    previews={"canary": "loadramp.jobs.canary_preview:canary_parts"},
    evidence={"rollback": "loadramp.jobs.wayback:rollback_of"},
    directories={"comparison.json": "loadramp.commands.comparing:again"},
)
