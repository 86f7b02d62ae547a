"""What watching the server costs: parsing a vLLM page, the scraper's process, and the conductor's share of it.

python benchmarks/scrape_cost.py [REPLICAS] [SECONDS]
"""

import asyncio
import gzip
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from loadramp.metrics.canonical import read_for
from loadramp.metrics.dialects import candidates, wanted
from loadramp.metrics.model_series import ModelSelection
from loadramp.metrics.prometheus_text import names, parse
from loadramp.metrics.scraper import Scraper

PAGE = gzip.decompress(
    (Path(__file__).parent.parent / "tests/data/metrics/vllm-0.32-idle.txt.gz").read_bytes()
).decode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the terminal."""


def best_ms(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(100):
        begin_s = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin_s)
    return 1e3 * min(taken)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def watch(replicas: int, seconds: float) -> list[tuple[str, str]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "server.jsonl"
        urls = [f"http://127.0.0.1:{server.server_port}/metrics"] * replicas
        scraper = Scraper(urls, out, t0_s=time.monotonic())
        begin_s = time.perf_counter()
        scraper.start()
        start_ms, samples, reading_s, reads = 1e3 * (time.perf_counter() - begin_s), [], 0.0, 0
        while time.perf_counter() - begin_s < seconds:
            time.sleep(1.0)
            read_s = time.perf_counter()
            samples += scraper.read()
            reading_s, reads = reading_s + time.perf_counter() - read_s, reads + 1
        pid = scraper._child.pid if scraper._child else 0
        spent_s, memory_mb = cpu_s(pid), peak_mb(pid)
        asyncio.run(scraper.stop())
        size = out.stat().st_size / max(1, len(samples) + replicas)
    server.shutdown()
    costs_ms = sorted(1e3 * sample.cost_s for sample in samples)
    return [
        ("scraper: first sample after its start, ms", f"{1e3 * samples[0].t_s:.0f}"),
        ("scraper: memory, MB", f"{memory_mb:.0f}"),
        ("scraper: CPU in all, ms (start included)", f"{1e3 * spent_s:.0f} for {len(samples)} scrapes"),
        ("scraper: one scrape, ms (median, largest)", f"{costs_ms[len(costs_ms) // 2]:.1f}, {costs_ms[-1]:.1f}"),
        ("scraper: bytes a sample on disk", f"{size:.0f}"),
        ("conductor: start(), ms", f"{start_ms:.2f}"),
        ("conductor: read() a second, ms", f"{1e3 * reading_s / reads:.2f}"),
    ]


def main() -> None:
    replicas, seconds = (
        (int(sys.argv[1]) if len(sys.argv) > 1 else 4),
        (float(sys.argv[2]) if len(sys.argv) > 2 else 10),
    )
    known = wanted("vllm")
    rows = [
        ("page: lines", str(PAGE.count("\n"))),
        ("page: parse what is wanted, ms", f"{best_ms(lambda: parse(PAGE, known)):.2f}"),
        ("page: parse all of it, ms", f"{best_ms(lambda: parse(PAGE)):.2f}"),
        ("page: tell whose it is, ms", f"{best_ms(lambda: candidates(names(PAGE))):.2f}"),
        ("page: to canonical values, ms", f"{best_ms(lambda: read_for(ModelSelection(), PAGE, 'vllm')):.2f}"),
        *watch(replicas, seconds),
    ]
    print(
        f"{replicas} replicas, once a second, {seconds:g} s; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n"
    )
    for name, value in rows:
        print(f"{name:48}{value}")


if __name__ == "__main__":
    main()
