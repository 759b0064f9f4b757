"""Bound on what a guest may send: the files and long texts of their messages, together with the files of their folder.

What was sent is counted by day, in `data/guests/<key>/sent.json`: `{"days": {"20420": 9437184}, "last": ["…"]}`. Days before
`media.keep_days` are forgotten, as the files are. A message that is sent again with the same id counts once. Short texts are counted
in memory until they are worth a write, so that a message costs no sync of its own; a crash forgets less than WORTH_A_WRITE of them.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from actors import Ref
from pegasus.access import AccessDenied
from pegasus.formatting import file_key
from pegasus.messages import InboundMessage, Json
from pegasus.settings import LiveValue
from pegasus.storage import JournalMessage, KeyedStore

WORTH_A_WRITE: Final = 1 << 16
"""Bytes of texts that are counted in memory only."""
MOST_GUESTS: Final = 1000
"""Guests whose counts are in memory at the same time."""
_LAST: Final = 100
"""Ids of messages that are recognised when they come again."""
_DAY: Final = 86_400_000
"""Milliseconds of a day."""


class QuotaReached(AccessDenied):
    """A guest has sent as much as they may. str() is a sentence for them."""


@attrs.frozen
class DiskLimits:
    """Limits of the disk for each guest: `DiskLimits(most=200 << 20, keep_days=90)`."""

    most: int = 0
    """Bytes; 0 = any number."""
    keep_days: int = 0
    """Days for which files are kept; 0 = for ever."""


class _Sent:
    """Counts of one guest."""

    def __init__(self, key: str, journal: Ref[JournalMessage], *, is_shared: bool) -> None:
        self.pending = 0
        """Bytes of texts that the store does not have yet."""
        self.store: KeyedStore[Any] = KeyedStore("guest-files", _read_row, owner=key)
        """Under "days" the bytes by day since the epoch, under "last" the ids of the last messages that were counted."""
        self.store.use(journal)
        self.store.is_shared = is_shared


def _read_row(name: str, value: Json) -> tuple[str, dict[str, int] | list[str]]:
    """Return name and value of an entry of the file, without what makes no sense in it. Raises ValueError."""
    match name, value:
        case "days", dict():
            return name, {day: size for day, size in value.items() if day.isdecimal() and type(size) is int}
        case "last", list():
            return name, [id for id in value if isinstance(id, str)]
        case _:
            raise ValueError(f"{name}: not the counts of a guest")


@attrs.define(eq=False, repr=False)
class GuestDisk:
    """Counts what guests send."""

    _journal: Ref[JournalMessage]
    _clock: Callable[[], int]
    _limits: LiveValue[DiskLimits]
    _folders: Path | None = None
    """Folder with one for each guest; None: they have no files."""
    _size_of: Callable[[Path], int] = lambda folder: 0
    """Returns the bytes below a folder; blocks."""
    _is_shared: bool = False
    """True if guests may send to other nodes, too."""
    _sent: dict[str, _Sent] = attrs.field(init=False, factory=dict)
    """By account."""

    async def admit(self, message: InboundMessage) -> None:
        """Count a guest's message. Raises QuotaReached, and then it is not counted; StorageError and ActorError.

        Cancelled: it may be counted, and is recognised when it comes again.
        """
        limits, account = self._limits.now, message.account
        size = len(message.text.encode("utf-8", "replace")) + sum(media.size for media in message.media)
        if not limits.most:
            return
        if account not in self._sent:
            if len(self._sent) >= MOST_GUESTS:
                self._sent.pop(next(iter(self._sent)))
            self._sent[account] = _Sent(file_key(account), self._journal, is_shared=self._is_shared)
        sent = self._sent[account]
        if not message.media and sent.pending + size < WORTH_A_WRITE:
            sent.pending += size
            return
        id = sha256(f"{message.channel.address}\0{message.id}".encode("utf-8", "replace")).hexdigest()[:16]
        folder = None if self._folders is None else self._folders / file_key(account)
        in_folder = (
            0 if folder is None else await trio.to_thread.run_sync(self._size_of, folder, abandon_on_cancel=True)
        )
        async with sent.store.change():
            rows = sent.store.rows
            if id in (last := rows.get("last", [])):
                return
            today = self._clock() // _DAY
            oldest = today - limits.keep_days if limits.keep_days else 0
            days = {day: count for day, count in rows.get("days", {}).items() if int(day) >= oldest}
            used = sum(days.values()) + sent.pending + in_folder
            if used + size > limits.most:
                raise QuotaReached(
                    f"this message was not taken: with it you would have sent and kept {used + size:,} bytes, and"
                    f" {limits.most:,} are allowed (limits.guest_disk_mb)"
                )
            days[str(today)] = days.get(str(today), 0) + size + sent.pending
            await sent.store.save({"days": days, "last": [*last[-_LAST:], id]})
            sent.pending = 0
