"""A run's data as pandas frames. Units are in the columns' names; what was not measured is NaN or None. docs/library.md
lists every column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from loadramp.record.table import Table
from loadramp.record.types import ENDS, ClientSample, Sample
from loadramp.report.document import plain_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from loadramp.record.row import Row

_PLAIN = ("seq", "step", "worker", "due_s", "sent_s", "lag_s", "connect_s", "first_byte_s", "ttft_s", "sent_ttft_s",
          "tpot_s", "e2e_s", "stream_end_s")  # fmt: skip
_COUNTS = ("asked_input_tokens", "asked_output_tokens", "prompt_tokens", "cached_tokens", "output_tokens",
           "http_status", "session")  # fmt: skip
_WORDS = ("status", "error", "error_detail", "token_source", "warnings", "label", "model")


def requests_frame(table: Table) -> pd.DataFrame:
    """One row a request, in order of ``due_s``; failed and unfinished ones included. Counts are nullable integers."""
    import pandas as pd

    columns: dict[str, Any] = {name: getattr(table, name) for name in _PLAIN}
    columns |= {name: pd.array(getattr(table, name), dtype="Int64") for name in _COUNTS}
    columns |= {name: pd.array(getattr(table, name), dtype="string") for name in _WORDS}
    return pd.DataFrame(columns | {"events": table.events, "turn": table.turn})


def tokens_frame(table: Table) -> pd.DataFrame:
    """One row an output event: ``seq`` and ``step`` of its request, ``choice``, the instant ``at_s``, ``gap_s`` since
    the event before it of the same choice (NaN for the first), and how many ``tokens`` it brought.

    An event of k tokens after gap g is k inter-token latencies of g / k: ``itl_s`` holds g / k, to be weighted by
    ``tokens``. Requests of which another tool kept only the first and the last token have no rows here.
    """
    import pandas as pd

    table = table.select(table.token_source != ENDS)
    request = np.repeat(np.arange(len(table)), table.events)
    gap_s = np.full(len(table.event_s), np.nan)
    order = np.lexsort((np.arange(len(gap_s)), table.event_choice, request))
    same = (np.diff(request[order]) == 0) & (np.diff(table.event_choice[order]) == 0)
    gap_s[order[1:][same]] = np.diff(table.event_s[order])[same]
    itl_s = np.divide(gap_s, table.event_tokens, out=np.full(len(gap_s), np.nan), where=table.event_tokens > 0)
    return pd.DataFrame(
        {
            "seq": table.seq[request],
            "step": table.step[request],
            "choice": table.event_choice,
            "at_s": table.event_s,
            "gap_s": gap_s,
            "tokens": table.event_tokens,
            "itl_s": itl_s,
        }
    )


def steps_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """One row a step of the curve, with the columns of docs/format.md."""
    import pandas as pd

    return pd.DataFrame([plain_row(row) for row in rows])


def server_frame(samples: Sequence[Sample]) -> pd.DataFrame:
    """One row a scrape: ``t_s``, ``url``, ``error``, and a column for each metric in its canonical name."""
    import pandas as pd

    known = [{"t_s": sample.t_s, "url": sample.url, "error": sample.error, **sample.values} for sample in samples]
    return pd.DataFrame(known, columns=None if known else ["t_s", "url", "error"])


def client_frame(samples: Sequence[ClientSample]) -> pd.DataFrame:
    """One row a second and worker: how the load generator itself fared."""
    import pandas as pd
    from msgspec import to_builtins

    return pd.DataFrame([to_builtins(sample) for sample in samples])
