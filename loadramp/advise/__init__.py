"""What to do with what was measured: memory, engine flags, replicas, alerts."""

from loadramp.registry import Feature

FEATURE = Feature(
    commands="loadramp.advise.commands:commands",
    evidence={
        "alerts": "loadramp.advise.launch_evidence:alerts_of",
        "size": "loadramp.advise.launch_evidence:sized_of",
        "model_max": "loadramp.advise.launch_evidence:model_max_of",
    },
)
