"""The daemon: one process that owns its home, listens, announces that it is ready, and stops in order.

Order of a start: lock the home, read persona and token, listen, start the tree (journal, tasks, Main Agent, channels), print the ready
line. What people need not wait for comes behind that: recovery of tasks, the import of the model's SDK. A stop goes the
other way, within the grace of `run.shutdown_grace`; see `_kill_when_late` for work that does not end.

The home is locked before anything is read or written, so two daemons never share a journal. Settings, persona
and token are read before the event loop starts: their mistakes end the process with a message and no trace of a
start. Listening comes before the tree, since a port that is taken is the commonest failure and must not cost a
replay of the journal. The ready line comes last; whoever waits for it may connect and is served.

A stop may come at any time, also during the start, and is the same as leaving the blocks in `_daemon` one by
one: first the home's address file is withdrawn, then the tree stops its actors in reverse order, each within its
own shutdown time. The journal is the first child and therefore the last to stop, so what the others write while
they stop is kept. A process that is killed instead loses nothing that it had acknowledged; the next start
replays the journal.

Errors are translated into exit codes in one place, `run_daemon`. A mistake of the operator has a code that an
outer supervisor should not answer with a restart (78, as in sysexits.h); an exhausted root supervisor has 70,
which it should.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from random import Random
from typing import Final

import attrs
import trio

from actors import ActorDied, Child, GaveUp, Strategy, Supervisor, open_supervisor
from pegasus.app.access_control import PairingMethods, TokenMethods
from pegasus.app.chat_commands import chat_commands
from pegasus.app.completions import CompletionMethod
from pegasus.app.control import READ_METHODS, ControlPlane, MemoryMethods, PersonaMethods
from pegasus.app.environment import SANDBOX_KEYS, Environment
from pegasus.app.http import SignInMethod, health_of, http_child, http_config, url_of, withdraw_message
from pegasus.app.reload import Reloader
from pegasus.app.schedule import CronMethods
from pegasus.app.service_channels import ServiceChannels, make_intake
from pegasus.app.services import BUS, GATEWAY, SCHEDULE, TASK_AGENT
from pegasus.app.task_control import EventMethods, TaskMethods
from pegasus.app.task_signs import open_tasks
from pegasus.app.tree import CHILD_BACKOFF, ROOT_INTENSITY, AgentTree, log_tree_events, start_channels, start_tree
from pegasus.app.views import ViewMethods
from pegasus.channels import ServiceAdapter
from pegasus.events import RecentEvents
from pegasus.formatting import first_cause
from pegasus.gateway import (
    GatewayConfig,
    GatewayMessage,
    Listeners,
    Methods,
    connections_within,
    open_listeners,
    run_gateway,
)
from pegasus.host import (
    Home,
    HomeError,
    Notifier,
    Signals,
    announced,
    ensure_token,
    forbid_inspection,
    handle_signals,
    make_samples,
    own_home,
    print_error,
    raise_descriptor_limit,
    wall_clock,
)
from pegasus.identity import (
    NOTES_FILE,
    OWNER_FILES,
    Persona,
    PersonaError,
    WorkspaceFiles,
    persona_at_start,
    persona_of_settings,
)
from pegasus.intake import Intake
from pegasus.main_agent import FolderArchives, archive_prefix, describe_commands, notes_disk
from pegasus.mcp import TOKENS_FOLDER, McpServers, files_context
from pegasus.memory import Memory, memory_in
from pegasus.models import OFFLINE, ModelConfigError, ModelService, PriceList, UsageTracker
from pegasus.observe import get_logger, stop_logging
from pegasus.policy import TokenBook
from pegasus.sandbox import Sandbox, SandboxError, probe_sandbox
from pegasus.settings import Settings, SettingsInForce
from pegasus.skills import BUILT_IN, AcceptedSkills, SkillCatalog
from pegasus.storage import FileDisk, StorageError
from pegasus.tools import AddressGuard, Tool, guarded_dial, standard_tools
from pegasus.web import WebServices, WebSessions

EXIT_FAILURE: Final = 1
"""Any failure of the system: a disk, a socket, an actor that did not start."""
EXIT_GAVE_UP: Final = 70
"""The root supervisor gave up. An outer supervisor (systemd, a container) should start the process again."""
EXIT_BAD_SETTINGS: Final = 78
"""Settings, persona or model cannot work. Starting again without a change fails again."""

_log = get_logger("daemon")


def run_daemon(home: Home, settings: Settings) -> int:
    """Run until a signal; return the exit code. Problems are written to stderr.

    It blocks and must be called in the main thread, because it installs signal handlers. Raises nothing that is
    expected; an unexpected exception is a defect and ends the process with its traceback.
    """
    forbid_inspection()  # first, before a secret is read
    try:
        try:
            with own_home(home):
                token = ensure_token(home, settings.gateway.token)
                # The token is needed even if nobody connects: the redaction of logs has to know it.
                names = (*OWNER_FILES, NOTES_FILE) if settings.agent.scope == "chat" else OWNER_FILES
                files = WorkspaceFiles(home.workspace, home.owner_texts, names=names)
                world = _look_at_world(home, SettingsInForce(settings), token, files)
                code = trio.run(_daemon, world)
                files.close()
                return code
        except BaseExceptionGroup as group:
            # Nurseries wrap what failed in groups that say nothing themselves. The first cause is the one to report.
            first = first_cause(group)
            raise first from first.__cause__
        finally:
            stop_logging()  # first, so that the message below is the last line on the screen
    except HomeError as error:
        return _complain(str(error), error.exit_code)
    except (PersonaError, ModelConfigError, SandboxError) as error:
        return _complain(str(error), EXIT_BAD_SETTINGS)
    except GaveUp as error:
        return _complain(f"{error}; the log tells why", EXIT_GAVE_UP)
    except (OSError, StorageError, ActorDied) as error:
        return _complain(_cause(error), EXIT_FAILURE)


@attrs.frozen(eq=False, repr=False)
class _World:
    """Everything that is read before the event loop starts."""

    home: Home
    """The home, which this process has locked."""
    in_force: SettingsInForce
    """The settings."""
    token: str
    """The token that clients must present."""
    base_persona: Persona
    """The persona of the settings."""
    persona: Persona
    """The same with the changes that its owner has accepted, as they were at the last start or reload."""
    sandbox: Sandbox
    """The walls around commands."""
    files: WorkspaceFiles
    """The owner's files that are part of the prompt."""


def _look_at_world(home: Home, in_force: SettingsInForce, token: str, files: WorkspaceFiles) -> _World:
    """Read the persona, and find out which walls there are. Both follow the settings. Raises PersonaError, SandboxError, OSError."""

    def base_persona(settings: Settings) -> Persona:
        return persona_of_settings(settings.agent.persona, home.resolve)

    def persona(settings: Settings) -> Persona:
        return persona_at_start(base_persona(settings), home.data)

    world = _World(
        home,
        in_force,
        token,
        in_force.follow(base_persona, "agent.persona", in_thread=True),
        in_force.follow(persona, "agent.persona", in_thread=True),
        in_force.follow(partial(_probe, home, files), *SANDBOX_KEYS, in_thread=True),
        files,
    )
    world.sandbox.set_leftovers_aside()  # the home is locked, so that no command runs
    return world


def _find_changed_files(world: _World, settings: Settings) -> frozenset[str]:
    """Return the keys that name files with another content than the one in force. Raises PersonaError, OSError."""
    base = persona_of_settings(settings.agent.persona, world.home.resolve)
    is_same = world.base_persona == base and world.persona == persona_at_start(base, world.home.data)
    return frozenset() if is_same else frozenset({"agent.persona"})


def _probe(home: Home, files: WorkspaceFiles, settings: Settings) -> Sandbox:
    """Find out which walls around commands this machine can build. Raises SandboxError if some are required and there are none."""
    found = probe_sandbox(
        settings.sandbox,
        home.path,
        home.workspace,
        settings.tools.allowed_paths,
        settings_file=settings.source.file,
    )
    return attrs.evolve(found, dial=guarded_dial(AddressGuard(settings.sandbox.allowed_hosts)), witness=files)


def _environment(world: _World, models: ModelService, reloader: Reloader) -> Environment:
    """Return the environment of the real world.

    The disk is that in the home, the clock the system's, the models those of the settings. Secrets of all sources are
    collected here, so that no tool result shows one of them to the model.
    """
    home, in_force = world.home, world.in_force
    settings = in_force.now

    def make_tools(memory: Memory) -> Sequence[Tool]:
        archives_of = partial(archive_prefix, in_force.now.agent.scope)
        return standard_tools(
            in_force.now.tools, memory, clock=wall_clock, sandbox=world.sandbox, archives_of=archives_of
        )

    return Environment(
        settings=in_force,
        disk=FileDisk(home.data),
        models=models,
        persona=world.persona,
        base_persona=world.base_persona,
        clock=wall_clock,
        random=Random(),  # noqa: S311 ids only
        workspace=home.workspace,
        subagent_folders=(home.subagents,),
        skills=SkillCatalog(
            BUILT_IN, home.skills, accepted=AcceptedSkills(home.accepted_skills, home.workspace / "skills")
        ),
        files=world.files,
        notes_disk=notes_disk(str(home.workspace)),
        open_memory=partial(memory_in, home.data, clock=wall_clock),
        closed_paths=tuple(filter(None, [home.path, home.token, settings.source.file])),
        sandbox=world.sandbox,
        make_tools=make_tools,
        archives=lambda files: FolderArchives(home.data / files.folder, files),
        mcp=McpServers(
            settings.mcp.servers,
            files_context(home.workspace),
            home.path / TOKENS_FOLDER,
            _fence_of(world.token),
            world.sandbox,
        ),
        secrets=reloader.secrets,
        recent=RecentEvents(wall_clock()),
        switch=reloader,
    )


def _fence_of(token: str) -> str:
    """Return an id for the fence around the words of MCP servers in prompts: the same at each start, and nobody can guess it."""
    return sha256(f"mcp {token}".encode()).hexdigest()[:10]


async def _daemon(world: _World) -> int:
    """Start everything, wait for a stop, and stop everything. Return the exit code.

    The nursery `watch` is outside the supervisor, for `_kill_when_late` must live until the tree has stopped.
    The inner nursery has what needs a running tree: its log and the work after the start. It is cancelled first
    on a stop, and when one of its tasks fails the tree is stopped in order before the failure is reported.
    """
    in_force, settings = world.in_force, world.in_force.now
    usage = UsageTracker(wall_clock, Random(), settings.budget, PriceList(settings.prices, settings.providers))  # noqa: S311 ids only
    models = ModelService(settings.models, settings.providers, rng=Random(), usage=usage)  # noqa: S311 jitter only
    if models.client().name == OFFLINE and make_samples(world.home):
        _log.info("sample files are in the workspace", folder=str(world.home.workspace))
    if world.sandbox.warning:
        _log.warning(world.sandbox.warning)
    reloader = Reloader(world.home, in_force, world.token, models)
    reloader.find_changed_files = partial(_find_changed_files, world)
    environment = _environment(world, models, reloader)
    listeners = await _listen("gateway", settings.gateway.host, settings.gateway.port)
    http_listeners = await _listen("http", settings.http.host, settings.http.port) if settings.http.enabled else []
    ws = url_of("ws", settings.gateway.host, listeners)
    http = url_of("http", settings.http.host, http_listeners) if http_listeners else None
    notifier = Notifier.from_environment()
    with handle_signals(grace=settings.run.shutdown_grace, on_reload=reloader.request) as signals:
        in_force.when_changed(lambda _: setattr(signals, "grace", in_force.now.run.shutdown_grace), "run.")
        async with trio.open_nursery() as watch:
            async with (
                open_supervisor(strategy=Strategy.REST_FOR_ONE, intensity=ROOT_INTENSITY, name="pegasus") as root,
                trio.open_nursery() as nursery,
            ):
                watch.start_soon(_kill_when_late, signals, root)
                nursery.start_soon(log_tree_events, root)
                tree = await start_tree(root, environment)
                reloader.journal = tree.journal
                tokens = TokenBook()
                await tokens.load(tree.journal, wall_clock)
                intake = make_intake(tree.journal, in_force, environment.pairing)
                channels = ServiceChannels(tree.services, intake, describe_commands(chat_commands(tree.services)))
                adapters = channels.adapters
                # A connection that cannot be accepted for lack of a descriptor would make the listener fail.
                connections = connections_within(raise_descriptor_limit(), 2 if settings.http.enabled else 1)
                gateway_config = in_force.follow(
                    partial(_gateway_config, world, tokens, connections), "gateway.", "media.max_bytes", "agent.persona"
                )
                sessions = WebSessions(gateway_config)
                await sessions.load(tree.journal, wall_clock)
                sign_in = SignInMethod(sessions if http else None, lambda: in_force.now.http.public_url or http or "")
                methods = _methods(world, tree, models, reloader, tokens, adapters, sign_in)
                said = Listeners()
                gateway = _gateway_child(tree, gateway_config, intake, listeners, methods, said)
                web = WebServices(
                    config=in_force.follow(
                        lambda settings: http_config(settings.http, http_listeners, connections), "http."
                    ),
                    gateway_config=gateway_config,
                    gateway=root.ref(GATEWAY),
                    intake=intake,
                    listeners=said,
                    methods=methods,
                    sessions=sessions,
                    tasks=root.ref(TASK_AGENT),
                    bus=root.ref(BUS),
                    recent=environment.recent,
                    tree_events=root.events,
                    hooks=in_force.follow(lambda settings: settings.hooks, "hooks."),
                    receivers=adapters,
                    withdraw=partial(withdraw_message, tree.main_agent),
                    item_usage=usage.item_usage,
                    clock=wall_clock,
                    may_serve=environment.may_work,
                    health=partial(health_of, root, tree.main_agent.path, environment.may_work, adapters.values()),
                )
                server = http_child(web, http_listeners) if http else None
                channels.follow(await start_channels(tree, gateway, channels.children(), server))
                reloader.take_up_parked = channels.take_up_parked
                with announced(world.home, notifier, ws=ws, http=http):
                    nursery.start_soon(_after_ready, environment, reloader, notifier)
                    await signals.stop.wait()
                nursery.cancel_scope.cancel()
            watch.cancel_scope.cancel()
    if signals.overran:
        _log.warning("the stop took too long and was cut short", grace=signals.grace)
    return 0


def _methods(
    world: _World,
    tree: AgentTree,
    models: ModelService,
    reloader: Reloader,
    tokens: TokenBook,
    adapters: Mapping[str, ServiceAdapter],
    sign_in: SignInMethod,
) -> Methods:
    """Return the control plane: the methods that programs may call, over the gateway and over HTTP.

    The persona of this run is given to it, not that of the settings: an accepted change counts from the next
    start or reload on.
    """
    services, owners = tree.services, tree.services.environment.owners
    tasks = TaskMethods(tree.root.ref(TASK_AGENT))
    control = ControlPlane(
        root=tree.root,
        journal=tree.journal,
        main_agent=tree.main_agent,
        started_at=wall_clock(),
        clock=wall_clock,
        models=models,
        tasks=tasks,
        memory=MemoryMethods(services.memory),
        persona=PersonaMethods(services.evolution, world.persona, owners),
        approvals=services.approvals,
        events=EventMethods(services.environment.recent, tasks),
        mcp=services.environment.mcp,
        sandbox=world.sandbox,
        channels=lambda: [adapter.state for adapter in adapters.values()],
    )
    completions = CompletionMethod(chat_commands(services), services.agent.toolset.skills, models.choices)
    views = ViewMethods(
        tree.journal,
        world.home.data,
        world.home.log,
        services.environment.skills,
        world.home.skills,
        lambda: world.in_force.now,
    )
    return {
        **control.methods(),
        **TokenMethods(tokens).methods(),
        **PairingMethods(services.environment.pairing, owners).methods(),
        **views.methods(),
        **CronMethods(tree.root.ref(SCHEDULE), wall_clock, owners).methods(),
        "config.reload": reloader.call,
        "completions": completions.call,
        "http.link": sign_in.call,
    }


def _gateway_config(world: _World, tokens: TokenBook, connections: int, settings: Settings) -> GatewayConfig:
    """Return the gateway's behaviour. connections: how many it may have open."""
    return GatewayConfig(
        token=world.token,
        tokens=tokens,
        read_methods=READ_METHODS,
        agent=world.persona.name,
        origins=frozenset(settings.gateway.allowed_origins),
        max_frame_bytes=settings.gateway.max_frame_bytes,
        max_media_bytes=settings.media.max_bytes,
        max_connections=connections,
    )


def _gateway_child(
    tree: AgentTree,
    config: GatewayConfig,
    intake: Intake,
    listeners: Sequence[trio.SocketListener],
    methods: Methods,
    said: Listeners,
) -> Child[GatewayMessage]:
    """Return the gateway as a child of the channels."""
    unfinished = partial(open_tasks, tree.root.ref(TASK_AGENT), wall_clock)
    open_approvals = tree.services.approvals.open_notices
    run = partial(run_gateway, open_tasks=unfinished, open_approvals=open_approvals, listeners_within=said)
    return Child("gateway", run, config, intake, listeners, methods, backoff=CHILD_BACKOFF)


async def _kill_when_late(signals: Signals, root: Supervisor) -> None:
    """Kill what is left of the tree when a stop has used up its share of the grace.

    Cancelling the block of a supervisor only begins an ordered stop, in which every actor may take its own shutdown
    time; together these are longer than the grace.

    The task only sleeps. It is cancelled in one of two ways: by the deadline of `handle_signals`, when the stop has used up
    its share (`signals.late` is True then), or by `_daemon`, when the tree has stopped in time. Killing loses no data, for
    everything acknowledged is synced; calls that are under way are simply not finished.
    """
    try:
        await trio.sleep_forever()
    finally:
        if signals.late:
            root.kill("the grace of the stop was over")


async def _after_ready(environment: Environment, reloader: Reloader, notifier: Notifier) -> None:
    """Do what people need not wait for: background tasks, the SDK of the model, the watchdog.

    Importing an SDK can take a second. Without `warm_up` the first message would pay for it.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reloader.run)
        nursery.start_soon(notifier.keep_alive)
        _log.info("ready", model=reloader.current)
        environment.may_work.set()
        nursery.start_soon(
            partial(trio.to_thread.run_sync, abandon_on_cancel=True), environment.sandbox.remove_leftovers
        )
        await reloader.models.warm_up()


async def _listen(section: str, host: str, port: int) -> list[trio.SocketListener]:
    """Open the sockets of a server. Raises OSError whose message names the settings to change."""
    try:
        return await open_listeners(host, port)
    except OSError as error:
        why = error.strerror or str(error)
        message = f"{section}.host {host!r}, {section}.port {port}: cannot listen there ({why}); choose another, or port 0 for any"
        raise OSError(message) from error


def _cause(error: BaseException) -> str:
    """Return the message of the cause that a person can act on, behind nurseries and actors that did not start."""
    while True:
        error = first_cause(error)
        if isinstance(error, ActorDied | GaveUp) and error.__cause__ is not None:
            error = error.__cause__
        else:
            return str(error)


def _complain(message: str, code: int) -> int:
    """Write the message to stderr, each line with the program's name, and return the code."""
    for line in message.splitlines():
        print_error(f"pegasus: {line}")
    return code
