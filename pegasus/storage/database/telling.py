"""Texts that nodes tell each other beside what is stored: drafts, signs, requests that somebody waits for. Any may be lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import trio

from actors import Signal
from pegasus.messages import Address
from pegasus.storage.database.node import NodeLease
from pegasus.storage.database.tables import Database, DatabaseDown, Notice
from pegasus.storage.messages import LONGEST_TOLD, NextTold, StorageError, TellNodes

MOST_UNSENT: Final = 200
"""Texts that wait to be sent; then the oldest is dropped."""
MOST_UNHEARD: Final = 1_000
"""Texts that wait for whoever asks for them; then the oldest is dropped."""
GATHERED: Final = 0.2
"""Seconds between two notices, unless one cannot hold all texts."""
KIND: Final = "say"
"""Kind of their notices."""


class ToldTexts:
    """Texts on their way to other nodes and from them."""

    def __init__(self, database: Database, node: NodeLease, is_followed: Callable[[Address], bool]) -> None:
        """is_followed: returns whether a client of an address is connected here."""
        self._database = database
        self._node = node
        self._is_followed = is_followed
        self._unsent: deque[str] = deque(maxlen=MOST_UNSENT)
        self._added = Signal()
        self._unheard: deque[str] = deque(maxlen=MOST_UNHEARD)
        self._query: NextTold | None = None

    def tell(self, note: TellNodes) -> None:
        """Send a text soon, unless whom it is for is here, or there is no other node."""
        is_for_others = note.address is None or not self._is_followed(note.address)
        if self._node.living != 1 and is_for_others and len(note.text.encode()) <= LONGEST_TOLD:
            self._unsent.append(note.text)
            self._added.notify()

    async def run(self) -> None:
        """Send texts, for ever. While the database is down they are dropped.

        What comes within GATHERED seconds goes together: a notice is a transaction, and those with one commit one after the other.
        """
        while True:
            seen = self._added.count
            while self._unsent:
                try:
                    await self._database.notify(Notice(KIND, f"{self._node.instance} {self._next()}"))
                except DatabaseDown:
                    self._unsent.clear()
            await trio.sleep(GATHERED)
            await self._added.wait(seen)

    def _next(self) -> str:
        """Return the texts that fit into the next notice, a line each."""
        text = self._unsent.popleft()
        while self._unsent and len(f"{text}\n{self._unsent[0]}".encode()) <= LONGEST_TOLD:
            text = f"{text}\n{self._unsent.popleft()}"
        return text

    def ask(self, query: NextTold) -> None:
        """Answer a query when there is something. It takes the place of an earlier one, which fails."""
        if self._query is not None:
            self._query.reply.fail(StorageError("another NextTold has taken the place of this one"))
        self._query = query
        self._answer()

    def hear(self, payload: str) -> None:
        """Take what a node has told; this one hears itself, too."""
        name, _, texts = payload.partition(" ")
        if name != self._node.instance:
            self._unheard += texts.split("\n")
            self._answer()

    def _answer(self) -> None:
        if self._query is not None and self._unheard:
            query, self._query = self._query, None
            query.reply.send(tuple(self._unheard))
            self._unheard.clear()
