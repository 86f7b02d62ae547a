"""The command line's parts: options, the terminal while a run goes on, and the commands that are not in cli.py."""
