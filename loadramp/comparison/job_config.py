"""The fixed list of jobs that ``loadramp serve`` may run, and what their results mean to a controller. Pure.

A request names a job and a key; everything else, every address and every path, stands in the list.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta

from loadramp.registry import ScenarioError, bind_options
from loadramp.scenario.scenario import read_tables
from loadramp.units import plural

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
KEY = re.compile(r"[A-Za-z0-9._:/@+=-]{1,128}")
MOST_JOBS = 64
MOST_PROGRESS = 300
Kind = Literal["canary", "run"]
Seconds = Annotated[float, Meta(gt=0)]
SCHEMA = "loadramp.status/1"


@dataclass(slots=True, frozen=True)
class JobConfig:
    """``[jobs.NAME]``: one thing that may be run. ``canary`` needs both URLs, ``run`` needs ``base_url``."""

    scenario: str
    kind: Kind = "canary"
    baseline: str = ""
    candidate: str = ""
    base_url: str = ""
    set: Sequence[str] = ()
    """Overrides, ``table.key=value`` each."""
    options: Sequence[str] = ()
    """Further options of the command, as on its command line."""
    timeout_s: Seconds = 7200.0
    """A run that takes longer is ended, and is an error."""


@dataclass(slots=True)
class JobOutcome:
    """One run of a job as it goes on and when it is over."""

    id: str
    job: str
    key: str
    began_at: str
    state: Literal["running", "done"] = "running"
    exit_code: int | None = None
    document: dict[str, Any] = field(default_factory=dict)
    """The JSON document that the command printed."""
    progress: str = ""


def read_jobs(text: str, name: str) -> dict[str, JobConfig]:
    """The jobs of a TOML file with tables ``[jobs.NAME]``.

    Raises:
        ScenarioError: names the table, the key and what is allowed.
    """
    raw = read_tables(text, name=name)
    tables = raw.get("jobs")
    if set(raw) != {"jobs"} or not isinstance(tables, dict) or not tables:
        raise ScenarioError(f"{name}: expected tables [jobs.NAME] and nothing else")
    if len(tables) > MOST_JOBS:
        raise ScenarioError(f"{name}: {plural(len(tables), 'job')}; at most {MOST_JOBS}")
    jobs = {}
    for job, table in tables.items():
        where = f"{name}: [jobs.{job}]"
        if not NAME.fullmatch(job) or not isinstance(table, dict):
            raise ScenarioError(f"{where}: a name is letters, digits, dot, dash; a job is a table")
        jobs[job] = JobConfig(**bind_options(table, JobConfig, where))
        wanted = ("baseline", "candidate") if jobs[job].kind == "canary" else ("base_url",)
        for key in wanted:
            if not getattr(jobs[job], key):
                raise ScenarioError(f"{where} {key}: missing; a {jobs[job].kind} needs it")
    return jobs


def arguments(job: JobConfig, out: str) -> list[str]:
    """The arguments of ``loadramp`` that a job is."""
    urls = (("--baseline", job.baseline), ("--candidate", job.candidate)) if job.kind == "canary" else (
        ("--base-url", job.base_url),)  # fmt: skip
    line = [job.kind, job.scenario, *(word for pair in urls for word in pair)]
    line += [word for override in job.set for word in ("--set", override)]
    return [*line, *job.options, "--out", out, "--json"]


def key_of(body: bytes) -> str:
    """What makes a call a repetition of an earlier one: ``key``, else Flagger's ``checksum``, of a JSON object.

    Raises:
        ValueError: it is no JSON object, or the key is not plain.
    """
    call = _json(body) if body.strip() else {}
    if not isinstance(call, dict):
        raise ValueError("expected a JSON object")
    key = call.get("key", call.get("checksum", ""))
    if not isinstance(key, str) or (key and not KEY.fullmatch(key)):
        raise ValueError("key: up to 128 letters, digits and . _ : / @ + = -")
    return key


def token_of(body: bytes) -> str:
    """The token in Flagger's ``metadata``, whose webhooks can send no header; empty where there is none."""
    try:
        call = _json(body)
    except ValueError:
        return ""
    metadata = call.get("metadata") if isinstance(call, dict) else None
    token = metadata.get("token") if isinstance(metadata, Mapping) else None
    return token if isinstance(token, str) else ""


def _json(body: bytes) -> Any:
    """Raises ValueError for whatever is wrong, brackets within brackets without end included."""
    try:
        return json.loads(body)
    except RecursionError:
        raise ValueError("JSON nested too deep") from None


def verdict_of(outcome: JobOutcome | None) -> str:
    """``pass`` only where the exit code and the document both say so; ``fail`` likewise; else what is missing. A ramp
    without thresholds whose service level stayed open was measured, and shows nothing to promote by."""
    if outcome is None:
        return "none"
    if outcome.state == "running":
        return "running"
    verdict = outcome.document.get("verdict")
    slo = outcome.document.get("slo_capacity") or {}
    shown = outcome.document.get("gates") or slo.get("status") != "inconclusive"
    if outcome.exit_code == 0 and verdict == "pass" and shown:
        return "pass"
    if outcome.exit_code == 99 and verdict == "fail":
        return "fail"
    return "inconclusive" if outcome.exit_code in (0, 3, 99) else "error"


def status(job: str, outcome: JobOutcome | None) -> dict[str, Any]:
    """What a controller reads: one flat JSON object, so that ``{$.verdict}`` finds it."""
    document: dict[str, Any] = {"schema": SCHEMA, "job": job, "verdict": verdict_of(outcome)}
    if outcome is None:
        return document | {"state": "none", "sentence": "It has not been run."}
    return document | {
        "state": outcome.state,
        "id": outcome.id,
        "key": outcome.key,
        "began_at": outcome.began_at,
        "exit_code": outcome.exit_code,
        "sentence": str(outcome.document.get("sentence", "")) or outcome.progress,
        "reasons": outcome.document.get("reasons", []),
        "more_blocks": outcome.document.get("more_blocks"),
        "report": outcome.document.get("comparison_dir") or outcome.document.get("run_dir"),
        "progress": outcome.progress,
    }
