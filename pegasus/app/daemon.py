"""The daemon: one process that owns its home, listens, announces that it is ready, and stops in order.

Order of a start: lock the home, read persona and token, listen, start the tree (journal, tasks, Main Agent, channels), print the ready
line. What people need not wait for comes behind that: recovery of tasks, the import of the model's SDK. A stop goes the
other way, within the grace of `run.shutdown_grace`; see `_kill_when_late` for work that does not end.

The home is locked before anything is read or written, so two daemons never share a journal. Settings, persona
and token are read before the event loop starts: their mistakes end the process with a message and no trace of a
start. Listening comes before the tree, since a port that is taken is the most frequent failure, and is then found before the
journal is replayed. The ready line comes last; whoever waits for it may connect and is served.

A stop may come at any time, also during the start. It is the same as leaving the blocks in `_daemon` one by one. First
the home's address file is removed, then the tree stops its actors in reverse order, each within its
own shutdown time. The journal is the first child and therefore the last to stop, so what the others write while
they stop is kept. A process that is killed instead loses nothing that it had acknowledged; the next start
replays the journal.

An update tries a version before it takes over (`is_trial`). Everything is started on the data of the home, which is brought into the
form of that version, but the doors accept nothing, services are not connected, and nothing is worked on or sent. So whatever
the trial has changed may be put back. It ends when stdin does, so that it does not outlive an update that was killed.

Errors are translated into exit codes in one place, `run_daemon`. A mistake of the operator has a code that an
outer supervisor should not answer with a restart (78, as in sysexits.h); an exhausted root supervisor has 70,
which it should.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from actors import ActorDied, Child, GaveUp, Ref, Strategy, Supervisor, open_supervisor
from pegasus.access import WebSessions
from pegasus.app.channels import (
    ServiceChannels,
    gateway_child,
    health_of,
    http_child,
    http_config,
    make_gateway_config,
    open_intake,
    url_of,
    withdraw_message,
)
from pegasus.app.chat_commands import ChatCommands
from pegasus.app.environment import BUS, GATEWAY, SCHEDULE, TASK_AGENT, Environment
from pegasus.app.other_agents import A2aLink
from pegasus.app.push import BrowserPush
from pegasus.app.real_world import RealWorld, look_at_world, make_agent_world, stored_files
from pegasus.app.reload import Reloader
from pegasus.app.tree import (
    CHILD_BACKOFF,
    ROOT_INTENSITY,
    AgentTree,
    follow_others,
    log_tree_events,
    start_channels,
    start_tree,
)
from pegasus.formatting import first_cause, quote
from pegasus.gateway import (
    LateMethods,
    Listeners,
    Methods,
    connections_within,
    open_listeners,
)
from pegasus.host import (
    FORMAT,
    TRIAL_LINE,
    Home,
    HomeError,
    Notifier,
    Signals,
    announced,
    command_name,
    ensure_token,
    forbid_inspection,
    handle_signals,
    make_samples,
    own_home,
    prepare_data,
    print_error,
    print_line,
    raise_descriptor_limit,
    wall_clock,
    write_private,
)
from pegasus.identity import PersonaError
from pegasus.main_agent import describe_commands
from pegasus.models import OFFLINE, ModelConfigError, ModelService
from pegasus.observe import get_logger, stop_logging
from pegasus.sandbox import SandboxError, SandboxProbe
from pegasus.settings import LiveSettings, LiveValue, Settings
from pegasus.storage import StorageError
from pegasus.tasks import TaskAgentMessage
from pegasus.tools import passed_on
from pegasus.web import HookDeliveries, WebServices
from pegasus.wire import encode_json

if TYPE_CHECKING:
    from pegasus.app.telemetry import Telemetry
    from pegasus.channels import ServiceAdapter

EXIT_FAILURE: Final = 1
"""Any failure of the system: a disk, a socket, an actor that did not start."""
EXIT_GAVE_UP: Final = 70
"""The root supervisor gave up. An outer supervisor (systemd, a container) should start the process again."""
EXIT_BAD_SETTINGS: Final = 78
"""Settings, persona or model cannot work. Starting again without a change fails again."""

_log = get_logger("daemon")


def run_daemon(
    home: Home, settings: Settings, probe: SandboxProbe | None = None, *, trial_of: str | None = None
) -> int:
    """Run until a signal; return the exit code. Problems are written to stderr. probe: of the sandbox, if it has been begun.

    trial_of: None, or the name of the backup from before a trial ("" for none).

    It blocks and must be called in the main thread, because it installs signal handlers. Raises nothing that is
    expected; an unexpected exception is a defect and ends the process with its traceback.

    The chat and tests call it as the command does. It returns when the tree has stopped, also after a failure of a part.
    """
    forbid_inspection()  # first, before a secret is read
    try:
        try:
            with own_home(home):
                # Everything in this block that blocks or may fail on a mistake of the operator comes before `trio.run`.
                back_up = partial(_back_up, home) if not trial_of else partial(_link, home.backups / trial_of)
                old = prepare_data(home, back_up)
                token = ensure_token(home, settings.gateway.token)
                # The token is needed even if nobody connects: the redaction of logs has to know it.
                world = look_at_world(home, settings, token, probe)
                if old is not None:
                    _log.info(
                        "data was brought into the form of this version", old=old, now=FORMAT, backups=str(home.backups)
                    )
                code = trio.run(_daemon, world, trial_of is not None)
                world.files.close()
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


def _back_up(home: Home, target: Path) -> None:
    """Make a backup from which the home can start again, before its data is changed. Raises HomeError."""
    from pegasus.backup import BackupError, make_backup

    try:
        make_backup(home, target, passphrase=None, secrets=True, clock=wall_clock)
    except (BackupError, OSError) as error:
        reason = f"{error.filename or target}: {error.strerror or error}" if isinstance(error, OSError) else str(error)
        text = f"data of an older version is not changed without a backup, which cannot be made: {reason}"
        raise HomeError(f"{text}; nothing was changed", exit_code=EXIT_FAILURE) from None


def _link(backup: Path, target: Path) -> None:
    """Give the backup that an update has just made a second name. Raises HomeError."""
    try:
        os.link(backup, target)
    except OSError as error:
        raise HomeError(f"{target}: cannot be made ({error.strerror}); nothing was changed", exit_code=1) from None


async def _daemon(world: RealWorld, is_trial: bool) -> int:
    """Start everything, wait for a stop, and stop everything. Return the exit code. is_trial: nothing is worked on.

    The nursery `watch` is outside the supervisor, for `_kill_when_late` must live until the tree has stopped.
    The inner nursery has what needs a running tree: its log and the work after the start. It is cancelled first
    on a stop, and when one of its tasks fails the tree is stopped in order before the failure is reported.

    Within the block the order follows from who needs whom. Tokens and sessions of the web page are read from the journal, so the tree
    comes first. The gateway and the web server call the control plane (`_methods`), which calls the tree. Channels are started last,
    since they bring in messages. `announced` is entered when all of them serve, and is left first, so that no client finds an address
    that nobody serves any more.
    """
    in_force, settings = world.in_force, world.in_force.now
    # Nothing is started here yet: models and handles are objects, and a mistake in the settings ends the process.
    made = make_agent_world(world, is_trial=is_trial)
    environment, reloader, models = made.environment, made.reloader, made.reloader.models
    # A newcomer without a model gets something to try out with the stand-in.
    if models.client().name == OFFLINE and make_samples(world.home):
        _log.info("sample files are in the workspace", folder=str(world.home.workspace))
    if world.sandbox.now.warning:
        _log.warning(world.sandbox.now.warning)
    listeners = await _listen("gateway", settings.gateway.host, settings.gateway.port)
    http_listeners = await _listen("http", settings.http.host, settings.http.port) if settings.http.enabled else []
    # The ports are known from here on, also where the setting is 0.
    ws = url_of("ws", settings.gateway.host, listeners)
    http = url_of("http", settings.http.host, http_listeners) if http_listeners else None
    if is_trial:  # the addresses are free, and nobody is to connect
        for listener in [*listeners, *http_listeners]:
            await listener.aclose()
        listeners, http_listeners = [], []
    notifier = reloader.notifier = Notifier.from_environment()
    with handle_signals(grace=settings.run.shutdown_grace, on_reload=reloader.request) as signals:
        # Signals are handled before the tree starts: a stop during a long replay of the journal must not kill the process.
        in_force.when_changed(partial(_take_grace, signals, in_force), "run.")
        async with trio.open_nursery() as watch:
            async with (
                open_supervisor(strategy=Strategy.REST_FOR_ONE, intensity=ROOT_INTENSITY, name="pegasus") as root,
                trio.open_nursery() as nursery,
            ):
                # Both begin before the first child: a child that hangs in its start is logged, and does not prevent a stop.
                watch.start_soon(_kill_when_late, signals, root)
                nursery.start_soon(log_tree_events, root)
                with trio.CancelScope() as starting:
                    async with trio.open_nursery() as meanwhile:
                        if environment.shared is not None:
                            from pegasus.app.waiting_room import answer_waiting

                            meanwhile.start_soon(answer_waiting, http_listeners, environment.activity)
                            meanwhile.start_soon(_stop_waiting, signals, starting)
                        tree = await start_tree(root, environment)
                        meanwhile.cancel_scope.cancel()
                if starting.cancelled_caught:
                    nursery.cancel_scope.cancel()
                    watch.cancel_scope.cancel()
                    return 0
                # A choice of a model can be written from here on; before, nobody can make one.
                reloader.journal = tree.journal
                tokens = environment.tokens
                await tokens.load(tree.journal, wall_clock)
                intake = await open_intake(tree, environment)
                chat_commands = ChatCommands(tree.services)
                commands = chat_commands.answers()
                channels = ServiceChannels(tree.services, intake, describe_commands(commands))
                adapters = channels.adapters
                # A connection that cannot be accepted for lack of a descriptor would make the listener fail.
                connections = connections_within(raise_descriptor_limit(), 2 if settings.http.enabled else 1)
                gateway_config = in_force.follow(
                    partial(make_gateway_config, world.token, world.persona, tokens, connections),
                    "gateway.",
                    "media.max_bytes",
                    "agent.persona",
                )
                # Sessions of browsers outlive a restart, so that an owner need not sign in again.
                sessions = WebSessions(gateway_config)
                await sessions.load(tree.journal, wall_clock)
                deliveries = HookDeliveries()
                await deliveries.load(tree.journal, wall_clock)
                follow = [
                    tokens.follow,
                    sessions.follow,
                    sessions.follow_codes,
                    deliveries.follow,
                    reloader.follow_choice,
                ]
                if environment.shared is not None:
                    keep = partial(environment.shared.keep_persona, tree.journal, environment.disk, reloader.request)
                    follow.append(keep)
                await follow_others(root, environment, "doors", follow)
                page = in_force.follow(lambda settings: settings.http.public_url or http or "", "http.public_url")
                # One table for both servers: what a program may do does not depend on the way it comes.
                methods = LateMethods(
                    partial(
                        _methods,
                        world,
                        tree,
                        models,
                        reloader,
                        chat_commands,
                        adapters,
                        sessions if http else None,
                        page,
                        started_at=wall_clock(),
                    )
                )
                reply_listeners = Listeners()
                gateway = gateway_child(tree, gateway_config, intake, listeners, methods, reply_listeners)
                web = WebServices(
                    config=in_force.follow(
                        lambda settings: http_config(settings.http, http_listeners, connections), "http."
                    ),
                    gateway_config=gateway_config,
                    gateway=root.ref(GATEWAY),
                    intake=intake,
                    listeners=reply_listeners,
                    methods=methods,
                    sessions=sessions,
                    deliveries=deliveries,
                    tasks=root.ref(TASK_AGENT),
                    bus=root.ref(BUS),
                    recent=environment.recent,
                    tree_events=root.events,
                    hooks=in_force.follow(lambda settings: settings.hooks, "hooks."),
                    receivers=adapters,
                    withdraw=partial(withdraw_message, tree.main_agent),
                    item_usage=made.usage.item_usage,
                    was_stopped=tree.services.main_agent.stopped.has,
                    embedder=lambda: environment.models.embedder,
                    audio=environment.models.audio,
                    activity=environment.activity,
                    clock=wall_clock,
                    may_serve=environment.may_work,
                    process_ends=signals.stop,
                    health=partial(
                        health_of,
                        root,
                        tree.main_agent.paths,
                        environment.may_work,
                        adapters.values(),
                        environment.activity,
                    ),
                )
                front: dict[str, Child[object]] = {}
                # Made without a server, too, as they follow their settings from here on.
                push = BrowserPush(tree.services, sessions, reply_listeners, world.home)
                agents = A2aLink(web, in_force, world.home.resolve)
                if http:
                    front["http"] = http_child(web, http_listeners, (push.operations, agents.operations))
                    if not is_trial:
                        front["push"] = Child("pusher", push.run, backoff=CHILD_BACKOFF)
                        front["a2a"] = Child("pusher", agents.run, backoff=CHILD_BACKOFF)
                # Messages may come as soon as this returns, and people may connect: the ready line follows at once.
                group = await start_channels(tree, gateway, {} if is_trial else channels.children(), front)
                if is_trial:
                    print_line(TRIAL_LINE)
                    nursery.start_soon(_stop_with_stdin, signals)
                    await signals.stop.wait()
                else:
                    channels.follow(group)
                    # Read by commands that start programs as this process does (`pegasus mcp check`).
                    write_private(world.home.environment, encode_json(passed_on(os.environ)) + "\n")
                    with announced(world.home, notifier, ws=ws, http=http):
                        _log.info("ready", model=reloader.models.client().name)
                        nursery.start_soon(made.run)
                        nursery.start_soon(export_telemetry, world, environment)
                        nursery.start_soon(notifier.keep_alive)
                        # From here on the process only waits. A part that fails for good raises through the nursery or the supervisor.
                        await signals.stop.wait()
                nursery.cancel_scope.cancel()
            watch.cancel_scope.cancel()
    # The supervisor's block has ended here, so all files are closed; what was acknowledged is on disk.
    if signals.overran:
        _log.warning("the stop took too long and was cut short", grace=signals.grace)
    return 0


async def _stop_waiting(signals: Signals, starting: trio.CancelScope) -> None:
    """End a start that waits for the database when the process is to stop."""
    await signals.stop.wait()
    starting.cancel()


async def _stop_with_stdin(signals: Signals) -> None:
    """Stop when stdin ends: whoever tries this version is gone."""
    while True:
        await trio.lowlevel.wait_readable(0)
        if not os.read(0, 4096):
            break
    signals.request_stop()


def _methods(
    world: RealWorld,
    tree: AgentTree,
    models: ModelService,
    reloader: Reloader,
    commands: ChatCommands,
    adapters: Mapping[str, ServiceAdapter],
    sessions: WebSessions | None,
    page: LiveValue[str],
    *,
    started_at: int,
) -> Methods:
    """Return the control plane: the methods that programs may call, over the gateway and over HTTP.

    The persona of this run is given to it, not that of the settings: an accepted change counts from the next
    start or reload on.

    To add a method, write it in a class of `pegasus.app.control_plane` and name it in the `methods()` of that class. One that changes
    nothing also goes into READ_METHODS, else only tokens with the scope "control" may call it.
    """
    from pegasus.app.control_plane import (
        ClientToolMethods,
        CompletionMethod,
        ConversationMethod,
        CronMethods,
        EventMethods,
        HistoryMethods,
        InterruptMethod,
        MemoryMethods,
        NodeMethods,
        PairingMethods,
        PersonaMethods,
        ServerMethods,
        SettingsMethods,
        SignInMethod,
        StatusMethods,
        TaskMethods,
        TokenMethods,
        ViewMethods,
    )

    services, environment = tree.services, tree.services.environment
    # Classes get addresses, which are valid before their actors run. So the table is complete before the first call.
    agent: Ref[TaskAgentMessage] = tree.root.ref(TASK_AGENT)
    journal, owners = tree.journal, environment.owners
    tasks = TaskMethods(agent, owners=owners)
    status = StatusMethods(
        root=tree.root,
        journal=journal,
        main_agent=tree.main_agent,
        started_at=started_at,
        clock=wall_clock,
        models=models,
        tasks=agent,
        persona=world.persona,
        approvals=services.approvals,
        mcp=environment.mcp,
        sandbox=world.sandbox,
        adapters=adapters,
        activity=environment.activity,
        node=services.main_agent.node,
    )
    stored = stored_files(world.home, environment.shared)
    views = ViewMethods(journal, stored, world.home.log, environment.skills, world.home.skills, world.in_force)
    return {
        **status.methods(),
        **tasks.methods(),
        **EventMethods(environment.recent, tasks).methods(),
        **ConversationMethod(agent, journal, wall_clock).methods(),
        **InterruptMethod(tree.main_agent, agent, journal, owners, wall_clock).methods(),
        **CronMethods(tree.root.ref(SCHEDULE), wall_clock, owners).methods(),
        **MemoryMethods(services.memory).methods(),
        **PersonaMethods(services.persona_changes, world.persona, owners).methods(),
        **services.approvals.methods(),
        **views.methods(),
        **SettingsMethods(world.in_force, reloader.edit).methods(),
        **HistoryMethods(journal, stored, world.in_force, environment.conversation_names).methods(),
        **CompletionMethod(
            commands.answers(), services.main_agent.toolset.now.skills, models.choices, commands.model_of
        ).methods(),
        **NodeMethods(shared.nodes if (shared := environment.shared) is not None else None, owners).methods(),
        **ServerMethods(environment.mcp, world.in_force, reloader.edit).methods(),
        **ClientToolMethods(environment.clients, owners).methods(),
        **TokenMethods(environment.tokens).methods(),
        **PairingMethods(environment.pairing, owners).methods(),
        **SignInMethod(sessions, page).methods(),
        "config.reload": reloader.call,
    }


async def export_telemetry(world: RealWorld, environment: Environment) -> None:
    """Export traces and metrics until cancelled, if the settings name a collector. Without the extra, the log says what to install."""
    settings = world.in_force.now.telemetry
    if not settings.otlp_endpoint:
        return
    try:
        # Imported for those who want it, and in a thread: the SDK takes 20 MB and a third of a second.
        make = await trio.to_thread.run_sync(_import_telemetry, abandon_on_cancel=True)
    except ModuleNotFoundError as error:
        _log.warning(
            "nothing is exported to telemetry.otlp_endpoint: install the extra, pip install 'pegasus-agent[telemetry]'",
            missing=str(error.name),
        )
        return
    telemetry = make(settings, secret=world.token, agent=world.persona.now.name, redact=environment.secrets.redact)
    environment.activity.observer = telemetry.take
    try:
        await telemetry.follow_tasks(environment.recent)
    finally:
        environment.activity.observer = None
        await telemetry.aclose()


def _import_telemetry() -> type[Telemetry]:
    from pegasus.app.telemetry import Telemetry

    return Telemetry


def _take_grace(signals: Signals, in_force: LiveSettings, _: frozenset[str]) -> None:
    """Let a stop take as long as the settings say.

    Called after a reload. A stop that is under way already keeps its deadline.
    """
    signals.grace = in_force.now.run.shutdown_grace


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


async def _listen(section: str, host: str, port: int) -> list[trio.SocketListener]:
    """Open the sockets of a server. Raises OSError whose message names the settings to change.

    A port that is taken is mostly that of another profile's agent, so the message names both ways out of it.
    """
    try:
        return await open_listeners(host, port)
    except OSError as error:
        why = error.strerror or str(error)
        message = (
            f"{section}.host {quote(host)}, {section}.port {port}: cannot listen there ({why}); "
            "the agent of another profile may do so. Choose another port, or any that is free: "
            "--set gateway.port=0 --set http.port=0 for once, "
            f"`{command_name()} config set {section}.port 0` for good"
        )
        raise OSError(message) from error


def _cause(error: BaseException) -> str:
    """Return the message of the cause that a person can act on, behind nurseries and actors that did not start.

    An actor that did not start names itself, which says little to an operator; the error behind it names a file or a port.
    """
    while True:
        error = first_cause(error)
        if isinstance(error, ActorDied | GaveUp) and error.__cause__ is not None:
            error = error.__cause__
        else:
            return str(error)


def _complain(message: str, code: int) -> int:
    """Write the message to stderr, each line with the program's name, and return the code.

    The log has been closed by then, so the message is the last thing on the screen.
    """
    for line in message.splitlines():
        print_error(f"pegasus: {line}")
    return code
