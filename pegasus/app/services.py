"""The services that the actors of a tree work with, built once from its environment and passed to them.

Nothing here is an actor. `build_services` is called when the journal runs; what it makes is finished, so that no actor has to know how
its services are made, and nothing is looked up while a message is handled.

The services need addresses of actors that start later, such as the task system's agent for the Main Agent's
tools. An address is a name in the tree (`Ref`), valid before its actor runs and after it was restarted, so
there is no order to keep and no cycle to break. Where a message may come before its actor runs, the sender waits for
that first (`wait_until_running`).

When the journal crashes, the root restarts everything behind it; the services stay the same
objects and go on with the new journal behind the same address.

Problems with files of users (skills, task types) are logged and the rest is used: a mistake in one file must
not keep the agent from starting.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final

import attrs

from actors import Ref
from pegasus.app.approvals import ApprovalDesk
from pegasus.app.environment import (
    ADAPTER,
    APPROVALS,
    GATEWAY,
    SANDBOX_KEYS,
    SCHEDULE,
    TASK_AGENT,
    ConversationModels,
    Environment,
)
from pegasus.app.task_services import task_deps
from pegasus.app.tools import SPEECH_KEYS, speak_tools, tool_executor, tool_gate
from pegasus.channels import AdapterMessage
from pegasus.identity import SHARED_FILES, WORKSPACE_FILES, ChannelNote, Evolution, MainPrompts
from pegasus.main_agent import (
    GLOBAL,
    NO_CHAT,
    SEND_FILE,
    SPAWN_ALIAS,
    AgentServices,
    AgentToolset,
    ChatPrompts,
    Compactor,
    Consolidator,
    FileAccess,
    OpenTask,
    SessionArchives,
    SkillInvoker,
    TaskDelegation,
    archive_prefix,
    archive_tool,
    delegation_tools,
    files_of,
    find_open_tasks,
)
from pegasus.media import AttachmentReader
from pegasus.memory import Memory, read_or_nothing
from pegasus.messages import Address, ChannelInfo, escape_field
from pegasus.models import (
    LanguageModel,
    ModelClient,
    ModelError,
)
from pegasus.observe import get_logger
from pegasus.schedule import cron_tool
from pegasus.settings import SERVICE_SECTIONS, Settings
from pegasus.skills import format_listing
from pegasus.storage import JournalMessage
from pegasus.tasks import (
    BUILT_IN_TYPES,
    AgentMessage,
    TaskDeps,
    TaskTypes,
    load_task_types,
    task_tools,
)
from pegasus.tools import (
    Gate,
    Tool,
    current_time,
    memory_tools,
    persona_tool,
)

LONGEST_NAME: Final = 64
"""Characters of a channel's name that the system prompt may contain. Ids of real services are far shorter."""

_log = get_logger("services")


@attrs.frozen(eq=False, repr=False)
class Services:
    """The services of a running tree.

    For example:

        services = build_services(environment, journal, root.ref, await journal.ask(KnownAddresses))
        services.main_agent.model, services.tasks.limits, services.memory
    """

    environment: Environment
    """The environment that they were built from."""
    journal: Ref[JournalMessage]
    """The journal actor, which everything that is kept goes through."""
    memory: Memory
    """The memory of the agent, shared by the Main Agent, tasks and the control plane."""
    evolution: Evolution
    """Changes of the persona."""
    main_agent: AgentServices
    """Services of the Main Agent."""
    tasks: TaskDeps
    """Services of the task system."""
    approvals: ApprovalDesk
    """Shows calls that wait for an owner, and takes the answers."""


def build_services(
    environment: Environment,
    journal: Ref[JournalMessage],
    find: Callable[[str], Ref[Any]],
    known: Sequence[Address],
) -> Services:
    """Build everything that the actors need. Reads the files of skills, task types and the workspace.

    find: returns the address of an actor by its path in the tree; it need not run yet. known: addresses that wrote before this start.

    Blocks while it reads, some milliseconds at a start. Raises ModelConfigError if a model of the settings
    cannot work.
    """
    if environment.files is not None:
        environment.files.load()
    memory = environment.open_memory(journal)
    evolution = Evolution(journal, environment.base_persona, environment.clock)
    types, problems = load_task_types(BUILT_IN_TYPES, *environment.subagent_folders)
    for problem in problems:
        _log.warning("invalid SUBAGENT.md", problem=problem)
    task_agent: Ref[AgentMessage] = find(TASK_AGENT)
    gate = tool_gate(environment, find(APPROVALS))
    cron = cron_tool(find(SCHEDULE), environment.clock)
    return Services(
        environment,
        journal,
        memory,
        evolution,
        _main_agent_services(environment, journal, memory, evolution, types, task_agent, known, gate, cron),
        task_deps(environment, journal, memory, types, task_agent, gate, find),
        ApprovalDesk(
            journal,
            find(APPROVALS),
            task_agent,
            find(GATEWAY),
            environment.clock,
            environment.owners,
            environment.in_force.follow(lambda settings: settings.policy, "policy."),
            environment.in_force.follow(partial(_adapter_refs, find), "channels."),
            environment.secrets,
            environment.files,
            environment.shows_approvals,
        ),
    )


def _adapter_refs(find: Callable[[str], Ref[Any]], settings: Settings) -> Sequence[Ref[AdapterMessage]]:
    """Return the addresses of the adapters that the settings enable."""
    sections = settings.channels.items()
    return [find(f"channels/{type}/{ADAPTER}") for type, one in sections if one.enabled and type in SERVICE_SECTIONS]


def _descriptions(types: TaskTypes) -> dict[str, str]:
    """Return name and description of each type, for the model that delegates."""
    return {task_type.name: task_type.description for task_type in types.values()}


# ------------------------------------------------------------------ the Main Agent


def _main_agent_services(
    environment: Environment,
    journal: Ref[JournalMessage],
    memory: Memory,
    evolution: Evolution,
    types: TaskTypes,
    task_agent: Ref[AgentMessage],
    known: Sequence[Address],
    gate: Gate,
    cron: Tool,
) -> AgentServices:
    """Return the services of the Main Agent.

    Its model is in the lane "conversation", which goes before tasks when a provider limits the rate: a person
    waits for it. The compactor has a role of its own, so that a cheaper model can write summaries.
    """
    in_force, models = environment.in_force, environment.models
    open_tasks = partial(find_open_tasks, task_agent)
    model, memory_index, compactor = _conversation_parts(environment, memory, open_tasks, models)

    def make_toolset(settings: Settings) -> AgentToolset:
        notes = _channel_notes(settings, known)
        return _toolset(environment, memory, evolution, types, task_agent, notes, gate, cron)

    services = AgentServices(
        model=model,
        toolset=in_force.follow(make_toolset, "agent.tools", "agent.persona", "tools.", "channels.cli.", *SPEECH_KEYS),
        clock=environment.clock,
        config=in_force.follow(lambda settings: settings.agent, "agent."),
        memory_index=memory_index,
        model_for=partial(models.client, lane="conversation"),
        work=TaskDelegation(task_agent),
        compactor=compactor,
        consolidator=_consolidator(environment, memory),
        chat_prompts=ChatPrompts(environment.workspace, environment.files) if environment.has_chats else None,
        traits=models.traits,
        usage_of=models.usage.item_view if models.usage is not None else None,
        warnings=in_force.follow(lambda _: tuple(filter(None, [environment.sandbox.now.warning])), *SANDBOX_KEYS),
        files=in_force.follow(
            lambda settings: FileAccess.within(environment.workspace, settings, environment.closed_paths),
            "tools.allowed_paths",
            "media.max_bytes",
        ),
        reader=AttachmentReader(journal, partial(models.audio, "transcribe")),
        make_fence=environment.make_fence,
    )

    def for_chat(chat: Address) -> AgentServices:
        model, memory_index, compactor = _conversation_parts(
            environment, memory, partial(find_open_tasks, task_agent, chat), models.for_chat(chat)
        )
        return attrs.evolve(services, model=model, memory_index=memory_index, compactor=compactor, for_chat=None)

    return attrs.evolve(services, for_chat=for_chat)


def _conversation_parts(
    environment: Environment,
    memory: Memory,
    open_tasks: Callable[[], Awaitable[Sequence[OpenTask] | None]],
    models: ConversationModels,
) -> tuple[LanguageModel, Callable[[], Awaitable[str]], Compactor]:
    """Return what each conversation has of its own: its model, the text of the memory index for it, and its compactor.

    open_tasks: returns the tasks of that conversation that are not done.
    """
    model = models.client("default", "conversation")

    async def memory_index() -> str:
        window = 0
        with suppress(ModelError, ValueError):  # the model call that follows reports it
            if isinstance(model, ModelClient):
                await model.prepare()  # the window decides how much of the index there is room for
            window = models.context_window("default")
        return await read_or_nothing(partial(memory.index_message, window))

    compactor = Compactor(
        models.client("compact"),
        models.context_window,
        environment.clock,
        models.measure,
        settings=environment.session,
        open_tasks=open_tasks,
        memory_index=memory_index,
    )
    return model, memory_index, compactor


def _consolidator(environment: Environment, memory: Memory) -> Consolidator | None:
    """Return what makes notes of older messages; None where one session has all conversations, or there is no place for notes."""
    models = environment.models
    if environment.notes_disk is None or environment.settings.agent.scope != "chat":
        return None
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
    environment: Environment,
    memory: Memory,
    evolution: Evolution,
    types: TaskTypes,
    task_agent: Ref[AgentMessage],
    channels: Sequence[ChannelNote],
    gate: Gate,
    cron: Tool,
) -> AgentToolset:
    """Return the Main Agent's prompt, tools and skills. They stay the same until a setting changes, so that providers can cache them.

    The setting `agent.tools` is a list of patterns; if it is empty all tools are offered. `spawn_subagent` has
    an alias that models know from elsewhere: it is accepted, but the prompt does not list it.
    """
    settings = environment.settings
    invoker = SkillInvoker(environment.skills, task_agent, environment.models.client)

    def archives_of(chat: ChannelInfo | None) -> SessionArchives:
        scope = settings.agent.scope
        if chat is None:
            return environment.archives(NO_CHAT if scope == "chat" else GLOBAL)
        return environment.archives(files_of(scope, chat.address))

    found = (
        *delegation_tools(task_agent, _descriptions(types)),
        invoker.tool(),
        *memory_tools(memory, partial(archive_prefix, settings.agent.scope)),
        current_time(environment.clock),
        *task_tools(task_agent),
        cron,
        *speak_tools(environment),
        archive_tool(archives_of),
        persona_tool(evolution, environment.owners),
    )
    # An empty list means all tools. Patterns are those of shells: `memory_*`.
    wanted = settings.agent.tools

    def is_wanted(name: str) -> bool:
        return not wanted or any(fnmatchcase(name, pattern) for pattern in wanted)

    executor = tool_executor(environment, gate, filter(lambda tool: is_wanted(tool.name), found), is_wanted)
    callable_skills = environment.skills.all()
    prompts = MainPrompts(
        environment.persona.now,
        channels=tuple(channels),
        subagents=_descriptions(types),
        skills=format_listing(callable_skills, environment.models.context_window("default")),
        skill_names=tuple(skill.name for skill in callable_skills if skill.by_model),
        files=environment.files,
        file_names=SHARED_FILES if environment.has_chats else WORKSPACE_FILES,
    )
    aliases, sends_files = frozenset({SPAWN_ALIAS}), is_wanted(SEND_FILE.name)
    return AgentToolset(prompts, executor, aliases=aliases, sends_files=sends_files, skills=invoker)


def _channel_notes(settings: Settings, known: Sequence[Address]) -> tuple[ChannelNote, ...]:
    """Return the channels that the system prompt names: the configured ones, then those that wrote before this start.

    They are sorted, because an order by time would give the next start another prompt and nothing of it would be cached. An id that is
    no plain name is left out: strangers choose their ids, and one that is a sentence would read as ours. Programs that call
    over the terminal's channel are not listed. Where each chat has a conversation of its own, no chat is told of the others.
    """
    configured = [ChannelNote("cli", "main")] if settings.channels["cli"].enabled else []
    listed = () if settings.agent.scope == "chat" else known
    plain = sorted(
        (address.type, address.channel_id) for address in listed if address.type != "cli" and _is_plain(address)
    )
    return (*configured, *(ChannelNote(escape_field(kind), escape_field(channel_id)) for kind, channel_id in plain))


def _is_plain(address: Address) -> bool:
    """Return whether type and id of an address are single words of a reasonable length."""
    names = (address.type, address.channel_id)
    return all(len(name) <= LONGEST_NAME and len(name.split()) == 1 for name in names)
