"""Chat commands that need more than the Main Agent has: `/usage`, `/model` and `/persona`.

The Main Agent answers `/stop`, `/new`, `/status` and `/help` itself. It is given these as functions from the message to the
answer's text; they may raise StorageError, which becomes the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import attrs

from pegasus.app.services import Services
from pegasus.conversation import sanitize_for_prompt
from pegasus.intake import is_owner
from pegasus.main_agent import persona_answer
from pegasus.messages import InboundMessage
from pegasus.models import model_command

CommandAnswer: TypeAlias = Callable[[InboundMessage], Awaitable[str]]
"""Returns the answer to a command."""


@attrs.frozen(eq=False)
class ChatCommands:
    """The answers, over the services of the tree.

    For example:

        answers = ChatCommands(services).answers()
        text = await answers["/usage"](message)
    """

    services: Services
    """Read at each command, so that a command sees the settings and the model in force."""

    def answers(self) -> Mapping[str, CommandAnswer]:
        """Return the answers by command.

        The Main Agent recognises a command by the first word of a message and lists these names in `/help`.
        """
        return {"/usage": self.usage, "/model": self.model, "/persona": self.persona}

    async def usage(self, message: InboundMessage) -> str:
        """Return what model calls have used, in this chat too."""
        return await self.services.environment.models.usage_text(message.channel)

    async def model(self, message: InboundMessage) -> str:
        """Show the model or, for an owner, change it.

        Without a switch (in tests) only the name is shown. The new model is used from the next call on, and
        after restarts.
        """
        environment = self.services.environment
        if environment.switch is None:
            return f"I use {self.services.agent.model.name}."
        _, *argument = sanitize_for_prompt(message.text).split(None, 1)
        owner = is_owner(message.channel, environment.settings.agent.owners)
        return await model_command("".join(argument), environment.switch, owner=owner)

    async def persona(self, message: InboundMessage) -> str:
        """Show the persona and its proposals or, for an owner, decide about them."""
        environment, evolution = self.services.environment, self.services.evolution
        owners = environment.settings.agent.owners
        return await persona_answer(evolution, environment.persona, owners, message.text, message.channel)
