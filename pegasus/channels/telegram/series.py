"""Messages of one person that belong together: Telegram sends an album, a forwarded series and a long text in parts.

Each part is an update of its own, without a word about how many there are. So a part waits for the next ones, QUIET seconds after the
last and LONGEST seconds after the first at most, and then all of them are one message:

* an album (`media_group_id`), several albums or files one after the other,
* forwarded messages, with the comment before or behind them,
* a text that an app has split because it is too long for one message.

A text of usual length and everything else waits for nothing. What belongs to no open series closes it, and comes behind it.

**Durable.** A part is a fact of the delivery log before its update is confirmed, since Telegram calls a webhook with the second part
only when the first was confirmed. After a crash the series goes on with the parts on disk (`resume`). The message has the id of its
first part, so one that a crash hands in again is known. The ids of the others are on record, too, until the next series of the same
person: an update that comes again behind its series is no new message.

**In a group** each part of an album is a message to nobody but for the one with the caption. So it is judged by all parts together
whether the agent is meant.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import attrs
import trio

from actors import Signal
from pegasus.access import GROUP, MENTIONED
from pegasus.channels.delivery_log import DeliveryLog
from pegasus.channels.telegram.updates import ALBUM, FILE, FORWARD, LONGEST_TEXT, SPLIT, TelegramMessage
from pegasus.messages import RELAYED, Json
from pegasus.quotes import QUOTES, parse_quotes, quotes_metadata
from pegasus.wire import from_wire, to_wire

QUIET: Final = 1.5
"""Seconds for which a series waits for its next part."""
LONGEST: Final = 10.0
"""Seconds after which a series ends, however many parts come."""
MOST_PARTS: Final = 100
"""Parts of a series: as many as Telegram forwards at once."""
MOST_FILES: Final = 30
"""Files of a series that are fetched. The others are named."""

Key: TypeAlias = tuple[str, str]
"""Ids of the chat and of the writer."""


@attrs.define(eq=False)
class _Series:
    """Parts that came so far."""

    first: float
    """Trio's clock at the first part."""
    last: float
    """Trio's clock at the newest one."""
    parts: dict[str, TelegramMessage] = attrs.field(factory=dict)
    """By id, in the order in which they came."""
    is_closed: bool = False
    """No further part belongs to it."""
    changed: Signal = attrs.field(factory=Signal)
    end: trio.Event = attrs.field(factory=trio.Event)
    """Set when its message is on disk, or the run of the adapter has ended."""


class SeriesGatherer:
    """Gathers parts, and gives each series to `deliver` when it is whole.

    Example: `if series.joins(heard): await series.add(heard, nursery)`.
    """

    def __init__(self, log: DeliveryLog, deliver: Callable[[TelegramMessage], Awaitable[None]]) -> None:
        """deliver: hands a message in; returns when it is on disk or will never be taken."""
        self._log = log
        self._deliver = deliver
        self._open: dict[Key, _Series] = {}

    def joins(self, heard: TelegramMessage) -> bool:
        """Return whether a message belongs to the open series of its writer."""
        series = self._open.get(_key(heard))
        return series is not None and not series.is_closed and _belongs(series, heard)

    def opens(self, heard: TelegramMessage, following: TelegramMessage | None) -> bool:
        """Return whether further parts may follow a message. following: the next one of its writer, if it is there already."""
        if heard.is_bot or heard.message.text.startswith("/"):
            return False
        is_comment = following is not None and _is_plain(heard) and following.series == FORWARD
        metadata = heard.message.metadata
        if metadata.get(GROUP) is True and metadata.get(MENTIONED) is not True and heard.series == FILE:
            return False
        return bool(heard.series) or (is_comment and following is not None and abs(following.sent - heard.sent) <= 1)

    def is_known(self, heard: TelegramMessage) -> bool:
        """Return whether a message was a part of the last series of its writer, which is on disk."""
        chat, user = _key(heard)
        known = self._log.fact(f"series-ids/{chat}/{user}")
        return isinstance(known, list) and heard.message.id in known

    async def add(self, heard: TelegramMessage, nursery: trio.Nursery) -> None:
        """Add a part to the open series of its writer, or begin one; return when it is on disk. nursery: waits for the others."""
        key, now = _key(heard), trio.current_time()
        series = self._open.get(key)
        if series is None or series.is_closed:
            series = self._open[key] = _Series(now, now)
            nursery.start_soon(self._run, key, series)
        series.parts[heard.message.id] = heard
        series.last = now
        # The end of a split text, and a comment behind files or forwarded messages, are the last part.
        is_last = not heard.series and len(series.parts) > 1
        series.is_closed = is_last or len(series.parts) >= MOST_PARTS
        series.changed.notify()
        await self._log.set_fact(_fact(key, heard.message.id), to_wire(heard))

    async def close(self, heard: TelegramMessage) -> None:
        """End the open series of this writer; return when its message is on disk."""
        series = self._open.get(_key(heard))
        if series is not None:
            series.is_closed = True
            series.changed.notify()
            await series.end.wait()

    def resume(self, nursery: trio.Nursery) -> None:
        """Go on with the parts that were on disk when the daemon ended, those of a series that runs already excepted."""
        now = trio.current_time()
        begun: dict[Key, _Series] = {}
        for fact in self._log.fact_keys("series/"):
            try:
                heard = from_wire(self._log.fact(fact), TelegramMessage)
            except ValueError:  # of another version; it is left alone
                continue
            key = _key(heard)
            if key in begun or key not in self._open:
                begun.setdefault(key, _Series(now, now)).parts[heard.message.id] = heard
                self._open[key] = begun[key]
        for key, series in begun.items():
            nursery.start_soon(self._run, key, series)

    async def _run(self, key: Key, series: _Series) -> None:
        """Wait until a series is whole, and hand its message in."""
        try:
            while not series.is_closed:
                seen, due = series.changed.count, min(series.last + QUIET, series.first + LONGEST)
                if trio.current_time() >= due:
                    series.is_closed = True
                    break
                with trio.move_on_at(due):
                    await series.changed.wait(seen)
            await self._deliver(join_parts(list(series.parts.values())))
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


def _key(heard: TelegramMessage) -> Key:
    channel = heard.message.channel
    return channel.channel_id, channel.user_id or ""


def _fact(key: Key, id: str) -> str:
    return f"series/{key[0]}/{key[1]}/{id}"


def _is_plain(heard: TelegramMessage) -> bool:
    """Return whether a message is words of its writer and nothing else: a comment, or the rest of a text."""
    message = heard.message
    is_own = message.text and not message.text.startswith("/") and QUOTES not in message.metadata
    return bool(is_own) and not heard.series and not heard.files and not heard.is_edit


def _belongs(series: _Series, heard: TelegramMessage) -> bool:
    """Return whether a message goes on with a series of the same writer."""
    *_, last = series.parts.values()
    if heard.is_edit or heard.message.channel.reply_to != last.message.channel.reply_to:
        return False
    if heard.message.id in series.parts or (heard.series.startswith(ALBUM) and heard.series == last.series):
        return True
    if last.series == SPLIT:
        return heard.series == SPLIT or _is_plain(heard)
    is_comment = _is_plain(heard) and not any(part.message.text for part in series.parts.values())
    return is_comment or heard.series in (FORWARD, FILE) or heard.series.startswith(ALBUM)


def join_parts(parts: Sequence[TelegramMessage]) -> TelegramMessage:
    """Return the parts of a series as one message, which has the id of the first."""
    if len(parts) == 1:
        return parts[0]
    first, metadata = parts[0], dict(parts[0].message.metadata)
    text, before = "", ""
    for part in parts:
        # An app splits a text at the limit, or at a blank before it, which is left out.
        gap = "" if not text or (part is not first and _units(before) >= LONGEST_TEXT) else "\n"
        if part.message.text:
            text, before = f"{text}{gap}{part.message.text}", part.message.text
    quotes = [quote for part in parts for quote in parse_quotes(part.message.metadata)]
    files = [file for part in parts for file in part.files]
    metadata |= quotes_metadata(list(dict.fromkeys(quotes)))
    if MENTIONED in metadata:
        metadata[MENTIONED] = any(part.message.metadata.get(MENTIONED) is True for part in parts)
    # Forwarded parts are quotes. Whether the text was typed is told by the parts that have one.
    if any(part.message.metadata.get(RELAYED) is True for part in parts if part.message.text):
        metadata[RELAYED] = True
    elif text:
        metadata.pop(RELAYED, None)
    if len(files) > MOST_FILES:
        metadata[RELAYED] = True
        text = "\n".join(filter(None, [text, f"(attached: {len(files) - MOST_FILES} more files, which are not shown)"]))
    message = attrs.evolve(first.message, text=text, metadata=metadata)
    return attrs.evolve(first, message=message, files=tuple(files[:MOST_FILES]), series="")


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
