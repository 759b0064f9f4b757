"""Models that owners have chosen for single chats, with `/model` where each chat has a conversation of its own.

A choice holds for its chat only; all other chats use the model of the settings. It is kept in `data/models/chats.json`:

    {"telegram:-100123": "anthropic/claude-opus-5-5"}

A choice is on disk before it holds, so that an answer "Now using …" is still true after a crash. A model that the settings do not
allow any more is not used, and not forgotten either: the chat has it again when the settings allow it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from actors import Ref
from pegasus.messages import Address, Json
from pegasus.models.providers import ModelConfigError
from pegasus.observe import get_logger
from pegasus.storage import JournalMessage, KeyedStore

if TYPE_CHECKING:
    from pegasus.models.roles import ModelSwitch

_log = get_logger("models")


class ChatChoices:
    """The models that were chosen for chats, in memory and on disk.

    Example:
        choices = ChatChoices()
        await choices.load(journal)
        await choices.choose(Address("web", "c1"), "anthropic/claude-opus-5-5")
        choices.get(Address("web", "c1"))  # "anthropic/claude-opus-5-5", also after a restart
    """

    def __init__(self) -> None:
        self._store = KeyedStore("model-choices", _read_choice, str)
        """Models by chat, as `str(address)`."""

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


@attrs.frozen(eq=False, repr=False)
class ChatModelSwitch:
    """The `ModelSwitch` of one chat: changes the model of that chat and of no other."""

    _all: ModelSwitch
    """The switch of the whole agent, whose model a chat without a choice has."""
    _choices: ChatChoices
    """Choices of all chats."""
    _chat: Address
    """Chat that this switch is for."""

    @property
    def current(self) -> str:
        """`<provider>/<model>` that answers in this chat now."""
        return self.chosen or self._all.current

    @property
    def chosen(self) -> str:
        """Model that was chosen for this chat and can be used; "" if there is none."""
        return self._choices.usable(self._chat, self._all.check)

    @property
    def origin(self) -> str:
        """Reason why it answers, for people."""
        return "chosen with /model for this chat" if self.chosen else self._all.origin

    @property
    def rules(self) -> Sequence[str]:
        """Rules that send calls to other models, a line for each."""
        return self._all.rules

    def check(self, spec: str) -> None:
        """Check whether `choose` would work. Raises ModelConfigError with what is allowed."""
        self._all.check(spec)

    async def look_around(self) -> None:
        """Find out which local models there are now. At most a few seconds; never raises."""
        await self._all.look_around()

    def choices(self) -> Sequence[str]:
        """Return the models that can be chosen, those of the settings first."""
        return self._all.choices()

    async def choose(self, spec: str) -> str:
        """Use this model in this chat from the next call on, over restarts; "" to use that of all chats. Return its name.

        Raises ModelConfigError with what is allowed, and StorageError; nothing has changed then.
        """
        self._all.check(spec)
        await self._choices.choose(self._chat, spec)
        return self.current
