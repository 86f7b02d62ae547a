"""The simulator as a server of its own: what ``simulate`` runs and ``demo`` starts beside itself."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, replace
from typing import Any

from loadramp.registry import CannotMeasure, ScenarioError, bind_options
from loadramp.simulator.faults import Faults
from loadramp.simulator.profiles import PROFILES, EngineProfile
from loadramp.simulator.server import serve

SERVING = "serving "


LIMITS = ("max_queue", "max_in_flight")
"""Limits of the engine that ``--fault`` sets, too: it refuses what is beyond."""


def limits_of(faults: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The engine's limits among ``KEY=VALUE`` faults, and the others.

    Raises:
        ScenarioError: a limit is no whole number of at least 1.
    """
    limits: dict[str, Any] = {}
    others = []
    for fault in faults:
        key, _, value = fault.partition("=")
        if key.strip() not in LIMITS:
            others.append(fault)
            continue
        if not value.strip().isdecimal() or int(value) < 1:
            raise ScenarioError(f"--fault {key.strip()}: expected a whole number of at least 1; got {value.strip()!r}")
        limits[key.strip()] = int(value)
    return limits, others


FLAGS = {
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "token_budget",
    "num_gpu_blocks_override": "kv_blocks",
    "max_model_len": "max_model_len",
    "enable_chunked_prefill": "chunked_prefill",
}
"""Flags of an engine, as vLLM spells them, and what they are called in a profile."""


def with_flags(engine: EngineProfile, flags: Mapping[str, Any]) -> EngineProfile:
    """``engine`` as these flags change it; None: as it was. ``kv_cache_dtype`` other than ``auto`` holds twice the
    tokens in the memory of the profile; a number of blocks that is asked for stays what it is.

    Raises:
        ScenarioError: limits that no engine would start with.
    """
    changed = {field: flags[flag] for flag, field in FLAGS.items() if flags.get(flag) is not None}
    if flags.get("kv_cache_dtype", "auto") != "auto":
        changed.setdefault("kv_blocks", 2 * engine.kv_blocks)
    try:
        return replace(engine, **changed)
    except ValueError as error:
        given = ", ".join(f"--{flag.replace('_', '-')} {flags[flag]}" for flag in FLAGS if flags.get(flag) is not None)
        raise ScenarioError(f"{given}: {error}") from None


def simulate(
    host: str,
    port: int,
    profile: str,
    model: str,
    adapters: Sequence[str],
    seed: int,
    faults: Sequence[str],
    api_key_env: str | None,
    flags: Mapping[str, Any],
    say: Callable[[str], None],
) -> None:
    """Serve until interrupted. ``flags`` are those of ``with_flags``.

    Raises:
        ScenarioError: no such profile or fault, or flags that do not fit together.
        OSError: the address is taken.
    """
    if profile not in PROFILES:
        raise ScenarioError(f"--profile: no {profile!r}; there are {', '.join(sorted(PROFILES))}")
    limits, others = limits_of(faults)
    engine, wrong = with_flags(replace(PROFILES[profile], **limits), flags), faults_of(others)
    key = None
    if api_key_env is not None:
        key = os.environ.get(api_key_env)
        if not key:
            raise ScenarioError(f"--api-key-env: the variable {api_key_env} is not set")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ended.set)
        server = await serve(engine, host, port, faults=wrong, model=model, adapters=adapters, seed=seed, api_key=key)
        shown = f"[{host}]" if ":" in host else host
        say(f"{SERVING}http://{shown}:{server.port} (profile {profile}, model {model})")
        sys.stdout.flush()
        await ended.wait()
        await server.close()

    if sys.platform == "win32":
        asyncio.run(main())
    else:
        import uvloop

        uvloop.run(main())


def faults_of(settings: Sequence[str]) -> Faults:
    """``["error_ratio=0.1", "no_done=true"]`` as Faults; the values are typed as in a scenario."""
    import tomllib

    table: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ScenarioError(f"--fault {setting}: expected KEY=VALUE")
        try:
            table[key.strip()] = tomllib.loads(f"v = {value}")["v"]
        except tomllib.TOMLDecodeError:
            table[key.strip()] = value
    return Faults(**bind_options(table, Faults, "--fault"))


def listing() -> str:
    """The names that --profile and --fault take."""
    lines = ["profiles:", *(f"  {name}" for name in PROFILES), "faults (KEY=VALUE):", *(f"  {name}" for name in LIMITS)]
    lines += [f"  {field.name} = {field.default!r}" for field in fields(Faults)]
    return "\n".join(lines)


def simulator() -> AbstractContextManager[str]:
    """A simulated server in a process of its own, so that it and the client do not share a core's turn; as its URL."""
    return _serving("loadramp", "simulate", "--port", "0")


def null_server() -> AbstractContextManager[str]:
    """The null server (simulator.null_server) in a process of its own; as its URL."""
    return _serving("loadramp.simulator.null_server")


@contextmanager
def _serving(module: str, *arguments: str) -> Iterator[str]:
    """``python -m module`` for as long as the context lasts; it says on its first line where it serves.

    Raises:
        CannotMeasure: it did not start.
    """
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:  # noqa: S603 (own command)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith(SERVING):
                raise CannotMeasure(f"python -m {module} did not start")
            yield line.split()[1]
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
