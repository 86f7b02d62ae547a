"""Metrics pages of real engines (captured) and of the others (small, in their exact schema)."""

import gzip
from pathlib import Path

from loadramp.metrics.canonical import read_for
from loadramp.metrics.model_series import ModelSelection

PAGES = Path(__file__).parent / "data" / "metrics"
NAMES = sorted(path.name.removesuffix(".gz").removesuffix(".txt") for path in PAGES.iterdir())


def page(name: str) -> str:
    plain = PAGES / f"{name}.txt"
    return plain.read_text() if plain.exists() else gzip.decompress((PAGES / f"{name}.txt.gz").read_bytes()).decode()


def read(text: str, dialect: str | None = None) -> tuple[str | None, dict[str, float]]:
    """Whose page it is, and its canonical values, all models together."""
    reading = read_for(ModelSelection(), text, dialect)
    return reading.dialect, dict(reading.values)
