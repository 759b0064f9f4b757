"""Retries: the pauses grow as the policy says, on both event loops, and only the named errors are tried again."""

from random import Random

import anyio
import pytest
import trio

from pegasus.retry import Pauses, requested_pause, retry


def test_pauses_double_up_to_the_limit_and_begin_anew_after_a_success():
    pauses = Pauses()
    assert [pauses.next() for _ in range(9)] == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15.0, 15.0])
    pauses.reset()
    assert pauses.next() == 0.2


def test_years_of_failures_stay_at_the_limit():
    pauses = Pauses(0.5, 30.0)
    pauses.failures = 10**9
    assert pauses.next() == 30.0


def test_the_random_part_takes_up_to_a_fifth():
    pauses = Pauses(10.0, 10.0, Random(1))
    seen = [pauses.next() for _ in range(1000)]
    assert 8.0 <= min(seen) < 8.1
    assert 9.9 < max(seen) <= 10.0


async def test_an_attempt_is_made_until_it_succeeds(autojump_clock):
    failures, told = [OSError("full"), OSError("still full")], []

    async def attempt() -> float:
        if failures:
            raise failures.pop(0)
        return trio.current_time()

    started = trio.current_time()
    assert await retry(
        attempt, OSError, lambda error, seconds: told.append((str(error), seconds))
    ) - started == pytest.approx(0.6)
    assert told == [("full", 0.2), ("still full", 0.4)]


async def test_other_errors_end_it(autojump_clock):
    async def attempt() -> None:
        raise ValueError("never better")

    with pytest.raises(ValueError, match="never better"):
        await retry(attempt, (OSError, KeyError))


def test_it_runs_on_asyncio():
    attempts = []

    async def attempt() -> int:
        attempts.append(1)
        if len(attempts) < 2:
            raise OSError
        return len(attempts)

    async def run() -> int:
        return await retry(attempt, OSError)

    assert anyio.run(run, backend="asyncio") == 2


def test_a_date_that_no_calendar_has_is_no_wish_for_a_pause():
    today = "Mon, 23 Nov 2026 00:00:00 GMT"
    for date in ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", f"{today[:-3]}+99999999999999999999"):
        assert requested_pause({"retry-after": date, "date": today}) is None
    assert requested_pause({"retry-after": "Mon, 23 Nov 2026 00:00:09 GMT", "date": today}) == 9
