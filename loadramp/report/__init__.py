"""Shows a run: a Run in, text out."""
