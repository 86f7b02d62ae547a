"""The scraper: against a scripted server on loopback, in a process of its own, and on a jumping clock."""

import asyncio
import datetime
import gzip
import ipaddress
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest
import simulated_time as clock
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from inline_scraper import scrape_inline
from metrics_pages import page
from run_in_memory import scenario_of

from loadramp.client.endpoint import endpoint_of
from loadramp.client.http.connect import tls_context
from loadramp.metrics import fetch
from loadramp.metrics.fetch import PAGE_CAP_BYTES, FetchFailed
from loadramp.metrics.scrape_process import next_due_s, sibling, timeout_s
from loadramp.metrics.scraper import Scraper, find_metrics, full_url, labels_of
from loadramp.record.codec import decode_each
from loadramp.record.run_directory import RunDir
from loadramp.record.run_info import MetricsInfo, RunInfo
from loadramp.record.types import Sample
from loadramp.runner.launch import scraper_of

VLLM = page("vllm-0.32-under-load")
Answer = Callable[[BaseHTTPRequestHandler], None]


def answer(body: str | bytes, status: int = 200, **headers: str) -> Answer:
    raw = body if isinstance(body, bytes) else body.encode()

    def send(to: BaseHTTPRequestHandler) -> None:
        to.send_response(status)
        for name, value in {"Content-Length": str(len(raw)), **headers}.items():
            to.send_header(name.replace("_", "-"), value)
        to.end_headers()
        to.wfile.write(raw)

    return send


def raw(*parts: bytes, wait_s: float = 0.0) -> Answer:
    def send(to: BaseHTTPRequestHandler) -> None:
        to.close_connection = True
        for part in parts:
            to.wfile.write(part)
            to.wfile.flush()
            to.server.over.wait(wait_s)  # type: ignore[attr-defined]

    return send


class Server(ThreadingHTTPServer):
    """Answers by path: the last answer of a list again and again. Remembers what it was asked."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, list[Answer]] = {}
        self.asked: list[tuple[str, dict[str, str], int]] = []
        self.over = threading.Event()
        self.base = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what some of these tests are about."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append((self.path, dict(self.headers), self.client_address[1]))
        known = self.server.answers
        answers = known.get(self.path) or known.get(self.path.partition("?")[0]) or [answer("not here", 404)]
        (answers.pop(0) if len(answers) > 1 else answers[0])(self)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield found
        found.over.set()
        found.shutdown()
        thread.join()


def paths(server: Server) -> list[str]:
    return [path for path, _, _ in server.asked]


# ---- fetching one page


class Fetcher:
    """A fetcher with a loop of its own, for one address."""

    def __init__(self, url: str, headers: dict[str, str] | None = None, context: ssl.SSLContext | None = None) -> None:
        fetch.address_of(url)
        self.url, self.runner, self.fetcher = url, asyncio.Runner(), fetch.Fetcher(headers, context)
        FETCHERS.append(self)

    def get(self, limit_s: float = 60.0) -> str:
        return self.runner.run(self.fetcher.get(self.url, limit_s))

    def close(self) -> None:
        self.runner.run(self.fetcher.close())
        self.runner.close()
        FETCHERS.remove(self)


FETCHERS: list[Fetcher] = []


@pytest.fixture(autouse=True)
def no_fetcher_stays_open() -> Iterator[None]:
    yield
    for fetcher in tuple(FETCHERS):
        fetcher.close()


def test_a_page_comes_over_one_kept_connection(server: Server) -> None:
    server.answers["/metrics"] = [answer("a 1\n"), answer("a 2\n")]
    fetcher = Fetcher(f"{server.base}/metrics")
    assert [fetcher.get(), fetcher.get()] == ["a 1\n", "a 2\n"]
    fetcher.close()
    assert len({port for _, _, port in server.asked}) == 1


def test_a_connection_that_the_server_closed_meanwhile_is_no_failure(server: Server) -> None:
    closing = answer("a 1\n")

    def close_silently(to: BaseHTTPRequestHandler) -> None:
        closing(to)
        to.close_connection = True

    server.answers["/metrics"] = [close_silently]
    fetcher = Fetcher(f"{server.base}/metrics")
    assert [fetcher.get() for _ in range(3)] == ["a 1\n"] * 3
    fetcher.close()


BYTE_BY_BYTE = [bytes([byte]) for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n" + b"a" * 400]
FAILURES: dict[str, tuple[Answer, str]] = {
    "404": (answer("<html>", 404), "http 404"),
    "500": (answer("oops", 500), "http 500"),
    "slow to begin": (raw(b"", b"HTTP/1.1 200 OK\r\n\r\na 1\n", wait_s=5.0), "timeout"),
    "slow in the middle": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na 1\n", b"b 2\n", wait_s=5.0), "timeout"),
    "never silent, never done": (raw(*BYTE_BY_BYTE, wait_s=0.01), "timeout"),
    "cut short": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\na 1"), "page cut short"),
    "closed without an answer": (raw(b""), "connection lost"),
    "not HTTP": (raw(b"SSH-2.0-OpenSSH\r\n\r\n"), "not HTTP"),
    "huge": (answer(b"a 1\n" * (PAGE_CAP_BYTES // 4 + 1)), "page above 8 MB"),
    "huge when unpacked": (answer(gzip.compress(b"0" * 9_000_000), Content_Encoding="gzip"), "page above 8 MB"),
    "not gzip": (answer(b"plain", Content_Encoding="gzip"), "cannot be unpacked"),
    "sends elsewhere": (answer("", 302, Location="http://127.0.0.2:1/metrics"), "http 302: sends to another host"),
    "sends in circles": (answer("", 307, Location="/metrics"), "http 307"),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILURES)
def test_sm08_a_page_that_cannot_be_had_is_a_few_words(server: Server, case: str) -> None:
    server.answers["/metrics"], words = [FAILURES[case][0]], FAILURES[case][1]
    fetcher = Fetcher(f"{server.base}/metrics")
    with pytest.raises(FetchFailed) as failure:
        fetcher.get(0.15 if words == "timeout" else 60.0)
    fetcher.close()
    assert str(failure.value) == words


def test_after_a_failure_the_next_page_is_read(server: Server) -> None:
    server.answers["/metrics"] = [raw(b"", wait_s=5.0), answer("a 1\n")]
    fetcher = Fetcher(f"{server.base}/metrics")
    with pytest.raises(FetchFailed, match="timeout"):
        fetcher.get(0.05)
    assert fetcher.get() == "a 1\n"
    fetcher.close()


def test_a_server_that_is_not_there_and_an_address_that_is_none() -> None:
    with pytest.raises(FetchFailed, match="connection refused"):
        Fetcher("http://127.0.0.1:1/metrics").get()
    for url in (
        "ftp://host/metrics",
        "host:8000/metrics",
        "http://",
        "http://host:0/",
        "http://host:x/",
        "http://[::1/",
    ):
        with pytest.raises(FetchFailed, match="not an http address"):
            Fetcher(url)


@pytest.mark.parametrize("packed", ["gzip", "deflate"])
def test_a_compressed_page_is_understood_though_not_asked_for(server: Server, packed: str) -> None:
    body = gzip.compress(VLLM.encode()) if packed == "gzip" else zlib.compress(VLLM.encode())
    server.answers["/metrics"] = [answer(body, Content_Encoding=packed)]
    fetcher = Fetcher(f"{server.base}/metrics")
    assert fetcher.get() == VLLM
    fetcher.close()
    assert server.asked[0][1]["Accept-Encoding"] == "identity"


def test_of_a_page_that_ends_with_its_connection_a_torn_last_line_is_left_out(server: Server) -> None:
    server.answers["/metrics"] = [raw(b"HTTP/1.1 200 OK\r\n\r\na 1\nb 2")]
    fetcher = Fetcher(f"{server.base}/metrics")
    assert fetcher.get() == "a 1\n"
    fetcher.close()


def test_a_redirect_within_the_host_is_followed(server: Server) -> None:
    server.answers = {"/metrics": [answer("", 307, Location="/metrics/")], "/metrics/": [answer("a 1\n")]}
    fetcher = Fetcher(f"{server.base}/metrics")
    assert fetcher.get() == "a 1\n"
    fetcher.close()


def test_user_and_password_of_an_address_go_into_a_header_and_not_into_the_path(server: Server) -> None:
    server.answers["/metrics?a=b"] = [answer("a 1\n")]
    fetcher = Fetcher(f"http://us%40er:pa%3Ass@127.0.0.1:{server.server_port}/metrics?a=b", {"X-Team": "7"})
    fetcher.get()
    fetcher.close()
    path, headers, _ = server.asked[0]
    assert (path, headers["Authorization"], headers["X-Team"]) == ("/metrics?a=b", "Basic dXNAZXI6cGE6c3M=", "7")


def self_signed(tmp_path: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).add_extension(address, critical=False)
    builder = builder.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(
        now + datetime.timedelta(days=1)
    )
    certificate, private = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return certificate, private


def test_a_certificate_is_checked_unless_it_is_trusted_or_checking_is_off(server: Server, tmp_path: Path) -> None:
    certificate, private = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, private)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.answers["/metrics"] = [answer("a 1\n")]
    url = server.base.replace("http:", "https:") + "/metrics"
    for trusting in (tls_context(str(certificate)), tls_context(insecure=True)):
        fetcher = Fetcher(url, context=trusting)
        assert [fetcher.get(), fetcher.get()] == ["a 1\n"] * 2
        fetcher.close()
    with pytest.raises(FetchFailed, match=r"^tls: self.signed certificate"):
        Fetcher(url, context=tls_context()).get()


# ---- when and where


def test_a_scrape_takes_less_than_its_period_and_never_more_than_a_second() -> None:
    assert [timeout_s(period_s) for period_s in (0.1, 1.0, 5.0)] == [pytest.approx(0.08), pytest.approx(0.8), 1.0]


def test_the_next_scrape_is_on_the_grid_and_missed_beats_are_left_out() -> None:
    assert next_due_s(10.0, 10.2, 1.0, failures=0) == 11.0
    assert next_due_s(10.0, 13.5, 1.0, failures=0) == 14.0
    assert next_due_s(10.0, 10.0, 1.0, failures=2) == 11.0


def test_after_three_failures_a_page_is_asked_every_ten_seconds_only() -> None:
    assert next_due_s(10.0, 10.8, 1.0, failures=3) == 20.0
    assert next_due_s(0.0, 1.0, 30.0, failures=9) == 30.0


def test_samples_never_carry_user_password_or_query() -> None:
    assert labels_of(["http://u:p@h:8/metrics?key=k#f", "http://h:8/metrics?model=b", "https://[::1]:9/m"]) == [
        "http://h:8/metrics",
        "http://h:8/metrics#2",
        "https://[::1]:9/m",
    ]


def test_a_host_alone_means_its_metrics_page() -> None:
    assert full_url("http://h:8000") == full_url("http://h:8000/") == "http://h:8000/metrics"
    assert full_url("http://h:9400/gpu/metrics") == "http://h:9400/gpu/metrics"
    assert full_url("http://prom:9090/api/v1/query").startswith("http://prom:9090/api/v1/query?query=")


def test_tensorrt_keeps_its_page_beside_its_json() -> None:
    assert sibling("http://h:8/metrics") == "http://h:8/prometheus/metrics"
    assert sibling("http://h:8/a/metrics/?x=1") == "http://h:8/a/prometheus/metrics?x=1"
    assert sibling("http://h:8/prometheus/metrics") is None
    assert sibling("http://h:8/stats") is None


# ---- finding the page


def find(base_url: str) -> tuple[str, str] | None:
    return asyncio.run(find_metrics(base_url, {"Authorization": "Bearer k"}))


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_the_targets_own_page_is_found(server: Server, suffix: str) -> None:
    server.answers["/metrics"] = [answer(VLLM)]
    assert find(server.base + suffix) == (f"{server.base}/metrics", "vllm")
    assert server.asked[0][1]["Authorization"] == "Bearer k"


def test_a_page_under_the_targets_prefix_is_found(server: Server) -> None:
    server.answers["/llm/v1/metrics"] = [answer(page("nim"))]
    assert find(f"{server.base}/llm/v1") == (f"{server.base}/llm/v1/metrics", "nim")
    assert paths(server) == ["/llm/metrics", "/llm/prometheus/metrics", "/llm/v1/metrics"]


def test_sm04_json_at_metrics_leads_to_the_prometheus_page(server: Server) -> None:
    server.answers = {
        "/metrics": [answer("[]", Content_Type="application/json")],
        "/prometheus/metrics": [answer(page("trtllm-1.2"))],
    }
    assert find(server.base) == (f"{server.base}/prometheus/metrics", "trtllm")


def test_sm08_where_there_is_no_page_none_is_found(server: Server) -> None:
    server.answers["/metrics"] = [answer("<html>Sign in</html>")]
    assert find(server.base) is None
    assert find("http://127.0.0.1:1/v1") is None


# ---- the process


def wait_for(scraper: Scraper, count: int, enough: Callable[[list[Sample]], bool] = lambda found: True) -> list[Sample]:
    """At least ``count`` samples, which are ``enough``; on a busy machine the scraper's process has a minute for it."""
    found: list[Sample] = []
    for _ in range(12_000):
        found += scraper.read()
        if len(found) >= count and enough(found):
            return found
        time.sleep(0.005)
    raise AssertionError(f"{len(found)} samples came, {count} were awaited; {scraper.info.problem}")


def scraping(urls: list[str], out: Path, **options: object) -> Scraper:
    scraper = Scraper(urls, out, t0_s=time.monotonic(), period_s=0.2, **options)  # type: ignore[arg-type]
    scraper.start()
    return scraper


def test_replicas_are_scraped_side_by_side_and_once_more_at_the_end(server: Server, tmp_path: Path) -> None:
    server.answers = {"/a/metrics": [answer(VLLM)], "/b/metrics": [answer(page("xllamacpp-under-load"))]}
    out = tmp_path / "server.jsonl"
    scraper = scraping([f"{server.base}/a/metrics", f"{server.base}/b/metrics"], out)
    found = wait_for(scraper, 4)
    before = len(server.asked)
    asyncio.run(scraper.stop())
    rest = scraper.read()
    assert scraper.info.problem is None
    assert {s.url for s in rest} == {f"{server.base}/a/metrics", f"{server.base}/b/metrics"}
    assert len(server.asked) >= before + 2
    assert decode_each(out.read_bytes().splitlines(), Sample)[0] == found + rest
    good = [s for s in found if s.error != "timeout"]  # a busy machine may miss a beat
    assert {(s.url, s.values.get("preemptions"), s.values["running"]) for s in good} == {
        (f"{server.base}/a/metrics", 33.0, 11.0),
        (f"{server.base}/b/metrics", None, 8.0),
    }
    assert all(s.cost_s > 0.0 and s.t_s > 0.0 for s in found)


def test_it_tells_the_engine_of_the_pages_it_was_given(server: Server, tmp_path: Path) -> None:
    """A GPU exporter is no engine; a page that comes late is told when it comes."""
    gpu = answer('DCGM_FI_DEV_GPU_TEMP{gpu="0"} 66\n')
    server.answers = {"/gpu": [gpu], "/late": [answer("starting", 503), answer(page("xllamacpp-under-load"))]}
    scraper = scraping([f"{server.base}/gpu", f"{server.base}/late"], tmp_path / "server.jsonl")
    assert scraper.info == MetricsInfo()
    found: list[Sample] = []
    for _ in range(20):
        found += wait_for(scraper, 1)
        if {"running", "gpu_temperature_c"} <= {name for s in found for name in s.values}:
            break  # the first look at a page may end in a time-out
    assert scraper.info == MetricsInfo("llamacpp")
    asyncio.run(scraper.stop())
    assert any(s.values.get("gpu_temperature_c") == 66.0 for s in found)
    known = Scraper([server.base], tmp_path / "x.jsonl", t0_s=0.0, dialects={server.base: "vllm"})
    assert known.info == MetricsInfo("vllm")


def test_a_named_page_tells_the_run_its_engine_as_one_that_was_found_does(server: Server, tmp_path: Path) -> None:
    server.answers = {"/named": [answer(VLLM)], "/metrics": [answer(VLLM)]}

    async def told(text: str) -> object:
        scenario = scenario_of(f'[target]\nbase_url = "{server.base}"\n{text}')
        rundir = RunDir.create(tmp_path, "x", "", datetime.datetime.now(datetime.UTC))
        info = RunInfo()
        endpoint = endpoint_of(scenario.target)
        scraper = await scraper_of(scenario, endpoint, rundir, time.monotonic(), info, lambda _: None)
        assert scraper is not None
        await asyncio.to_thread(wait_for, scraper, 1)
        await scraper.stop()
        return info.metrics

    assert asyncio.run(told(f'[metrics]\nurl = "{server.base}/named"\n')) == MetricsInfo("vllm")
    assert asyncio.run(told("")) == MetricsInfo("vllm")


def test_sm08_bad_pages_give_samples_with_the_reason_and_good_ones_go_on(server: Server, tmp_path: Path) -> None:
    server.answers = {
        "/html": [answer("<html>hello</html>")],
        "/slow": [raw(b"", wait_s=5.0)],
        "/good": [answer(VLLM)],
        "/recovers": [answer("starting", 503), answer("starting", 503), answer(VLLM)],
    }
    wanted = {"html": {"HTML, not metrics"}, "slow": {"timeout"}, "good": {None}, "recovers": {"http 503", None},
              "missing": {"http 404"}}  # fmt: skip

    def errors(found: list[Sample]) -> dict[str, set[str | None]]:
        return {name: {s.error for s in found if s.url.endswith(f"/{name}")} for name in wanted}

    def enough(found: list[Sample]) -> bool:
        return all(wanted[name] <= seen for name, seen in errors(found).items())

    scraper = scraping([f"{server.base}/{name}" for name in wanted], tmp_path / "server.jsonl")
    found = wait_for(scraper, 20, enough)
    asyncio.run(scraper.stop())
    by_name = {name: [s for s in found if s.url.endswith(f"/{name}")] for name in wanted}
    # a machine with much else to do may miss a beat
    assert {name: seen - {"timeout"} | wanted[name] for name, seen in errors(found).items()} == wanted
    assert all(not s.values for s in by_name["html"] + by_name["slow"] + by_name["missing"])
    for name in ("html", "missing"):  # after three failures they are left alone for ten seconds
        at_s = [s.t_s for s in by_name[name]]
        assert len(at_s) >= 3
        assert all(later - before > 9.0 for before, later in pairwise(at_s[2:]))
    assert max(s.values.get("running", 0.0) for s in by_name["recovers"]) == 11.0


def test_sm04_a_given_address_that_turns_out_to_be_json_is_read_beside_it(server: Server, tmp_path: Path) -> None:
    server.answers = {"/metrics": [answer("[]")], "/prometheus/metrics": [answer(page("trtllm-1.2"))]}
    scraper = scraping([f"{server.base}/metrics"], tmp_path / "server.jsonl")
    found = wait_for(scraper, 3)
    asyncio.run(scraper.stop())
    assert {s.url for s in found} == {f"{server.base}/metrics"}
    assert {s.values.get("running") for s in found if s.error != "timeout"} == {48.0}
    assert paths(server).count("/metrics") == 1


def test_a_prometheus_server_is_asked_for_the_gpus(server: Server, tmp_path: Path) -> None:
    body = (
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"DCGM_FI_DEV_GPU_TEMP",'
        '"gpu":"0"},"value":[1.5,"66"]}]}}'
    )
    asked = f"{server.base}/api/v1/query"
    server.answers["/api/v1/query"] = [answer(body)]
    scraper = scraping([asked], tmp_path / "server.jsonl")
    found = wait_for(scraper, 3)  # on a busy machine the first may time out
    asyncio.run(scraper.stop())
    answered = next(sample for sample in found if sample.error != "timeout")
    assert (answered.url, answered.values) == (asked, {"gpu_temperature_c": 66.0})
    assert paths(server)[0].startswith("/api/v1/query?query=%7B__name__%3D~%22DCGM_FI_DEV_FB_FREE%7C")


def test_no_secret_reaches_the_file_the_arguments_or_another_host(server: Server, tmp_path: Path) -> None:
    server.answers["/metrics?token=s3cret"] = [answer(VLLM)]
    own = f"http://user:s3cret@127.0.0.1:{server.server_port}/metrics?token=s3cret"
    other = f"http://localhost:{server.server_port}/metrics?token=s3cret"
    bad = f"http://user:s3cret@127.0.0.1:{server.server_port}/none?token=s3cret"
    out = tmp_path / "server.jsonl"
    scraper = scraping([own, other, bad], out, headers={"X-Key": "s3cret"}, headers_host="127.0.0.1")
    wait_for(scraper, 6)
    child = scraper._child
    assert child is not None
    assert b"s3cret" not in Path(f"/proc/{child.pid}/cmdline").read_bytes()
    asyncio.run(scraper.stop())
    assert "s3cret" not in out.read_text()
    keys = {headers["Host"].partition(":")[0]: headers.get("X-Key") for _, headers, _ in server.asked}
    assert keys == {"127.0.0.1": "s3cret", "localhost": None}


def test_ctrl_c_in_the_terminal_does_not_reach_the_scraper(server: Server, tmp_path: Path) -> None:
    server.answers["/metrics"] = [answer(VLLM)]
    scraper = scraping([f"{server.base}/metrics"], tmp_path / "server.jsonl")
    wait_for(scraper, 1)
    child = scraper._child
    assert child is not None
    assert os.getpgid(child.pid) != os.getpgid(0)
    os.kill(child.pid, signal.SIGINT)
    wait_for(scraper, 2)
    asyncio.run(scraper.stop())
    assert scraper.info.problem is None


ORPHAN = """
import subprocess, sys, time
from pathlib import Path
from loadramp.metrics.scraper import Scraper
scraper = Scraper([sys.argv[1]], Path(sys.argv[2]), t0_s=time.monotonic(), period_s=0.1)
scraper.start()
while not scraper.read():
    time.sleep(0.005)
pipe = scraper._child.stdin.fileno()
keeper = subprocess.Popen(["sleep", "20"], pass_fds=[pipe]) if sys.argv[3] == "kept" else None
print(scraper._child.pid, keeper.pid if keeper else 0, flush=True)
time.sleep(20)
"""


@pytest.mark.parametrize("pipe", ["closed", "kept"])
def test_the_scraper_does_not_outlive_its_parent(server: Server, tmp_path: Path, pipe: str) -> None:
    """Killed, the parent says no word; ``kept``: another process even holds the pipe open."""
    server.answers["/metrics"] = [answer(VLLM)]
    arguments = [sys.executable, "-c", ORPHAN, f"{server.base}/metrics", str(tmp_path / "server.jsonl"), pipe]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        scraper, keeper = map(int, parent.stdout.readline().split())
        parent.kill()
    try:
        for _ in range(1000):
            if not Path(f"/proc/{scraper}").exists() or _state(scraper) == "Z":
                break
            time.sleep(0.005)
        else:
            raise AssertionError("it still lives")
    finally:
        if keeper:
            os.kill(keeper, signal.SIGKILL)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_a_full_disk_ends_the_scraper_and_is_told(server: Server) -> None:
    server.answers["/metrics"] = [answer(VLLM)]
    scraper = scraping([f"{server.base}/metrics"], Path("/dev/full"))
    awaited_problem(scraper)
    assert scraper.info.problem == "the process that reads the server's metrics could not write server.jsonl"
    scraper.kill()


def awaited_problem(scraper: Scraper) -> None:
    """Look until the end of the process has been noticed; read() would do so too, but never ends with /dev/full."""
    for _ in range(2000):
        if scraper.info.problem is not None:
            return
        scraper._notice()
        time.sleep(0.005)


def test_that_the_process_was_killed_is_said_once_and_noted(server: Server, tmp_path: Path) -> None:
    server.answers["/metrics"] = [answer(VLLM)]
    said: list[str] = []
    scraper = scraping([f"{server.base}/metrics"], tmp_path / "server.jsonl", say=said.append)
    wait_for(scraper, 1)
    assert scraper._child is not None
    os.kill(scraper._child.pid, signal.SIGKILL)
    awaited_problem(scraper)
    scraper.read()
    asyncio.run(scraper.stop())
    assert scraper.info.problem == "the process that reads the server's metrics was killed (signal 9)"
    assert said == [
        "warning: the process that reads the server's metrics was killed (signal 9); the run goes on without the "
        "server's own numbers"
    ]


def test_a_process_that_is_ended_with_the_run_is_no_problem(server: Server, tmp_path: Path) -> None:
    scraper = scraping([f"{server.base}/metrics"], tmp_path / "server.jsonl")
    scraper.kill()
    scraper.read()
    assert scraper.info.problem is None


def test_a_scraper_that_was_never_started_can_be_read_and_stopped(tmp_path: Path) -> None:
    scraper = Scraper(["http://127.0.0.1:1/metrics"], tmp_path / "server.jsonl", t0_s=0.0)
    assert scraper.read() == []
    asyncio.run(scraper.stop())
    assert scraper.info.problem is None


def test_what_was_in_the_file_before_and_half_a_line_are_not_handed_over(tmp_path: Path) -> None:
    out = tmp_path / "server.jsonl"
    scraper = Scraper([], out, t0_s=0.0)
    out.write_bytes(b'{"t_s":1.0,"url":"a","values":{"running":2}}\n{"t_s":2.0,"ur')
    assert scraper.read() == [Sample(1.0, "a", {"running": 2.0})]
    with out.open("ab") as file:
        file.write(b'l":"a","error":"timeout"}\nnot json\n')
    assert scraper.read() == [Sample(2.0, "a", error="timeout")]


# ---- on a jumping clock


def follow(fetch: Callable[[str], Awaitable[str]], urls: list[str], seconds: float) -> list[Sample]:
    """The samples of ``seconds`` of simulated time, one a second."""
    samples: list[Sample] = []

    async def go() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        loop.call_later(seconds, stop.set)
        await scrape_inline(fetch, urls, 1.0, loop.time, loop.time(), samples.append, stop)

    clock.run(go())
    return samples


def test_inline_it_scrapes_every_second_and_once_more_at_the_end() -> None:
    async def fetch(url: str) -> str:
        await asyncio.sleep(0.01)
        return f"vllm:num_requests_running {len(url)}\n"

    samples = follow(fetch, ["http://h/a", "http://h/bb"], 3.5)
    assert [round(s.t_s, 6) for s in samples if s.url == "http://h/a"] == [0.01, 1.01, 2.01, 3.01, 3.51]
    assert {s.url: dict(s.values) for s in samples} == {
        "http://h/a": {"running": 10.0},
        "http://h/bb": {"running": 11.0},
    }
    assert samples[0].cost_s == pytest.approx(0.01)


def test_inline_a_slow_page_times_out_and_is_left_alone_until_it_answers_again() -> None:
    async def fetch(url: str) -> str:
        if asyncio.get_running_loop().time() < 25.0:
            await asyncio.sleep(5.0)
        return "vllm:num_requests_running 1\n"

    samples = follow(fetch, ["http://h/m"], 34.5)
    assert [(round(s.t_s, 3), s.error) for s in samples[:5]] == [
        (0.8, "timeout"), (1.8, "timeout"), (2.8, "timeout"), (12.8, "timeout"), (22.8, "timeout"),
    ]  # fmt: skip
    assert [(round(s.t_s, 3), s.error) for s in samples[5:]] == [(32.0, None), (33.0, None), (34.0, None), (34.5, None)]


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (ConnectionRefusedError(), "ConnectionRefusedError"),
        (FetchFailed("http 404"), "http 404"),
        (ValueError("x"), "ValueError"),
    ],
)
def test_inline_a_failure_is_a_sample_with_its_reason(failure: Exception, words: str) -> None:
    async def fetch(url: str) -> str:
        raise failure

    assert [s.error for s in follow(fetch, ["http://h/m"], 1.5)] == [words] * 3
