"""Results of other load generators become run directories: judged, reported and compared like our own."""

from loadramp.registry import Feature

FEATURE = Feature(commands="loadramp.importers.commands:commands")
