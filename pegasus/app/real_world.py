"""The real world as the supervision tree is given it: the home, disk, models, tools and walls of this machine.

The daemon builds it, and so does an agent that runs within another program (`own_world`). That one has no listeners, no signal
handlers, no log file, and prints nothing on stdout, since the process belongs to the other program.

It is made in two steps. `look_at_world` reads files and probes the sandbox before the event loop runs, because both
block and their mistakes should end the process with a message. `make_agent_world` adds the objects that belong to the
loop: models, the reloader, and the environment of all of it.

All handles that read files are followed `in_thread`, so that a reload does not stop the loop while it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING

import attrs
import trio

from pegasus.app import control_plane
from pegasus.app.environment import Environment
from pegasus.app.memory_embedder import MemoryEmbedder
from pegasus.app.owner_notes import OwnerNotes
from pegasus.app.reload import Reloader
from pegasus.events import RecentEvents
from pegasus.host import Home, ensure_token, folder_problem, own_home, wall_clock
from pegasus.identity import (
    NOTES_FILE,
    OWNER_FILES,
    Persona,
    WorkspaceFiles,
    persona_of_settings,
    read_persona_state,
)
from pegasus.late import import_names
from pegasus.main_agent import ConversationNames, SessionFiles, StoredArchives, archive_prefix, import_turn, notes_disk
from pegasus.mcp import TOKENS_FOLDER, McpServers, files_context
from pegasus.memory import Memory, memory_in
from pegasus.models import ModelService, ModelSwitch, PriceList, UsageTracker
from pegasus.observe import Activity
from pegasus.sandbox import Sandbox, SandboxProbe, probe_sandbox
from pegasus.settings import SANDBOX_KEYS, LiveSettings, LiveValue, Settings
from pegasus.skills import BUILT_IN, AcceptedSkills, InstalledSkills, SkillCatalog
from pegasus.storage import FileDisk, FolderFiles, StoredFiles
from pegasus.tools import KeptChanges, Tool, standard_tools, with_network

if TYPE_CHECKING:
    from pegasus.app.shared_state import SharedState


@attrs.frozen(eq=False, repr=False)
class RealWorld:
    """Everything that is read before the event loop starts.

    Example::

        with own_home(home):
            world = look_at_world(home, settings, ensure_token(home, settings.gateway.token))
            environment = make_agent_world(world).environment
            world.files.close()
    """

    home: Home
    """The home, which this process has locked."""
    in_force: LiveSettings
    """The settings."""
    token: str
    """The token that clients must present."""
    base_persona: LiveValue[Persona]
    """The persona of the settings."""
    persona: LiveValue[Persona]
    """The same with the changes that its owner has accepted, as they were at the last start or reload."""
    sandbox: LiveValue[Sandbox]
    """The walls around commands."""
    files: WorkspaceFiles
    """The owner's files that are part of the prompt."""
    notes: OwnerNotes
    """Notes to owners about files that commands have changed."""


def look_at_world(home: Home, settings: Settings, token: str, probe: SandboxProbe | None = None) -> RealWorld:
    """Read the persona, and find out which walls there are. Both follow the settings. Raises PersonaError, SandboxError, OSError.

    probe: of the sandbox, with these settings, if it has been begun. The home must be locked. Blocks. The caller closes the files.
    """
    names = (*OWNER_FILES, NOTES_FILE) if settings.agent.scope == "chat" else OWNER_FILES
    files = WorkspaceFiles(home.workspace, home.owner_texts, names=names)
    in_force, notes = LiveSettings(settings), OwnerNotes()

    def base_persona(settings: Settings) -> Persona:
        """Return the persona that these settings name."""
        return persona_of_settings(settings.agent.persona, home.resolve)

    def persona(settings: Settings) -> Persona:
        """Return it with the changes that were accepted up to now."""
        return read_persona_state(base_persona(settings), home.data).persona

    def sandbox(new: Settings) -> Sandbox:
        """Return the walls for these settings. Builds some, to see whether they stand."""
        begun = probe if new is settings else None  # a reload brings other settings
        found = begun.result() if begun else probe_sandbox(new, home.path, home.workspace)
        return attrs.evolve(with_network(found, new), witness=files, tell_owner=notes.tell)

    world = RealWorld(
        home,
        in_force,
        token,
        in_force.follow(base_persona, "agent.persona", in_thread=True),
        in_force.follow(persona, "agent.persona", in_thread=True),
        in_force.follow(sandbox, *SANDBOX_KEYS, in_thread=True),
        files,
        notes,
    )
    world.sandbox.now.set_leftovers_aside()  # the home is locked, so that no command runs
    return world


def find_changed_files(world: RealWorld, settings: Settings) -> frozenset[str]:
    """Return the keys that name files with another content than the one in force. Raises PersonaError, OSError."""
    base = persona_of_settings(settings.agent.persona, world.home.resolve)
    # Contents are compared and not times: an editor that saves an unchanged file must not cost the caches of providers.
    is_same = world.base_persona.now == base and world.persona.now == read_persona_state(base, world.home.data).persona
    return frozenset() if is_same else frozenset({"agent.persona"})


def _make_environment(
    world: RealWorld, models: ModelService, reloader: Reloader, activity: Activity, is_trial: bool
) -> Environment:
    """Return the environment of the real world.

    The disk is that in the home, the clock the system's, the models those of the settings. Secrets of all sources are
    collected here, so that no tool result shows one of them to the model.
    """
    home, in_force = world.home, world.in_force
    settings = in_force.now

    def make_tools(memory: Memory) -> Sequence[Tool]:
        """Return the tools of tasks, made from the settings in force."""
        archive_prefix_of = partial(archive_prefix, in_force.now.agent.scope)
        return standard_tools(
            in_force.now.tools, memory, clock=wall_clock, sandbox=world.sandbox, archive_prefix_of=archive_prefix_of
        )

    shared = None
    if settings.storage.url:
        from pegasus.app.shared_state import open_shared_state

        shared = open_shared_state(in_force, home, is_trial=is_trial)
    stored = stored_files(home, shared)
    return Environment(
        in_force=in_force,
        disk=FileDisk(home.data),
        shared=shared,
        models=models,
        persona=world.persona,
        base_persona=world.base_persona,
        clock=wall_clock,
        random=Random(),  # noqa: S311 ids only
        workspace=home.workspace,
        guests=home.path / "guests",
        kept_changes=KeptChanges(home.data / "undo", wall_clock),
        folder_problem=partial(folder_problem, home=home.path, workspace=home.workspace),
        subagent_folders=(home.subagents,),
        skills=SkillCatalog(
            BUILT_IN,
            home.skills,
            accepted=AcceptedSkills(home.accepted_skills, home.workspace / "skills"),
            installed=InstalledSkills(home.installed_skills),
        ),
        files=world.files,
        notes_disk=notes_disk(str(home.workspace)),
        open_memory=partial(
            memory_in,
            home.data,
            clock=wall_clock,
            workspace=home.workspace,
            guest_bytes=lambda: in_force.now.limits.guest_memory_kb << 10,
            embedder=MemoryEmbedder(lambda: models.embedder, reloader.secrets.redact),
            stored=stored,
            count_lines=None if shared is None else shared.database.lengths,
        ),
        # The home has the token and the keys. The settings file may lie elsewhere, and may have keys in it, too.
        closed_paths=tuple(filter(None, [home.path, home.token, settings.source.file])),
        sandbox=world.sandbox,
        owner_notes=world.notes,
        make_tools=make_tools,
        conversation_names=(names := ConversationNames()),
        archives=partial(_archives_in, stored, names),
        mcp=McpServers(
            settings.mcp.servers,
            files_context(home.workspace),
            home.path / TOKENS_FOLDER,
            _fence_of(world.token),
            world.sandbox,
        ),
        secrets=reloader.secrets,
        recent=RecentEvents(wall_clock()),
        activity=activity,
        is_trial=is_trial,
        switch=ModelSwitch(models, reloader.choose),
    )


def stored_files(home: Home, shared: SharedState | None) -> StoredFiles:
    """Return what is stored, for reading beside the journal."""
    return FolderFiles(home.data) if shared is None else shared.stored


def _archives_in(stored: StoredFiles, names: ConversationNames, files: SessionFiles) -> StoredArchives:
    return StoredArchives(stored, files, lambda: names.all)


def _fence_of(token: str) -> str:
    """Return an id for the fence around the words of MCP servers in prompts: the same at each start, and nobody can guess it.

    It is derived from the token, which only the owner's programs know, and not stored: the prompt, and with it the caches
    of providers, stays the same over restarts. A server that could guess it could close the fence and speak as ours.
    """
    return sha256(f"mcp {token}".encode()).hexdigest()[:10]


def _make_models(settings: Settings, activity: Activity) -> tuple[ModelService, UsageTracker]:
    """Return the models of the settings, and what counts their calls. Raises ModelConfigError."""
    prices = PriceList(settings.prices, settings.providers)
    usage = UsageTracker(wall_clock, Random(), settings.budget, prices, activity)  # noqa: S311 ids only
    return ModelService(settings.models, settings.providers, rng=Random(), usage=usage), usage  # noqa: S311 jitter only


@attrs.frozen(eq=False, repr=False)
class AgentWorld:
    """The environment of the real world, and what changes its settings.

    Example::

        made = make_agent_world(world)
        tree = await start_tree(root, made.environment)
        made.reloader.journal = tree.journal
        nursery.start_soon(made.run)
    """

    environment: Environment
    """Everything that the supervision tree is given."""
    reloader: Reloader
    """Carries out reloads, and choices of a model."""
    usage: UsageTracker
    """Counts the calls of models."""

    async def aclose(self) -> None:
        """Close the connections to providers of models, and to the database."""
        await self.reloader.models.aclose()
        if self.environment.shared is not None:
            await self.environment.shared.database.aclose()

    async def run(self) -> None:
        """Do what nobody waits for, until cancelled: background tasks may begin, what the first message needs is imported.

        Importing the SDK of a model can take a second, the rest a tenth of that. The first message would pay for it otherwise.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.reloader.run)
            # In a thread, so that people can connect meanwhile.
            await trio.to_thread.run_sync(_import_for_work, abandon_on_cancel=True)
            # Background work begins before the SDK is imported: it may go on from before the restart, and a message may
            # not come for hours.
            self.environment.may_work.set()
            if (shared := self.environment.shared) is not None:
                nursery.start_soon(shared.follow_nodes, self.reloader.models.share_calls)
            nursery.start_soon(
                partial(trio.to_thread.run_sync, abandon_on_cancel=True), self.environment.sandbox.now.remove_leftovers
            )
            await self.reloader.models.warm_up()


def _import_for_work() -> None:
    """Import what works on messages and tasks, and what answers programs."""
    from pegasus.app import task_services  # noqa: F401
    from pegasus.schedule import serve_schedule  # noqa: F401
    from pegasus.tasks import task_agent, task_persister  # noqa: F401

    import_turn()
    import_names(control_plane)


def make_agent_world(world: RealWorld, *, writes_log: bool = True, is_trial: bool = False) -> AgentWorld:
    """Return the world for an agent, with its models. writes_log: as in `Reloader`. Raises ModelConfigError."""
    activity = Activity(wall_clock)
    models, usage = _make_models(world.in_force.now, activity)
    changed_files = partial(find_changed_files, world)
    reloader = Reloader(world.home, world.in_force, world.token, models, changed_files, writes_log=writes_log)
    return AgentWorld(_make_environment(world, models, reloader, activity, is_trial), reloader, usage)


@contextmanager
def own_world(home: Home, settings: Settings) -> Iterator[AgentWorld]:
    """Lock a home and give its world to an agent within another program, while the body runs. Blocks at the start, below a second.

    Raises HomeError (HomeBusy if another process or another agent of this one has it), PersonaError, SandboxError, ModelConfigError.
    """
    with own_home(home):
        world = look_at_world(home, settings, ensure_token(home, settings.gateway.token))
        try:
            yield make_agent_world(world, writes_log=False)
        finally:
            world.files.close()
