"""Simulated time: exact, instant, and honest about waiting for nothing."""

import asyncio
import time

import pytest
import simulated_time as clock


def test_an_hour_of_sleep_takes_no_time_and_ends_at_exactly_its_instant() -> None:
    async def sleeper() -> float:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        loop.call_at(0.1 + 3600.0, done.set_result, None)
        await done
        return loop.time()

    begun = time.monotonic()
    assert clock.run(sleeper()) == 0.1 + 3600.0
    assert time.monotonic() - begun < 30


def test_timers_fire_in_order_each_at_its_own_time() -> None:
    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        seen: list[tuple[str, float]] = []

        async def tick(name: str, period_s: float) -> None:
            for _ in range(3):
                await asyncio.sleep(period_s)
                seen.append((name, loop.time()))

        await asyncio.gather(tick("a", 1.0), tick("b", 1.5))
        return seen

    expected = [("a", 1.0), ("b", 1.5), ("a", 2.0), ("b", 3.0), ("a", 3.0), ("b", 4.5)]
    assert clock.run(main()) == expected
    assert clock.run(main()) == expected


def test_a_cancelled_timer_neither_fires_nor_hides_a_deadlock() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(5.0, print, "never").cancel()
        await asyncio.get_running_loop().create_future()

    with pytest.raises(clock.DeadlockError, match=r"main"):
        clock.run(main())


def test_waiting_for_what_cannot_happen_is_an_error_that_names_who_waits() -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(clock.DeadlockError, match=r"nothing is scheduled at 0\.0+ s .*waits_for_ever"):
        clock.run(waits_for_ever())


def test_time_outs_and_cancellation_work_in_simulated_time() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(100), timeout=7.5)
        return asyncio.get_running_loop().time()

    assert clock.run(main()) == 7.5


def test_the_result_and_the_exception_of_the_program_come_through() -> None:
    async def fails() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        clock.run(fails())
