"""What to fix before measuring: the endpoint as one request finds it, and this machine as a client."""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from loadramp.client.endpoint import LOOPBACK, Endpoint
from loadramp.client.fleet import FleetError, raise_file_limit
from loadramp.client.preflight import WARNING_WORDS, EndpointFacts
from loadramp.client.readiness import Unreachable
from loadramp.record.run_directory import host
from loadramp.record.types import Record
from loadramp.runner import selfcheck
from loadramp.runner.first_look import first_look
from loadramp.runner.scenarios import Options
from loadramp.units import latency, percent, plural, sig

TOGETHER_S, TOGETHER_RATIO = 0.0005, 0.3
"""Events closer than this came together; more of them than this share: something holds the stream back."""
BUSY_RATIO = 0.25
"""Of the cores that other programs already use."""
FEW_STREAMS = 2000

Level = Literal["ok", "note", "fix"]


@dataclass(slots=True, frozen=True)
class DoctorLine:
    """One line of the page. ``fix``: a measurement would be wrong or poor; ``note``: worth knowing."""

    level: Level
    about: Literal["endpoint", "client"]
    message: str
    advice: str = ""


async def examine(options: Options, say: Callable[[str], None]) -> list[DoctorLine]:
    """Everything that can be known before a run.

    Raises:
        ScenarioError: a public host without permission, or no model to choose.
    """
    try:
        look = await first_look(options)
    except Unreachable as error:
        missing = DoctorLine("fix", "endpoint", str(error), "everything else about the endpoint waits for this")
        return [missing, *of_client()]
    say(f"asking {look.endpoint.host} for one reply, to look at its stream")
    reply = await look.one_reply()
    return [*of_endpoint(look.endpoint, look.known, look.page), *of_stream(reply), *of_client()]


def of_endpoint(endpoint: Endpoint, known: EndpointFacts, page: tuple[str, str] | None) -> list[DoctorLine]:
    """What is known of the server, and what it cannot tell."""
    identity = known.identity
    engine = identity.get("engine") or identity.get("server") or "an engine that does not name itself"
    most = identity.get("max_model_len")
    length = f", up to {plural(most, 'token')}" if isinstance(most, int) and most else ""
    version = f" {identity['version']}" if identity.get("version") else ""
    lines = [DoctorLine("ok", "endpoint", f"{endpoint.url} serves {known.model} ({engine}{version}{length})")]
    warnings = [WARNING_WORDS[warning] for warning in known.warnings if warning in WARNING_WORDS]
    lines += [DoctorLine("note", "endpoint", words) for words in warnings]
    if page is None:
        advice = "name it: [metrics] url in the scenario; without it, causes and the server's queue stay unknown"
        lines.append(DoctorLine("fix", "endpoint", "no metrics page was found", advice))
    else:
        lines.append(DoctorLine("ok", "endpoint", f"metrics: {endpoint.redact(page[0])} ({page[1]})"))
    if endpoint.host in LOOPBACK:
        advice = "fine for a server with a GPU; a server on this CPU and the client slow each other down"
        lines.append(DoctorLine("note", "endpoint", "the endpoint is on this machine, or behind a tunnel", advice))
    return lines


def of_stream(record: Record) -> list[DoctorLine]:
    """What one answer shows of the way that tokens take."""
    if not record.ok:
        return [
            DoctorLine("fix", "endpoint", f"a request failed: {record.error}: {record.error_detail or ''}".rstrip(": "))
        ]
    gaps_s = np.diff(record.event_s)
    lines = []
    if len(gaps_s) >= 10:
        together = float(np.mean(gaps_s < TOGETHER_S))
        message = f"first token after {latency(record.ttft_s)}, then one every {latency(float(np.median(gaps_s)))}"
        lines.append(DoctorLine("ok", "endpoint", message))
        if together > TOGETHER_RATIO:
            advice = (
                "turn buffering off on the way (proxy_buffering off, X-Accel-Buffering: no); until then trust TTFT only"
            )
            message = f"{percent(together)} of the events came together with the one before"
            lines.append(DoctorLine("fix", "endpoint", message, advice))
    if record.stamps == "user":
        lines.append(
            DoctorLine("note", "client", "no receive times from the kernel here: tokens are stamped when they are read")
        )
    return lines


def of_client() -> list[DoctorLine]:
    """What this machine can do, as far as it is known."""
    here = host()
    lines = [DoctorLine("ok", "client", f"{plural(here.cores or 1, 'core')}, {here.cpu or here.machine}")]
    busy = (here.load_1m or 0.0) / max(here.cores or 1, 1)
    if busy > BUSY_RATIO:
        advice = "stop other programs, or send from another machine: a late client makes the server look slow"
        message = f"the load average of the last minute is {sig(here.load_1m)} on {plural(here.cores or 1, 'core')}"
        lines.append(DoctorLine("fix", "client", message, advice))
    try:
        streams = raise_file_limit(None)
    except FleetError as error:
        lines.append(DoctorLine("fix", "client", str(error)))
    else:
        level: Level = "ok" if streams >= FEW_STREAMS else "note"
        lines.append(DoctorLine(level, "client", f"room for {plural(streams, 'request')} in flight for each worker"))
    if proxies := [name for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY") if os.environ.get(name)]:
        message = f"{', '.join(proxies)} set: requests do not follow it ([target] proxy does)"
        lines.append(DoctorLine("note", "client", message))
    known = selfcheck.stored()
    if known is None:
        advice = "loadramp selfcheck (a minute): it says what this machine can time, and every later run keeps it"
        return [*lines, DoctorLine("fix", "client", "this machine has not been measured as a client", advice)]
    return [*lines, DoctorLine("ok" if known.most_tokens_per_s else "fix", "client", known.words())]


def document(lines: Sequence[DoctorLine]) -> dict[str, Any]:
    """The page as JSON data."""
    return {"fix": sum(line.level == "fix" for line in lines), "found": [asdict(line) for line in lines]}


def page_text(findings: Sequence[DoctorLine]) -> str:
    """The page for people: what to fix first."""
    lines = []
    for about in ("endpoint", "client"):
        lines.append(f"{about}:")
        for line in sorted(
            (line for line in findings if line.about == about), key=lambda line: "fix note ok".index(line.level)
        ):
            lines.append(f"  {line.level:<4}  {line.message}")
            lines += [f"        {line.advice}"] if line.advice else []
    fixes = sum(line.level == "fix" for line in findings)
    end = f"{plural(fixes, 'thing')} to fix before measuring" if fixes else "ready to measure: loadramp init, then run"
    return "\n".join([*lines, end])
