"""Did capacity move? A history of nights, judged one by one."""

from loadramp.plan.nightly import bind_nightly
from loadramp.registry import Feature

FEATURE = Feature(
    tables={"nightly": bind_nightly},
    check="loadramp.jobs.night_preview:check_nightly",
    rates="loadramp.jobs.night_preview:reference_rates",
    commands="loadramp.commands.nights:commands",
    previews={"nightly": "loadramp.jobs.night_preview:nightly_parts"},
    exports={"a history": "loadramp.jobs.history_export:exported_history"},
)
