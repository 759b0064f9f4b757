"""Names of the files of a session, and of the chat that it belongs to.

With `agent.scope = "global"` there is one session, in `data/main/current.jsonl`, whose archives lie beside it. With "chat" each chat
has one, and with both each that is separate (`Address.is_separate`), in `data/sessions/<key>.jsonl`. The key is that of the chat,
`telegram:-100123`, with every byte but `A-Za-z0-9_-` percent-encoded (RFC 3986), so that two chats never share a file and the chat can
be read from the name. There is no dot in a key, so `<key>.<time>.jsonl` is an archive of that chat and of no other.

File systems allow names of 255 bytes. A key beyond LONGEST_KEY is cut, and ends in CUT and the SHA-256 of the whole. The first line
of the file then names the chat. No other key contains CUT, so nobody can choose a channelId whose key is that of a long one.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import attrs

from pegasus.formatting import CUT, file_key
from pegasus.messages import Address, ChannelInfo
from pegasus.storage import owner_of

CURRENT: Final = "current.jsonl"
"""File of the one session of scope "global", and what the session of a chat is called beside its archives."""
SESSIONS: Final = "sessions"
"""Folder of the sessions of chats, below data/."""


@attrs.frozen(eq=False, repr=False)
class SessionFiles:
    """Place of a session: `SessionFiles("sessions", "web%3Ac1.jsonl", "web%3Ac1.", "web:c1")`.

    Example: `chat_files(Address("web", "c1")).path` is "sessions/web%3Ac1.jsonl".
    """

    folder: str
    """Folder of all its files, below data/."""
    current: str
    """File name of the session."""
    prefix: str = ""
    """Beginning of the file names of its archives."""
    chat: str = ""
    """The chat that it belongs to, `<type>:<channelId>`; "" if it belongs to all."""

    @cached_property
    def path(self) -> str:
        """Return the path of the session below data/."""
        return f"{self.folder}/{self.current}"

    @property
    def owner(self) -> str:
        """Return the key by which whoever writes the session has its lease: "chat/web%3Ac1", and "main" for the session of all."""
        return owner_of(self.path)

    def file(self, name: str) -> str:
        """Return the file name of the session (CURRENT) or of one of its archives."""
        return self.current if name == CURRENT else self.prefix + name


GLOBAL: Final = SessionFiles("main", CURRENT)
"""The one session of scope "global"."""

NO_CHAT: Final = SessionFiles(SESSIONS, f"{CUT}.jsonl", f"{CUT}.")
"""A session that no chat has: no key begins with CUT."""


def session_files_of(scope: str, chat: Address) -> SessionFiles:
    """Return the files of the session that has the conversation with a chat. scope: the setting `agent.scope`."""
    return chat_files(chat) if scope == "chat" or chat.is_separate else GLOBAL


def archive_prefix(scope: str, chat: ChannelInfo | None) -> str:
    """Return how the names of the archives begin that work for a chat may look into.

    scope: the setting `agent.scope`. chat: None if it is not known; with a conversation for each chat, it then has none.
    """
    if chat is None:
        return NO_CHAT.prefix if scope == "chat" else GLOBAL.prefix
    return session_files_of(scope, chat.address).prefix


def chat_files(chat: Address) -> SessionFiles:
    """Return the files of a chat's session."""
    key = chat_key(chat)
    return SessionFiles(SESSIONS, f"{key}.jsonl", f"{key}.", f"{chat.type}:{chat.channel_id}")


def chat_key(chat: Address) -> str:
    """Return a chat as it stands in file names: `chat_key(Address("web", "c/1"))` is `web%3Ac%2F1`."""
    return file_key(str(chat))
