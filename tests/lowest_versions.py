"""Prints the lowest versions that pyproject.toml admits, as constraints for pip: ``make lowest`` tests with them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
EXTRAS = ("parquet", "tokenizers")


def pins(text: str) -> list[str]:
    """``name==version`` of each dependency and of the extras that the tests use.

    Raises:
        ValueError: a dependency without a lower bound.
    """
    project = tomllib.loads(text)["project"]
    needs = [*project["dependencies"], *(need for name in EXTRAS for need in project["optional-dependencies"][name])]
    found = []
    for need in needs:
        bound = re.match(r"([\w-]+)>=([\d.]+)", need)
        if bound is None:
            raise ValueError(f"pyproject.toml: {need}: expected a lower bound, NAME>=VERSION")
        found.append(f"{bound[1]}=={bound[2]}")
    return found


if __name__ == "__main__":
    print("\n".join(pins(PROJECT.read_text())))
