"""The list of conversations, for people: each running session and each archive, with its title and how much was said in it.

A list costs one look at the two folders, and each file of the page that is shown is read, up to COUNTED bytes of it. A search reads
more files, at most SEARCHED bytes together. Nothing is asked of a running agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import attrs

from pegasus.formatting import truncate
from pegasus.json_lines import LONGEST_LINE
from pegasus.main_agent.session.archives import open_archive, read_line
from pegasus.main_agent.session.files import CURRENT
from pegasus.main_agent.session.history import PastMessage, read_messages
from pegasus.main_agent.session.listing import COUNTED, MOST_ROWS, SessionPlace, chat_of, session_places
from pegasus.main_agent.session.names import name_key
from pegasus.messages import Json
from pegasus.storage import StoredFiles, size_of

TITLE_LENGTH: Final = 80
"""Characters of a title."""
SEARCHED: Final = 64 << 20
"""Bytes that a search reads."""


@attrs.frozen(eq=False, repr=False)
class ListedConversation:
    """A conversation in the list."""

    key: str
    """Name by which it is read: that of its file, without the ending."""
    title: str
    """Name that an owner has given to it, else the beginning of its first message; "" if it has none."""
    is_named: bool
    """An owner has given the name."""
    last: int
    """Time of the last message in ms; of the last change of the file if none is known."""
    messages: int | None
    """Number of messages and replies; None for a file that is too large to be counted."""
    archived: bool
    """True for an archive."""
    chat: str
    """Chat that it belongs to; "" for that of all channels."""
    folder: str
    """Folder that its newest message was to be worked on in; "" for the workspace."""


@attrs.frozen(eq=False, repr=False)
class ConversationPage:
    """A part of the list, those that changed last first."""

    rows: tuple[ListedConversation, ...]
    """The conversations of this page."""
    next: int | None
    """Offset of the next page, None at the end."""


def conversation_key(place: SessionPlace) -> str:
    """Return the key of a session or archive."""
    return place.file.removesuffix(".jsonl")


def list_conversations(
    data: StoredFiles, given: Mapping[str, str], find: str, offset: int, limit: int
) -> ConversationPage:
    """Return a page of all conversations in which something was said.

    given: names of conversations (`ConversationNames.all`). find: only those whose name, chat or messages contain
    this, in any case; "" for all. Blocks. Raises OSError if a folder cannot be read; a file that is gone meanwhile is left out.
    """
    places = session_places(data)
    wanted, limit = find.casefold(), max(1, min(limit, MOST_ROWS))
    rows: list[ListedConversation] = []
    room = SEARCHED
    for number, (changed, place) in enumerate(places[offset:], offset):
        if len(rows) >= limit or room <= 0:
            return ConversationPage(tuple(rows), number)
        with suppress(OSError):
            row, size = _summarise(data, given, place, changed // 1_000_000, wanted)
            room -= size if wanted else 0
            rows += [] if row is None else [row]
    return ConversationPage(tuple(rows), None)


def conversation_name_key(data: StoredFiles, place: SessionPlace) -> str | None:
    """Return the key of a conversation among the names, None if it has no first entry that can be read. Blocks. Raises OSError."""
    with (
        suppress(FileNotFoundError),
        open_archive(data, place.name, place.files) as file,
    ):
        first = read_line(file.readline(LONGEST_LINE))
        return None if first is None else name_key(place.files, first)
    return None


def _summarise(
    data: StoredFiles, given: Mapping[str, str], place: SessionPlace, changed: int, wanted: str
) -> tuple[ListedConversation | None, int]:
    """Return a conversation, None if nothing was said or it is not wanted, and the bytes that were read. Raises OSError."""
    with open_archive(data, place.name, place.files) as file:
        size = size_of(file)
        first = read_line(file.readline(LONGEST_LINE))
    name = "" if first is None else given.get(name_key(place.files, first), "")
    # The newest messages of a long file; all of a usual one.
    messages, is_whole = read_messages(data, place.files, place.name, SEARCHED if wanted else COUNTED)
    if not messages:
        return None, size
    chat = chat_of(data, place)
    if wanted and not any(wanted in text.casefold() for text in (chat, name, *(message.text for message in messages))):
        return None, size
    count = len(messages) if is_whole else None
    return ListedConversation(
        conversation_key(place),
        name or _title(messages),
        bool(name),
        messages[-1].ts or changed,
        count,
        place.name != CURRENT,
        chat,
        next((message.folder for message in reversed(messages) if message.sender == "user"), ""),
    ), size


def _title(messages: list[PastMessage]) -> str:
    """Return the beginning of the first message of a person on one line, or of a reply if nobody has written."""
    texts = [message.text for message in messages if message.sender == "user" and message.text.strip()]
    texts += [message.text for message in messages if message.text.strip()][:1]
    return truncate(" ".join(texts[0].split()), TITLE_LENGTH) if texts else ""


def conversation_json(row: ListedConversation) -> dict[str, Json]:
    """Return a conversation as the control plane shows it."""
    return {
        "key": row.key,
        "title": row.title,
        "named": row.is_named,
        "last": row.last,
        "messages": row.messages,
        "archived": row.archived,
        "chat": row.chat or None,
        **({"folder": row.folder} if row.folder else {}),
    }
