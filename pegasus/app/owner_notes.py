"""Notes to owners about what a command has done to files that other programs run by themselves.

Walls that cannot close such files let a command change them, and none can close what is not there (`pegasus.tools.walls`). Work that
has read text from outside may have been talked into it, and what it wrote runs later with the owner's rights. So an owner gets a
message, beside the line in the log: on the channel of the work if an owner is there, else on `policy.owner_channel`, else in the
terminal's conversation.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final

import trio

from actors import ActorError, Inbox, Ref
from pegasus.access import is_owner
from pegasus.formatting import cut_text, plural
from pegasus.messages import ChannelInfo
from pegasus.observe import get_logger
from pegasus.settings import LiveValue
from pegasus.storage import Commit, JournalMessage, Post, StorageError

MOST_WAITING: Final = 100
"""Notes that wait to be written; more are in the log only."""
_NAMED: Final = 10
"""Files that a note names."""
_log = get_logger("sandbox")


class OwnerNotes:
    """Notes on their way to owners, from the tools of tasks to the actor that writes them.

    Example::

        notes = OwnerNotes()
        notes.tell("t-1", None, [".git/hooks/pre-commit"])
        Child("notes", write_owner_notes, notes, journal, is_owners, owner_channel)
    """

    def __init__(self) -> None:
        self._send, self.waiting = trio.open_memory_channel[tuple[str, ChannelInfo | None, Sequence[str]]](MOST_WAITING)

    def tell(self, task_id: str, channel: ChannelInfo | None, files: Sequence[str]) -> None:
        """Tell an owner that a command of this task has changed files. channel: that of the work."""
        with suppress(trio.WouldBlock):  # the log has it
            self._send.send_nowait((task_id, channel, files))


async def write_owner_notes(
    inbox: Inbox[object],
    notes: OwnerNotes,
    journal: Ref[JournalMessage],
    owners: LiveValue[Collection[str]],
    owner_channel: LiveValue[ChannelInfo],
) -> None:
    """Write notes as replies, until cancelled. owner_channel: place for work that is not asked for where an owner is."""
    inbox.started()
    number = 0
    async for task_id, channel, files in notes.waiting:
        number += 1
        place = channel if channel is not None and is_owner(channel, owners.now) else owner_channel.now
        key = f"files/{task_id}/{number}/{files[0]}"
        try:
            await journal.ask(
                Commit, (), (Post(key, _text(files), place.channel_id, place, place.type, place.reply_to),)
            )
        except (StorageError, ActorError) as error:
            _log.warning("an owner could not be told about changed files", task=task_id, error=str(error))


def _text(files: Sequence[str]) -> str:
    """Return a note for a person."""
    lines = [f"- `{cut_text(name, 200)}`" for name in files[:_NAMED]]
    more = [f"- and {plural(len(files) - _NAMED, 'other')}"] if len(files) > _NAMED else []
    head = "A command changed what other programs run or obey by themselves, in the background or after reading text from outside:"
    return "\n".join(
        [head, *lines, *more, "Look at them before you work in that folder, unless you have asked for this."]
    )
