"""CPU microseconds a streamed token costs each client, all in: receive, parse, record, write.

The slope between two lengths of answer, so that connecting, starting and idling are out; the median of `--rounds`, in
which the clients take turns. One C server on the other core, one run. Ticks: the tokens of all streams leave together,
as those of an engine's steps do; steady: evenly spread, a wake-up for each. direct-python is direct as it is where the
reader in C was not built. `--peer NAME='COMMAND with {url} {requests} {tokens}'` adds a tool of its own environment, by
the CPU time of its process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from stage import machine, metronome, run, sender, together

from loadramp.client.endpoint import endpoint_of
from loadramp.client.fleet import raise_file_limit
from loadramp.client.http import c_reader
from loadramp.client.http.connect import dialer_of
from loadramp.scenario.scenario import Target

SPREAD_S, MANY_S = 5.0, 20.0
"""Of the table of many streams: they begin within SPREAD_S and last MANY_S."""
WARM = 1_000_000_000
"""Numbers of requests that only warm up."""


def cpu_s(via: str, url: str, streams: int, tokens: int, itl_s: float) -> tuple[float, float]:
    """CPU seconds and wall seconds of ``streams`` answers of ``tokens`` tokens side by side."""

    if via == "direct-python":
        c_reader.LOADED = None

    async def main() -> tuple[float, float]:
        with tempfile.TemporaryFile("wb", buffering=0) as out:
            send, close, _ = sender(via, url, out)
            await together(send, streams, 4, 0.05)  # connections are open, code is warm
            began, wall = time.process_time(), time.monotonic()
            records = await together(send, streams, tokens, itl_s)
            used = time.process_time() - began
            wall = time.monotonic() - wall
            await close()
            assert all(record.output_tokens == tokens for record in records), {r.error_detail for r in records}
            return used, wall

    found: tuple[float, float] = run(main)
    return found


def slope_us(via: str, rate: int, streams: int, lengths: tuple[int, int], ticks: bool) -> tuple[float, float | None]:
    """Microseconds a token, and the share of one core at the longer length; in a process of its own, as a worker is:
    the heap that other clients leave behind would cost this one some 2 us."""
    itl_s = streams / rate
    with (
        metronome(50_000, round(itl_s * 1e6), round(itl_s * 1e6) * ticks) as server,
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as child,
    ):
        short, _ = child.submit(cpu_s, via, server.url, streams, lengths[0], itl_s).result()
        long, wall = child.submit(cpu_s, via, server.url, streams, lengths[1], itl_s).result()
    return (long - short) / (streams * (lengths[1] - lengths[0])) * 1e6, long / wall


def floor_us(rate: int, streams: int, seconds: float, ticks: bool) -> float:
    """What a C program pays that only waits and reads (benchmarks/reader.c)."""
    itl_s = streams / rate
    tokens = max(1, int(seconds / itl_s))
    with (
        tempfile.TemporaryDirectory() as where,
        metronome(50_000, round(itl_s * 1e6), round(itl_s * 1e6) * ticks) as server,
    ):
        binary = Path(where, "reader")
        subprocess.run(["cc", "-O2", "-o", binary, Path(__file__).with_name("reader.c")], check=True)
        core = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
        port = server.url.rpartition(":")[2]
        said = subprocess.check_output([*core, binary, port, str(streams), str(tokens), str(itl_s)], text=True)
    return float(said)


def peer_us(command: str, rate: int, streams: int, lengths: tuple[int, int], ticks: bool) -> tuple[float, None]:
    """The same slope for another tool, from the CPU time of its process and children; the longer answer is eight times
    as long again, because a tool's start costs seconds that scatter."""
    lengths = (lengths[0], 8 * lengths[1])
    used = []
    itl_us = round(streams / rate * 1e6)
    with metronome(50_000, itl_us, itl_us * ticks) as server:
        for tokens in lengths:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            asked = shlex.split(command.format(url=server.url, requests=streams, tokens=tokens))
            subprocess.run(asked, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return (used[1] - used[0]) / (streams * (lengths[1] - lengths[0])) * 1e6, None


class Share(NamedTuple):
    """What one worker of many streams saw."""

    cpu: float
    """Of a core."""
    ok: int
    late_reads: int
    reads: int
    rss_mb: float
    seen_s: dict[int, Any]
    """When each token of a request came, by CLOCK_MONOTONIC."""


def share(url: str, worker: int, streams: int, tokens: int) -> Share:
    """``streams`` side by side in this process, which has a core of its own if there are enough."""
    target = Target(base_url=url)
    raise_file_limit(None)

    async def main() -> Share:
        dialer = dialer_of(target, endpoint_of(target, {}))
        with tempfile.TemporaryFile("wb", buffering=0) as out:
            send, close, t0_s = sender("direct", url, out, dialer)
            await together(send, 100, 4, 0.5, WARM + worker * 1000)
            late, reads = dialer.tally.late_reads, dialer.tally.poller.reads
            began, wall = time.process_time(), time.monotonic()
            records = await together(send, streams, tokens, SPREAD_S, worker * streams)
            used, wall = time.process_time() - began, time.monotonic() - wall
            await close()
        late, reads = dialer.tally.late_reads - late, dialer.tally.poller.reads - reads
        seen_s = {record.seq: np.array(record.event_s) + t0_s for record in records}
        rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return Share(used / wall, sum(record.ok for record in records), late, reads, rss_mb, seen_s)

    found: Share = run(main, worker)
    return found


def many(streams: int, rate: int, workers: int) -> str:
    """A row of the table: how ``workers`` fare with ``streams`` side by side."""
    itl_s, tokens = streams / rate, max(8, round(MANY_S * rate / streams))
    spawn = multiprocessing.get_context("spawn")
    with metronome(50_000, round(itl_s * 1e6), log=True) as server, ProcessPoolExecutor(workers, spawn) as pool:
        asked = [pool.submit(share, server.url, i, streams // workers, tokens) for i in range(workers)]
        shares = [one.result() for one in asked]
    sent = np.sort(server.sent, order=["request", "index"])
    errors = []
    for seen_s in (seen for one in shares for seen in one.seen_s.items()):
        begin, end = np.searchsorted(sent["request"], [seen_s[0], seen_s[0] + 1])
        if end - begin == len(seen_s[1]):
            errors.append(seen_s[1] - sent["send_ns"][begin:end] / 1e9)
    p50, p99 = np.quantile(np.concatenate(errors), [0.5, 0.99]) * 1e3
    late = sum(one.late_reads for one in shares) / max(1, sum(one.reads for one in shares))
    cpu, rss_mb = max(one.cpu for one in shares), max(one.rss_mb for one in shares)
    whole = f"{sum(one.ok for one in shares)}/{streams} | {len(errors)}"
    return (
        f"| {streams} | {rate} | {workers} | {cpu:.2f} | {whole} | {p50:.3f} | {p99:.3f} | {late:.4f} | {rss_mb:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", default="5000,20000", help="tokens a second")
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--via", default="direct,direct-python,aiohttp,httpx,openai")
    parser.add_argument("--modes", default="ticks,steady")
    parser.add_argument("--seconds", default="2,8", help="length of the two answers")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    shapes = "STREAMS:RATE or STREAMS:RATE:WORKERS of the table of many streams"
    parser.add_argument("--many", default="2000:10000,2000:20000", help=shapes)
    options = parser.parse_args()
    print(machine())
    print("\n| mode | client | tokens/s | CPU us a token | share of a core |\n|---|---|---|---|---|")
    for mode in filter(None, options.modes.split(",")):
        for rate in map(int, filter(None, options.rates.split(","))):
            _rows(options, mode, rate)
    heads = "streams | tokens/s | workers | share of a core | answers whole | with every token | stamp p50 ms"
    print(f"\n| {heads} | stamp p99 ms | late reads | memory MB |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for each in filter(None, options.many.split(",")):
        asked = [int(number) for number in each.split(":")]
        print(many(*asked[:2], *(asked[2:] or [1])), flush=True)
    print(f"\n{machine()} (after), pid {os.getpid()}")


def _rows(options: argparse.Namespace, mode: str, rate: int) -> None:
    ticks = mode == "ticks"
    seconds = [float(s) for s in options.seconds.split(",")]
    short, long = (int(s * rate / options.streams) for s in seconds)
    ways: dict[tuple[str, int], Callable[[], tuple[float, float | None]]] = {
        ("a C reader, nothing but reading", rate): lambda: (floor_us(rate, options.streams, seconds[1], ticks), None)
    }
    for via in options.via.split(","):
        if rate <= 5000 or via not in {"httpx", "openai"}:  # those need more than one core
            at = rate if via != "openai" else 1000
            ways[via, at] = partial(slope_us, via, at, options.streams, (short, long), ticks)
    for peer in options.peer if rate <= 5000 else ():
        name, _, command = peer.partition("=")
        ways[name, rate] = partial(peer_us, command, rate, options.streams, (short, long), ticks)
    rounds = [{who: measure() for who, measure in ways.items()} for _ in range(options.rounds)]
    for who in ways:
        each = sorted(one[who][0] for one in rounds)
        shares = [share for one in rounds if (share := one[who][1]) is not None]
        scatter = f" ({each[0]:.1f} to {each[-1]:.1f})" if len(each) > 1 else ""
        share_words = f"{median(shares):.2f}" if shares else ""
        print(f"| {mode} | {who[0]} | {who[1]} | {median(each):.1f}{scatter} | {share_words} |", flush=True)
    peers = [who for who in ways if who[0] in {peer.partition("=")[0] for peer in options.peer}]
    if peers and ("direct", rate) in ways:
        best = min(peers, key=lambda who: median(one[who][0] for one in rounds))
        ratios = sorted(one[best][0] / one["direct", rate][0] for one in rounds)
        words = f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) times direct, round by round"
        print(f"| {mode} | {best[0]} | {rate} | {words} | |", flush=True)


if __name__ == "__main__":
    main()
