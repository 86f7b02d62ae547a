"""The main job, from a scenario and an address to a judged run on disk."""
