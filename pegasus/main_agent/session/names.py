"""Names that an owner has given to conversations.

A conversation is renamed by `/rename` and on the web page. Until then its title is the beginning of its first message. A name is kept
in `data/main/names.json` by the id of the conversation and not by its file, since the file changes: `/new` makes an archive of it,
a compaction goes on in a new one, and `/resume` takes an archive up again. All these have the same name.

The id is made of the time of the conversation's first entry and the item that wrote it. A file that goes on with a conversation under
another first entry says the id in it. The key of a name has the chat before it, if the conversation belongs to one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from actors import Ref
from pegasus.conversation import Entry, sanitize_for_prompt
from pegasus.main_agent.session.files import SessionFiles
from pegasus.messages import Json
from pegasus.storage import JournalMessage, KeyedStore

CONVERSATION: Final = "conversation"
"""Key of the metadata of a file's first entry: the id of the conversation that it goes on with. Stored."""
NAME_LENGTH: Final = 80
"""Characters of a name."""
MOST_NAMES: Final = 5_000
"""Conversations with names. Their file is written anew with each change."""


class NameRefused(Exception):
    """A name that cannot be given. str() is a sentence for people."""


class ConversationNames:
    """The names, in memory and on disk.

    Example::

        names = ConversationNames()
        await names.load(journal)
        await names.give(name_key(GLOBAL, first_entry), "Invoices of May")
    """

    def __init__(self) -> None:
        self._store = KeyedStore("conversation-names", _read_name)
        """Names by `name_key`."""
        self.follow = self._store.follow
        """Reads them again whenever another node has changed them, until cancelled."""

    @property
    def all(self) -> Mapping[str, str]:
        """All names by `name_key`. A view to read, also in another thread: a change makes another mapping."""
        return self._store.rows

    async def load(self, journal: Ref[JournalMessage]) -> None:
        """Read the names of earlier runs, and write changes to this journal from now on. Never raises."""
        await self._store.open(journal)

    async def give(self, key: str, name: str) -> str:
        """Name a conversation, and return the name as it is kept: on one line. "" takes its name away.

        Raises NameRefused and StorageError; then nothing has changed.
        """
        name = " ".join(sanitize_for_prompt(name).split())
        if len(name) > NAME_LENGTH:
            raise NameRefused(f"A name has at most {NAME_LENGTH} characters; this one has {len(name):,}.")
        async with self._store.change():
            if name and key not in self._store.rows and len(self._store.rows) >= MOST_NAMES:
                raise NameRefused(f"{MOST_NAMES:,} conversations have a name already; take one away before.")
            await self._store.save({key: name} if name else {}, () if name else (key,))
        return name


def name_key(files: SessionFiles, first: Entry) -> str:
    """Return the key of a conversation among the names. first: first entry of its file."""
    return f"{files.prefix}{conversation_id(first)}"


def conversation_id(first: Entry) -> str:
    """Return the id of the conversation that a file goes on with. first: its first entry."""
    id = first.metadata.get(CONVERSATION)
    if isinstance(id, str):
        return id
    item = first.item if first.item is not None else first.metadata.get("closes")
    return f"{first.ts}" if item is None else f"{first.ts}-{item}"


def with_id(entries: Sequence[Entry], first: Entry) -> Entry:
    """Return the first entry of the file that follows these entries, with the id of their conversation if it goes on with that."""
    if not entries or first.metadata.get("type") == "new" or CONVERSATION in first.metadata:
        return first
    id = conversation_id(entries[0])
    return first if id == conversation_id(first) else attrs.evolve(first, metadata={**first.metadata, CONVERSATION: id})


def _read_name(key: str, value: Json) -> tuple[str, str]:
    """Return key and name of an entry of the file. Raises ValueError."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key}: no name")
    return key, value
