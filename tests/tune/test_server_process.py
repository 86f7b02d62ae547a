"""Servers started, waited for and stopped, with real processes on loopback that fail in the ways real ones do."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from loadramp.registry import ScenarioError
from loadramp.runner.scenarios import load
from loadramp.scenario.scenario import Scenario
from loadramp.tune import guard
from loadramp.tune.causes import cause_of, ending, failure_words
from loadramp.tune.server_process import DidNotStartError, ServerProcess, check_commands

FLAGGED = Path(__file__).with_name("flagged_server.py")
SERVER = f'"{sys.executable}" "{FLAGGED}" --port {{port}} {{flags}}'
PATIENT_S = 60.0


def scenario() -> Scenario:
    return load('[prompts]\nkind = "fixed"\n')


async def with_server(
    tmp_path: Path,
    use: Callable[[ServerProcess], Awaitable[None]],
    *,
    template: str = SERVER,
    stop_s: float = PATIENT_S,
) -> None:
    server = ServerProcess(template, "", tmp_path / "logs", PATIENT_S, stop_s, lambda _: None, asyncio.Event())
    try:
        await use(server)
    finally:
        await server.end()


def flags_of(server: ServerProcess) -> dict[str, int]:
    with urllib.request.urlopen(f"{server.base_url}/flags", timeout=20) as reply:
        told: dict[str, int] = json.loads(reply.read())
    return told


def gone(pid: int, within_s: float = 20.0) -> bool:
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_flags_of_sglang_and_of_llama_server_reach_the_server(tmp_path: Path) -> None:
    async def use(server: ServerProcess) -> None:
        assert await server.start("--max-running-requests 48", scenario(), "one") > 0.0
        assert flags_of(server) == {"max_running_requests": 48, "parallel": 0}
        await server.start("--parallel 8", scenario(), "two")
        assert flags_of(server) == {"max_running_requests": 0, "parallel": 8}
        assert server.flags == "--parallel 8"

    asyncio.run(with_server(tmp_path, use))
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["one.log", "two.log"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--max-nun-seqs 1", r"did not start: unknown flag \(exit code 2\); its log: .*--max-nun-seqs"),
        ("--ctx-size 999999", r"did not start: out of memory \(exit code 1\); its log: error: failed to allocate"),
        ("--model other", r"did not start: wrong checkpoint \(exit code 1\)"),
        ("--parallel many", r"did not start: a value that the flag does not take \(exit code 2\)"),
    ],
)
def test_a_flag_that_does_not_start_is_told_with_cause_code_and_last_line(
    flags: str, words: str, tmp_path: Path
) -> None:
    async def use(server: ServerProcess) -> None:
        with pytest.raises(DidNotStartError, match=words):
            await server.start(flags, scenario(), "one")

    asyncio.run(with_server(tmp_path, use))


def test_a_command_that_is_not_there_is_told(tmp_path: Path) -> None:
    async def use(server: ServerProcess) -> None:
        with pytest.raises(DidNotStartError, match=r"the command is not there \(exit code 127\).*No such file"):
            await server.start("", scenario(), "one")

    asyncio.run(with_server(tmp_path, use, template="/nowhere/vllm --port {port} {flags}"))


def test_a_server_that_dies_under_load_is_seen_at_once(tmp_path: Path) -> None:
    async def use(server: ServerProcess) -> None:
        await server.start("--dies-after 1.5", scenario(), "one")
        await asyncio.wait_for(server.ended(), PATIENT_S)
        assert str(server.died()).startswith("died: out of memory (exit code 1); its log: torch.OutOfMemoryError")

    asyncio.run(with_server(tmp_path, use))


def test_a_server_that_does_not_end_is_killed_with_all_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child"

    async def use(server: ServerProcess) -> None:
        await server.start(f"--stubborn --child {child}", scenario(), "one")
        await server.end()
        assert gone(int(child.read_text()))

    asyncio.run(with_server(tmp_path, use, stop_s=0.3))


def test_a_server_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    child = tmp_path / "child"
    words = [
        sys.executable,
        "-c",
        f"import os, time; open({str(child)!r}, 'w').write(str(os.getpid())); time.sleep(300)",
    ]
    holder = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-P', *sys.argv[1:]], stdin=subprocess.PIPE)\n"
        "time.sleep(300)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", holder, guard.__file__, "5", str(tmp_path / "log"), *words])
    try:
        end_s = time.monotonic() + PATIENT_S
        while time.monotonic() < end_s and not (child.is_file() and child.read_text()):
            time.sleep(0.05)
        parent.send_signal(signal.SIGKILL)
        assert gone(int(child.read_text()))
    finally:
        parent.kill()
        parent.wait()


def test_a_command_that_switches_gets_the_flags_and_its_failure_is_a_result(tmp_path: Path) -> None:
    told = tmp_path / "told"
    code = (
        f"import os, sys; open({str(told)!r}, 'w').write(os.environ['LOADRAMP_FLAGS'] + '|' + sys.argv[1]); sys.exit(3)"
    )

    async def run() -> None:
        switch = f'"{sys.executable}" -c "{code}" {{flags}}'
        server = ServerProcess("", switch, tmp_path, 60.0, 1.0, lambda _: None, asyncio.Event(), base_url="http://x:1")
        with pytest.raises(DidNotStartError, match="exit code 3"):
            await server.start("--n 1", scenario(), "one")

    asyncio.run(run())
    assert told.read_text() == "--n 1|--n 1"


@pytest.mark.parametrize(
    ("server", "switch", "base_url", "words"),
    [
        ("", "", None, "exactly one of them"),
        ("a {port}", "b", "http://x", "exactly one of them"),
        ("vllm serve m", "", None, r"write \{port\} where its port goes"),
        ("", "kubectl x", None, "--base-url must name the endpoint"),
        ("'vllm {port}", "", None, "No closing quotation"),
    ],
)
def test_commands_that_cannot_be_used_are_refused_before_anything_starts(
    server: str, switch: str, base_url: str | None, words: str
) -> None:
    with pytest.raises(ScenarioError, match=words):
        check_commands(server, switch, ["--n 1"], base_url)


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "out of memory"),
        ("ValueError: No available memory for the cache blocks.", "out of memory"),
        ("ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory", "out of memory"),
        ("vllm: error: unrecognized arguments: --max-nun-seqs 3", "unknown flag"),
        ("error: invalid argument: --paralel", "unknown flag"),
        ("OSError: x does not appear to have a file named config.json", "wrong checkpoint"),
        (
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n  Value error, Invalid "
            "repository ID or local directory specified: '/models/x'.",
            "wrong checkpoint",
        ),
        (
            "1 validation error for SchedulerConfig\n  Value error, max_num_seqs must be greater than 0",
            "a value that the flag does not take",
        ),
        (
            "ImportError: libnccl.so.2: cannot open shared object file: No such file or directory",
            "a file or a library that it needs is not there",
        ),
        ("[Errno 98] error while attempting to bind: address already in use", "port in use"),
        ("RuntimeError: No CUDA GPUs are available", "no GPU, or its driver fails"),
        ("INFO 01-02 03:04:05 [pynccl.py:111] vLLM is using nccl==2.27.5 (no error)\na line that says nothing", ""),
    ],
)
def test_what_servers_say_when_they_fail_is_known(log: str, cause: str) -> None:
    assert cause_of(log, 1) == cause


def test_the_line_that_tells_the_cause_is_shown_and_not_the_last_one() -> None:
    log = "Trace\n1 validation error for ModelConfig\n  Value error, max_model_len is too large\n    For more see URL\n"
    assert failure_words("did not start", log, 1) == (
        "did not start: a value that the flag does not take (exit code 1); its log: 1 validation error for ModelConfig "
        "Value error, max_model_len is too large"
    )
    assert failure_words("died", "all was well\n", 1) == "died: cause not known (exit code 1); its log: all was well"


def test_a_process_that_was_killed_without_a_word_may_have_run_out_of_memory() -> None:
    assert cause_of("", 137).startswith("killed")
    assert ending(137) == "exit code 137 (killed)"
