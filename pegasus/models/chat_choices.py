"""Models that owners have chosen for single chats, with `/model` where each chat has a conversation of its own.

A choice holds for its chat only; all other chats use the model of the settings. It is kept in `data/models/chats.json`:

    {"telegram:-100123": "anthropic/claude-opus-5-5"}

A choice is on disk before it holds, so that an answer "Now using …" is still true after a crash. A model that the settings do not
allow any more is not used, and not forgotten either: the chat has it again when the settings allow it again.
"""

from __future__ import annotations

from collections.abc import Callable

from actors import Ref
from pegasus.messages import Address, Json
from pegasus.models.providers import ModelConfigError
from pegasus.observe import get_logger
from pegasus.storage import JournalMessage, KeyedStore

_log = get_logger("models")


class ChatChoices:
    """The models that were chosen for chats, in memory and on disk."""

    def __init__(self) -> None:
        self._store = KeyedStore("model-choices", _read_choice)
        """Models by chat, as `str(address)`."""
        self.follow = self._store.follow
        """Reads them again whenever another node has changed them, until cancelled."""

    def get(self, chat: Address) -> str:
        """Return the model that was chosen for a chat, "" if none was."""
        return self._store.rows.get(str(chat), "")

    def usable(self, chat: Address, check: Callable[[str], None]) -> str:
        """Return the model that was chosen for a chat, "" if none was or if it cannot be used now.

        check: raises ModelConfigError for a model that cannot be chosen.
        """
        spec = self.get(chat)
        if spec:
            try:
                check(spec)
            except ModelConfigError:
                return ""
        return spec

    async def load(self, journal: Ref[JournalMessage]) -> None:
        """Read the choices of earlier runs, and write changes to this journal from now on. Never raises."""
        await self._store.open(journal)

    async def choose(self, chat: Address, spec: str) -> None:
        """Keep a model for a chat, "" for that of the settings. Raises StorageError, and nothing has changed then."""
        async with self._store.change():
            await self._store.save({str(chat): spec} if spec else {}, [str(chat)])


def _read_choice(chat: str, value: Json) -> tuple[str, str]:
    """Return chat and model of an entry of the file. Raises ValueError."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{chat}: no model")
    return chat, value
