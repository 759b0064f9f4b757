"""Pacing of the calls to a service: how many at the same time, how long to wait between attempts, and who makes the next one.

**Places.** Calls that deliver share MOST_CALLS places. Each is taken for one attempt, so that nobody waits for the pauses of others.

**Rate limits.** A service names the seconds for which it wants no call, about one conversation or at all.

**Outages.** A service that is out of reach is tried for ever: at most 10 s apart in the first minute, then with pauses that grow to a
minute. While it is out of reach, one call at a time finds out whether it is back, so that a thousand conversations do not all call at
the same time. It is another call each time: a message at which the service always fails must not decide whether it is back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Final, TypeVar

import trio

from actors import Signal
from pegasus.channels.service_contract import RateLimited, ServiceDown
from pegasus.retry import Pauses

T = TypeVar("T")

MOST_CALLS: Final = 16
"""Calls that deliver at the same time. Others wait for a place, in the order in which they came."""
STOP_GRACE: Final = 2.0
"""Seconds that calls under way may take when the adapter is stopped."""
SOON: Final = 10.0
"""Longest pause within the first minute, seconds."""
FIRST_MINUTE: Final = 60.0
LONGEST_PAUSE: Final = 60.0
"""Longest pause after it, seconds."""
TOLERATED: Final = 2
"""Failures in a row, of any calls, with which a service does not count as out of reach yet."""


class OutagePauses(Pauses):
    """Pauses between attempts to reach a service, shorter within the first minute."""

    def __init__(self, random: Random) -> None:
        super().__init__(0.5, SOON, random)
        self._since = 0.0
        """Trio's clock at the first failure in a row."""

    def next(self) -> float:
        """Count a failure; return the seconds until the next attempt."""
        if not self.failures:
            self._since = trio.current_time()
        self.limit = SOON if trio.current_time() - self._since < FIRST_MINUTE else LONGEST_PAUSE
        return super().next()


async def try_for(seconds: float, attempt: Callable[[], Awaitable[T]], random: Random) -> T:
    """Return what `attempt` returns, tried again so long after ServiceDown and RateLimited, the last of which is raised."""
    pauses, give_up = OutagePauses(random), trio.current_time() + seconds
    while True:
        try:
            return await attempt()
        except (ServiceDown, RateLimited):
            pause = pauses.next()
            if trio.current_time() + pause > give_up:
                raise
        await trio.sleep(pause)


class ServiceCalls:
    """Makes calls to one service, each when it is allowed, until they get an answer."""

    def __init__(self, random: Random, on_change: Callable[[str], None] = lambda reason: None) -> None:
        """Take the service for reachable. on_change: called with the reason when it is out of reach, and with "" when it is back."""
        self._random = random
        self._on_change = on_change
        self._failures = 0
        """Failures in a row, of any calls."""
        self._pauses = OutagePauses(random)
        self._next_attempt = 0.0
        """Trio's clock from which on the service may be tried, while it is out of reach."""
        self._turn = trio.Lock()
        """Held by the call that tries while the service is out of reach. It is fair, so that the calls take turns."""
        self._is_back = Signal()
        self._places = trio.CapacityLimiter(MOST_CALLS)
        self._all_quiet_until = 0.0
        """Trio's clock until which the service wants no call at all."""
        self._quiet_until: dict[str, float] = {}
        """By channelId, Trio's clock until which it wants no call about a conversation."""

    # ---------------------------------------------------------------- outages

    @property
    def is_down(self) -> bool:
        """True while the service is out of reach."""
        return self._failures > TOLERATED

    async def call(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return what `attempt` returns, trying again as long as it raises ServiceDown. Other errors are passed on.

        Cancelled, the last attempt may or may not have reached the service.
        """
        own = OutagePauses(self._random)
        while True:
            try:
                return await self._try(attempt)
            except ServiceDown:
                with trio.move_on_after(own.next()):
                    await self._is_back.wait()

    async def _try(self, attempt: Callable[[], Awaitable[T]]) -> T:
        if self.is_down:
            async with self._turn:
                if self.is_down:
                    await trio.sleep_until(self._next_attempt)
                    return await self._attempt(attempt)
        return await self._attempt(attempt)

    async def _attempt(self, attempt: Callable[[], Awaitable[T]]) -> T:
        try:
            result = await attempt()
        except ServiceDown as error:
            self._failures += 1
            if self.is_down:
                self._next_attempt = trio.current_time() + self._pauses.next()
                self._on_change(str(error))
            raise
        except Exception:  # a refusal is an answer, too
            self._note_answer()
            raise
        self._note_answer()
        return result

    def _note_answer(self) -> None:
        was_down, self._failures = self.is_down, 0
        self._pauses.reset()
        if was_down:
            self._on_change("")
            self._is_back.notify()

    # ---------------------------------------------------------------- limits and places

    async def deliver(self, channel_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return what a call about a conversation returns, tried again through outages and rate limits.

        Raises what else `attempt` raises: ReplyRefused and CredentialsRefused.
        """

        async def in_place() -> T:
            """Make the call when there is a place for it."""
            async with self._places:
                return await attempt()

        while True:
            if (due := self.allowed_at(channel_id)) > trio.current_time():
                await trio.sleep_until(due)
                continue  # another limit may be in force by then
            try:
                return await self.call(in_place)
            except RateLimited as limit:
                self.obey(channel_id, limit)

    def allowed_at(self, channel_id: str) -> float:
        """Return Trio's clock from which on a call about a conversation is allowed."""
        return max(self._all_quiet_until, self._quiet_until.get(channel_id, 0.0))

    def obey(self, channel_id: str, limit: RateLimited) -> None:
        """Note a limit that the service has answered a call about a conversation with."""
        now = trio.current_time()
        if limit.for_all:
            self._all_quiet_until = max(self._all_quiet_until, now + limit.seconds)
        else:
            self._quiet_until = {id: until for id, until in self._quiet_until.items() if until > now}
            self._quiet_until[channel_id] = now + limit.seconds

    def begin(self) -> None:
        """Begin a run of the adapter: all places are free. Limits outlive a run."""
        self._places = trio.CapacityLimiter(MOST_CALLS)

    async def finish(self) -> None:
        """Wait until calls under way have ended, so that a stop repeats nothing at the next start. No call begins behind it."""
        with trio.move_on_after(STOP_GRACE):
            for _ in range(MOST_CALLS):
                await self._places.acquire_on_behalf_of(object())
