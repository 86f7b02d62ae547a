"""The highest rate of tokens at which a load generator still measures right, by what the C server logged.

Requests of `--lasts` seconds begin evenly, so that `--streams` are open at once. Of the rates, the highest is found by
bisection at which one of `--tries` measurements is right: if the load was on (at least 95 % of the tokens a second that
were asked for), every request completed with all its tokens, and each p99 that the tool reports of TTFT, ITL and TPOT
(also where it calls that ITL) is within 10 % or 1 ms of the truth. The server has the last core to itself, the tool has
the others.

`--peer NAME='COMMAND with {url} {requests} {per_s} {streams} {tokens} {out}'` adds a tool of its own environment that
writes its results to the folder {out}; NAME is one of READERS.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from stage import by_request, machine, metronome, run, sender, together

TTFT_US = 50_000
RATIO, SLACK_MS, LOAD_RATIO = 0.1, 1.0, 0.95
WARM = 1_000_000_000
"""Numbers of requests that only warm up."""
LIMIT_S = 120.0
"""For a peer to end."""


class Figures(NamedTuple):
    """What a tool reports, or what is true; p99 in milliseconds, None where it does not say."""

    complete: int
    tokens: int
    ttft_ms: float | None = None
    itl_ms: float | None = None
    tpot_ms: float | None = None


@dataclass(slots=True, frozen=True)
class Load:
    """What is asked for."""

    rate: int
    streams: int
    lasts_s: float
    seconds: float

    @property
    def per_s(self) -> float:
        return self.streams / self.lasts_s

    @property
    def requests(self) -> int:
        return round(self.per_s * self.seconds)

    @property
    def takes_s(self) -> float:
        """From the first request to the last token."""
        return self.seconds - 1 / self.per_s + self.lasts_s + TTFT_US / 1e6

    @property
    def itl_us(self) -> int:
        return round(self.streams / self.rate * 1e6)

    @property
    def tokens(self) -> int:
        return round(self.lasts_s * 1e6 / self.itl_us)


def vllm(out: Path) -> Figures:
    """``vllm bench serve --save-result --percentile-metrics ttft,tpot,itl --metric-percentiles 99``."""
    told = json.loads(next(out.rglob("*.json")).read_text())
    figures = (told[f"p99_{name}_ms"] for name in ("ttft", "itl", "tpot"))
    return Figures(told["completed"], told["total_output_tokens"], *figures)


def aiperf(out: Path) -> Figures:
    """``aiperf profile``: its inter-chunk latency is ITL, its inter-token latency is one mean a request, TPOT."""
    told = json.loads(next(out.rglob("profile_export_aiperf.json")).read_text())
    figures = (told[name]["p99"] for name in ("time_to_first_token", "inter_chunk_latency", "inter_token_latency"))
    return Figures(int(told["request_count"]["avg"]), int(told["total_output_tokens"]["avg"]), *figures)


def guidellm(out: Path) -> Figures:
    """``guidellm run``: its inter-token latency is one mean a request, which is TPOT."""
    told = json.loads(next(out.rglob("*.json")).read_text())["benchmarks"][0]["metrics"]
    names = ("time_to_first_token_ms", "inter_token_latency_ms")
    ttft, tpot = (told[name]["successful"]["percentiles"]["p99"] for name in names)
    tokens = told["output_token_count"]["successful"]["total_sum"]
    return Figures(told["request_totals"]["successful"], round(tokens), ttft, None, tpot)


READERS: dict[str, Callable[[Path], Figures]] = {"vllm": vllm, "aiperf": aiperf, "guidellm": guidellm}


def truth(sent: Any, load: Load) -> tuple[Figures, float]:
    """What the server logged of the last ``load.requests`` requests, and tokens a second: as many times what was asked
    for as all of it was sooner over. Requests before them tried the server or warmed up."""
    each = sorted(by_request(sent, "request_ns").items())[-load.requests :]
    times_ms = [one["send_ns"] / 1e6 for _, one in each]
    ttft_ms = [send[0] - begun / 1e6 for (begun, _), send in zip(each, times_ms, strict=True)]
    gaps_ms = [np.diff(send) for send in times_ms]
    complete = [one for _, one in each if len(one) == one["tokens"][0]]
    figures = (ttft_ms, np.concatenate(gaps_ms), [gap.mean() for gap in gaps_ms if len(gap)])
    p99s = (float(np.quantile(values, 0.99)) for values in figures)
    took_s = (sent["send_ns"].max() - each[0][0]) / 1e9
    return Figures(len(complete), sum(map(len, times_ms)), *p99s), load.rate * load.takes_s / took_s


def wrong(told: Figures, true: Figures, per_s: float, load: Load) -> list[str]:
    """What is not right; empty where all is."""
    found = []
    if per_s < LOAD_RATIO * load.rate:
        found.append(f"{per_s:,.0f} tokens/s sent")
    if told.complete != load.requests or told.tokens != load.requests * load.tokens:
        found.append(f"{told.complete} of {load.requests} requests, {told.tokens} tokens")
    for name in ("ttft_ms", "itl_ms", "tpot_ms"):
        says, is_ = getattr(told, name), getattr(true, name)
        if says is not None and not abs(says - is_) <= max(RATIO * is_, SLACK_MS):
            found.append(f"p99 {name.removesuffix('_ms').upper()} {says:.1f} instead of {is_:.1f} ms")
    return found


def own(via: str, url: str, load: Load) -> Figures:
    """A client of this package, in this process."""

    async def main() -> list[Any]:
        send, close, _ = sender(via, url, io.BytesIO())
        await together(send, min(load.streams, 100), 4, 0.5, WARM)
        records = await together(send, load.requests, load.tokens, load.seconds)
        await close()
        return records

    records = [record for record in run(main) if record.status == "ok"]
    times_ms = [np.array(record.event_s) * 1e3 for record in records]
    begun_ms = [(record.due_s if record.sent_s is None else record.sent_s) * 1e3 for record in records]
    ttft_ms = [seen[0] - begun for seen, begun in zip(times_ms, begun_ms, strict=True)]
    gaps_ms = [np.diff(seen) for seen in times_ms]
    values = (ttft_ms, np.concatenate(gaps_ms), [gap.mean() for gap in gaps_ms])
    return Figures(len(records), sum(map(len, times_ms)), *(float(np.quantile(each, 0.99)) for each in values))


def peer(reader: Callable[[Path], Figures], command: str, url: str, load: Load) -> Figures:
    """A tool of its own environment, on all cores but the last; nothing where it wrote no result."""
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as out:
        asked = command.format(url=url, requests=load.requests, per_s=f"{load.per_s:g}", streams=load.streams,
                               tokens=load.tokens, out=out)  # fmt: skip
        os.sched_setaffinity(0, set(cores[:-1] or cores))
        log = Path(out, "log")
        try:
            with log.open("wb") as said:
                tool = subprocess.Popen(shlex.split(asked), stdout=said, stderr=said, start_new_session=True)
        finally:
            os.sched_setaffinity(0, set(cores))
        try:
            tool.wait(LIMIT_S)
            return reader(Path(out))
        except (subprocess.TimeoutExpired, StopIteration, LookupError) as error:
            print(f"{type(error).__name__}: {error}\n{log.read_text(errors='replace')[-2000:]}", flush=True)
            return Figures(0, 0)
        finally:
            if tool.poll() is None:
                os.killpg(tool.pid, signal.SIGKILL)
                tool.wait()


def faults_of(name: str, ask: Callable[[str, Load], Figures], mode: str, load: Load, tries: int) -> list[str]:
    """What is wrong each time; empty once a measurement is right. Prints a row for each."""
    faults: list[str] = []
    for _ in range(tries):
        with metronome(TTFT_US, load.itl_us, load.itl_us * (mode == "ticks"), log=True) as server:
            told = ask(server.url, load)
        true, per_s = truth(server.sent, load)
        faults = wrong(told, true, per_s, load)
        pairs = zip(told[2:], true[2:], strict=True)
        cells = " | ".join("" if says is None else f"{says:.2f} ({is_:.2f})" for says, is_ in pairs)
        words = "; ".join(faults) or "yes"
        print(f"| {mode} | {load.streams} | {name} | {load.rate} | {per_s:.0f} | {cells} | {words} |", flush=True)
        if not faults:
            break
    return faults


def climbed(loads: list[Load], faults_of_load: Callable[[Load], list[str]]) -> str:
    """The highest of ``loads`` that was right and the next, which was not, by bisection."""
    held, failed, words = -1, len(loads), ""
    while failed - held > 1:
        middle = (held + failed) // 2
        faults = faults_of_load(loads[middle])
        if faults:
            failed, words = middle, f"{loads[middle].rate}: {'; '.join(faults)}"
        else:
            held = middle
    return f"{loads[held].rate if held >= 0 else 'none'} | {words}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="1000,2500,5000,10000,20000,40000", help="tokens a second")
    parser.add_argument("--streams", default="100", help="open at once; several: each with all rates")
    parser.add_argument("--modes", default="ticks,steady")
    parser.add_argument("--via", default="direct")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--lasts", type=float, default=2.0, help="seconds of a request")
    parser.add_argument("--seconds", type=float, default=6.0, help="in which requests begin")
    parser.add_argument("--tries", type=int, default=2, help="a rate fails when so many measurements are wrong")
    options = parser.parse_args()
    tools: dict[str, Callable[[str, Load], Figures]] = {}
    for via in filter(None, options.via.split(",")):
        tools[via] = lambda url, load, via=via: own(via, url, load)
    for asked in options.peer:
        name, _, command = asked.partition("=")
        tools[name] = lambda url, load, name=name, command=command: peer(READERS[name], command, url, load)
    print(f"{machine()}\n\np99 as the tool reports it (the truth in parentheses), milliseconds")
    heads = "mode | streams | tool | tokens/s | sent | TTFT | ITL | TPOT | right"
    print(f"\n| {heads} |\n{'|---' * 9}|")
    summary = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what it has started ends with it
    try:
        for mode, streams in product(options.modes.split(","), map(int, options.streams.split(","))):
            loads = [Load(int(rate), streams, options.lasts, options.seconds) for rate in options.rates.split(",")]
            for name, ask in tools.items():
                found = climbed(loads, lambda load: faults_of(name, ask, mode, load, options.tries))  # noqa: B023
                summary.append(f"| {mode} | {streams} | {name} | {found} |")
    except KeyboardInterrupt:
        summary.append("stopped")
    print("\n| mode | streams | tool | highest that was right | first that was not |\n|---|---|---|---|---|")
    print("\n".join(summary))
    print(f"\n{machine()} (after); {Path(__file__).name}")


if __name__ == "__main__":
    main()
