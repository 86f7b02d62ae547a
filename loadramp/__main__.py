"""``python -m loadramp``."""

from loadramp.cli import main

main()
