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
from typing import Any

from stage import machine, metronome, run, sender, together

from loadramp.client.http import c_reader

SPREAD_S, MANY_S = 5.0, 20.0
"""Of the table of many streams: they begin within SPREAD_S (400 requests/s) and last MANY_S."""


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


def many(streams: int, rate: int, tokens: int) -> dict[str, Any]:
    """How the measuring client fares with ``streams`` side by side."""
    itl_s = streams / rate
    from loadramp.client.endpoint import endpoint_of
    from loadramp.client.measuring_client import dialer_of
    from loadramp.scenario.scenario import Target

    with metronome(50_000, round(itl_s * 1e6)) as server:
        target = Target(base_url=server.url)

        async def main() -> dict[str, Any]:
            dialer = dialer_of(target, endpoint_of(target, {}))
            with tempfile.TemporaryFile("wb", buffering=0) as out:
                send, close, _ = sender("direct", server.url, out, dialer)
                await together(send, streams, 4, 0.5)
                late, reads = dialer.tally.late_reads, dialer.tally.poller.reads
                began, wall = time.process_time(), time.monotonic()
                records = await together(send, streams, tokens, SPREAD_S, streams)
                used, wall = time.process_time() - began, time.monotonic() - wall
                await close()
            return {
                "streams": streams,
                "rate": rate,
                "cpu": used / wall,
                "ok": sum(record.ok for record in records),
                "late": (dialer.tally.late_reads - late) / max(1, dialer.tally.poller.reads - reads),
                "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }

        found: dict[str, Any] = run(main)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", default="5000,20000", help="tokens a second")
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--via", default="direct,direct-python,aiohttp,httpx,openai")
    parser.add_argument("--modes", default="ticks,steady")
    parser.add_argument("--seconds", default="2,8", help="length of the two answers")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--many", default="2000:10000,2000:20000", help="STREAMS:RATE of the table of many streams")
    options = parser.parse_args()
    print(machine())
    print("\n| mode | client | tokens/s | CPU us a token | share of a core |\n|---|---|---|---|---|")
    for mode in filter(None, options.modes.split(",")):
        for rate in map(int, filter(None, options.rates.split(","))):
            _rows(options, mode, rate)
    print("\n| streams | tokens/s | share of a core | answers whole | late reads | peak memory MB |")
    print("|---|---|---|---|---|---|")
    for streams, rate in (map(int, pair.split(":")) for pair in options.many.split(",") if pair):
        seen = many(streams, rate, max(8, round(MANY_S * rate / streams)))
        row = f"| {streams} | {rate} | {seen['cpu']:.2f} | {seen['ok']}/{streams} | {seen['late']:.4f} "
        print(f"{row}| {seen['rss_mb']:.0f} |", flush=True)
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
