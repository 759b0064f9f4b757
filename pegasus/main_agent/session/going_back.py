"""Going back in a conversation: a message is answered once more, or another one is said in its place.

The session is archived as a whole, and goes on with what stood before the message, and with the message anew, in one durable step. So
nothing that was said is lost, and a crash leaves the session as it was or as it is to be. What tasks and tools have done meanwhile
stays done; a note tells the model which calls that were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from pegasus.conversation import Entry
from pegasus.formatting import plural
from pegasus.main_agent.session.history import INSTEAD_OF, is_message, may_go_back_to, reworded
from pegasus.main_agent.session.session import NEW_CONVERSATION, REPLACED, REPLY_NAME, Session
from pegasus.messages import Json
from pegasus.observe import get_logger
from pegasus.outside import Untrusted
from pegasus.storage import Item

_log = get_logger("session")

TAKEN_BACK: Final = "taken_back"
"""`metadata.type` of the note about calls of an answer that was taken back."""
MOST_REPLACED: Final = 500
"""Archives that a session names as replaced."""
MOST_IDS: Final = 20
"""Ids that a message names of those in whose place it was said."""


async def retry(session: Session, item: Item, now: int, message_id: str | None = None) -> str | None:
    """Take back what was said since a message of an owner, the last one if none is named, and have it answered again for `item`.

    Returns the id of the message; None if the session has none that may be answered again, and then nothing has happened. Waits while
    the disk refuses to write. Cancelled: it has happened or not.
    """
    return await _go_back(session, item, now, message_id, None)


async def edit(session: Session, item: Item, now: int, message_id: str) -> str | None:
    """Go back to a message of an owner, and have the text of `item` said in its place. Returns as `retry` does."""
    return await _go_back(session, item, now, message_id, item.message.text)


async def cut_back(session: Session, item: Item, now: int, message_id: str, *, by_guest: bool) -> bool:
    """Take back a message and what was said since, in whose place `item` is to be said. Return False if there is no such message.

    The item itself is not recorded. A crash before it is finds no such message any more, and records it. by_guest: a guest asks, in a
    conversation that nobody else has; then only a message of a guest is taken back.
    """
    index = _find(session, message_id, by_guest=by_guest)
    if index is None:
        return False
    old, before = session.entries[index], session.entries[:index]

    def begin(archive: str) -> Sequence[Entry]:
        """Return the entries before the message; a session of none begins anew."""
        kept = (*before, *_notes(session.entries[index:], now)) or (
            Entry(now, "system", NEW_CONVERSATION, metadata={"type": "new"}),
        )
        return _naming(kept, session.entries[0], archive)

    _log.info("going back in a conversation", chat=session.files.chat, since=old.ts)
    await session.restart(begin, now)
    return True


def _find(session: Session, message_id: str | None, *, by_guest: bool = False) -> int | None:
    """Return the index of the newest message that may be gone back to, None if there is none."""
    for index in reversed(range(len(session.entries))):
        entry = session.entries[index]
        if by_guest:
            is_wanted = is_message(entry) and Untrusted.GUEST in entry.outside
            if is_wanted and entry.metadata["messageId"] == message_id:
                return index
        elif not session.is_apart and may_go_back_to(entry, message_id):
            return index
    return None


def _naming(entries: Sequence[Entry], before: Entry, archive: str) -> Sequence[Entry]:
    """Return the entries, the first of which names the archive as replaced. before: the first entry of the session until now."""
    first, *rest = entries
    known = before.metadata.get(REPLACED)
    replaced: list[Json] = [*(known if isinstance(known, list) else []), archive]
    return (attrs.evolve(first, metadata={**first.metadata, REPLACED: replaced[-MOST_REPLACED:]}), *rest)


def _notes(taken_back: Sequence[Entry], now: int) -> tuple[Entry, ...]:
    """Return the note about what was done for answers that are taken back, () if nothing was. now: wall clock, ms."""
    calls = [call.name for entry in taken_back for call in entry.calls if call.name != REPLY_NAME]
    if not calls:
        return ()
    names = ", ".join(dict.fromkeys(calls))
    text = (
        f"(An answer to the next message was taken back. Its {plural(len(calls), 'call')} had their effect: {names}.)"
    )
    return (Entry(now, "system", text, metadata={"type": TAKEN_BACK}),)


async def _go_back(session: Session, item: Item, now: int, message_id: str | None, text: str | None) -> str | None:
    """Replace the newest message that fits, and return its id."""
    index = _find(session, message_id)
    if index is None:
        return None
    old, before = session.entries[index], session.entries[:index]

    def begin(archive: str) -> Sequence[Entry]:
        """Return the entries that the session goes on with."""
        message = old if text is None else reworded(old, text)
        earlier = old.metadata.get(INSTEAD_OF)
        ids: list[Json] = [*(earlier if isinstance(earlier, list) else []), old.metadata["messageId"]]
        metadata: dict[str, Json] = {**message.metadata, "messageId": item.message.id, INSTEAD_OF: ids[-MOST_IDS:]}
        message = attrs.evolve(message, ts=now, metadata=metadata, item=item.n)
        kept = (*before, *_notes(session.entries[index:], now), message)
        return _naming(kept, session.entries[0], archive)

    await session.restart(begin, now)
    return str(old.metadata["messageId"])
