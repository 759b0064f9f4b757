"""The command `/model`: shows which model answers, and changes it for one chat or for all.

/model                       shows the model and the choices
/model anthropic/claude-…    changes it, for owners only
/model default               goes back to the model of the settings
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import attrs

from pegasus.messages import Address
from pegasus.models.providers import ModelConfigError
from pegasus.models.service import ModelService

_BACK: Final = "default"
"""Argument that goes back to the model of the settings."""
_MOST_SHOWN: Final = 40
"""Models in a list."""


@attrs.frozen(eq=False, repr=False)
class ModelSwitch:
    """The model of one conversation, or of all, and the way to change it."""

    _models: ModelService
    """All models."""
    _keep: Callable[[str], Awaitable[object]]
    """Keeps a model that can be chosen, "" for that of the settings. It is on disk before it holds, so that an answer "Now using …"
    is still true after a crash. Raises StorageError; nothing has changed then."""
    _chat: Address | None = None
    """The chat that it is for; None: all that have no choice of their own."""

    def for_chat(self, chat: Address) -> ModelSwitch:
        """Return the switch of one chat, which changes the model of no other."""
        return ModelSwitch(self._models, partial(self._models.chat_choices.choose, chat), chat)

    @property
    def chosen(self) -> str:
        """Model that was chosen and can be used; "" if the settings decide."""
        models, chat = self._models, self._chat
        return models.chosen if chat is None else models.chat_choices.usable(chat, models.check_choice)

    @property
    def current(self) -> str:
        """`<provider>/<model>` that answers now."""
        return (self._chat and self.chosen) or self._models.target("default").name

    @property
    def _origin(self) -> str:
        """Reason why it answers, for people."""
        if self._chat is not None and self.chosen:
            return "chosen with /model for this chat"
        return "chosen with /model" if self._models.chosen else self._models.origin

    async def answer(self, argument: str) -> str:
        """Return the answer to the `/model argument` of an owner. Raises StorageError."""
        wanted, models, before = argument.strip(), self._models, self.current
        if not wanted:
            await models.look_around()
            return "\n".join([f"I use {self.current} ({self._origin}).", *models.rules, _list(models.choices())])
        spec = "" if wanted.lower() == _BACK else wanted
        try:
            models.check_choice(spec)
            await self._keep(spec)
        except ModelConfigError as error:
            return f"{error}\n{_list(models.choices())}\n\nStill using {before}."
        if (now := self.current) == before:
            return f"Still using {now}."
        back = f" /model {_BACK} goes back to the one of the settings." if self.chosen else ""
        return "\n".join([f"Now using {now} (before: {before}).{back}", *models.rules])


def _list(choices: Sequence[str]) -> str:
    lines = [f"- {name}" for name in choices[:_MOST_SHOWN]]
    if len(choices) > _MOST_SHOWN:
        lines.append(f"- … {len(choices) - _MOST_SHOWN} more")
    return "\n".join(["Models that can be chosen (/model <provider>/<model>):", *lines])
