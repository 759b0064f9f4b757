"""Retries of what fails for a while: a full disk, an actor that is being restarted, a service out of reach. On Trio and on asyncio.

The pause after the n-th failure in a row is `min(first * 2 ** (n - 1), limit)` seconds, less up to a fifth at random where `random` is
given. With the defaults the first three are 0.2, 0.4 and 0.8 s, and from the eighth on each is 15 s. The random part keeps clients
that lost the same server from coming back at the same moment; an actor that waits for its own disk needs none.

There is no last attempt. A caller who gives up raises another error from `attempt`, or is cancelled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import TypeVar

T = TypeVar("T")


def growing(first: float, limit: float, failures: int) -> float:
    """Return the pause after so many failures in a row, 1 or more, without its random part."""
    return min(first * 2.0 ** min(failures - 1, 60), limit)  # years of failures must not overflow a float


class Pauses:
    """Pauses of one user: `next` after each failure, `reset` after a success."""

    def __init__(self, first: float = 0.2, limit: float = 15.0, random: Random | None = None) -> None:
        self.first, self.limit, self._random = first, limit, random
        self.failures = 0
        """Failures in a row."""

    def next(self) -> float:
        """Count a failure; return the seconds until the next attempt."""
        self.failures += 1
        return growing(self.first, self.limit, self.failures) * (
            self._random.uniform(0.8, 1.0) if self._random else 1.0
        )

    def reset(self) -> None:
        """Note a success."""
        self.failures = 0


async def retry(
    attempt: Callable[[], Awaitable[T]],
    errors: type[Exception] | tuple[type[Exception], ...],
    on_failure: Callable[[Exception, float], None] = lambda error, seconds: None,
) -> T:
    """Return what `attempt` returns, made again after a pause each time it raises one of `errors`. Other errors are passed on.

    on_failure: called with the error and the seconds until the next attempt, for the log. Cancelled: as `attempt`.
    """
    pauses = Pauses()
    while True:
        try:
            return await attempt()
        except errors as error:
            seconds = pauses.next()
            on_failure(error, seconds)
        import anyio

        await anyio.sleep(seconds)


def requested_pause(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return the seconds of a `Retry-After` header; None where there is none or it makes no sense.

    The header may be a number or a date. A date is compared with the server's own `Date`, because the clocks may differ.
    now: the wall clock in seconds, for a server that is compared with this one.
    """
    value = headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    # Imported late: it is a hundredth of each start, for a form of the header that few servers use.
    from email.utils import parsedate_to_datetime

    try:
        if now is None:
            now = parsedate_to_datetime(headers.get("date", "")).timestamp()
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError):  # a date that no calendar has
        return None
