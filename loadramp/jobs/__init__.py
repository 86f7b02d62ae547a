"""What a user asks for, from beginning to end: a ramp, a canary, a night, a campaign, an export. Knows every room."""
