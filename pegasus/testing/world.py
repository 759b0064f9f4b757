"""The whole agent in virtual time: the real tree on a disk in memory, with a scripted model and fake channels.

Run it under `trio.testing.MockClock` (pytest-trio: the fixture `autojump_clock`). A world can be killed at any moment and
started again on what its disk had kept.

Everything between the channels and the model is the product's own code, started by the same functions as in the
daemon: `start_tree` and `start_channels`. Only what touches the outside is replaced: the disk, the clock, the
model, the adapters and the gateway. A test can therefore assert the promises that the product makes to people,
under any schedule and at any point of failure:

    async with open_world(model, channels=[cli]) as world:
        await world.say("are you there?")
        await kill(world, torn_bytes=10)                      # power failure
    async with open_world(model, disk=world.disk, channels=[cli]) as world:
        await world.idle()
    assert cli.texts == ["here I am"]
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from types import MappingProxyType

import attrs
import trio

from actors import ActorError, Child, Ref, Strategy, Supervisor, open_supervisor
from pegasus.app import (
    ADAPTER,
    CHILD_BACKOFF,
    ROOT_INTENSITY,
    AgentTree,
    ChatCommands,
    Environment,
    open_intake,
    owner_channels,
    service_context,
    start_channels,
    start_tree,
)
from pegasus.channels import ServiceAdapter, ServiceContext
from pegasus.identity import BUILT_IN, NOTES_FILE, OWNER_FILES, OwnerFile, WorkspaceFiles, parse_owner_file
from pegasus.intake import Intake
from pegasus.main_agent import (
    GLOBAL,
    AgentStatus,
    ArchivePage,
    ConversationNames,
    EndedWork,
    SessionFiles,
    archive_age,
    describe_commands,
    is_archive,
    page_of,
    says_apart,
    session_files_of,
    title_of,
)
from pegasus.memory import FOLDER, HEAD, FileState, Memory, NotesFile, Stamp
from pegasus.messages import Address, ChannelInfo, InboundMessage, OutboundMessage
from pegasus.models import (
    AudioModel,
    ChatChoices,
    EmbeddingModel,
    Lane,
    LanguageModel,
    ModelRequest,
    ModelResponse,
    PromptSize,
    TokenCounter,
    TraitStore,
    UsageTracker,
)
from pegasus.redaction import KnownSecrets
from pegasus.settings import AgentSettings, LiveSettings, LiveValue, Settings
from pegasus.skills import BUILT_IN as BUILT_IN_SKILLS
from pegasus.skills import SkillCatalog
from pegasus.storage import FLUSH_AFTER, Accepted, JournalMessage, Overloaded, Waiting
from pegasus.testing.fake_channel import FakeChannel
from pegasus.testing.memory_disk import DiskFolder, MemoryDisk
from pegasus.tools import Tool, current_time, memory_tools

CLI = ChannelInfo("cli", "main")
"""Channel that messages come from, where a test names none."""
WINDOW = 100_000
"""Tokens of the context window, where the settings name none."""
WORKSPACE = "workspace"
"""Folder on the disk that notes are written to. Tasks have no files there."""
START = 1_772_020_800_000
"""The wall clock of a world at virtual time 0: 2026-02-25 12:00:00 UTC, ms since the epoch."""


def wall_clock() -> int:
    """Return a wall clock that follows Trio's, so that virtual time moves it too; ms since the epoch."""
    return START + int(trio.current_time() * 1000)


@attrs.frozen(eq=False)
class ScriptedModels:
    """The models of a world: one for the conversation, one for tasks, and others by role or name.

    Example::

        models = ScriptedModels(ScriptedModel(["hi"]), ScriptedModel([]), {"compact": ScriptedModel(["short"])}, WINDOW)
        models.client("compact")  # the model of the role; with another role that of tasks
    """

    conversation: LanguageModel
    """Model of the conversation in the default role."""
    tasks: LanguageModel
    """Model of tasks and of all roles that have none in `others`."""
    others: Mapping[str, LanguageModel]
    """Models by role or name; they win over the two above."""
    window: int
    """Tokens of every model's context window."""
    counter: TokenCounter = attrs.field(factory=TokenCounter)
    """Estimator of tokens; without the tables of a real model."""
    traits: TraitStore = attrs.field(factory=TraitStore)
    """Facts about the behaviour of each."""
    chat_choices: ChatChoices = attrs.field(factory=ChatChoices)
    """Models that were chosen for single chats, by their names in `others`."""
    audio_models: Mapping[str, AudioModel] = attrs.field(factory=dict)
    """Models that hear ("transcribe") and speak ("speech")."""
    usage: UsageTracker | None = None
    """None: the tree then runs without an actor for usage."""

    @property
    def embedder(self) -> EmbeddingModel | None:
        """None: tests of the whole tree search memory by words."""
        return None

    def audio(self, role: str) -> AudioModel | None:
        """Return the model of a test that hears or speaks."""
        return self.audio_models.get(role)

    def client(self, role: str = "default", lane: Lane = "work") -> LanguageModel:
        """Return the model of a role; the conversation has its own."""
        if role in self.others:
            return self.others[role]
        return self.conversation if (role, lane) == ("default", "conversation") else self.tasks

    def for_chat(self, chat: Address) -> ScriptedModels:
        """Return the models of a chat, whose conversation asks the chosen one."""
        return attrs.evolve(self, conversation=ScriptedChoice(self, chat))

    def context_window(self, role: str = "default") -> int:
        """Return the window, the same for all."""
        return self.window

    async def measure(self, request: ModelRequest, share: float) -> PromptSize:
        """Return about how many tokens a request has, beside the window."""
        return PromptSize(await self.counter.compare(request, round(share * self.window)), self.window)

    async def usage_text(self, channel: ChannelInfo | None = None) -> str:
        """Return that nothing is counted."""
        return "Usage is not counted."


@attrs.frozen(eq=False)
class ScriptedChoice:
    """The model of one chat: the one that was chosen for it at this moment, else that of all conversations.

    Example: `ScriptedChoice(models, Address("telegram", "42")).name` changes when somebody there writes `/model`.
    """

    _models: ScriptedModels
    """Models of the world."""
    _chat: Address
    """The chat whose choice counts."""

    @property
    def _model(self) -> LanguageModel:
        return self._models.others.get(self._models.chat_choices.get(self._chat), self._models.conversation)

    @property
    def name(self) -> str:
        """Name of the model that the chat uses now, `<provider>/<model>`."""
        return self._model.name

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the answer of the model that the chat uses now."""
        return await self._model.generate(request)


@attrs.define(eq=False)
class World:
    """A running agent. `open_world` makes it.

    Example::

        async with open_world(ScriptedModel([say("", reply("c1", "hi"))])) as world:
            await world.say("hello")
            assert (await world.next_reply()).text == "hi"
            await world.idle()
    """

    root: Supervisor
    """Supervisor of the whole tree."""
    tree: AgentTree
    """Addresses of the tree's actors, and its services."""
    disk: MemoryDisk
    """The disk, which outlives the world."""
    channels: dict[str, FakeChannel]
    """The fake channels by type."""
    _ids: itertools.count[int] = attrs.field(factory=itertools.count)
    """Numbers for the ids of messages."""

    @property
    def journal(self) -> Ref[JournalMessage]:
        """The journal actor."""
        return self.tree.journal

    @property
    def intake(self) -> Intake:
        """The way in, with the owners of the settings."""
        return Intake(self.journal, owners=self.tree.services.environment.owners)

    async def say(
        self, text: str, channel: ChannelInfo = CLI, *, message_id: str | None = None
    ) -> Accepted | Overloaded:
        """Hand in a message as an adapter does; returns when it is accepted.

        message_id: the sender's id, for tests of duplicates; a new one by default. Overloaded means that
        nothing was kept.
        """
        if message_id is None:
            message_id = f"m-{next(self._ids)}-{trio.current_time():.6f}"
        return await self.intake.submit(InboundMessage(text, channel, message_id))

    async def next_reply(self, channel_type: str = "cli") -> OutboundMessage:
        """Return the next reply that the fake channel of this type is given.

        Raises trio.TooSlowError if none comes within thirty days of virtual time.
        """
        return await self.channels[channel_type].next_reply()

    async def idle(self) -> None:
        """Wait until nothing is being thought about, nothing waits, and all of it is in the files."""
        while await self.journal.ask(Waiting) or (await self.status()).thinking_about is not None:  # noqa: ASYNC110
            await trio.sleep(0.1)  # virtual time: the journal has no notification of its last item
        # The session is written a moment later than the item is done. After this a kill loses nothing.
        await trio.sleep(2 * FLUSH_AFTER)
        await self.journal.ask(Waiting)  # answered when the flush is over, however slow the disk is

    async def status(self) -> AgentStatus:
        """Return what the Main Agent is doing."""
        return await self.tree.main_agent.status()

    async def stop_thinking(self, by: str = "a test") -> tuple[EndedWork, ...]:
        """Do what the control call `stop` does.

        It returns when everything has ended. by: the reason that the log and the session name.
        """
        return await self.tree.main_agent.stop(by)

    def session(self, chat: Address | None = None) -> list[dict[str, object]]:
        """Return the lines of a session, as they are on the disk (also what is not synced yet).

        chat: the chat that it belongs to; None: that of all channels of the owner.
        """
        path = session_files_of("global" if chat is None else "chat", chat or CLI.address).path
        return [json.loads(line) for line in self.disk.content(path).splitlines()]


# ------------------------------------------------------------------ readers of the disk

# In the real daemon both read folders of the file system in worker threads, beside the journal, which writes them. In virtual time
# there are no threads, so these two read the same names from the `MemoryDisk` that the journal writes to. They show what a reader of
# the file system would see, which includes data that is not synced yet.


class DiskArchives:
    """Archives of a session that the journal wrote to `disk`.

    For example:

        archives = DiskArchives(disk)
        page = await archives.read((await archives.names())[-1], offset=0, skip=0, lines=10, most=10_000)
    """

    def __init__(self, disk: MemoryDisk, names: ConversationNames | None = None, files: SessionFiles = GLOBAL) -> None:
        self._disk, self._names, self._files = disk, names or ConversationNames(), files
        self._prefix = f"{files.folder}/{files.prefix}"

    async def names(self) -> tuple[str, ...]:
        """See `pegasus.main_agent.SessionArchives`."""
        await trio.lowlevel.checkpoint()
        below = [path.removeprefix(self._prefix) for path in self._disk.paths() if path.startswith(self._prefix)]
        return tuple(sorted(filter(is_archive, below), key=archive_age))

    async def is_apart(self, name: str) -> bool:
        """See `pegasus.main_agent.SessionArchives`."""
        await trio.lowlevel.checkpoint()
        return says_apart(self._disk.content(self._prefix + name).partition(b"\n")[0])

    async def title(self, name: str) -> str:
        """See `pegasus.main_agent.SessionArchives`."""
        await trio.lowlevel.checkpoint()
        return title_of(self._disk.content(self._prefix + name).splitlines(), self._files, self._names.all)

    async def read(self, name: str, offset: int, skip: int, lines: int, limit: int) -> ArchivePage:
        """See `pegasus.main_agent.SessionArchives`."""
        if name not in await self.names():
            raise FileNotFoundError(name)
        # Splitting the whole content is affordable: archives in tests are small, and they are in memory anyway.
        return page_of(self._disk.content(self._prefix + name).splitlines(keepends=True), offset, skip, lines, limit)


class DiskMemoryFolder:
    """A `pegasus.memory.MemoryFolder` with the files that the journal wrote to `disk`.

    Example: `Memory(journal, DiskMemoryFolder(disk), clock)`.
    """

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self._prefix = f"{FOLDER}/"

    async def scan(self, seen: Mapping[str, Stamp] | None = None, limit: int = 0) -> tuple[FileState, ...]:
        """See `pegasus.memory.MemoryFolder`."""
        await trio.lowlevel.checkpoint()
        states = (self._state(path, seen, limit) for path in self._disk.paths() if self._is_page(path))
        return tuple(state for state in states if state.size)

    async def read(self, path: str, limit: int) -> bytes:
        """See `pegasus.memory.MemoryFolder`."""
        await trio.lowlevel.checkpoint()
        return self._disk.content(self._prefix + path)[:limit]

    async def check(self, path: str) -> None:
        """Accept every path: there are no links here."""
        await trio.lowlevel.checkpoint()

    def _is_page(self, path: str) -> bool:
        return path.startswith(self._prefix) and path.endswith(".md")

    def _state(self, path: str, seen: Mapping[str, Stamp] | None, limit: int) -> FileState:
        """Return the state of a file as a scan of the folder would.

        The stamp of a real file is made of its modification time and inode.
        A disk in memory has neither, so the hash of the content takes that role: two contents with the same
        stamp are the same page.
        """
        content, path = self._disk.content(path), path.removeprefix(self._prefix)
        stamp = (hash(content), len(content))
        is_wanted = seen is not None and seen.get(path) != stamp and len(content) <= limit
        return FileState(path, len(content), content[:HEAD], stamp, content if is_wanted else None)


def files_on(disk: MemoryDisk) -> WorkspaceFiles:
    """Return the owner's files, MEMORY.md among them, as they are on the disk below WORKSPACE."""

    def read(path: Path, known: Mapping[str, OwnerFile]) -> OwnerFile | None:
        """Return a file of the owner as it is on the disk; None for one that is not there."""
        content = disk.content(path.as_posix())
        return parse_owner_file(content, (hash(content), len(content), 0))

    return WorkspaceFiles(Path(WORKSPACE), in_thread=False, names=(*OWNER_FILES, NOTES_FILE), read=read)


# ------------------------------------------------------------------ starting and killing


def world_environment(
    model: LanguageModel,
    disk: MemoryDisk,
    settings: Settings,
    *,
    task_model: LanguageModel | None = None,
    tools: Sequence[Tool] = (),
    subagents: Sequence[Path] = (),
    clock: Callable[[], int] = wall_clock,
    skills: Sequence[Path] = (),
    models: Mapping[str, LanguageModel] = MappingProxyType({}),
    secrets: tuple[str, ...] = (),
    files: WorkspaceFiles | None = None,
    workspace: Path = Path(),
    usage: UsageTracker | None = None,
    audio: Mapping[str, AudioModel] = MappingProxyType({}),
) -> Environment:
    """Return an environment in virtual time. The arguments are those of `open_world`. usage: counts calls, if models report them."""
    window = settings.models.context_window or WINDOW
    environment = Environment(
        in_force=LiveSettings(settings),
        disk=disk,
        models=ScriptedModels(model, task_model or model, models, window, audio_models=audio, usage=usage),
        persona=LiveValue(BUILT_IN),
        base_persona=LiveValue(BUILT_IN),
        clock=clock,
        random=Random(0),  # noqa: S311
        make_fence=lambda: "fence00000",
        workspace=workspace,
        subagent_folders=tuple(subagents),
        skills=SkillCatalog(BUILT_IN_SKILLS, *skills, in_thread=False),
        files=files,
        notes_disk=DiskFolder(disk, WORKSPACE),
        open_memory=lambda journal: Memory(
            journal, DiskMemoryFolder(disk), clock, notes=NotesFile(DiskFolder(disk, WORKSPACE))
        ),
        make_tools=lambda memory: (current_time(clock), *memory_tools(memory), *tools),
        conversation_names=(names := ConversationNames()),
        archives=partial(DiskArchives, disk, names),
        secrets=KnownSecrets(secrets),
    )
    # Nobody has to connect first, so tasks begin at once.
    environment.may_work.set()
    return environment


@asynccontextmanager
async def open_world(
    model: LanguageModel,
    *,
    disk: MemoryDisk | None = None,
    settings: Settings | None = None,
    channels: Sequence[FakeChannel] = (),
    task_model: LanguageModel | None = None,
    tools: Sequence[Tool] = (),
    subagents: Sequence[Path] = (),
    clock: Callable[[], int] = wall_clock,
    skills: Sequence[Path] = (),
    models: Mapping[str, LanguageModel] = MappingProxyType({}),
    secrets: tuple[str, ...] = (),
    files: WorkspaceFiles | None = None,
    workspace: Path = Path(),
    audio: Mapping[str, AudioModel] = MappingProxyType({}),
    services: Callable[[ServiceContext], Sequence[ServiceAdapter]] = lambda context: (),
) -> AsyncIterator[World]:
    """Start an agent; leaving the block stops it in order. `kill` ends it like a power failure instead.

    task_model: thinks in tasks, if it is another one. tools: what tasks have beside memory and current_time. subagents: folders
    of SUBAGENT.md. skills: folders of skills, beside the built-in ones. clock: the wall clock, ms since the epoch. models: other
    ones, by role ("compact", say) or by name. secrets: texts that no result of a tool may show. files: the
    owner's files that are part of the prompt. workspace: folder that replies and tools take files from.
    audio: models that hear ("transcribe") and speak ("speech").

    services: makes adapters of chat services, which run beside the fake channels. The settings decide about access there.

    channels: by default one of type "cli". The same ones may be given to the next world on the same disk. All who write there are the
    owner, unless the settings name the owners.
    """
    disk = disk or MemoryDisk()
    settings = settings or Settings()
    if settings.agent.owners == AgentSettings().owners:
        owners = (*settings.agent.owners, *(f"{channel.type}:*" for channel in channels))
        settings = attrs.evolve(settings, agent=attrs.evolve(settings.agent, owners=owners))
    environment = world_environment(
        model,
        disk,
        settings,
        task_model=task_model,
        tools=tools,
        subagents=subagents,
        audio=audio,
        clock=clock,
        skills=skills,
        models=models,
        secrets=secrets,
        files=files,
        workspace=workspace,
    )
    channels = channels or (FakeChannel("cli"),)
    async with open_supervisor(strategy=Strategy.REST_FOR_ONE, intensity=ROOT_INTENSITY, name="pegasus") as root:
        tree = await start_tree(root, environment)
        adapters = {
            channel.type: Child("fake", channel.run, tree.journal, backoff=CHILD_BACKOFF) for channel in channels
        }
        intake = await open_intake(tree, environment)
        context = service_context(tree.services, intake, describe_commands(ChatCommands(tree.services).answers()))
        made = {adapter.type: adapter for adapter in services(context)}
        environment.pairing.owner_channels = owner_channels(settings.agent.owners, made)
        for adapter in made.values():
            adapters[adapter.type] = Child(ADAPTER, adapter.run, tree.journal, backoff=CHILD_BACKOFF)
        await start_channels(tree, Child("gateway", FakeChannel("").run, tree.journal), adapters)
        yield World(root, tree, disk, {channel.type: channel for channel in channels})


async def kill(world: World, *, torn_bytes: int = 0) -> None:
    """Lose power: the disk keeps what was synced and up to `torn_bytes` more of each file. To be followed by a new world.

    Call it in the block of `open_world` and leave the block, best under a cancelled scope.

    Actors run on for a moment in a process whose disk fails at every operation, as they may when the power
    goes; nothing of what they do then reaches the disk.
    """
    # First the power, then the actors: whatever they try to write while they are stopped is lost, as it would be.
    world.disk.lose_power()
    with trio.CancelScope(shield=True), suppress(ActorError):
        await world.root.stop()
    world.disk.crash(torn_bytes)


__all__ = [
    "CLI",
    "START",
    "WORKSPACE",
    "FakeChannel",
    "World",
    "files_on",
    "kill",
    "open_world",
    "wall_clock",
    "world_environment",
]
