"""The environment that a tree is built from, and the services that its actors work with, built once and passed to them.

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

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol, TypeAlias

import attrs
import trio

from actors import Ref
from pegasus.conversation import sanitize_for_prompt
from pegasus.events import BusMessage, EventMaker
from pegasus.identity import ChannelNote, Evolution, Persona, main_prompt
from pegasus.intake import is_owner
from pegasus.main_agent import (
    REPLY,
    SPAWN_ALIAS,
    AgentServices,
    AgentToolset,
    Compactor,
    SessionArchives,
    SkillInvoker,
    TaskDelegation,
    archive_tool,
    delegation_tools,
    find_open_tasks,
    persona_answer,
)
from pegasus.memory import Memory, read_or_nothing
from pegasus.messages import Address, ChannelInfo, InboundMessage
from pegasus.models import Lane, LanguageModel, ModelRequest, ModelSwitch, UsageTracker, model_command
from pegasus.observe import get_logger
from pegasus.settings import Settings
from pegasus.skills import BUILT_IN, SkillCatalog, format_listing
from pegasus.storage import Disk, JournalMessage, escape_field
from pegasus.tasks import (
    BUILT_IN_TYPES,
    AgentMessage,
    Reflector,
    TaskDeps,
    TaskLimits,
    TaskTypes,
    Thinker,
    load_task_types,
    task_tools,
)
from pegasus.tools import Tool, ToolExecutor, base_context, current_time, memory_tools, persona_tool

# The supervision tree in `tree` starts the actors under exactly these names.
BUS, TASK_AGENT, TASK_LISTENER = "tasks/bus", "tasks/agent", "main-agent/notifications"
"""Paths of actors in the tree that others send to."""

_MAX_CHANNEL_NAME: Final = 64
"""Characters of a channel's name that the system prompt may contain. Ids of real services are far shorter."""

_log = get_logger("services")


class ModelSource(Protocol):
    """Models by role or by `<provider>/<model>`. `pegasus.models.ModelService` is the real one."""

    @property
    def usage(self) -> UsageTracker | None:
        """Counts and limits calls; None: nothing does."""

    def client(self, role: str = "default", lane: Lane = "work") -> LanguageModel:
        """Return a model that may be kept: it follows reloads and choices. Raises ModelConfigError."""

    def context_window(self, role: str = "default") -> int:
        """Return how many tokens fit into the model of a role."""

    async def compare_tokens(self, request: ModelRequest, limit: int) -> int:
        """Return about how many tokens a request has, most exactly near the limit."""

    async def usage_text(self, channel: ChannelInfo | None = None) -> str:
        """Return the answer to `/usage` in this chat."""


@attrs.frozen(eq=False, kw_only=True)
class Environment:
    """Everything that the supervision tree is given from outside.

    The daemon builds one from its home and the real world. Tests and simulations build one from a disk in memory, a scripted
    model and a clock of their own (`pegasus.testing.world`), and start the same tree. So neither this file nor `tree` touches
    files of the home, the network, the wall clock or randomness by itself.

    >>> async with open_supervisor(strategy=Strategy.REST_FOR_ONE, name="pegasus") as root:
    ...     tree = await start_tree(root, Environment(settings=settings, disk=disk, models=models, …))
    """

    settings: Settings
    """Settings of the start. Parts that can be reloaded follow `Reloader.settings` instead."""
    disk: Disk
    """Where the journal writes."""
    models: ModelSource
    """Models of all roles."""
    persona: Persona
    """The persona in force: that of the settings with the changes that its owner accepted."""
    base_persona: Persona
    """The persona of the settings, without changes."""
    clock: Callable[[], int]
    """Returns the wall clock, in ms since the epoch."""
    random: Random
    """Makes ids. Nothing that must be secret comes from it."""
    workspace: Path
    """The folder that tasks work in."""
    subagent_folders: tuple[Path, ...] = ()
    """Folders with SUBAGENT.md files beside the built-in types, the strongest last."""
    skill_folders: tuple[Path, ...] = ()
    """Folders with skills beside the built-in ones, the strongest last."""
    open_memory: Callable[[Ref[JournalMessage]], Memory]
    """Opens the memory, which the journal writes. Called once."""
    make_tools: Callable[[Memory], Sequence[Tool]]
    """Makes the tools of tasks, without those about tasks themselves. Called once."""
    archives: SessionArchives
    """Reads the archives of the session."""
    secrets: Callable[[], Iterable[str]] = tuple
    """Returns the texts that tool results must not show; a reload of the settings may change them."""
    switch: ModelSwitch | None = None
    """Changes the default model at run time (`/model`); None: nothing can."""
    reads_in_thread: bool = True
    """True if small files are read in threads. Tests in virtual time set False."""
    may_work: trio.Event = attrs.field(factory=trio.Event)
    """Set when background work may begin; in the daemon, when people can connect. Recovery of tasks is the work of seconds."""


@attrs.frozen(eq=False)
class Services:
    """The services of a running tree.

    For example:

        services = build_services(environment, journal, root.ref, await journal.ask(KnownAddresses))
        services.agent.model, services.tasks.limits, services.memory
    """

    environment: Environment
    """The environment that they were built from."""
    journal: Ref[JournalMessage]
    """The journal actor, which everything that is kept goes through."""
    memory: Memory
    """The memory of the agent, shared by the Main Agent, tasks and the control plane."""
    evolution: Evolution
    """Changes of the persona."""
    agent: AgentServices
    """Services of the Main Agent."""
    tasks: TaskDeps
    """Services of the task system."""


def build_services(
    environment: Environment,
    journal: Ref[JournalMessage],
    find: Callable[[str], Ref[Any]],
    known: Sequence[Address],
) -> Services:
    """Build everything that the actors need. Reads the files of skills and task types.

    find: returns the address of an actor by its path in the tree; it need not run yet. known: addresses that wrote before this start.

    Blocks while it reads, some milliseconds at a start. Raises ModelConfigError if a model of the settings
    cannot work.
    """
    memory = environment.open_memory(journal)
    evolution = Evolution(journal, environment.base_persona, environment.clock)
    types, problems = load_task_types(BUILT_IN_TYPES, *environment.subagent_folders)
    for problem in problems:
        _log.warning("invalid SUBAGENT.md", problem=problem)
    agent: Ref[AgentMessage] = find(TASK_AGENT)
    return Services(
        environment,
        journal,
        memory,
        evolution,
        _agent_services(environment, memory, evolution, types, agent, known),
        _task_deps(environment, memory, types, agent, find(BUS)),
    )


def _descriptions(types: TaskTypes) -> dict[str, str]:
    """Return name and description of each type, for the model that delegates."""
    return {task_type.name: task_type.description for task_type in types.values()}


# ------------------------------------------------------------------ the Main Agent


def _agent_services(
    environment: Environment,
    memory: Memory,
    evolution: Evolution,
    types: TaskTypes,
    task_agent: Ref[AgentMessage],
    known: Sequence[Address],
) -> AgentServices:
    """Return the services of the Main Agent.

    Its model is in the lane "conversation", which goes before tasks when a provider limits the rate: a person
    waits for it. The compactor has a role of its own, so that a cheaper model can write summaries.
    """
    settings, models = environment.settings, environment.models
    memory_index = partial(read_or_nothing, memory.index_message)
    compactor = Compactor(
        models.client("compact"),
        models.context_window,
        environment.clock,
        models.compare_tokens,
        threshold_share=settings.session.compact_threshold,
        timeout=settings.models.timeout,
        open_tasks=partial(find_open_tasks, task_agent),
        memory_index=memory_index,
    )
    return AgentServices(
        model=models.client("default", "conversation"),
        toolset=_toolset(environment, memory, evolution, types, task_agent, _channel_notes(settings, known)),
        clock=environment.clock,
        config=settings.agent,
        memory_index=memory_index,
        model_for=partial(models.client, lane="conversation"),
        work=TaskDelegation(task_agent),
        compactor=compactor,
    )


def _toolset(
    environment: Environment,
    memory: Memory,
    evolution: Evolution,
    types: TaskTypes,
    task_agent: Ref[AgentMessage],
    channels: Sequence[ChannelNote],
) -> AgentToolset:
    """Return the Main Agent's prompt, tools and skills. They stay the same until the next start, so that providers can cache them.

    The setting `agent.tools` is a list of patterns; if it is empty all tools are offered. `spawn_subagent` has
    an alias that models know from elsewhere: it is accepted, but the prompt does not list it.
    """
    settings = environment.settings
    skills = SkillCatalog(BUILT_IN, *environment.skill_folders, in_thread=environment.reads_in_thread)
    invoker = SkillInvoker(skills, task_agent, environment.models.client)
    found = (
        *delegation_tools(task_agent, _descriptions(types)),
        invoker.tool(),
        *memory_tools(memory),
        current_time(environment.clock),
        *task_tools(task_agent),
        archive_tool(environment.archives),
        persona_tool(evolution, settings.agent.owners),
    )
    # An empty list means all tools. Patterns are those of shells: `memory_*`.
    wanted = settings.agent.tools
    tools = [tool for tool in found if not wanted or any(fnmatchcase(tool.name, name) for name in wanted)]
    prompt = main_prompt(
        environment.persona,
        tools=(REPLY.name, *(tool.name for tool in tools if tool.name != SPAWN_ALIAS)),
        channels=channels,
        subagents=_descriptions(types),
        skills=format_listing(skills.all(), environment.models.context_window("default")),
        direct=settings.agent.speech == "direct",
    )
    return AgentToolset(prompt, _executor(environment, tools), aliases=frozenset({SPAWN_ALIAS}), skills=invoker)


def _executor(environment: Environment, tools: Iterable[Tool]) -> ToolExecutor:
    """Return the executor of these tools. It knows all secrets and removes them from every result before a model or a log sees it."""
    settings = environment.settings.tools
    return ToolExecutor(tools, timeout=settings.timeout, timeouts=settings.timeouts, secrets=environment.secrets)


def _channel_notes(settings: Settings, known: Sequence[Address]) -> tuple[ChannelNote, ...]:
    """Return the channels that the system prompt names: the configured ones, then those that wrote before this start.

    They are sorted, because an order by time would give the next start another prompt and nothing of it would be cached. An id that is
    no plain name is left out: strangers choose their ids, and one that is a sentence would read as ours. Programs that call
    over the terminal's channel are not listed.
    """
    configured = [ChannelNote("cli", "main")] if settings.channels.cli.enabled else []
    plain = sorted(
        (address.type, address.channel_id) for address in known if address.type != "cli" and _is_plain(address)
    )
    return (*configured, *(ChannelNote(escape_field(kind), escape_field(channel_id)) for kind, channel_id in plain))


def _is_plain(address: Address) -> bool:
    """Return whether type and id of an address are single words of a reasonable length."""
    names = (address.type, address.channel_id)
    return all(len(name) <= _MAX_CHANNEL_NAME and len(name.split()) == 1 for name in names)


# ------------------------------------------------------------------ the task system


def _task_deps(
    environment: Environment, memory: Memory, types: TaskTypes, task_agent: Ref[AgentMessage], bus: Ref[BusMessage]
) -> TaskDeps:
    """Return what the task system works with.

    Its tools are those of the environment and those about tasks themselves.
    """
    settings = environment.settings
    # Bounds of results and reflections follow the window of the model that works in tasks.
    window = environment.models.context_window("subagent")
    executor = _executor(environment, (*environment.make_tools(memory), *task_tools(task_agent)))
    return TaskDeps(
        bus=bus,
        events=EventMaker(environment.clock, environment.random),
        clock=environment.clock,
        types=types,
        thinker=Thinker(environment.persona, environment.clock),
        reflector=Reflector(environment.persona, window),
        toolbox=executor,
        model_for=environment.models.client,
        context=base_context(environment.workspace, settings.tools.allowed_paths, window),
        memory=memory,
        limits=TaskLimits(
            max_active=settings.tasks.max_active,
            max_queued=settings.tasks.max_queued,
            max_tools=settings.tasks.max_concurrent_tools,
            max_iterations=settings.tasks.max_iterations,
            timeout=settings.tasks.timeout,
            recovery=settings.tasks.recovery,
        ),
    )


# ------------------------------------------------------------------ chat commands

CommandAnswer: TypeAlias = Callable[[InboundMessage], Awaitable[str]]
"""Returns the answer to a command. A StorageError that it raises becomes the answer."""


def chat_commands(services: Services) -> Mapping[str, CommandAnswer]:
    """Return the answers to the commands that need more than the Main Agent has: `/usage`, `/model` and `/persona`.

    The Main Agent recognises a command by the first word of a message and lists these names in `/help`; it answers `/stop`,
    `/new`, `/status` and `/help` itself. The services are read at each command, so that it sees the settings and the model in
    force.
    """
    environment = services.environment
    owners = environment.settings.agent.owners

    async def usage(message: InboundMessage) -> str:
        return await environment.models.usage_text(message.channel)

    async def model(message: InboundMessage) -> str:
        """Show the model or, for an owner, change it. Without a switch (in tests) only the name is shown."""
        if environment.switch is None:
            return f"I use {services.agent.model.name}."
        _, *argument = sanitize_for_prompt(message.text).split(None, 1)
        return await model_command("".join(argument), environment.switch, owner=is_owner(message.channel, owners))

    async def persona(message: InboundMessage) -> str:
        """Show the persona and its proposals or, for an owner, decide about them."""
        return await persona_answer(services.evolution, environment.persona, owners, message.text, message.channel)

    return {"/usage": usage, "/model": model, "/persona": persona}
