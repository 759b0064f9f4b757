"""The environment that a tree is built from: everything that comes from outside, such as the disk, the models and the clock.

The models are protocols of what `pegasus.models` has, which tests and benches replace.

Every field of `Environment` that has a default is one that most tests do not care about. A field without one has no
value that would be right for all: a test says which disk, models and clock it uses.

Actors that others send to are found by path. The paths are constants here, below everything that uses them, so that
the tree and those who send agree on one spelling.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

import attrs
import trio

from actors import Inbox, Ref
from pegasus.access import PairingBook, TokenBook
from pegasus.app.owner_notes import OwnerNotes
from pegasus.conversation import new_fence
from pegasus.events import RecentEvents
from pegasus.identity import Persona, WorkspaceFiles
from pegasus.main_agent import ConversationNames, SessionArchives, SessionFiles
from pegasus.mcp import McpServers
from pegasus.memory import Memory
from pegasus.messages import Address, ChannelInfo
from pegasus.models import (
    ChatChoices,
    Lane,
    LanguageModel,
    ModelRequest,
    ModelSwitch,
    PromptSize,
    TraitStore,
    UsageTracker,
)
from pegasus.observe import Activity
from pegasus.redaction import KnownSecrets
from pegasus.sandbox import NO_SANDBOX, Sandbox
from pegasus.settings import LiveSettings, LiveValue, SessionSettings, Settings
from pegasus.skills import BUILT_IN, SkillCatalog
from pegasus.storage import Disk, JournalMessage
from pegasus.tools import ClientTools, KeptChanges, Tool

if TYPE_CHECKING:
    from pegasus.app.shared_state import SharedState
    from pegasus.models import AudioModel, EmbeddingModel
    from pegasus.schedule import ScheduleMessage, ScheduleServices

# The supervision tree in `tree` starts the actors under exactly these names.
BUS, TASK_AGENT, TASK_LISTENER = "tasks/bus", "tasks/agent", "main-agent/notifications"
SWITCHBOARD, GATEWAY, APPROVALS = "channels/switchboard", "channels/gateway", "approvals/keeper"
SCHEDULE, GUEST_LIMITS = "schedule/keeper", "intake/guests"
SIGNS = "nodes/signs"
GLOBAL_AGENT, CHATS = "main-agent/global", "main-agent/chats"
"""Paths of actors in the tree that others send to."""
ADAPTER: Final = "adapter"
"""Name of a service's adapter below its supervisor, `channels/<type>`."""


class ConversationModels(Protocol):
    """The models of one conversation, or of all. `pegasus.models.ChatModels` and `ModelService` are the real ones.

    Example::

        models: ConversationModels = environment.models.for_chat(message.channel.address)
        response = await models.client("default", "conversation").generate(request)
    """

    def client(self, role: str = "default", lane: Lane = "work") -> LanguageModel:
        """Return a model that may be kept: it follows reloads and choices. Raises ModelConfigError."""

    def context_window(self, role: str = "default") -> int:
        """Return how many tokens fit into the model of a role."""

    async def measure(self, request: ModelRequest, share: float) -> PromptSize:
        """Return the size of a request beside the default model's window, most exactly near this share of it."""


class ModelSource(ConversationModels, Protocol):
    """Models by role or by `<provider>/<model>`. `pegasus.models.ModelService` is the real one.

    Example::

        models: ModelSource = environment.models
        summary = await models.client("compact").generate(request)
        hears = models.audio("transcribe") is not None
    """

    @property
    def usage(self) -> UsageTracker | None:
        """Counts and limits calls; None: nothing does."""

    @property
    def traits(self) -> TraitStore:
        """Knowledge about each model's manners."""

    @property
    def chat_choices(self) -> ChatChoices:
        """Models that were chosen for single chats."""

    def audio(self, role: str) -> AudioModel | None:
        """Return the model that hears ("transcribe") or speaks ("speech"); None if the settings name none."""

    @property
    def embedder(self) -> EmbeddingModel | None:
        """The model that makes vectors of texts; None if the settings name none."""

    def for_chat(self, chat: Address) -> ConversationModels:
        """Return the models of a chat that has a conversation of its own."""

    async def usage_text(self, channel: ChannelInfo | None = None) -> str:
        """Return the answer to `/usage` in this chat."""


@attrs.frozen(eq=False, repr=False, kw_only=True)
class Environment:
    """Everything that the supervision tree is given from outside.

    The daemon builds one from its home and the real world. Tests and simulations build one from a disk in memory, a scripted
    model and a clock of their own (`pegasus.testing.world`), and start the same tree. So neither this file nor `tree` touches
    files of the home, the network, the wall clock or randomness by itself.

    >>> async with open_supervisor(strategy=Strategy.REST_FOR_ONE, name="pegasus") as root:
    ...     tree = await start_tree(root, Environment(in_force=SettingsInForce(settings), disk=disk, models=models, …))
    """

    in_force: LiveSettings
    """The settings; `settings` are those in force at the moment. Everything that is built from them follows them."""
    disk: Disk
    """Disk that the journal writes to."""
    models: ModelSource
    """Models of all roles."""
    persona: LiveValue[Persona]
    """The persona: that of the settings with the changes that its owner accepted."""
    base_persona: LiveValue[Persona]
    """The persona of the settings, without changes."""
    clock: Callable[[], int]
    """Returns the wall clock, in ms since the epoch."""
    random: Random
    """Makes ids. Nothing that must be secret comes from it."""
    workspace: Path
    """The folder that tasks work in."""
    subagent_folders: tuple[Path, ...] = ()
    """Folders with SUBAGENT.md files beside the built-in types, the strongest last."""
    skills: SkillCatalog = attrs.field(factory=lambda: SkillCatalog(BUILT_IN))
    """Skills that people and the model can call."""
    files: WorkspaceFiles | None = None
    """The owner's files that are part of the prompt; None: there are none."""
    open_memory: Callable[[Ref[JournalMessage]], Memory]
    """Opens the memory, which the journal writes. Called once."""
    notes_disk: Disk | None = None
    """The disk of the workspace, for the notes of consolidation; None: nothing is consolidated."""
    guests: Path | None = None
    """Folder with one for each guest; None: guests have no files."""
    kept_changes: KeptChanges | None = None
    """Keeps what file tools of tasks change; None: nothing is kept."""
    folder_problem: Callable[[str], str] = lambda folder: "tasks have no folders here"
    """Returns why tasks must not work in a folder of an owner's own, "" if they may. Blocks briefly."""
    closed_paths: tuple[Path, ...] = ()
    """Files and folders that tools never touch, whatever the settings allow: Pegasus's own home."""
    sandbox: LiveValue[Sandbox] = attrs.field(factory=lambda: LiveValue(NO_SANDBOX))
    """The walls around commands."""
    clients: ClientTools = attrs.field(factory=ClientTools)
    """Tools that connected clients carry out for their conversations."""
    owner_notes: OwnerNotes = attrs.field(factory=OwnerNotes)
    """Notes to owners about files that commands have changed."""
    make_tools: Callable[[Memory], Sequence[Tool]]
    """Makes the tools of tasks, without those about tasks themselves. Called once."""
    adapt_tool: Callable[[Tool], Tool] = lambda tool: tool
    """Returns the tool that is run in place of one, for a replay in which tools give the results that were recorded."""
    archives: Callable[[SessionFiles], SessionArchives]
    """Returns the archives of a session."""
    conversation_names: ConversationNames = attrs.field(factory=ConversationNames)
    """Names that an owner has given to conversations. The tree loads them when the journal runs."""
    mcp: McpServers = attrs.field(factory=McpServers)
    """MCP servers, whose tools the Main Agent and tasks have beside their own."""
    secrets: KnownSecrets = attrs.field(factory=KnownSecrets)
    """The texts that tool results must not show. A reload of the settings may add some."""
    switch: ModelSwitch | None = None
    """Changes the default model at run time (`/model`); None: nothing can."""
    recent: RecentEvents = attrs.field(factory=lambda: RecentEvents(1))
    """The last events, for programs that follow them."""
    make_fence: Callable[[], str] = new_fence
    """Makes the id for the fences of a conversation. Simulations make it from their seed; nobody else may be able to guess it."""
    pairing: PairingBook = attrs.field(factory=PairingBook)
    """People whom the owner has let in. The tree loads them when the journal runs."""
    tokens: TokenBook = attrs.field(factory=TokenBook)
    """Tokens of clients beside that of the home. The daemon loads them when the journal runs."""
    keep_schedule: Callable[[Inbox[ScheduleMessage], ScheduleServices], Awaitable[None]] | None = None
    """The actor that keeps scheduled jobs; None: that of `pegasus.schedule`."""
    shows_approvals: Collection[str] = ("cli", "web")
    """Channel types whose clients show approvals by themselves. On all others they are replies."""
    shared: SharedState | None = None
    """State that several nodes share; None: everything is in files on `disk`, and there is one node."""
    activity: Activity = attrs.field(factory=Activity)
    """Sums of what the agent has done since its start."""
    is_trial: bool = False
    """True: everything starts and nothing is worked on (`pegasus.app.daemon`)."""
    may_work: trio.Event = attrs.field(factory=trio.Event)
    """Set when background work may begin; in the daemon, when people can connect. Recovery of tasks is the work of seconds."""
    owners: LiveValue[Collection[str]] = attrs.field(init=False)
    """The setting `agent.owners`."""

    @owners.default
    def _follow_owners(self) -> LiveValue[Collection[str]]:
        return self.in_force.follow(lambda settings: settings.agent.owners, "agent.owners")

    session: LiveValue[SessionSettings] = attrs.field(init=False)
    """The settings [session]."""

    @session.default
    def _follow_session(self) -> LiveValue[SessionSettings]:
        return self.in_force.follow(lambda settings: settings.session, "session.")

    @property
    def settings(self) -> Settings:
        """Return the settings in force."""
        return self.in_force.now

    @property
    def has_chats(self) -> bool:
        """Return whether each chat has a conversation of its own. A reload does not change it."""
        return self.settings.agent.scope == "chat"

    @property
    def is_shared(self) -> bool:
        """Return whether other nodes may change what is stored."""
        return self.shared is not None

    @property
    def signs(self) -> str:
        """Return the path of the actor that is shown what only tells how it goes."""
        return SIGNS if self.is_shared else SWITCHBOARD
