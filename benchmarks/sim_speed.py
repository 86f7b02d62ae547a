"""What a simulated ramp costs in CPU time: nine minutes to overload, straight to a table.

    python benchmarks/sim_speed.py

Prints one line a scenario: requests, tokens, CPU seconds of the engine and of making the table.
"""

import platform
import time
from dataclasses import replace

import numpy as np
from engine_population import Lengths, capacity_rps, random_profile
from offline_engine import Offline

from loadramp.simulator.profiles import PROFILES, EngineProfile

STEP_S = 77.0
COMPUTE = EngineProfile(name="compute", max_num_seqs=256, token_budget=2048, kv_blocks=27_000)


def ramp(profile: EngineProfile, lengths: Lengths, ceiling_rps: float) -> tuple[int, int, float, float]:
    """Seven octaves that end at about 1.5 times the ceiling. Returns requests, tokens, engine and table CPU seconds."""
    rng = np.random.default_rng(0)
    begun = time.process_time()
    offline = Offline(profile, rng)
    for step in range(7):
        rate = 1.5 * ceiling_rps / 2 ** (6 - step)
        due_s = step * STEP_S + np.sort(rng.uniform(0.0, STEP_S, rng.poisson(rate * STEP_S)))
        offline.offer(due_s, *lengths.draw(rng, len(due_s)), step)
        offline.run((step + 1) * STEP_S)
    engine_s = time.process_time() - begun
    table = offline.table()
    return len(table), len(table.event_s), engine_s, time.process_time() - begun - engine_s


def main() -> None:
    print(f"{platform.machine()}, Python {platform.python_version()}, {7 * STEP_S / 60:.0f} simulated minutes")
    print(f"{'scenario':22}{'ceiling':>9}{'requests':>10}{'tokens':>11}{'engine s':>10}{'table s':>9}")
    chat = Lengths(500, 0.6, 200, 0.6, prompt_max=2500, output_max=1200)
    cases = [("compute", COMPUTE, Lengths(400, 0.6, 150, 0.6, prompt_max=2500, output_max=1200))]
    cases += [(name, PROFILES[name], chat) for name in PROFILES if name != "cpu-tiny"]
    cases.append(("with a draft of 3", replace(PROFILES["h100-8b"], draft_tokens=3), chat))
    cases += [(f"population {i}", *random_profile(np.random.default_rng(i))) for i in range(5)]
    for name, profile, lengths in cases:
        ceiling_rps = capacity_rps(profile, lengths, np.random.default_rng(1), 3000)
        requests, tokens, engine_s, table_s = ramp(profile, lengths, ceiling_rps)
        print(f"{name:22}{ceiling_rps:9.1f}{requests:10}{tokens:11}{engine_s:10.2f}{table_s:9.2f}")


if __name__ == "__main__":
    main()
