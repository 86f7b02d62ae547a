"""Sends the plan and times what comes back."""
