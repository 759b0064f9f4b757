"""The services of the Main Agent: its model, prompt and tools, compaction, and what each chat has of its own.

Everything is made once and handed to the agent as finished objects. What depends on settings is behind a handle
(`LiveSettings.follow`) that names the keys it depends on. Only a change of one of those keys makes it anew. So the prompt and the
list of tools stay the same, byte for byte, through all other changes, and providers go on reading them from their caches. A new
service that reads a setting must be named with its key in the same way, or a reload does not reach it.

With `agent.scope = "chat"` each chat has a conversation of its own. It gets its own model (a person may choose one for a chat), its
own compactor (whose summary names the tasks of that chat), and a memory index cut for the window of its model. All else is shared,
tools included: which chat a call belongs to comes with the call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache, partial
from typing import TYPE_CHECKING, Final

import attrs
import trio

from pegasus.app.environment import ConversationModels, Environment
from pegasus.app.shared_services import SPEECH_KEYS, SharedServices
from pegasus.identity import SHARED_FILES, WORKSPACE_FILES, ChannelNote, MainPrompts, PersonaChanges
from pegasus.main_agent import (
    GLOBAL,
    NO_CHAT,
    SEND_FILE,
    SPAWN_ALIAS,
    AgentServices,
    AgentToolset,
    ApartArchives,
    ChatPrompts,
    FileAccess,
    SessionArchives,
    SkillInvoker,
    TaskDelegation,
    archive_prefix,
    archive_tool,
    delegation_tools,
    session_files_of,
)
from pegasus.media import AttachmentReader
from pegasus.memory import ApartMemory, Memory, read_or_nothing
from pegasus.messages import Address, escape_field
from pegasus.models import LanguageModel, ModelClient, ModelError
from pegasus.settings import SANDBOX_KEYS, SERVICE_SECTIONS, Settings
from pegasus.skills import format_listing
from pegasus.tasks import TaskTypes, task_tools
from pegasus.tools import Tool, ToolContext, current_time, memory_tools, persona_tool

if TYPE_CHECKING:
    from pegasus.main_agent import Compactor, Consolidator

TOOLSET_KEYS: Final = (
    "agent.tools",
    "agent.persona",
    "tools.",
    "channels.cli.",
    *(f"channels.{name}.enabled" for name in SERVICE_SECTIONS),
    *SPEECH_KEYS,
)
"""All that prompt and tools are made of. Others, such as budgets or a rule of the policy, must not be among them: a new prompt means
that providers cannot use their caches for the next call."""
LONGEST_NAME: Final = 64
"""Characters of a channel's name that the system prompt may contain. Ids of real services are far shorter."""


@attrs.frozen
class MemoryIndex:
    """The index of memory for a conversation, as long as the window of its model allows.

    Example::

        index = MemoryIndex(memory, models.client("default", "conversation"), models)
        text = await index.read()  # part of the request; "" if memory cannot be read
    """

    memory: Memory
    """The memory of the agent."""
    model: LanguageModel
    """The model of the conversation."""
    models: ConversationModels
    """Know its window."""

    async def read(self, is_apart: bool = False) -> str:
        """Return the index; "" if memory cannot be read. is_apart: guests are heard in the conversation.

        The window is asked for at each call, since a reload or `/model` may have chosen a model with another one. A memory
        that cannot be read does not keep the agent from answering.
        """
        window = 0
        with suppress(ModelError, ValueError):  # the model call that follows reports it
            if isinstance(self.model, ModelClient):
                await self.model.prepare()  # the window decides how much of the index there is room for
            window = self.models.context_window("default")
        memory = ApartMemory(self.memory) if is_apart else self.memory
        return await read_or_nothing(partial(memory.index_message, window))


@attrs.frozen
class ConversationParts:
    """Parts of the services that each conversation has of its own.

    Example::

        parts = _conversation_parts(shared, environment.models.for_chat(chat), chat)
        attrs.evolve(services, model=parts.model, compactor=parts.compactor, memory_index=parts.memory_index.read)
    """

    model: LanguageModel
    """The model that the conversation has chosen."""
    memory_index: MemoryIndex
    """The index of memory for that model."""
    compactor: Callable[[], Compactor]
    """Makes what keeps the session within that window; always returns the same one."""


def main_agent_services(
    shared: SharedServices, persona_changes: PersonaChanges, cron: Tool, known: Sequence[Address]
) -> AgentServices:
    """Return the services of the Main Agent. cron: its tool for jobs. known: addresses that wrote before this start.

    Its model is in the lane "conversation", which goes before tasks when a provider limits the rate: a person
    waits for it. The compactor has a role of its own, so that a cheaper model can write summaries.

    Raises ModelConfigError if the model of the settings cannot work. The services for one chat are not made here but at
    its first message, by `AgentServices.for_chat`: an agent with thousands of known chats would otherwise pay for all of
    them at a start.
    """
    environment, task_agent = shared.environment, shared.task_agent
    in_force, models = environment.in_force, environment.models
    parts = _conversation_parts(shared, models)

    def make_toolset(has_chats: bool, settings: Settings) -> AgentToolset:
        """Return prompt, tools and skills for these settings. Called at the start and after each change of TOOLSET_KEYS.

        has_chats: for conversations that are told nothing of others.
        """
        # Jobs and the persona belong to the conversation; tasks do not get these two tools.
        own = (cron, persona_tool(persona_changes, environment.owners))
        return _toolset(
            shared, settings, own, _channel_notes(settings, () if has_chats else known), has_chats=has_chats
        )

    prompts = ChatPrompts(environment.workspace, environment.files)
    toolset = in_force.follow(partial(make_toolset, environment.has_chats), *TOOLSET_KEYS)

    services = AgentServices(
        model=parts.model,
        toolset=toolset,
        clock=environment.clock,
        started=trio.current_time(),
        config=in_force.follow(lambda settings: settings.agent, "agent."),
        memory_index=parts.memory_index.read,
        model_for=partial(models.client, lane="conversation"),
        work=TaskDelegation(task_agent),
        compactor=parts.compactor,
        consolidator=_consolidator(environment, shared.memory),
        chat_prompts=prompts if environment.has_chats else None,
        context_window=models.context_window,
        traits=models.traits,
        usage_of=models.usage.item_view if models.usage is not None else None,
        node=environment.shared.facts.name if environment.shared is not None else "",
        # Shown to owners in the chat's /status, so that who sees no log learns that commands run without walls.
        warnings=in_force.follow(lambda _: tuple(filter(None, [environment.sandbox.now.warning])), *SANDBOX_KEYS),
        files=in_force.follow(
            lambda settings: FileAccess.within(
                environment.workspace, settings, environment.closed_paths, environment.guests
            ),
            "tools.allowed_paths",
            "media.max_bytes",
        ),
        is_from_guest=environment.tokens.is_from_guest,
        reader=AttachmentReader(shared.journal, partial(models.audio, "transcribe")),
        archives=environment.archives,
        names=environment.conversation_names,
        make_fence=environment.make_fence,
    )
    of_chats = services
    if not environment.has_chats:  # only guests are heard in chats of their own
        apart = in_force.follow(partial(make_toolset, True), *TOOLSET_KEYS)
        of_chats = attrs.evolve(services, toolset=apart, chat_prompts=prompts)
    return attrs.evolve(services, services_of_chat=partial(_services_of_chat, shared, of_chats))


def _services_of_chat(shared: SharedServices, services: AgentServices, chat: Address) -> AgentServices:
    """Return the services for the agent of one chat. services: those that all chats have.

    The objects that are replaced are those that depend on the chat's model or on its tasks. `services_of_chat` is None in the
    result, as a chat has no chats below it.
    """
    environment = shared.environment
    # Models are chosen for single chats only where each of the owner's has its own.
    models = environment.models.for_chat(chat) if environment.has_chats else environment.models
    own = _conversation_parts(shared, models, chat)
    return attrs.evolve(
        services,
        model=own.model,
        memory_index=own.memory_index.read,
        compactor=own.compactor,
        context_window=models.context_window,
        services_of_chat=None,
    )


def _conversation_parts(
    shared: SharedServices, models: ConversationModels, chat: Address | None = None
) -> ConversationParts:
    """Return the parts of one conversation. chat: the chat that it belongs to; None: all chats have one."""
    model = models.client("default", "conversation")
    # The compactor writes the index into a new session, with the same cut as the requests have it.
    memory_index = MemoryIndex(shared.memory, model, models)
    summariser = models.client("compact")

    @cache
    def compactor() -> Compactor:
        from pegasus.main_agent import Compactor, find_open_tasks

        return Compactor(
            summariser,
            models.context_window,
            shared.environment.clock,
            models.measure,
            settings=shared.environment.session,
            open_tasks=partial(find_open_tasks, shared.task_agent, chat),
            memory_index=memory_index.read,
        )

    return ConversationParts(model, memory_index, compactor)


def _consolidator(environment: Environment, memory: Memory) -> Consolidator | None:
    """Return what makes notes of older messages; None where one session has all conversations, or there is no place for notes.

    One session with all conversations keeps its older messages in summaries, which the compactor writes; notes would say
    the same twice. It has the model of the compactor, which may be a cheaper one.
    """
    models = environment.models
    if environment.notes_disk is None or environment.settings.agent.scope != "chat":
        return None
    from pegasus.main_agent import Consolidator

    return Consolidator(
        models.client("compact"),
        models.context_window,
        environment.clock,
        environment.notes_disk,
        memory,
        environment.session,
        environment.files,
        environment.secrets,
    )


def _toolset(
    shared: SharedServices,
    settings: Settings,
    own: Sequence[Tool],
    channels: Sequence[ChannelNote],
    *,
    has_chats: bool,
) -> AgentToolset:
    """Return the Main Agent's prompt, tools and skills. They stay the same until a setting changes, so that providers can cache them.

    own: tools that tasks have not. has_chats: nothing about the owner stands in the prompt that all chats share.

    The setting `agent.tools` is a list of patterns; if it is empty all tools are offered. `spawn_subagent` has
    an alias that models know from elsewhere: it is accepted, but the prompt does not list it.
    """
    environment, task_agent = shared.environment, shared.task_agent
    invoker = SkillInvoker(environment.skills, task_agent, environment.models.client)

    def archives_of(context: ToolContext) -> SessionArchives:
        """Return the archives that a call may read: those of the conversation it came from."""
        scope, chat = settings.agent.scope, context.origin
        if chat is not None and context.principal.is_apart:
            return ApartArchives(environment.archives(session_files_of("chat", chat.address)))
        if chat is None:
            return environment.archives(NO_CHAT if scope == "chat" else GLOBAL)
        return environment.archives(session_files_of(scope, chat.address))

    found = (
        *delegation_tools(task_agent, _descriptions(shared.types)),
        invoker.tool(),
        *memory_tools(shared.memory, partial(archive_prefix, settings.agent.scope)),
        current_time(environment.clock),
        *task_tools(task_agent),
        *shared.speak_tools(settings),
        archive_tool(archives_of),
        *own,
    )
    is_wanted = partial(_matches, settings.agent.tools)
    executor = shared.executor(settings, [tool for tool in found if is_wanted(tool.name)], is_wanted)

    def list_skills() -> tuple[str, tuple[str, ...]]:
        """Return the skills as they are now; the toolset looks at them before the work on a message begins."""
        found = environment.skills.all()
        listing = format_listing(found, environment.models.context_window("default"))
        return listing, tuple(skill.name for skill in found if skill.by_model)

    prompts = MainPrompts(
        environment.persona.now,
        channels=tuple(channels),
        services={name: name in settings.channels and settings.channels[name].enabled for name in SERVICE_SECTIONS},
        subagents=_descriptions(shared.types),
        list_skills=list_skills,
        files=environment.files,
        file_names=SHARED_FILES if has_chats else WORKSPACE_FILES,
    )
    aliases, sends_files = frozenset({SPAWN_ALIAS}), is_wanted(SEND_FILE.name)
    return AgentToolset(prompts, executor, aliases=aliases, sends_files=sends_files, skills=invoker)


def _matches(patterns: Collection[str], name: str) -> bool:
    """Return whether a name matches one of these patterns of shells, such as `memory_*`. No pattern at all means all names."""
    # `fnmatchcase` and not `fnmatch`, which ignores upper and lower case on some systems.
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _channel_notes(settings: Settings, known: Sequence[Address]) -> tuple[ChannelNote, ...]:
    """Return the channels that the system prompt names: the configured ones, then those that wrote before this start.

    They are sorted, because an order by time would give the next start another prompt and nothing of it would be cached. An id that is
    no plain name is left out: strangers choose their ids, and one that is a sentence would read as ours. Programs that call
    over the terminal's channel are not listed, nor are separate chats. known: (): no chat is told of the others.
    """
    configured = [ChannelNote("cli", "main")] if settings.channels["cli"].enabled else []
    plain = sorted(
        (address.type, address.channel_id)
        for address in known
        if address.type != "cli" and not address.is_separate and _is_plain(address)
    )
    return (*configured, *(ChannelNote(escape_field(kind), escape_field(channel_id)) for kind, channel_id in plain))


def _is_plain(address: Address) -> bool:
    """Return whether type and id of an address are single words of a reasonable length."""
    names = (address.type, address.channel_id)
    return all(len(name) <= LONGEST_NAME and len(name.split()) == 1 for name in names)


def _descriptions(types: TaskTypes) -> dict[str, str]:
    """Return name and description of each type, for the model that delegates."""
    return {task_type.name: task_type.description for task_type in types.values()}
