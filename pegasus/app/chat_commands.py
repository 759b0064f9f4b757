"""Chat commands: the answers to those that need more than the Main Agent has, and the list of what a person may type.

The list is the control call `completions`, for the menus of a chat:

    {"commands":[{"name":"/stop","description":"…"}],"skills":[{"name":"review","description":"…"}],"models":["anthropic/…"]}

A chat asks for it in the background when it connects and now and then later. So a command or a skill that this version of the
agent has is offered without the chat knowing it, and a skill that was just written is offered soon.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

import attrs

from pegasus.app.services import Services
from pegasus.conversation import sanitize_for_prompt
from pegasus.formatting import quote, truncate
from pegasus.gateway import Caller, Params
from pegasus.intake import PairingRefused, access_text, access_view
from pegasus.main_agent import (
    SKILLS,
    TASKS,
    SkillInvoker,
    TaskCommand,
    describe_commands,
    describe_speech,
    persona_answer,
    skills_answer,
)
from pegasus.messages import InboundMessage, Json
from pegasus.models import (
    SPEECHES,
    ChatModelSwitch,
    LanguageModel,
    ModelClient,
    ModelError,
    ModelSwitch,
    model_command,
)
from pegasus.policy import APPROVE, DENY, sender_of

CommandAnswer: TypeAlias = Callable[[InboundMessage], Awaitable[str]]
"""Returns the answer to a command. A StorageError that it raises becomes the answer."""


def chat_commands(services: Services) -> Mapping[str, CommandAnswer]:
    """Return the answers to the commands that need more than the Main Agent has, such as `/usage` and `/tasks`.

    The Main Agent recognises a command by the first word of a message and lists these names in `/help`; it answers `/stop`,
    `/new`, `/status` and `/help` itself. The services are read at each command, so that it sees what is in force.
    """
    environment, owners = services.environment, services.environment.owners
    per_chat = environment.has_chats

    async def usage(message: InboundMessage) -> str:
        return await environment.models.usage_text(message.channel)

    async def model_of(message: InboundMessage) -> LanguageModel:
        """Return the model of the conversation that a message belongs to.

        Right after the start it is still being looked for a local model; the answer waits for that.
        """
        model = (
            services.main_agent.for_one_chat(message.channel.address).model if per_chat else services.main_agent.model
        )
        if isinstance(model, ModelClient):
            with suppress(ModelError):  # the settings name a model that cannot work; its name is shown all the same
                await model.prepare()
        return model

    def switch_of(message: InboundMessage) -> ModelSwitch | None:
        """Return what changes the model of that conversation; None in tests that have no such thing."""
        if environment.switch is None or not per_chat:
            return environment.switch
        return ChatModelSwitch(environment.switch, environment.models.chat_choices, message.channel.address)

    async def model(message: InboundMessage) -> str:
        """Show the model or, for an owner, change it: that of the chat, if each has a conversation of its own."""
        used, switch = await model_of(message), switch_of(message)
        if switch is None:
            return f"I use {used.name}.\n{how_it_speaks(used)}"
        argument, is_by_owner = argument_of(message), sender_of(message, owners.now).is_owner
        answer = await model_command(argument, switch, owner=is_by_owner)  # may end with a list: a blank line follows
        return f"{answer}\n\n{how_it_speaks(used)}" if is_by_owner or not argument.strip() else answer

    async def speech(message: InboundMessage) -> str:
        """Show how the model speaks or, for an owner, choose it."""
        used = await model_of(message)
        wanted = argument_of(message).strip().lower()
        if not wanted:
            usage = f"/speech {' | '.join(SPEECHES)} changes it for this model."
            return f"{used.name}: {how_it_speaks(used)}\n{usage}"
        if not sender_of(message, owners.now).is_owner:
            return "Only my owner may change how I speak."
        if wanted not in SPEECHES:
            return f"/speech: found {quote(wanted, 40)}; allowed: {', '.join(SPEECHES)}."
        await environment.models.traits.choose_speech(used.name, wanted)
        return f"{used.name}: {how_it_speaks(used)}"

    def how_it_speaks(model: LanguageModel) -> str:
        traits = environment.models.traits.get(model.name)
        return describe_speech(environment.settings.agent.speech, traits)

    async def persona(message: InboundMessage) -> str:
        """Show the persona and its proposals or, for an owner, decide about them."""
        listed = owners.now if sender_of(message, owners.now).is_owner else ()
        return await persona_answer(services.evolution, environment.persona.now, listed, message.text, message.channel)

    async def pair(message: InboundMessage) -> str:
        """Show who wants to be let in or, by a code, let somebody in."""
        if not sender_of(message, owners.now).is_owner:
            return "Only my owner lets people in."
        book, by = environment.pairing, f"{message.channel.type}:{message.channel.channel_id}"
        try:
            match argument_of(message).split():
                case [] | ["list"]:
                    return access_text(access_view(*book.view()), "/pair")
                case ["revoke", *who] if who:
                    await book.revoke(" ".join(who))
                    return f"{truncate(' '.join(who), 80)} is not let in any more."
                case [code]:
                    return f"{await book.approve(code, by)} may write to me from now on."
        except PairingRefused as error:
            return f"{str(error)[:1].upper()}{str(error)[1:]}."
        return "/pair, /pair CODE, or /pair revoke WHO, where WHO is as /pair shows it."

    answers: dict[str, CommandAnswer] = {
        "/usage": usage,
        "/model": model,
        "/speech": speech,
        "/persona": persona,
        "/pair": pair,
    }
    answers[SKILLS] = lambda message: skills_answer(environment.skills, owners.now, environment.clock, message)
    answers |= dict.fromkeys((APPROVE, DENY), services.approvals.answer_command)
    if services.main_agent.work is not None:
        answers[TASKS] = TaskCommand(services.main_agent.work.agent, environment.clock, owners).answer
    return answers


def argument_of(message: InboundMessage) -> str:
    """Return the text behind the command of a message."""
    _, *argument = sanitize_for_prompt(message.text).split(None, 1)
    return "".join(argument)


@attrs.frozen(eq=False, repr=False)
class CompletionMethod:
    """The method `completions` of the control plane.

    For example:

        method = CompletionMethod(answered={"/usage", "/model"}, skills=toolset.skills, models=service.choices)
        await method.call(caller, {})
    """

    answered: Collection[str]
    """Commands that the composition root answers, beside those of the Main Agent itself."""
    skills: SkillInvoker | None
    """Knows the skills; None where there are none."""
    models: Callable[[], Sequence[str]]
    """Returns the models that can be chosen with `/model`."""

    async def call(self, caller: Caller, params: Params) -> Json:
        """Return commands, skills that people may call, and models. The folders of skills are read again before."""
        skills = await self.skills.by_people() if self.skills is not None else ()
        return {
            "commands": [
                {"name": name, "description": text} for name, text in describe_commands(self.answered).items()
            ],
            "skills": [{"name": skill.name, "description": skill.description} for skill in skills],
            "models": list(self.models()),
        }
