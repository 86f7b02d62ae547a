"""Why an endpoint gives way: causes, their evidence and their cures. Pure."""
