"""May this run be believed? Findings about the measurement itself. Pure."""
