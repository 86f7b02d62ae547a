"""Runs jobs one at a time, each as a process of its own, and remembers how they went."""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadramp.comparison.job_config import MOST_PROGRESS, JobConfig, JobOutcome, arguments, verdict_of
from loadramp.record.sanitize import clean
from loadramp.report.redact import redact

MOST_DOCUMENT = 8 * 1024 * 1024
MOST_OUTCOMES = 100


@dataclass(slots=True)
class JobQueue:
    """Safe to use from several threads. ``command`` reads a job's arguments from stdin, a JSON list."""

    jobs: dict[str, JobConfig]
    out: Path
    say: Callable[[str], None] = lambda _: None
    command: tuple[str, ...] = (sys.executable, "-m", "loadramp", "--arguments-from-stdin")
    outcomes: list[JobOutcome] = field(default_factory=list)
    closing: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _process: subprocess.Popen[bytes] | None = None
    _thread: threading.Thread | None = None

    def start(self, name: str, key: str) -> tuple[int, JobOutcome | None]:
        """Start job ``name``, unless a call with this key has done so. An empty key always starts one.

        Returns the HTTP status (202 started or running, 200 over, 409 another is running) and the outcome.
        """
        with self._lock:
            known = next(
                (outcome for outcome in reversed(self.outcomes) if outcome.job == name and key and outcome.key == key),
                None,
            )
            if known is not None:
                return (202 if known.state == "running" else 200), known
            if self.closing or any(outcome.state == "running" for outcome in self.outcomes):
                return 409, None
            began_at = datetime.now(UTC).isoformat(timespec="seconds")
            outcome = JobOutcome(secrets.token_hex(8), name, key, began_at)
            self.outcomes = [*self.outcomes[-MOST_OUTCOMES + 1 :], outcome]
            self._thread = threading.Thread(target=self._run, args=(outcome, self.jobs[name]), name=f"job-{name}")
            self._thread.start()
            return 202, outcome

    def latest(self, name: str, key: str = "") -> JobOutcome | None:
        """The last run of ``name``, or the one with that key."""
        with self._lock:
            runs = [outcome for outcome in self.outcomes if outcome.job == name and (not key or outcome.key == key)]
            return runs[-1] if runs else None

    def close(self) -> None:
        """End what is running, gently first, and wait for it."""
        with self._lock:
            self.closing = True
            process, thread = self._process, self._thread
        if process is not None:
            _end(process, signal.SIGTERM)
        if thread is not None:
            thread.join(30.0)

    def _run(self, outcome: JobOutcome, job: JobConfig) -> None:
        orders = json.dumps(arguments(job, str(self.out))).encode()
        self.say(f"job {outcome.job} ({outcome.id}) begins")
        code, printed = 1, b""
        try:
            pipe = subprocess.PIPE
            with subprocess.Popen(  # noqa: S603  # our own command
                self.command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            ) as process:
                self._process = process
                assert process.stdin is not None
                with contextlib.suppress(BrokenPipeError), process.stdin:  # it has ended: its exit code says so
                    process.stdin.write(orders)
                ender = threading.Timer(job.timeout_s, _end, (process, signal.SIGTERM))
                ender.start()
                listener = threading.Thread(target=_listen, args=(process, outcome))
                listener.start()
                assert process.stdout is not None
                printed = process.stdout.read(MOST_DOCUMENT)
                code = process.wait()
                ender.cancel()
                listener.join()
        except OSError as error:
            outcome.progress = f"{self.command[0]}: {error.strerror or error}"
        finally:
            with self._lock:
                self._process = None
                outcome.document, outcome.exit_code = _document(printed), code
                outcome.state = "done"
            self.say(f"job {outcome.job} ({outcome.id}) ended with code {code}: {verdict_of(outcome)}")


def _listen(process: subprocess.Popen[bytes], outcome: JobOutcome) -> None:
    """Keep the last line that a job says for people."""
    assert process.stderr is not None
    for line in process.stderr:
        words = clean(redact(line.decode(errors="replace").strip()))
        if words:
            outcome.progress = words[:MOST_PROGRESS]


def _document(printed: bytes) -> dict[str, Any]:
    """The JSON object that a job printed; empty where it printed none."""
    try:
        document = json.loads(printed)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _end(process: subprocess.Popen[bytes], number: int) -> None:
    """Signal a job's whole process group, if it is still there."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
