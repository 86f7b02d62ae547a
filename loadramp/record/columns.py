"""Lines of records to the columns of a Table, without an object for each gap. Pure: lines in, columns out."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from loadramp.record.codec import TIMES, parse_line
from loadramp.record.table import Floats, Table

_EVENTS, _DIGITS = b'"event_us":[', b"0123456789,"


def decode_table(lines: Iterable[bytes]) -> tuple[Table, int]:
    """All records that can be read as columns, and how many lines could not be: ``decode_lines`` in a quarter of the
    time, as neither records nor gaps are ever objects."""
    records, gaps, skipped = [], [], 0
    for line in lines:
        if not line.strip():
            continue
        before, _, rest = line.partition(_EVENTS)
        text, _, after = rest.partition(b"]")
        try:
            if not text or text.translate(None, _DIGITS) or b",," in text or text.strip(b",") != text:
                record = parse_line(line)
                text = b",".join(b"%d" % gap_us for gap_us in record.event_s)
            else:  # as ``encode`` writes it
                record = parse_line(before + _EVENTS + b"]" + after, text.count(b",") + 1)
        except ValueError:
            skipped += 1
            continue
        records.append(record)
        gaps.append(text)
    counts = [text.count(b",") + 1 if text else 0 for text in gaps]
    gaps_us = np.fromstring(b",".join(text for text in gaps if text), dtype=np.int64, sep=",")
    table = Table.of(records, counts, gaps_us.astype(np.float64))
    times = {name: (table.due_s + getattr(table, name)) / 1e6 for name in TIMES}
    return replace(table, due_s=table.due_s / 1e6, event_s=_instants_s(table), **times), skipped


def _instants_s(table: Table) -> Floats:
    """The instants of the events of a table whose ``due_s`` and ``event_s`` are microseconds and gaps, as lines hold
    them: whole numbers below 2**53, so the sums are exact."""
    through = np.concatenate(([0], np.cumsum(table.event_s)))
    since = table.due_s - through[table.begin[:-1]]
    return np.asarray((through[1:] + np.repeat(since, table.events)) / 1e6)
