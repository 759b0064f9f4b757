"""Transactions of the engine: made again while the database is down, a bounded number at once, and in order where order counts.

A transaction may be repeated (see `tables`), so an answer that is lost, a broken connection and a database that is being restarted
are the same: the call is made again after a pause, until it has an answer or nobody wants it any more. So nothing is lost while the
database is down, it only waits.

Everything that was asked about one owner key is done in the order in which it was asked. What concerns different keys goes on side by
side: the chats of a node do not wait for one another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from typing import Final, TypeVar

import trio

from pegasus.observe import Activity, get_logger
from pegasus.retry import Pauses
from pegasus.storage.database.tables import DatabaseDown
from pegasus.storage.record_log import Report

T = TypeVar("T")

BEFORE_REPEAT: Final[ContextVar[Callable[[], object]]] = ContextVar("BEFORE_REPEAT", default=lambda: None)
"""Function of a task that is called before a call of that task is repeated. It raises if nobody wants the answer any more."""

NO_ANSWER: Final = "the database does not answer"
"""Sentence for whoever asks for the state of the process. The error itself is for owners: it names machines and users."""
AT_ONCE: Final = 32
"""Transactions that run at once. More would only wait for each other within the database."""
FIRST_PAUSE: Final = 0.1
"""Seconds after the first failure of a call."""
LONGEST_PAUSE: Final = 1.0
"""Seconds after many failures. It is short beside the lease of a node, which must be renewed soon after the database is back."""
QUIET: Final = 5.0
"""Seconds without a failure after which the log says that the database answers again."""

_log = get_logger("journal")


class DatabaseCalls:
    """Calls that are repeated while the database is down. That is reported once, however many wait."""

    def __init__(self, report: Report, activity: Activity) -> None:
        self._report = report
        self._activity = activity
        self._limiter = trio.CapacityLimiter(AT_ONCE)
        self._is_reported = False
        """True if the log says that the database is down, and not yet that it answers again."""
        self._failed_at = 0.0
        """Trio's clock at the last failure."""
        self._failing = 0
        """Calls whose last attempt has failed, and which are made again."""
        self.is_ending = False
        """Calls are not repeated any more: the process ends."""

    async def until_done(self, call: Callable[[], Awaitable[T]], *, waits: bool = True, counts: bool = True) -> T:
        """Return what a call returns, made again while it raises DatabaseDown. Other errors are passed on.

        waits: False = it does not wait for other calls, of which there may be many. counts: False = it is no transaction.
        Raises DatabaseDown at the end of the process, and what `BEFORE_REPEAT` raises.
        """
        pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE)
        is_failing = False
        try:
            while True:
                began = trio.current_time()
                try:
                    if not waits:
                        result = await call()
                    else:
                        async with self._limiter:
                            result = await call()
                except DatabaseDown as error:
                    if counts:
                        self._activity.transaction_ended(trio.current_time() - began, "down")
                    self._failing += not is_failing
                    is_failing = True
                    self.note_failure(error)
                    BEFORE_REPEAT.get()()
                    if self.is_ending:
                        raise
                else:
                    if counts:
                        self._activity.transaction_ended(trio.current_time() - began)
                    break
                await trio.sleep(pauses.next())
        finally:
            self._failing -= is_failing
        self._note_success()
        return result

    def note_failure(self, error: DatabaseDown) -> None:
        """Report that the database is down, unless that is known."""
        self._failed_at = trio.current_time()
        if not self._is_reported:
            self._is_reported = True
            self._report(f"{error}; nothing is lost, and everything waits until the database answers")
            self._activity.failed("database", "down")
        self._activity.waits_for, self._activity.reason = NO_ANSWER, str(error)

    def _note_success(self) -> None:
        # While it is read-only or its disk is full, each call that changes nothing succeeds.
        if self._is_reported and trio.current_time() > self._failed_at + QUIET:
            self._is_reported = False
            _log.info("the database answers again")
        if not self._failing:
            self._activity.waits_for = ""


class OrderedWork:
    """Pieces of work, each in a task of its own, in order for each key.

    >>> work = OrderedWork(nursery)
    >>> work.start(["chat/web%3Ac1"], partial(commit, first))
    >>> work.start(["chat/web%3Ac1"], partial(commit, second))    # begins when the first has ended
    >>> work.start(["task/t-1"], partial(commit, third))          # waits for nobody
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._latest: dict[str, trio.Event] = {}
        """For each key with work, the event that is set when the newest piece of it has ended."""

    def start(self, keys: Iterable[str], work: Callable[[], Awaitable[object]]) -> None:
        """Start a piece of work that begins when all earlier ones with one of these keys have ended."""
        ended, own = trio.Event(), tuple(dict.fromkeys(keys))
        before = [event for key in own if (event := self._latest.get(key)) is not None]
        self._latest.update(dict.fromkeys(own, ended))
        self._nursery.start_soon(self._run, before, own, ended, work)

    async def _run(
        self, before: list[trio.Event], keys: tuple[str, ...], ended: trio.Event, work: Callable[[], Awaitable[object]]
    ) -> None:
        try:
            for event in before:
                await event.wait()
            await work()
        finally:
            ended.set()
            for key in keys:
                if self._latest.get(key) is ended:
                    del self._latest[key]

    def is_busy(self, key: str) -> bool:
        """Return whether there is work with this key that has not ended."""
        return key in self._latest

    async def wait_for(self, beginning: str = "") -> None:
        """Wait until all work has ended that was started by now with a key that begins in this way."""
        for event in [event for key, event in self._latest.items() if key.startswith(beginning)]:
            await event.wait()


class Lookout:
    """A look at the database, again and again: after each sign that something has changed, and LOOK seconds later in any case.

    Signs may be lost, so they only shorten a wait. While many come, one look serves those of REST seconds. When the database is down,
    it is looked at again at the next time.
    """

    LOOK: Final = 0.5
    """Seconds between two looks without a sign."""
    REST: Final = 0.05
    """Seconds between two looks at least."""

    def __init__(self, look: Callable[[], Awaitable[None]], calls: DatabaseCalls) -> None:
        self._look = look
        self._calls = calls
        self._next = trio.current_time()
        """Trio's clock at the next look."""
        self._rests_until = 0.0
        """Trio's clock before which it does not look again."""
        self._sign = trio.Event()
        """Set when the next look has been put forward."""

    def note(self, delay: float = 0.0) -> None:
        """Look in so many seconds at the latest."""
        self._next = min(self._next, max(trio.current_time() + delay, self._rests_until))
        self._sign.set()

    async def run(self) -> None:
        """Look, for ever."""
        while True:
            while (left := self._next - trio.current_time()) > 0:
                with trio.move_on_after(left):
                    await self._sign.wait()
                self._sign = trio.Event()
            now = trio.current_time()
            self._next, self._rests_until = now + self.LOOK, now + self.REST
            try:
                await self._look()
            except DatabaseDown as error:
                self._calls.note_failure(error)
            await trio.lowlevel.checkpoint()
