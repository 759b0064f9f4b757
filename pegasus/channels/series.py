"""Messages of one person that belong together: a service sends an album, a forwarded series and a long text in parts.

Each part is a message of its own, without a word about how many there are. So a part waits for the next ones, `quiet` seconds after
the last and LONGEST seconds after the first at most, and then all of them are one message:

* an album, or files one after the other,
* forwarded messages, with the comment before or behind them,
* a text that an app has split because it is too long for one message.

A text of usual length and everything else waits for nothing. What belongs to no open series closes it, and comes behind it.

**Durable.** A part is a fact of the delivery log before the service is told that it was taken, since a webhook may bring the second
part only when the first was confirmed. After a crash the series goes on with the parts on disk (`resume`). The message has the id of
its first part, so one that a crash hands in again is known. The ids of the others are on record, too, until the next series of the
same person: a part that comes again behind its series is no new message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

import attrs
import trio

from actors import Signal
from pegasus.channels.delivery_log import DeliveryLog
from pegasus.messages import Json
from pegasus.wire import from_wire, to_wire

QUIET: Final = 1.5
"""Seconds for which a series waits for its next part."""
LONGEST: Final = 10.0
"""Seconds after which a series ends, however many parts come."""
MOST_PARTS: Final = 100
"""Parts of a series: as many as Telegram forwards at once."""
MOST_FILES: Final = 30
"""Files of a series that are fetched. The others are named."""
ALBUM: Final = "album "
FORWARD: Final = "forward"
FILE: Final = "file"
SPLIT: Final = "split"
"""Reasons why further parts of a message may follow. That of an album has its id behind it."""

Key: TypeAlias = tuple[str, str]
"""Ids of the chat and of the writer."""
M = TypeVar("M", bound=attrs.AttrsInstance)


@attrs.frozen
class SeriesPart:
    """Facts of a message of a service that decide whether it is a part of a series."""

    id: str
    """Id of the message within its chat."""
    chat: str
    """Id of the chat."""
    writer: str
    """Id of the writer."""
    thread: str | None
    """Thread within the chat."""
    reason: str
    """ALBUM and its id, FORWARD, FILE or SPLIT; "" for none."""
    has_text: bool
    """True if it has words of its writer."""
    is_plain: bool
    """True if it is words of its writer and nothing else: a comment, or the rest of a text."""
    may_begin: bool = True
    """True if it may be the first part, unlike a command, or a file that means nobody."""
    is_edit: bool = False
    """True for a later state of a message."""
    sent: float = 0.0
    """Seconds since the epoch, where a comment may come before what it is about."""


@attrs.define(eq=False)
class _Series(Generic[M]):
    """Parts that came so far."""

    first: float
    """Trio's clock at the first part."""
    last: float
    """Trio's clock at the newest one."""
    messages: dict[str, M] = attrs.field(factory=dict)
    """By id, in the order in which they came."""
    parts: dict[str, SeriesPart] = attrs.field(factory=dict)
    """The same."""
    is_closed: bool = False
    """No further part belongs to it."""
    changed: Signal = attrs.field(factory=Signal)
    end: trio.Event = attrs.field(factory=trio.Event)
    """Set when its message is on disk, or the run of the adapter has ended."""

    def put(self, message: M, part: SeriesPart) -> None:
        """Add a part; one that came before takes its place."""
        self.messages[part.id], self.parts[part.id] = message, part


class SeriesGatherer(Generic[M]):
    """Gathers parts, and gives each series to `deliver` when it is whole. M: message of the service, which can be written to disk."""

    def __init__(
        self,
        log: DeliveryLog,
        cls: type[M],
        look: Callable[[M], SeriesPart],
        join: Callable[[Sequence[M]], M],
        deliver: Callable[[M], Awaitable[None]],
        quiet: float = QUIET,
    ) -> None:
        """Prepare for the messages of a service.

        look: tells what decides about a message. join: makes several one, with the id of the first. deliver: hands a message in;
        returns when it is on disk or will never be taken.
        """
        self._log = log
        self._cls = cls
        self._look = look
        self._join = join
        self._deliver = deliver
        self._quiet = quiet
        self._open: dict[Key, _Series[M]] = {}

    async def take(
        self,
        message: M,
        is_let_in: Callable[[], Awaitable[bool]],
        nursery: trio.Nursery | None,
        following: M | None = None,
    ) -> bool:
        """Return whether a message is a part of a series, after adding it: then it is on disk. So is a series that the message ends.

        is_let_in: asked before a series begins; nothing of strangers is gathered. nursery: waits for further parts; None takes none.
        following: the next message of the writer, if it is there already.
        """
        part = self._look(message)
        if self._is_known(part):
            return True
        if not self._joins(part):
            await self._close(part)
            opens = self._opens(part, None if following is None else self._look(following))
            if not opens or nursery is None or not await is_let_in():
                return False
        if nursery is None:
            return False
        await self._add(message, part, nursery)
        return True

    def _joins(self, part: SeriesPart) -> bool:
        """Return whether a message belongs to the open series of its writer."""
        series = self._open.get(_key(part))
        return series is not None and not series.is_closed and _belongs(series.parts, part)

    def _opens(self, part: SeriesPart, following: SeriesPart | None) -> bool:
        """Return whether further parts may follow a message."""
        if not part.may_begin:
            return False
        if part.reason or following is None:
            return bool(part.reason)
        return part.is_plain and following.reason == FORWARD and abs(following.sent - part.sent) <= 1

    def _is_known(self, part: SeriesPart) -> bool:
        """Return whether a message was a part of the last series of its writer, which is on disk."""
        known = self._log.fact(f"series-ids/{part.chat}/{part.writer}")
        return isinstance(known, list) and part.id in known

    async def _add(self, message: M, part: SeriesPart, nursery: trio.Nursery) -> None:
        """Add a part to the open series of its writer, or begin one; return when it is on disk."""
        key, now = _key(part), trio.current_time()
        series = self._open.get(key)
        if series is None or series.is_closed:
            series = self._open[key] = _Series(now, now)
            nursery.start_soon(self._run, key, series)
        series.put(message, part)
        series.last = now
        # The end of a split text, and a comment behind files or forwarded messages, are the last part.
        is_last = not part.reason and len(series.parts) > 1
        series.is_closed = is_last or len(series.parts) >= MOST_PARTS
        series.changed.notify()
        await self._log.set_fact(_fact(key, part.id), to_wire(message))

    async def _close(self, part: SeriesPart) -> None:
        """End the open series of this writer; return when its message is on disk."""
        series = self._open.get(_key(part))
        if series is not None:
            series.is_closed = True
            series.changed.notify()
            await series.end.wait()

    def resume(self, nursery: trio.Nursery) -> None:
        """Go on with the parts that were on disk when the daemon ended, those of a series that runs already excepted."""
        now = trio.current_time()
        begun: dict[Key, _Series[M]] = {}
        for fact in self._log.fact_keys("series/"):
            try:
                message = from_wire(self._log.fact(fact), self._cls)
            except ValueError:  # of another version; it is left alone
                continue
            part = self._look(message)
            key = _key(part)
            if key in begun or key not in self._open:
                begun.setdefault(key, _Series(now, now)).put(message, part)
                self._open[key] = begun[key]
        for key, series in begun.items():
            nursery.start_soon(self._run, key, series)

    async def _run(self, key: Key, series: _Series[M]) -> None:
        """Wait until a series is whole, and hand its message in."""
        try:
            while not series.is_closed:
                seen, due = series.changed.count, min(series.last + self._quiet, series.first + LONGEST)
                if trio.current_time() >= due:
                    series.is_closed = True
                    break
                with trio.move_on_at(due):
                    await series.changed.wait(seen)
            messages = list(series.messages.values())
            await self._deliver(self._join(messages) if len(messages) > 1 else messages[0])
            ids: list[Json] = list(series.parts)
            # First the ids, then the parts: a crash in between hands the message in again, which the inbox knows by its id.
            if len(ids) > 1:
                await self._log.set_fact(f"series-ids/{key[0]}/{key[1]}", ids)
            for id in series.parts:
                await self._log.set_fact(_fact(key, id), None)
        finally:
            if self._open.get(key) is series:
                del self._open[key]
            series.end.set()


def _key(part: SeriesPart) -> Key:
    return part.chat, part.writer


def _fact(key: Key, id: str) -> str:
    return f"series/{key[0]}/{key[1]}/{id}"


def _belongs(parts: dict[str, SeriesPart], part: SeriesPart) -> bool:
    """Return whether a message goes on with a series of the same writer."""
    *_, last = parts.values()
    if part.is_edit or part.thread != last.thread:
        return False
    if part.id in parts or (part.reason.startswith(ALBUM) and part.reason == last.reason):
        return True
    if last.reason == SPLIT:
        return part.reason == SPLIT or part.is_plain
    is_comment = part.is_plain and not any(each.has_text for each in parts.values())
    return is_comment or part.reason in (FORWARD, FILE) or part.reason.startswith(ALBUM)


def join_texts(texts: Iterable[str], is_full: Callable[[str], bool]) -> str:
    """Return the texts of a series as one. An app splits a text at its limit, or at a blank before it, which it leaves out.

    is_full: tells of a text that it has the length of the limit, so that the next one goes on in the middle of a word.
    """
    joined, before = "", ""
    for text in filter(None, texts):
        joined += ("" if not joined or is_full(before) else "\n") + text
        before = text
    return joined


def note_left_out(text: str, count: int) -> str:
    """Return the text of a series with a line about files beyond MOST_FILES."""
    return "\n".join(filter(None, [text, f"(attached: {count} more files, which are not shown)"]))
