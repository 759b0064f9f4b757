"""Usage of models: every call is admitted by the budgets, recorded, and written to `data/usage/<YYYY-MM>.jsonl`.

`UsageTracker` is the middleware that does it. It never waits for the disk: records are counted in memory at once and gather in
`unsaved`; the actor `usage_keeper` writes them together once a second, without a sync. A power failure may lose the last of them,
which is the price for counting without slowing down a turn.

With a budget, the first call waits until the records of this month and the last have been read, so that a restart is no way around a
budget. Calls at the same time reserve what they may use. A call that fits only without the reservations waits until others have
ended; one that does not fit even then is refused.

Records have ids, and reading counts each id once: when a write was interrupted, it is repeated.

Three files share the work: `usage_ledger.py` has the records and their sums, `budget.py` the decision whether a call may begin, and
this file everything that happens: calls, waiting, reading and writing. `usage_report.py` shows the result.

What a crash leaves behind: the records of the last second are lost, everything before is in the file. A torn last line is
ignored when the file is read. The reservations are kept in memory only: they belong to calls that the crash has ended.

Only this month and the last are read, because the budgets by day and month look back no further and the report shows no more. The
last month is read for tasks that began before this one: their budget has no calendar.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain
from random import Random
from typing import TYPE_CHECKING, Final

import attrs
import trio

from actors import ActorError, Inbox, Ref
from pegasus.messages import Address
from pegasus.models.base import Label, ModelError, ModelResponse, Usage
from pegasus.models.budget import Amount, BudgetLimit, is_limited, refusal
from pegasus.models.catalog import PriceList
from pegasus.models.client import ModelCall, Next
from pegasus.models.tokens import text_tokens
from pegasus.models.usage_ledger import NOTHING, UsageLedger, UsageRecord, UsageSum, day_of, parse_record
from pegasus.observe import get_logger
from pegasus.storage import Commit, JournalMessage, ReadFile, StorageError

if TYPE_CHECKING:
    from pegasus.settings import BudgetSettings

MOST_UNSAVED: Final = 10_000
"""Records that are kept while the disk refuses them. Beyond that the oldest are counted, but not written any more."""

_log = get_logger("usage")


@attrs.frozen(eq=False)
class _OpenCall:
    """A call under way. It is kept until it ends, because its reservation counts towards the budgets."""

    call: ModelCall
    """The call, with its label and its target."""
    ts: int
    """When it began: wall clock, ms."""
    reserved: Amount
    """Amount that it may use; nothing where no budget is set."""


class UsageTracker:
    """Middleware that counts calls and enforces budgets. Calls of the stand-in are neither counted nor refused.

    It lives outside the actor that writes the files, so a crash of that actor loses no record.

    clock: wall clock, ms since the epoch. rng: makes the ids of records unique among processes.

        tracker = UsageTracker(clock, Random(), settings.budget, PriceList(settings.prices, settings.providers))
        service = ModelService(…, usage=tracker)
        Child("keeper", usage_keeper, tracker, journal)
    """

    def __init__(self, clock: Callable[[], int], rng: Random, budget: BudgetSettings, prices: PriceList) -> None:
        self.clock = clock
        """Returns the wall clock, ms since the epoch. Its UTC day is the day of the budgets."""
        self.ledger = UsageLedger()
        """Sums of all calls so far; before `loaded`, only of those since the start."""
        self.loaded = trio.Event()
        """Set when `ledger` contains the calls before this start."""
        self.wanted = trio.Event()
        """Set when somebody needs the calls before this start: the keeper then reads them."""
        self.news = trio.Event()
        """Set while `unsaved` is not empty."""
        self.unsaved: list[UsageRecord] = []
        """Records that are not written yet, oldest first."""
        self._budget = budget
        """Limits in force; `configure` replaces them."""
        self._prices = prices
        """Prices in force. Records keep the cost that was computed with the prices at their time."""
        self._open: set[_OpenCall] = set()
        """Calls under way, with their reservations."""
        self._call_ended = trio.Event()
        """Set, and replaced, whenever a call ends."""
        self._process_id, self._records = f"{rng.getrandbits(40):010x}", 0
        """The two parts of a record's id: one for this process, and a number."""
        self._unpriced: set[str] = set()
        """Models without a price that were logged."""

    def configure(self, budget: BudgetSettings, prices: PriceList) -> None:
        """Use other budgets and prices from the next call on."""
        self._budget, self._prices = budget, prices

    # ------------------------------------------------------------ calls

    async def __call__(self, call: ModelCall, next: Next) -> ModelResponse:
        """Make the call if no budget forbids it, and record what it used.

        Raises ModelError of kind "budget" if a budget forbids it. A call that fails or is cancelled is recorded with an estimate if it
        had begun to answer; one that never began is taken to have cost nothing.
        """
        if call.target.is_offline:
            return await next(call)
        opened = await self._admit(call)
        before = call.relay.characters
        try:
            response = await next(call)
        except BaseException as error:
            self._close(opened, call.relay.characters - before, getattr(error, "kind", "cancelled"))
            raise
        self._end(opened)
        is_counted = bool(response.usage.prompt_tokens or response.usage.completion_tokens)
        usage = response.usage if is_counted else _estimate(call, response.text)
        self._record(opened, usage, estimated=not is_counted)
        return response

    async def _admit(self, call: ModelCall) -> _OpenCall:
        """Return when the call may begin. Raises ModelError of kind "budget" if a budget forbids it.

        Cancelled while waiting: nothing is reserved.

        There are two checks. Without the reservations, a refusal is final: other calls can only use more. With them, it may pass:
        the other calls usually need less than they reserved, so this one waits until any call has ended and then checks again.
        """
        self.wanted.set()
        if not is_limited(self._budget):
            return self._begin(call, Amount())
        await self.loaded.wait()
        wanted = self._at_most(call)
        while True:
            limits = self.limits(call.request.label)
            if reason := refusal(limits, wanted, count_reserved=False):
                raise ModelError(f"{call.target.name}: {reason}", kind="budget")
            if not refusal(limits, wanted, count_reserved=True):
                return self._begin(call, wanted)
            await self._call_ended.wait()

    def _at_most(self, call: ModelCall) -> Amount:
        """Return the most that a call can use: an upper estimate of its prompt, and an answer of full length.

        A call without a price reserves tokens only. Budgets in dollars cannot bound it.
        """
        prompt, completion = call.target.counter.at_most(call.request), call.request.max_tokens
        price = self._prices.find(call.target.name)
        return Amount(price.at_most(prompt, completion) if price else 0.0, prompt + completion)

    def _begin(self, call: ModelCall, reserved: Amount) -> _OpenCall:
        """Note that a call begins."""
        opened = _OpenCall(call, self.clock(), reserved)
        self._open.add(opened)
        return opened

    def _end(self, opened: _OpenCall) -> None:
        """Note that a call ended: its reservation is free, and calls that wait look again."""
        self._open.discard(opened)
        self._call_ended.set()
        self._call_ended = trio.Event()

    def _close(self, opened: _OpenCall, characters: int, reason: str) -> None:
        """End a call that was not answered. characters: length of the text that had come."""
        self._end(opened)
        if characters:
            self._record(opened, _estimate(opened.call, "x" * characters), estimated=True, failed=reason)

    def _record(self, opened: _OpenCall, usage: Usage, *, estimated: bool, failed: str = "") -> None:
        """Count a call, and keep its record until it is written.

        estimated: the provider did not count. failed: kind of the error, "" if the call was answered.
        """
        name, label = opened.call.target.name, opened.call.request.label
        self._records += 1
        record = UsageRecord(
            id=f"{self._process_id}-{self._records}",
            ts=opened.ts,
            model=name,
            role=label.role,
            channel=_chat_of(label),
            item=label.item,
            task_id=label.task_id,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            cost=self._cost(name, usage),
            estimated=estimated,
            failed=failed,
        )
        self.ledger.add(record)
        self.unsaved.append(record)
        self._trim()
        self.news.set()

    def _cost(self, name: str, usage: Usage) -> float | None:
        """Return the dollars for a call; None without a price, which is logged once for each model."""
        price = self._prices.find(name)
        if price is None and name not in self._unpriced:
            self._unpriced.add(name)
            _log.warning("no price is known for a model: its calls count in tokens only", model=name)
        return None if price is None else round(price.cost(usage), 9)

    # ------------------------------------------------------------ budgets

    def limits(self, label: Label) -> list[BudgetLimit]:
        """Return the budgets that are set and that a call with this label falls under."""
        day, ledger, chat = day_of(self.clock()), self.ledger, _chat_of(label)
        month = day[:7]
        limits = [
            self._limit("today", "daily", day, ledger.days.get(day), lambda o: day_of(o.ts) == day),
            self._limit("this month", "monthly", day, ledger.months.get(month), lambda o: day_of(o.ts)[:7] == month),
        ]
        if task := label.task_id:
            spent = ledger.tasks.get(task)
            limits.append(
                self._limit("by one task", "task", day, spent, lambda o: o.call.request.label.task_id == task)
            )
        if chat is not None:
            spent = ledger.chats.get((day, chat))
            limits.append(
                self._limit(
                    "in one chat a day",
                    "channel_daily",
                    day,
                    spent,
                    lambda o: day_of(o.ts) == day and _chat_of(o.call.request.label) == chat,
                )
            )
        return [limit for limit in limits if limit.cost or limit.tokens]

    def _limit(
        self, what: str, scope: str, day: str, spent: UsageSum | None, counts: Callable[[_OpenCall], bool]
    ) -> BudgetLimit:
        """Return a budget with what counts towards it. counts: whether a call under way does."""
        cost, tokens = getattr(self._budget, f"{scope}_cost"), getattr(self._budget, f"{scope}_tokens")
        reserved = Amount()
        for opened in self._open:
            if counts(opened):
                reserved += opened.reserved
        used = spent or NOTHING
        return BudgetLimit(what, f"budget.{scope}", cost, tokens, Amount(used.cost, used.tokens), reserved, day)

    # ------------------------------------------------------------ records and files

    def load(self, records: Iterable[UsageRecord]) -> None:
        """Take the records of the files, each id once. Only the first time: a keeper that was restarted must not count them again.

        Records that are not written yet are counted again with them, so that nothing is lost that happened while the files were read.
        """
        if not self.loaded.is_set():
            self.ledger = UsageLedger(_unique(chain(records, self.unsaved)))
            self.loaded.set()

    def take_unsaved(self, most: int) -> tuple[UsageRecord, ...]:
        """Remove and return the oldest records that are not written."""
        taken, self.unsaved = tuple(self.unsaved[:most]), self.unsaved[most:]
        if not self.unsaved:
            self.news = trio.Event()
        return taken

    def put_back(self, records: Iterable[UsageRecord]) -> None:
        """Take back records that could not be written; they stand before newer ones."""
        self.unsaved = [*records, *self.unsaved]
        self._trim()
        if self.unsaved:
            self.news.set()

    def _trim(self) -> None:
        """Drop the oldest unwritten records beyond the limit. They stay counted in memory."""
        del self.unsaved[: max(0, len(self.unsaved) - MOST_UNSAVED)]


def _estimate(call: ModelCall, text: str) -> Usage:
    """Return the approximate usage of a call with this answer."""
    return Usage(call.target.counter.estimate(call.request), round(text_tokens(text)))


def _chat_of(label: Label) -> Address | None:
    """Return the chat that a call is for."""
    return None if label.channel is None else label.channel.address


def _unique(records: Iterable[UsageRecord]) -> Iterator[UsageRecord]:
    """Yield each id once."""
    seen: set[str] = set()
    for record in records:
        if record.id not in seen:
            seen.add(record.id)
            yield record


# ------------------------------------------------------------------ the keeper of the files

FOLDER: Final = "usage"
"""Folder below data/."""
GATHERING: Final = 1.0
"""Seconds that a record waits for others to be written with it. A crash loses at most the records of this time."""
RETRY: Final = 10.0
"""Seconds until a write that the disk refused is tried again. Meanwhile records gather, up to MOST_UNSAVED."""
BATCH: Final = 500
"""Records of one write, about 150 KB, so that the journal is not occupied for long."""
SLICE: Final = 100
"""Lines that are parsed without a checkpoint, about a millisecond's work."""
GRACE: Final = 2.0
"""Seconds for the last write when the keeper is stopped. A disk that hangs must not keep the process from ending."""


async def usage_keeper(inbox: Inbox[object], tracker: UsageTracker, journal: Ref[JournalMessage]) -> None:
    """Actor that reads and writes the files of a tracker. Messages to it are ignored.

    When it is stopped, it writes what is left. After a crash its successor continues there: the tracker holds the state.
    """
    inbox.started()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_usage, tracker, journal)
        async for _ in inbox:
            pass
        nursery.cancel_scope.cancel()


async def keep_usage(tracker: UsageTracker, journal: Ref[JournalMessage]) -> None:
    """Read the files when the first call begins, then write for ever. On cancellation, write what is left first."""
    try:
        if not tracker.loaded.is_set():
            await tracker.wanted.wait()
            await _load(tracker, journal)
        while True:
            await tracker.news.wait()
            await trio.sleep(GATHERING)
            if not await _write(tracker, journal):
                await trio.sleep(RETRY)
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + GRACE):
            while tracker.unsaved and await _write(tracker, journal):
                pass


async def _load(tracker: UsageTracker, journal: Ref[JournalMessage]) -> None:
    """Load this month and the one before. A file that cannot be read is logged and not counted, so that the agent still works."""
    records: list[UsageRecord] = []
    for path in _files(tracker.clock()):
        records += await _parse_file(await _read(path, journal))
    tracker.load(records)


def _files(now: int) -> tuple[str, str]:
    """Return the files of the month before and of this month. now: wall clock, ms."""
    this_month = day_of(now)[:7]
    first_day = datetime.strptime(this_month, "%Y-%m").replace(tzinfo=UTC)
    return _file_of(f"{first_day - timedelta(days=1):%Y-%m}"), _file_of(this_month)


def _file_of(month: str) -> str:
    """Return the path of a month's file below data/. month: YYYY-MM."""
    return f"{FOLDER}/{month}.jsonl"


async def _read(path: str, journal: Ref[JournalMessage]) -> bytes:
    """Return the content of a file, b"" if it cannot be read."""
    try:
        return await journal.ask(ReadFile, path)
    except (StorageError, ActorError) as error:
        _log.error("usage cannot be read and does not count", file=path, error=str(error))
        return b""


async def _parse_file(content: bytes) -> list[UsageRecord]:
    """Return the records of a file. Other tasks run in between: a month may have a hundred thousand lines."""
    records: list[UsageRecord] = []
    invalid = 0
    for number, line in enumerate(content.splitlines()):
        if number % SLICE == 0:
            await trio.lowlevel.checkpoint()
        try:
            records.append(parse_record(line))
        except (ValueError, RecursionError):
            invalid += 1
    if invalid:
        _log.warning("invalid lines in a usage file are ignored", lines=invalid)
    return records


async def _write(tracker: UsageTracker, journal: Ref[JournalMessage]) -> bool:
    """Write a batch of records. Return False if the journal refused it.

    When this is cancelled the journal may have written the batch all the same. It is written again; its ids count once.
    """
    taken = tracker.take_unsaved(BATCH)
    files: defaultdict[str, bytearray] = defaultdict(bytearray)
    for record in taken:
        files[_file_of(day_of(record.ts)[:7])] += record.to_line()
    appends = tuple((path, bytes(lines)) for path, lines in files.items())
    try:
        await journal.ask(Commit, appends)
    except (StorageError, ActorError) as error:
        tracker.put_back(taken)
        _log.error("usage is not written yet", calls=len(taken), error=str(error))
        return False
    except BaseException:  # cancelled
        tracker.put_back(taken)
        raise
    return True
