"""Chat commands: the answers to those that need more than the Main Agent has.

The Main Agent knows the conversation and its own work, and answers the commands about these. Other commands need parts
that stand beside it in the tree: models and their costs, approvals, pairing, the persona, skills. They are answered
here, in the composition root, so that the Main Agent need not import those packages or be given each of their services.

Every answer is text for a person. A mistake in a command is an answer too: it says what was found and what is allowed,
and nothing is raised. Only a StorageError gets through, when a decision could not be written; the Main Agent answers
with its text.

Anybody who may write to the agent may call a command. Those that change something, and those that show the model or what it
costs, check for an owner first, by the channel and the sender of the message, never by its text. What else they show is for all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TypeAlias

import attrs

from pegasus.access import APPROVALS, APPROVE, DENY, Principal, RequestRefused, access_text, access_view
from pegasus.app.services import Services
from pegasus.conversation import sanitize_for_prompt
from pegasus.formatting import quote, truncate
from pegasus.main_agent import (
    SKILLS,
    TaskCommands,
    describe_speech,
    persona_answer,
    skills_answer,
)
from pegasus.messages import Address, InboundMessage
from pegasus.models import (
    SPEECHES,
    LanguageModel,
    ModelClient,
    ModelError,
    ModelSwitch,
)

CommandAnswer: TypeAlias = Callable[[InboundMessage, Principal], Awaitable[str]]
"""Returns the answer to a command. A StorageError that it raises becomes the answer."""


@attrs.frozen(eq=False, repr=False)
class ChatCommands:
    """The answers to the commands that need more than the Main Agent has, such as `/usage` and `/tasks`.

    The Main Agent recognises a command by the first word of a message and lists these names in `/help`; it answers `/stop`,
    `/new`, `/status` and `/help` itself. The services are read at each command, so that it sees what is in force.

    Example::

        answers = ChatCommands(services).answers()
        text = await answers["/usage"](message, person)
        await answers["/model"](message, person)  # "/model anthropic/claude-opus-4": chooses it, if an owner wrote that
    """

    services: Services
    """The services of the tree."""

    def answers(self) -> Mapping[str, CommandAnswer]:
        """Return the function that answers each command, by the name of the command.

        Called by the tree for the Main Agent, and by the daemon for menus. Those about tasks are left out without a task system.
        """
        main_agent, approvals = self.services.main_agent, self.services.approvals
        answers: dict[str, CommandAnswer] = {
            "/usage": self._usage,
            "/model": self._model,
            "/speech": self._speech,
            "/undo": self._undo,
            "/persona": self._persona,
            "/pair": self._pair,
            SKILLS: self._skills,
            APPROVALS: approvals.list_command,
            APPROVE: approvals.answer_command,
            DENY: approvals.answer_command,
        }
        if main_agent.work is not None:
            answers |= TaskCommands(main_agent.work.agent, self.services.environment.clock).answers()
        return answers

    async def _usage(self, message: InboundMessage, person: Principal) -> str:
        """Show tokens and costs. The channel is passed on since a channel may have a budget of its own."""
        if not person.is_owner:
            return "Only my owner sees what I have used."
        return await self.services.environment.models.usage_text(message.channel)

    async def _undo(self, message: InboundMessage, person: Principal) -> str:
        """Take back the last changes of memory and of files."""
        from pegasus.app.undo import UndoCommand

        return await UndoCommand(self.services, message, person).answer(argument_of(message).strip())

    async def _model(self, message: InboundMessage, person: Principal) -> str:
        """Show the model to an owner, or change it: that of the chat, if each has a conversation of its own."""
        if not person.is_owner:
            return "Only my owner sees and chooses the model."
        # How the model speaks is part of the answer, since choosing another model may change it.
        used, switch = await self.model_of(message.channel.address), self._switch_of(message)
        if switch is None:
            return f"I use {used.name}.\n{self._how_it_speaks(used)}"
        answer = await switch.answer(argument_of(message))  # may end with a list: a blank line follows
        return f"{answer}\n\n{self._how_it_speaks(used)}"

    async def model_of(self, address: Address) -> LanguageModel:
        """Return the model of the conversation that an address belongs to.

        Right after the start it is still being looked for a local model; the answer waits for that.
        """
        agent = self.services.main_agent
        if self.services.environment.has_chats:
            agent = agent.for_chat(address)
        if isinstance(agent.model, ModelClient):
            with suppress(ModelError):  # the settings name a model that cannot work; its name is shown all the same
                await agent.model.prepare()
        return agent.model

    def _switch_of(self, message: InboundMessage) -> ModelSwitch | None:
        """Return what changes the model of that conversation; None in tests that have no such thing."""
        environment = self.services.environment
        if environment.switch is None or not environment.has_chats:
            return environment.switch
        return environment.switch.for_chat(message.channel.address)

    async def _speech(self, message: InboundMessage, person: Principal) -> str:
        """Show an owner how the model speaks, or choose it.

        The choice belongs to the model and not to the chat: it is about whether this model
        uses the tool `reply` reliably.
        """
        if not person.is_owner:
            return "Only my owner sees and changes how I speak."
        used = await self.model_of(message.channel.address)
        wanted = argument_of(message).strip().lower()
        if not wanted:
            usage = f"/speech {' | '.join(SPEECHES)} changes it for this model."
            return f"{used.name}: {self._how_it_speaks(used)}\n{usage}"
        if wanted not in SPEECHES:
            return f"/speech: found {quote(wanted, 40)}; allowed: {', '.join(SPEECHES)}."
        await self.services.environment.models.traits.choose_speech(used.name, wanted)
        return f"{used.name}: {self._how_it_speaks(used)}"

    def _how_it_speaks(self, model: LanguageModel) -> str:
        """Return the way of speaking in force, and why: by the setting, by a choice, or by what was observed."""
        environment = self.services.environment
        return describe_speech(environment.settings.agent.speech, environment.models.traits.get(model.name))

    async def _persona(self, message: InboundMessage, person: Principal) -> str:
        """Show the persona and its proposals or, for an owner, decide about them."""
        environment = self.services.environment
        return await persona_answer(
            self.services.persona_changes,
            environment.persona.now,
            message.text,
            message.channel,
            is_by_owner=person.is_owner,
        )

    async def _pair(self, message: InboundMessage, person: Principal) -> str:
        """Show who wants to be let in or, by a code, let somebody in.

        A code alone approves: that is what the newcomer was told to pass on, and what an owner pastes.
        """
        if not person.is_owner:
            return "Only my owner lets people in."
        book, by = self.services.environment.pairing, f"{message.channel.type}:{message.channel.channel_id}"
        try:
            match argument_of(message).split():
                case [] | ["list"]:
                    await book.ensure_read()
                    return access_text(access_view(*book.view()), "/pair")
                # The name that the list shows may have blanks in it.
                case ["revoke", *who] if who:
                    await book.revoke(" ".join(who))
                    return f"{truncate(' '.join(who), 80)} is not let in any more."
                case [code]:
                    return f"{await book.approve(code, by)} may write to me from now on."
        except RequestRefused as error:
            return error.sentence
        return "/pair, /pair CODE, or /pair revoke WHO, where WHO is as /pair shows it."

    async def _skills(self, message: InboundMessage, person: Principal) -> str:
        """Show the skills or, for an owner, accept one of the workspace."""
        environment = self.services.environment
        return await skills_answer(environment.skills, environment.clock, message, person)


def argument_of(message: InboundMessage) -> str:
    """Return the text behind the command of a message.

    Characters that a terminal or a model would misread are removed before, as from every text that a person wrote.
    """
    _, *argument = sanitize_for_prompt(message.text).split(None, 1)
    return "".join(argument)
