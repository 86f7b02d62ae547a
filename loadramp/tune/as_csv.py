"""A tuning as CSV: its configurations, its measurements. Pure."""

from __future__ import annotations

from loadramp.report.document import csv_text
from loadramp.tune.text import JudgedTuning, candidate_of, lines_of


def configurations_csv(tuning: JudgedTuning) -> str:
    """configurations.csv: one line a configuration, the best first."""
    rows = [candidate_of(tuning, line) for line in lines_of(tuning)]
    heads = list(dict.fromkeys(name for row in rows for name in row if name != "log_tail"))
    return csv_text(heads, [[row.get(name) for name in heads] for row in rows])


def tuning_csv(tuning: JudgedTuning) -> str:
    """tune.csv: every visit, in order."""
    names = list(dict.fromkeys(name for visit in tuning.state.visits for name in visit.facts))
    heads = ["flags", "purpose", "round", "state", "value", "low", "high", "begin_s", "took_s", "start_s", "exit_code",
             "run", "reason"]  # fmt: skip
    rows = [[*(getattr(visit, head) for head in heads), *(visit.facts.get(name) for name in names)]
            for visit in tuning.state.visits]  # fmt: skip
    return csv_text([*heads, *names], rows)
