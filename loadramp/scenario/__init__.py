"""What the user asks: the typed Scenario."""
