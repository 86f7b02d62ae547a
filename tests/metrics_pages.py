"""Metrics pages of real engines (captured) and of the others (small, in their exact schema)."""

import gzip
from pathlib import Path

PAGES = Path(__file__).parent / "data" / "metrics"
NAMES = sorted(path.name.removesuffix(".gz").removesuffix(".txt") for path in PAGES.iterdir())


def page(name: str) -> str:
    plain = PAGES / f"{name}.txt"
    return plain.read_text() if plain.exists() else gzip.decompress((PAGES / f"{name}.txt.gz").read_bytes()).decode()
