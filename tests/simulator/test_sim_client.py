"""The measuring client against the simulator with no socket between: what it records is what the engine did."""

import asyncio

import numpy as np
import simulated_time as clock
from memory_pipe import connect_in_memory

from benchmarks.offline_engine import simulate
from loadramp.client.endpoint import endpoint_of
from loadramp.client.http.sockets import ConnectFailed
from loadramp.client.measuring_client import MeasuringClient
from loadramp.record.table import Table
from loadramp.record.types import Arrival, Prompt, Record
from loadramp.scenario.scenario import Target
from loadramp.simulator.faults import Faults
from loadramp.simulator.profiles import PROFILES
from loadramp.simulator.service import Service


def measured(due_s: np.ndarray, prompt: np.ndarray, output: np.ndarray, faults: Faults | None = None) -> Table:
    """Records of the real client, one request each at ``due_s`` of simulated time."""

    async def main() -> list[Record]:
        service = Service(PROFILES["small"], seed=4, faults=faults)
        loop = service.loop
        target = Target(base_url="http://127.0.0.1:1", model="sim")
        connect = connect_in_memory(service, refused=lambda kind, detail: ConnectFailed("connect", detail))
        client = MeasuringClient(target, endpoint_of(target, {}), "sim", connect=connect, clock=loop.time, t0_s=0.0)

        async def one(i: int) -> Record:
            arrival = Arrival(i, 0, float(due_s[i]), Prompt(int(prompt[i]), int(output[i])))
            request = client.prepare(arrival, " ".join(f"w{i}-{k}" for k in range(int(prompt[i]))))
            due = loop.create_future()
            loop.call_at(float(due_s[i]), due.set_result, None)
            await due
            return await client.send(arrival, request)

        records = await asyncio.gather(*(one(i) for i in range(len(due_s))))
        await client.close()
        return records

    return Table.of(clock.run(main()))


def test_the_client_records_the_engines_instants_to_the_bit() -> None:
    rng = np.random.default_rng(2)
    due_s = np.sort(rng.uniform(0, 20, 200))
    prompt, output = rng.integers(1, 400, 200), rng.integers(1, 100, 200)
    table = measured(due_s, prompt, output)
    expected, _ = simulate(PROFILES["small"], due_s, prompt, output, np.random.default_rng(4).spawn(1)[0])
    assert table.event_s.tobytes() == expected.event_s.tobytes()
    assert (table.status == "ok").all()
    assert table.prompt_tokens.tolist() == prompt.tolist()
    assert set(table.token_source) == {"continuous"}
    assert table.sent_s.tolist() == due_s.tolist()


def test_faults_become_the_error_kinds_of_records() -> None:
    def kinds(faults: Faults) -> set[str]:
        table = measured(np.arange(4.0), np.full(4, 10), np.full(4, 20), faults)
        return set(table.error)

    assert kinds(Faults(error_ratio=1, error_status=503)) == {"http_5xx"}
    assert kinds(Faults(error_ratio=1, error_status=429)) == {"http_429"}
    assert kinds(Faults(in_band_ratio=1, in_band_tokens=2)) == {"in_band"}
    assert kinds(Faults(reset_ratio=1)) == {"reset"}
    assert kinds(Faults(truncate_ratio=1)) == {"truncated"}
    assert kinds(Faults(crash_at_s=0.5, crash_kind="process")) == {"", "connect"}
    assert kinds(Faults(no_done=True, no_usage=True, early_role=True, keepalive_s=0.01)) == {""}
