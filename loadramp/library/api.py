"""The functions behind ``import loadramp``: read a run, make one, judge the records of another tool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadramp.library.results import RunResult
from loadramp.registry import ScenarioError
from loadramp.runner import finish, launch, scenarios
from loadramp.runner.recorded import recorded_run
from loadramp.runner.scenarios import Options
from loadramp.scenario.scenario import toml_value

_LISTS = ("header", "label", "yes_i_may_load_test")
MOST_REPEATS = 50

if TYPE_CHECKING:
    import pandas as pd

    from loadramp.runner.finish import Finished


def read(path: str | Path) -> RunResult:
    """The run in the directory ``path``, judged anew from its records; nothing is written.

    Raises:
        ScenarioError: it is no run directory.
        OSError: a file cannot be read.
    """
    return RunResult(finish.judge(Path(path)))


def run(
    scenario: str | Path,
    *,
    base_url: str | None = None,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    out: str | Path = "reports",
    say: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> RunResult:
    """Ramp an endpoint, write the run directory and its report, and return the judged run.

    Works inside a running event loop too (a notebook), where it blocks until the ramp has ended; use ``run_async`` to
    go on meanwhile.

    Args:
        scenario: a TOML file, or the name of a shipped scenario (``chat``).
        base_url: the endpoint; default ``OPENAI_BASE_URL``.
        overrides: ``{"ramp.max_rps": 64}``, or strings ``table.key=value`` as ``--set`` takes them.
        out: the directory in which the run directory is made.
        say: is called with each line that the command would print.
        options: ``model``, ``api_key_env``, ``header``, ``ca_file``, ``insecure``, ``save_text``, ``repeats``,
            ``label``, ``yes_i_may_load_test``, as the options of ``loadramp run``.

    Raises:
        ScenarioError: before anything was sent.
        CannotMeasure: the endpoint is not there, or the disk was full before anything could be judged.
        OSError: the run directory cannot be written.
    """
    given: dict[str, Any] = {"base_url": base_url, "overrides": overrides, "out": out, "say": say, **options}
    if not _in_a_loop():  # not within the ``except``: an error of the endpoint would be told as that of the loop
        return asyncio.run(run_async(scenario, **given))
    return _in_a_thread(lambda: asyncio.run(run_async(scenario, **given)))


async def run_async(
    scenario: str | Path,
    *,
    base_url: str | None = None,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    out: str | Path = "reports",
    say: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> RunResult:
    """``run`` for use within an event loop. Cancelling it ends the load and keeps what was measured on disk."""
    if isinstance(overrides, Mapping):
        overrides = [f"{key}={toml_value(value)}" for key, value in overrides.items()]
    repeats = options.get("repeats", 1)
    if not isinstance(repeats, int) or not 1 <= repeats <= MOST_REPEATS:
        raise ScenarioError(f"repeats: expected a whole number from 1 to {MOST_REPEATS}; got {repeats!r}")
    given: dict[str, Any] = {name: _several(value) if name in _LISTS else value for name, value in options.items()}
    chosen = Options(base_url=base_url, overrides=_several(overrides), out=Path(out), **given)
    read_scenario = scenarios.read_scenario(Path(scenario), chosen.overrides)
    finished: Finished = await launch.ramp(read_scenario, chosen, say, lambda _: None)
    return RunResult(finished)


def judge(
    frame: pd.DataFrame, *, slo: Mapping[str, float] | None = None, window_s: float = 60.0, name: str = "records"
) -> RunResult:
    """Judge requests that another tool, or a production log, has recorded: the three numbers and why it gives way.

    Args:
        frame: one row a request. ``due_s`` or ``sent_s`` is needed; the other columns may be absent or null:

            - ``token_s``: a list of the instants of all tokens; or ``first_token_s`` and ``last_token_s``, from which
              inter-token latencies cannot be known.
            - ``end_s``, ``output_tokens``, ``prompt_tokens``, ``http_status``, ``label``, ``model``.
            - ``error``: what went wrong, null where nothing did.
            - ``step``: which level of load the request belongs to, with ``rate_rps`` or ``users`` of that level.
              Without it, windows of ``window_s`` are the steps, each with the rate that was seen in it.

            Instants are seconds on one clock, or time stamps.
        slo: the keys of ``[slo]``: ``{"ttft_s": 1.0, "quantile": 0.95}``.
        window_s: length of a window where there is no column ``step``.
        name: what the run is called.

    Raises:
        ScenarioError: a column is missing or of the wrong type, or there is nothing to judge.
    """
    from loadramp.library.records import records_of, steps_of

    records = records_of(frame)
    run_ = recorded_run(records, steps_of(frame, records, window_s), name=name, slo=slo)
    return RunResult(finish.judge_run(run_))


def _several(given: str | Sequence[str]) -> tuple[str, ...]:
    """One word is a list of one, not of its letters."""
    return (given,) if isinstance(given, str) else tuple(given)


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _in_a_thread(work: Callable[[], RunResult]) -> RunResult:
    """``work`` in a thread of its own: an event loop cannot run inside another one of the same thread."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, thread_name_prefix="loadramp") as pool:
        return pool.submit(work).result()
