"""Starts and ends a real vLLM on the CPU: loopback only, ended by its own process ids, nothing sent home."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
HOME = Path(os.environ.get("LOADRAMP_REAL_VLLM", Path.home() / ".cache" / "loadramp" / "real-vllm"))
READY_LIMIT_S = 300


def install() -> None:
    """Build the environment and the model unless they are there from an earlier use."""
    HOME.mkdir(parents=True, exist_ok=True)
    subprocess.run([str(HERE / "install.sh"), str(HOME)], check=True)


@contextmanager
def serving(port: int, *options: str, core: int = 0) -> Iterator[str]:
    """The base URL of a running vLLM, model name ``tiny``, pinned to one core so that the client keeps the other."""
    install()
    process = start(port, *options, core=core)
    try:
        _wait(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        end(process)


def start(port: int, *options: str, core: int = 0) -> subprocess.Popen[bytes]:
    """Start a vLLM and do not wait until it is ready; its log is added to."""
    command = [*command_of(str(port), core), *options]
    with (HOME / f"vllm-{port}.log").open("ab") as log:
        return subprocess.Popen(command, env=environment(), stdout=log, stderr=log, start_new_session=True)


def environment() -> dict[str, str]:
    """Variables with which a vLLM stays on this machine and its CPU."""
    return {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_LOOPBACK_IP": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
        "VLLM_CACHE_ROOT": str(HOME / "cache"),
        "TORCHINDUCTOR_CACHE_DIR": str(HOME / "cache" / "inductor"),
    }


def command_of(port: str, core: int = 0) -> list[str]:
    """The words that start a vLLM on one core."""
    return [
        "taskset", "-c", str(core), str(HOME / "venv/bin/vllm"), "serve", str(HOME / "model"),
        "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", port, "--dtype", "float32",
        "--max-model-len", "2048", "--enforce-eager", "--distributed-executor-backend", "uni",
    ]  # fmt: skip


def kill(pid: int) -> None:
    """SIGKILL for a server and the engine processes it started, at once: what a kernel out of memory does."""
    for one in (*descendants(pid), pid):
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(READY_LIMIT_S * 4):
        assert process.poll() is None, f"vLLM ended; see {HOME}/vllm-{port}.log"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                return
        except OSError:
            time.sleep(0.25)
    raise TimeoutError(f"vLLM not ready after {READY_LIMIT_S} s; see {HOME}/vllm-{port}.log")


def end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then SIGKILL, for the server and the engine processes it started (they outlive a killed server)."""
    family = [process.pid, *descendants(process.pid)]
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pid in family[1:]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def descendants(pid: int) -> Sequence[int]:
    """Process ids below ``pid``, from /proc."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    if not children.is_file():
        return []
    direct = [int(word) for word in children.read_text().split()]
    return [*direct, *(below for child in direct for below in descendants(child))]
