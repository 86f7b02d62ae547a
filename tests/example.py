"""Makes reports/example: the demo's ramp on the simulator's own clock, the same bytes each time.

python tests/example.py      # writes reports/example anew; `loadramp report reports/example` adds the page
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from run_in_memory import ramp_in_memory

from loadramp.runner.finish import write_report
from loadramp.runner.scenarios import read_scenario

EXAMPLE = Path(__file__).parent.parent / "reports" / "example"
RAW = ("scenario.toml", "records-0.jsonl", "server.jsonl")
"""Bit-identical for one seed."""
DERIVED = ("curve.csv", "verdict.json", "summary.md")


def make(folder: Path) -> Path:
    """The run, judged, in a directory inside ``folder``."""
    run = ramp_in_memory(read_scenario(EXAMPLE.parent.parent / "scenarios" / "demo.toml"), folder)
    path = Path(run.path)
    write_report(path)
    return path


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = make(Path(folder))
        EXAMPLE.mkdir(parents=True, exist_ok=True)
        for name in (*RAW, *DERIVED, "run.json", "client.jsonl"):
            text = (made / name).read_text().replace(str(made), "reports/example")
            (EXAMPLE / name).write_text(text)


if __name__ == "__main__":
    main()
