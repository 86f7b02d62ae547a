"""Did capacity move? A history of nights, judged one by one."""

from loadramp.registry import Feature

FEATURE = Feature(
    tables={"nightly": "loadramp.nightly.table:bind_nightly"},
    check="loadramp.nightly.preview:check_nightly",
    rates="loadramp.nightly.preview:reference_rates",
    commands="loadramp.nightly.commands:commands",
    previews={"nightly": "loadramp.nightly.preview:nightly_parts"},
    library={"history": "loadramp.nightly.export:history"},
    exports={"a history": "loadramp.nightly.export:exported_history"},
)
