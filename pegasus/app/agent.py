"""What the Main Agent is made of: its mind, its tools and prompt, and the answers to commands that others know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Final

from pegasus.app.commons import AGENT, Commons
from pegasus.conversation import sanitize_for_prompt
from pegasus.identity import ChannelNote
from pegasus.main_agent import (
    REPLY,
    SPAWN_ALIAS,
    AgentConfig,
    AgentServices,
    AgentToolset,
    Compactor,
    OpenTaskFinder,
    SkillInvoker,
    TaskDelegation,
    archive_tool,
    delegation_tools,
    persona_answer,
)
from pegasus.storage import escape_field

if TYPE_CHECKING:
    from pegasus.messages import Address, InboundMessage
    from pegasus.models import ModelRequest, TokenCounter
    from pegasus.settings import Settings

_LONGEST_NAME: Final = 64
"""Characters of a channel's name that the prompt may have in it."""

Answer = Callable[["InboundMessage"], Awaitable[str]]
"""Answers a command."""


def make_agent_services(commons: Commons, known: Sequence[Address] = ()) -> AgentServices:
    """Return what the Main Agent works with.

    known: addresses that were there before this start, newest first.
    """
    parts, workshop, task_agent = commons.parts, commons.workshop, commons.find(AGENT)
    compactor = Compactor(
        workshop.model_for("compact"),
        workshop.context_window,
        parts.clock,
        count_tokens=partial(_count_tokens, workshop.counter) if workshop.counter is not None else None,
        threshold_share=parts.settings.session.compact_threshold,
        timeout=parts.settings.models.timeout,
        open_tasks=OpenTaskFinder(task_agent),
        memory_index=commons.memory_index,
    )
    return AgentServices(
        model=parts.model,
        toolset=make_toolset(commons, _channels(parts.settings, known)),
        clock=parts.clock,
        config=_agent_config(parts.settings),
        memory_index=commons.memory_index,
        model_for=workshop.talker_for,
        work=TaskDelegation(task_agent, workshop.wanted),
        compactor=compactor,
    )


def make_answers(commons: Commons) -> Mapping[str, Answer]:
    """Who answers which command, beside those that the agent answers itself."""
    parts = commons.parts
    owners = parts.settings.agent.owners

    async def usage(message: InboundMessage) -> str:
        if parts.models is None:
            return "Usage is not counted."
        return await parts.models.usage_text(message.channel)

    async def model(message: InboundMessage) -> str:
        from pegasus.intake import is_owner
        from pegasus.models import model_command

        if parts.switch is None:
            return f"I use {parts.model.name}."
        _, *argument = sanitize_for_prompt(message.text).split(None, 1)
        return await model_command("".join(argument), parts.switch, owner=is_owner(message.channel, owners))

    async def persona(message: InboundMessage) -> str:
        return await persona_answer(commons.evolution(), parts.persona, owners, message.text, message.channel)

    return {"/usage": usage, "/model": model, "/persona": persona}


# ------------------------------------------------------------------ its parts


def make_toolset(commons: Commons, channels: Sequence[ChannelNote]) -> AgentToolset:
    """Return prompt and tools, and what is loaded with them. channels: the channels that the prompt names."""
    from pegasus.identity import main_prompt
    from pegasus.skills import BUILT_IN, SkillCatalog, format_listing
    from pegasus.tasks import task_tools
    from pegasus.tools import current_time, memory_tools, persona_tool

    parts, workshop, agent = commons.parts, commons.workshop, commons.find(AGENT)
    types = commons.load_task_types().described()
    skills = SkillCatalog(BUILT_IN, *workshop.skills, in_thread=workshop.in_thread)
    invoker = SkillInvoker(skills, agent, workshop.model_for)
    found = (
        *delegation_tools(agent, types),
        invoker.tool(),
        *memory_tools(commons.memory()),
        current_time(parts.clock),
        *task_tools(agent),
        *((archive_tool(workshop.archives()),) if workshop.archives is not None else ()),
        persona_tool(commons.evolution(), parts.settings.agent.owners),
    )
    tools = {tool.name: tool for tool in found if _is_wanted(tool.name, parts.settings.agent.tools)}
    prompt = main_prompt(
        parts.persona,
        tools=(REPLY.name, *(name for name in tools if name != SPAWN_ALIAS)),
        channels=channels,
        subagents=types,
        skills=format_listing(skills.all(), workshop.context_window("default")),
        direct=parts.settings.agent.speech == "direct",
    )
    return AgentToolset(prompt, tools, aliases=frozenset({SPAWN_ALIAS}), skills=invoker)


async def _count_tokens(counter: Callable[[], TokenCounter], request: ModelRequest, limit: int) -> int:
    return await counter().compare(request, limit)


def _agent_config(settings: Settings) -> AgentConfig:
    agent = settings.agent
    return AgentConfig(
        max_thoughts=agent.max_thoughts,
        max_replies=agent.max_replies,
        tool_timeout=settings.tools.timeout,
        tool_timeouts=settings.tools.timeouts,
        direct=agent.speech == "direct",
        when_busy=agent.when_busy,
        steer_cap=agent.steer_cap,
        burst_cap=agent.burst_cap,
    )


def _is_wanted(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _channels(settings: Settings, known: Sequence[Address]) -> tuple[ChannelNote, ...]:
    """The configured channels, then those that were there before; programs that call over the terminal's channel are no people.

    In an order that does not depend on who wrote last: the next start would else have another prompt, and providers nothing cached.
    What is no plain name is left out: strangers choose their ids, and one that is a sentence would be read as ours here.
    """
    configured = [ChannelNote("cli", "main")] if settings.channels.cli.enabled else []
    people = sorted((one.type, one.channel_id) for one in known if one.type != "cli" and _is_plain(one))
    others = [ChannelNote(escape_field(kind), escape_field(channel_id)) for kind, channel_id in people]
    return (*configured, *others)


def _is_plain(address: Address) -> bool:
    """Whether it is short and has no blanks."""
    return all(len(name) <= _LONGEST_NAME and len(name.split()) == 1 for name in (address.type, address.channel_id))
