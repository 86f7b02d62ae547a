"""What to do with what was measured: memory, engine flags, replicas, alerts."""

from loadramp.registry import Feature

FEATURE = Feature(
    commands="loadramp.commands.advising:commands",
    evidence={
        "alerts": "loadramp.jobs.launch_evidence:alerts_of",
        "size": "loadramp.jobs.launch_evidence:sized_of",
        "model_max": "loadramp.jobs.launch_evidence:model_max_of",
    },
)
