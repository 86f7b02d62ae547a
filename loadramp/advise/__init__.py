"""What to do with what was measured. Pure."""
