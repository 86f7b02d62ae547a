"""The timer wakes at the instant, not a millisecond grid after it."""

import asyncio
import time

import numpy as np
import pytest

from loadramp.client.timer import Timer


@pytest.mark.parametrize("precise", [True, False])
def test_it_never_wakes_early_and_returns_at_once_for_the_past(precise: bool) -> None:
    async def main() -> list[float]:
        timer = Timer(time.monotonic, precise)
        late_s = []
        begin_s = time.monotonic()
        for k in range(40):
            due_s = begin_s + 0.0013 * k
            await timer.until(due_s)
            late_s.append(time.monotonic() - due_s)
        await timer.until(begin_s - 5.0)
        timer.close()
        timer.close()
        return late_s

    late_s = asyncio.run(main())
    assert min(late_s) > -1e-4
    assert np.median(late_s) < 0.05


def test_other_tasks_run_while_one_is_overdue() -> None:
    async def main() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        task = asyncio.create_task(other())
        timer = Timer(time.monotonic)
        for _ in range(10):
            await timer.until(0.0)
        timer.close()
        task.cancel()
        return turns

    assert asyncio.run(main()) >= 9
