"""How far from the truth each client's instants are: the C server logs when each token left, the records when it came.

Steady: tokens of all streams evenly spread. Ticks: all streams' tokens at once, as an engine's steps send them. `stamp`
is the error of single instants, `ITL p50` and `ITL p99` that of these percentiles over all tokens. `direct-user` is the
measuring client without the kernel's receive stamps.
"""

from __future__ import annotations

import argparse
import io
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from stage import SENT, by_request, machine, metronome, run, sender, together

from loadramp.client.endpoint import endpoint_of
from loadramp.client.http.sockets import OnBytes, OnClose, Pipe
from loadramp.client.measuring_client import dialer_of
from loadramp.record.types import Record
from loadramp.scenario.scenario import Target
from loadramp.simulator.null_server import BEAT_S

_SELF_SIGNED = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-days", "1", "-subj", "/CN=localhost")  # fmt: skip
WARM = 1_000_000_000  # numbers of requests that only warm up


@dataclass(slots=True)
class UserStamps:
    """Opens sockets whose segments the kernel does not stamp."""

    dialer: Any

    async def __call__(self, on_bytes: OnBytes, on_close: OnClose) -> Pipe:
        pipe: Any = await self.dialer(on_bytes, on_close)
        pipe._sock.setsockopt(socket.SOL_SOCKET, 35, 0)
        return pipe  # type: ignore[no-any-return]


@dataclass(slots=True)
class Errors:
    """Microseconds."""

    stamp_p50: float
    stamp_p99: float
    itl_p50: float
    itl_p99: float
    true_p99: float
    kernel: bool
    late_ratio: float


def measured(via: str, rate: int, streams: int, seconds: float, ticks: bool) -> Errors:
    """The errors of ``via`` at ``rate`` tokens a second over ``streams`` streams."""
    itl_us = round(streams / rate * 1e6)
    tokens = max(10, round(seconds * rate / streams))
    with metronome(100_000, itl_us, itl_us if ticks else 0, log=True) as server:
        records, t0_s, late = run(lambda: _asked(via, server.url, streams, tokens, itl_us / 1e6))
    return _compared(records, t0_s, server.sent, late)


async def _asked(via: str, url: str, streams: int, tokens: int, spread_s: float) -> tuple[list[Record], float, float]:
    target = Target(base_url=url, insecure=url.startswith("https"))
    dialer = dialer_of(target, endpoint_of(target, {}))
    connect = {"direct": dialer, "direct-user": UserStamps(dialer)}.get(via)
    send, close, t0_s = sender(via, url.replace("https", "http"), io.BytesIO(), connect)
    await together(send, streams, 4, 0.2, first=WARM)
    tally = dialer.tally
    late, reads = tally.late_reads, tally.poller.reads
    records = await together(send, streams, tokens, spread_s)
    await close()
    return records, t0_s, (tally.late_reads - late) / max(1, tally.poller.reads - reads)


def measured_tls(rate: int, seconds: float) -> Errors:
    """The errors of ``direct`` through TLS; the server spreads tokens of 20 ms over 20 instants."""
    streams, tokens = round(rate * BEAT_S), round(seconds / BEAT_S)
    with tempfile.TemporaryDirectory() as folder:
        made = [Path(folder, name) for name in ("key.pem", "cert.pem", "sent")]
        subprocess.run([*_SELF_SIGNED, "-keyout", made[0], "-out", made[1]], check=True, capture_output=True)
        command = [sys.executable, Path(__file__).with_name("tls_metronome.py"), made[1], made[0], made[2]]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        url = f"https://127.0.0.1:{int(server.stdout.readline())}"
        os.sched_setaffinity(server.pid, {max(os.sched_getaffinity(0))})
        try:
            records, t0_s, late = run(lambda: _asked("direct", url, streams, tokens, BEAT_S))
        finally:
            server.terminate()
            server.wait()
        return _compared(records, t0_s, np.fromfile(made[2], dtype=SENT), late)


def _compared(records: list[Record], t0_s: float, sent: Any, late: float) -> Errors:
    stamp, itl, true_itl = [], [], []
    true = by_request(sent)
    for record in records:
        true_s = true[record.seq]["send_ns"] / 1e9
        seen_s = np.array(record.event_s) + t0_s
        if len(true_s) != len(seen_s):
            raise RuntimeError(f"request {record.seq}: {len(true_s)} tokens sent, {len(seen_s)} seen")
        stamp.append(seen_s - true_s)
        itl.append(np.diff(seen_s))
        true_itl.append(np.diff(true_s))
    errors = np.concatenate(stamp) * 1e6
    seen, true = np.concatenate(itl) * 1e6, np.concatenate(true_itl) * 1e6
    return Errors(
        float(np.quantile(errors, 0.5)),
        float(np.quantile(errors, 0.99)),
        float(np.quantile(seen, 0.5) - np.quantile(true, 0.5)),
        float(np.quantile(seen, 0.99) - np.quantile(true, 0.99)),
        float(np.quantile(true, 0.99)),
        records[0].stamps == "kernel",
        late,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", default="1000,5000,10000,20000", help="tokens a second")
    parser.add_argument("--via", default="direct,direct-user,aiohttp,httpx,openai")
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--modes", default="steady,ticks")
    parser.add_argument("--tls", default="1000,5000,10000", help="tokens a second through TLS")
    options = parser.parse_args()
    most = {"httpx": 5000, "openai": 1000}  # beyond it they need more than a core
    print(f"{machine()}; {options.streams} streams, {options.seconds:g} s each; milliseconds")
    columns = ("mode", "tokens/s", "client", "stamps", "stamp p50", "stamp p99", "ITL p50", "ITL p99", "true ITL p99")
    print(f"\n| {' | '.join(columns)} | late reads |\n{'|---' * (len(columns) + 1)}|")
    for mode in filter(None, options.modes.split(",")):
        for rate in map(int, options.rates.split(",")):
            for via in options.via.split(","):
                if rate > most.get(via, rate):
                    continue
                _row(mode, rate, via, measured(via, rate, options.streams, options.seconds, mode == "ticks"))
    for rate in map(int, filter(None, options.tls.split(","))):
        _row("TLS", rate, "direct", measured_tls(rate, options.seconds))
    print(f"\n{machine()} (after); {Path(__file__).name}")


def _row(mode: str, rate: int, via: str, e: Errors) -> None:
    figures = (e.stamp_p50, e.stamp_p99, e.itl_p50, e.itl_p99, e.true_p99)
    cells = " | ".join(f"{us / 1000:.3f}" for us in figures)
    print(
        f"| {mode} | {rate} | {via} | {'kernel' if e.kernel else 'user'} | {cells} | {e.late_ratio:.4f} |", flush=True
    )


if __name__ == "__main__":
    main()
