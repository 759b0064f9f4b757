"""The supervision tree: journal, usage, tasks, Main Agent, channels. docs/architecture.md draws it.

The root restarts rest for one: a crash of the journal, which holds what everybody else relies on, restarts everything behind
it in order. Every other part has a supervisor of its own, so that its crashes stay there:

* The Main Agent, the task system and the channels restart their own children.
* Each adapter has a supervisor that is not restarted. When an adapter crashes again and again, that supervisor gives up and the
  channel is *parked*; the rest runs on, and its replies wait in the outbox.

The order of the children is the order of dependence, and stopping goes the other way. Nobody writes without the
journal, so it is first. Usage is counted before anybody calls a model. Channels come last, so that a message is
only accepted when there is somebody to answer it, and stop first, so that nothing new arrives during a stop.

What a restart finds: the journal replays its files; tasks replay their logs; the Main Agent asks the journal
for what is not done; adapters are given the replies that were not acknowledged. So no actor here has state
that is lost with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import attrs
import trio

from actors import (
    ActorError,
    Backoff,
    Child,
    Crashed,
    DeadLetter,
    Event,
    Exited,
    GaveUp,
    Inbox,
    Intensity,
    Mailbox,
    Overflowed,
    Ref,
    Restart,
    Restarting,
    Started,
    Strategy,
    Stuck,
    Supervisor,
    open_supervisor,
    supervisor,
)
from pegasus.access import serve_approvals
from pegasus.app.chat_commands import ChatCommands
from pegasus.app.environment import (
    APPROVALS,
    BUS,
    CHATS,
    GATEWAY,
    GLOBAL_AGENT,
    SIGNS,
    TASK_AGENT,
    TASK_LISTENER,
    Environment,
)
from pegasus.app.file_questions import ask_about_files
from pegasus.app.owner_notes import write_owner_notes
from pegasus.app.services import Services, build_services
from pegasus.channels import AdapterMessage, run_switchboard
from pegasus.events import BusMessage, event_bus, keep_events
from pegasus.identity import HEARTBEAT_FILE
from pegasus.main_agent import (
    GLOBAL,
    MainAgentMessage,
    MainAgents,
    answer_idle,
    chat_agents,
    forward_notifications,
    main_agent,
    message_publisher,
    remove_old_archives,
)
from pegasus.mcp import ServerDown
from pegasus.messages import Address, ChannelInfo
from pegasus.models import serve_usage
from pegasus.observe import get_logger
from pegasus.schedule import Heartbeat
from pegasus.settings import Settings
from pegasus.storage import (
    JournalMessage,
    KnownAddresses,
    Lease,
    LeaseLost,
    RetentionRule,
    StorageError,
    media_rule,
    remove_old_files,
    run_journal,
    run_while_owner,
)
from pegasus.tasks import Notify

ROOT_INTENSITY = Intensity(restarts=3, period=60.0)
"""Crashes after which the root gives up. The process then ends with exit code 70, and whoever supervises it starts it again."""
CHILD_INTENSITY = Intensity(restarts=8, period=60.0)
"""Crashes after which any other supervisor gives up: at the ninth within a minute. With CHILD_BACKOFF the pauses
before it add up to about 23 seconds."""
CHILD_BACKOFF = Backoff(first=0.1, limit=10.0)
"""Pauses between restarts, in seconds."""
# Bounds of mailboxes: a sender that waits for room is slowed down, which is wanted for the journal. The task
# system's are larger, as its events come in bursts when many tasks are recovered.
JOURNAL_MAILBOX = Mailbox(1024)
"""Requests that may wait for the journal. All that wait share one sync."""
TASK_MAILBOX = Mailbox(4096)
"""Messages that may wait for an actor of the task system."""
GROUP_SHUTDOWN = 10.0
"""Seconds in which channels, and servers of tools, may end what is under way."""
TASK_SHUTDOWN = 12.0
"""Seconds in which the task system may let stages finish and end what is left of them. Its agent has two seconds
less, so that the persister behind it can still write how the tasks ended."""

_log = get_logger("tree")


@attrs.frozen(eq=False, repr=False)
class AgentTree:
    """A running tree, as far as others talk to it.

    Example::

        tree = await start_tree(root, environment)
        status = await tree.main_agent.status(timeout=5.0)
        tree.root.tree()  # a snapshot of all actors
    """

    root: Supervisor
    """Supervisor of everything."""
    journal: Ref[JournalMessage]
    """The journal actor."""
    main_agent: MainAgents
    """The actors of the Main Agent."""
    services: Services
    """The objects that the actors work with."""


async def start_tree(root: Supervisor, environment: Environment) -> AgentTree:
    """Start journal, usage, tasks and Main Agent, one after the other. The channels come last: see `start_channels`.

    A child that cannot start ends this with its error (ActorDied), and the caller stops what has started by
    leaving the supervisor's block.

        async with open_supervisor(strategy=Strategy.REST_FOR_ONE, intensity=ROOT_INTENSITY) as root:
            tree = await start_tree(root, environment)
    """
    journal = await root.start_child(_journal_child(environment))
    # Books and choices are read here, between the journal that has them and the first actor that asks for them.
    await environment.pairing.load(journal, environment.clock)
    await environment.conversation_names.load(journal)
    if (usage := environment.models.usage) is not None:
        keep = partial(serve_usage, is_shared=environment.is_shared)
        keeper = Child("keeper", keep, usage, journal, backoff=CHILD_BACKOFF)
        await root.start_child(Child("usage", supervisor([keeper], intensity=CHILD_INTENSITY)))
    await environment.models.traits.load(journal)
    if environment.has_chats:
        await environment.models.chat_choices.load(journal)
    models = environment.models
    books = [
        environment.pairing.follow,
        environment.conversation_names.follow,
        models.traits.follow,
        models.chat_choices.follow,
    ]
    await follow_others(root, environment, "books", books)
    await root.start_child(_retention_child(root, environment, journal))
    if environment.shared is not None:
        mirror = Child("sessions", environment.shared.mirror_sessions, backoff=CHILD_BACKOFF)
        await root.start_child(Child("mirror", supervisor([mirror], intensity=CHILD_INTENSITY)))
    # The journal knows who wrote before this start. It is asked once: the prompt must not change when somebody new writes.
    services = build_services(environment, journal, root.ref, await journal.ask(KnownAddresses))
    await root.start_child(_memory_child(services))
    tools = Child(
        "tools",
        run_changing_group,
        environment.mcp.children,
        CHILD_INTENSITY,
        environment.may_work,
        shutdown=GROUP_SHUTDOWN,
    )
    group = await root.start_child(tools)

    def renew(name: str, may_stop: Callable[[], Awaitable[None]]) -> None:
        """Let the group put another server in the place of the one of this name. Returns at once."""
        with suppress(ActorError):  # a group that is being restarted starts with what is there by then
            group.tell_nowait(ChildChanged(name, may_stop))

    environment.mcp.follow(environment.in_force, renew)
    chats: Ref[MainAgentMessage] = root.ref(CHATS)
    agents = MainAgents((chats,) if environment.has_chats else (root.ref(GLOBAL_AGENT), chats))
    if environment.shared is not None:
        talk = environment.shared.talk(root, journal, agents, environment.random)
        agents = attrs.evolve(agents, elsewhere=talk)
        signs = Child("signs", talk.signs, backoff=CHILD_BACKOFF)
        await root.start_child(Child("nodes", supervisor([signs], intensity=CHILD_INTENSITY)))
    await root.start_child(_approvals_child(root, services))
    await root.start_child(task_system_child(root, services))
    await root.start_child(Child("main-agent", supervisor(_agent_children(root, services), intensity=CHILD_INTENSITY)))
    await root.start_child(_schedule_child(root, services))
    return AgentTree(root, journal, agents, services)


async def follow_others(
    root: Supervisor, environment: Environment, name: str, follow: Sequence[Callable[[], Awaitable[None]]]
) -> None:
    """Let these follow what other nodes change, as a child of the root, if there are other nodes."""

    async def run(inbox: Inbox[object]) -> None:
        inbox.started()
        async with trio.open_nursery() as nursery:
            for each in follow:
                nursery.start_soon(each)

    if environment.is_shared:
        child: Child[object] = Child("follower", run, backoff=CHILD_BACKOFF)
        await root.start_child(Child(name, supervisor([child], intensity=CHILD_INTENSITY)))


def _journal_child(environment: Environment) -> Child[JournalMessage]:
    """Return the journal: over the files of the disk, or over the database that several nodes share."""
    shared = environment.shared
    run = partial(run_journal, disk=environment.disk) if shared is None else shared.run_journal
    run = partial(run, clock=environment.clock, activity=environment.activity, hands_out=not environment.is_trial)
    return Child("journal", run, mailbox=JOURNAL_MAILBOX)


def _retention_child(root: Supervisor, environment: Environment, journal: Ref[JournalMessage]) -> Child[Any]:
    """Return what removes old files, as a child of the root."""
    follow = environment.in_force.follow
    media = follow(lambda settings: settings.media.keep_days, "media.keep_days")
    archives = follow(lambda settings: settings.retention.archive_days, "retention.archive_days")
    tasks = follow(lambda settings: settings.retention.task_days, "retention.task_days")

    async def remove_old_logs(since: int, before: int, limit: int) -> Sequence[str]:
        from pegasus.tasks import TaskLogs

        logs = TaskLogs(root.ref("tasks/persister"), root.ref("tasks/bus"))
        return await logs.remove_old(since, before, limit)

    rules = (
        media_rule(journal, media),
        RetentionRule("archives of conversations", archives, partial(remove_old_archives, journal)),
        RetentionRule("logs of tasks", tasks, remove_old_logs),
    )
    remover = Child("remover", remove_old_files, environment.clock, rules, backoff=CHILD_BACKOFF)
    return Child("retention", supervisor([remover], intensity=CHILD_INTENSITY))


def _memory_child(services: Services) -> Child[Any]:
    """Return what makes vectors of memory, as a child of the root."""

    async def embed(inbox: Inbox[object]) -> None:
        inbox.started()
        await services.memory.keep_vectors()

    return Child("memory", supervisor([Child("embedder", embed, backoff=CHILD_BACKOFF)], intensity=CHILD_INTENSITY))


def _approvals_child(root: Supervisor, services: Services) -> Child[Any]:
    """Return the keeper of approvals, and what asks about files, as a child of the root.

    They run before the tasks, which find their answers there.
    """
    environment = services.environment
    tools = services.environment.mcp.fingerprints
    shared = environment.is_shared
    keep = partial(serve_approvals, on_change=services.approvals.changed, server_tools=tools, is_shared=shared)
    timeout = environment.in_force.follow(lambda settings: settings.policy.timeout, "policy.timeout")
    keeper = Child(
        "keeper", keep, services.journal, environment.clock, environment.random, timeout, backoff=CHILD_BACKOFF
    )
    children: list[Child[Any]] = [keeper]
    if environment.files is not None:
        approvals: Ref[Any] = root.ref(APPROVALS)
        children.append(Child("files", ask_about_files, environment.files, approvals, backoff=CHILD_BACKOFF))
    notes = environment.owner_notes
    place = environment.in_force.follow(_owner_channel, "policy.owner_channel")
    children.append(
        Child("notes", write_owner_notes, notes, services.journal, environment.owners, place, backoff=CHILD_BACKOFF)
    )
    return Child("approvals", supervisor(children, intensity=CHILD_INTENSITY))


def _owner_channel(settings: Settings) -> ChannelInfo:
    """Return the channel where an owner is written to; the terminal's if the settings name none."""
    owner = Address.parse(settings.policy.owner_channel) or Address("cli", "main")
    return ChannelInfo(owner.type, owner.channel_id)


def _agent_children(root: Supervisor, services: Services) -> list[Child[Any]]:
    """Return the Main Agent and the actor that forwards notifications of tasks to it through the journal.

    The forwarder is separate because a notification has to be kept even while the Main Agent thinks.
    """
    environment, journal = services.environment, services.journal
    work: dict[str, Any] = {
        "announce": root.ref(environment.signs),
        "said": root.ref(SIGNS if environment.is_shared else GATEWAY),
        "publish": message_publisher(root.ref(BUS), environment.clock),
        "answers": ChatCommands(services).answers(),
    }
    # One session for all channels is that of the owner alone: guests are heard in conversations of their own.
    chats = partial(chat_agents, apart=None if environment.has_chats else True, **work)
    children: list[Child[Any]] = [Child("chats", chats, journal, services.main_agent, backoff=CHILD_BACKOFF)]
    if not environment.has_chats:
        agent = partial(main_agent, journal=journal, services=services.main_agent, apart=False, **work)
        if environment.shared is not None:
            run = partial(_run_under_lease, agent)
            idle = partial(answer_idle, services.main_agent)
            agent = partial(run_while_owner, journal=journal, key=GLOBAL.owner, run=run, absent=idle)
        children.insert(0, Child("global", agent, backoff=CHILD_BACKOFF))
    return [*children, Child("notifications", forward_notifications, journal)]


async def _run_under_lease(agent: Callable[..., Awaitable[None]], inbox: Inbox[MainAgentMessage], lease: Lease) -> None:
    await agent(inbox, lease=lease)


def _schedule_child(root: Supervisor, services: Services) -> Child[Any]:
    """Return the keeper of scheduled jobs as a child of the root. It begins when background work may."""
    environment = services.environment
    in_force, files = environment.in_force, environment.files

    async def read_heartbeat() -> str:
        """Return the owner's HEARTBEAT.md as it is on disk now, "" if there is none."""
        if files is None:
            return ""
        await files.refresh()
        return files.text(HEARTBEAT_FILE)

    def heartbeat(settings: Settings) -> Heartbeat:
        """Return how often the heartbeat runs and when, by these settings."""
        return Heartbeat(settings.schedule.heartbeat, settings.schedule.active_hours, read_heartbeat)

    heartbeats = in_force.follow(heartbeat, "schedule.")
    owner_channel = in_force.follow(_owner_channel, "policy.owner_channel")

    def children() -> list[Child[Any]]:
        """Return the keeper. Called when background work may begin."""
        from pegasus.schedule import ScheduleServices, serve_schedule

        schedule = ScheduleServices(
            services.journal,
            root.ref(TASK_AGENT),
            root.ref(BUS),
            environment.clock,
            environment.random,
            heartbeats,
            owner_channel,
            in_force.wait_replaced,
            environment.is_shared,
        )
        return [Child("keeper", environment.keep_schedule or serve_schedule, schedule, backoff=CHILD_BACKOFF)]

    return Child("schedule", run_changing_group, children, CHILD_INTENSITY, environment.may_work)


def task_system_child(root: Supervisor, services: Services) -> Child[Any]:
    """Return the task system as a child of the root.

    Order of its children: the persister writes, the bus distributes events, the last of which are kept, an observer lets people know
    of them, the agent uses all. Whoever stands behind one that crashes is restarted with it, and the agent publishes all tasks anew.
    """
    # The type of a reference by path cannot be known; the actors behind these paths are started below.
    persister: Ref[Any] = root.ref("tasks/persister")
    listener: Ref[Notify] = root.ref(TASK_LISTENER)
    bus: Ref[BusMessage] = root.ref(BUS)
    environment = services.environment

    def new_owner() -> str:
        """Return a name for a run of the persister, "" where there is one node."""
        return f"{environment.random.getrandbits(64):016x}" if environment.is_shared else ""

    def children() -> list[Child[Any]]:
        """Return the actors. Called when background work may begin."""
        from pegasus.app.task_services import observe_tasks
        from pegasus.tasks import TaskLogs, task_agent, task_persister

        agent = partial(task_agent, deps=services.tasks, logs=TaskLogs(persister, bus), listener=listener)
        observer = partial(observe_tasks, clock=environment.clock)
        signs: Ref[Any] = root.ref(environment.signs)
        approvals: Ref[Any] = root.ref(APPROVALS)
        return [
            Child("persister", task_persister, services.journal, environment.clock, new_owner, mailbox=TASK_MAILBOX),
            Child("bus", event_bus, mailbox=TASK_MAILBOX),
            Child("recent", keep_events, bus, environment.recent, mailbox=TASK_MAILBOX),
            Child("observer", observer, bus, signs, approvals, mailbox=TASK_MAILBOX),
            Child("agent", agent, mailbox=TASK_MAILBOX, shutdown=TASK_SHUTDOWN - 2),
        ]

    # An agent whose persister has crashed cannot know what was written, and recovers from the log: rest for one here too.
    run = partial(run_changing_group, strategy=Strategy.REST_FOR_ONE)
    may_work = services.environment.may_work
    return Child("tasks", run, children, CHILD_INTENSITY, may_work, shutdown=TASK_SHUTDOWN)


async def start_channels(
    tree: AgentTree,
    gateway: Child[Any],
    adapters: Mapping[str, Child[AdapterMessage]],
    front: Mapping[str, Child[object]] | None = None,
) -> ChannelGroup:
    """Start the switchboard, the gateway, the adapters and what else people are reached by. Return the way to change adapters later.

    adapters: by the channel type that each serves; the gateway serves all others. front: further servers by name: HTTP and
    notifications of browsers.

    The switchboard passes replies of the journal to the adapter of their channel type. Each adapter is below a
    supervisor of its own with `Restart.TEMPORARY`, which is what parks it when it gives up.
    """
    default: Ref[AdapterMessage] = tree.root.ref(GATEWAY)
    channels = ChannelGroup(tree.root, adapters)
    switchboard = Child("switchboard", run_switchboard, tree.journal, channels.routes, default)
    # The HTTP server stands before the gateway, so that it stops behind it: the gateway says goodbye to the clients on its WebSockets.
    before = [_parkable(name, child) for name, child in (front or {}).items()]

    def children() -> Sequence[Child[Any]]:
        """Return the children in their order of start. Adapters are listed afresh at each call, since a reload can change them."""
        return [switchboard, *before, gateway, *channels.children()]

    await tree.root.start_child(
        Child("channels", run_changing_group, children, CHILD_INTENSITY, shutdown=GROUP_SHUTDOWN)
    )
    return channels


class ChannelGroup:
    """The adapters of the running channels, and the routes to them for the switchboard.

    Example::

        channels = await start_channels(tree, gateway, {"telegram": child})
        channels.change("slack", Child(ADAPTER, adapter.run, journal, backoff=CHILD_BACKOFF))
        channels.change("telegram", None)  # stops it
    """

    def __init__(self, root: Supervisor, adapters: Mapping[str, Child[AdapterMessage]]) -> None:
        self.routes: dict[str, Ref[AdapterMessage]] = {}
        """Addresses by channel type, for the switchboard. The object stays the same."""
        self._root = root
        self._adapters = dict(adapters)
        for type, child in adapters.items():
            self.routes[type] = root.ref(f"channels/{type}/{child.name}")

    def children(self) -> list[Child[Any]]:
        """Return the adapters, each below the supervisor that parks it.

        The supervisor of the channels asks for them at each of its starts, so a restart finds the adapters of now.
        """
        return [_parkable(type, child) for type, child in self._adapters.items()]

    def change(self, type: str, adapter: Child[AdapterMessage] | None) -> None:
        """Run another adapter for a channel type, or none. The one that runs is stopped first; nothing else is touched.

        Returns at once. Replies for a type without an adapter go to the bridges of the gateway, or wait.
        """
        if adapter is None:
            self._adapters.pop(type, None)
            self.routes.pop(type, None)
        else:
            self._adapters[type] = adapter
            self.routes[type] = self._root.ref(f"channels/{type}/{adapter.name}")
        group: Ref[ChildChanged] = self._root.ref("channels")
        with suppress(ActorError):  # a group that is being restarted starts with what is there by then
            group.tell_nowait(ChildChanged(type))


def _parkable(type: str, child: Child[Any]) -> Child[Any]:
    """Return a child below a supervisor of its own, which is not restarted: when it gives up, the child is parked."""
    return Child(type, supervisor([child], intensity=CHILD_INTENSITY), restart=Restart.TEMPORARY)


# ------------------------------------------------------------------ groups whose children a reload changes


@attrs.frozen(eq=False, repr=False)
class ChildChanged:
    """To the group: another child has this name now, or none has. The one that runs is stopped first.

    Example::

        group.tell_nowait(ChildChanged("slack"))  # the group asks `children` which child has the name now
    """

    name: str
    """Name of the child below the group."""
    may_stop: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    """Awaited before that: returns when it may be stopped, in a bounded time."""


async def run_changing_group(
    inbox: Inbox[ChildChanged],
    children: Callable[[], Sequence[Child[Any]]],
    intensity: Intensity,
    may_work: trio.Event | None = None,
    strategy: Strategy = Strategy.ONE_FOR_ONE,
) -> None:
    """Supervise the children that `children` returns. Changes of one child are carried out in the order in which they came.

    may_work: the children are started when it is set, and the group is up at once: recovery of many tasks takes seconds, and people
    should be able to connect meanwhile. Whoever sends to one of them before it runs waits for it. None: the group is up when they are.

    Stopped: stops the children in reverse order.
    """
    if may_work is not None:
        inbox.started()
        await may_work.wait()
    # One lock per name. Trio's locks are fair, so changes of one child keep their order, and a child that stops slowly
    # does not hold up the others.
    locks: defaultdict[str, trio.Lock] = defaultdict(trio.Lock)
    async with (
        open_supervisor(children(), strategy=strategy, intensity=intensity) as group,
        trio.open_nursery() as nursery,
    ):
        inbox.started()
        async for message in inbox:
            nursery.start_soon(_renew, group, message, children, locks[message.name])
        nursery.cancel_scope.cancel()


async def _renew(
    group: Supervisor, message: ChildChanged, children: Callable[[], Sequence[Child[Any]]], lock: trio.Lock
) -> None:
    """Stop the child of a name, and start the one that has it now."""
    name = message.name
    async with lock:
        await message.may_stop()
        # A cancel between the stop and the start leaves no child of this name. That happens only when the group itself stops.
        with suppress(ActorError):  # there is none
            await group.stop_child(name)
        with suppress(ActorError):  # it was forgotten when it stopped
            await group.delete_child(name)
        child = next((child for child in children() if child.name == name), None)
        if child is None:
            return
        try:
            await group.start_child(child)
        # The group goes on without this child: a mistake in one channel's settings must not stop the others.
        except ActorError as error:
            _log.error("cannot be started with the new settings", actor=f"{group.path}/{name}", error=str(error))


# ------------------------------------------------------------------ the log of the tree


async def log_tree_events(root: Supervisor) -> None:
    """Log what happens to actors, until the tree has ended: crashes and restarts so that an operator notices, normal life as debug.

    It runs beside the tree in the daemon. Events come through a bounded buffer, so logging never holds up an actor. A dead letter is
    normal while an actor restarts, hence level debug. `Stuck` comes with the places that the actor waits at, the innermost first.
    """
    async for event in root.events():
        _log_event(event)


def _log_event(event: Event) -> None:
    """Log one event, with the path of its actor as the control call `tree` shows it."""
    match event:
        case Started():
            _log.debug("started", actor=event.path, attempt=event.attempt)
        case Exited(exit=Crashed(ServerDown() as error)):  # expected; a traceback would say nothing
            _log.warning("MCP server is down", actor=event.path, attempt=event.attempt, reason=str(error))
        case Exited(exit=Crashed(LeaseLost())):
            _log.info("ended: its work belongs to somebody else now", actor=event.path)
        case Exited(path="journal", exit=Crashed(StorageError() as error)):  # says itself what is wrong, and what to do
            _log.error("cannot work", actor=event.path, attempt=event.attempt, error=str(error))
        case Exited(exit=Crashed(error)):
            _log.exception("crashed", actor=event.path, attempt=event.attempt, error=error)
        case Exited(exit=how):
            _log.debug("ended", actor=event.path, how=type(how).__name__)
        case Restarting(delay=delay):
            _log.warning("will be restarted", actor=event.path, seconds=round(delay, 2))
        case GaveUp():
            _log.error("gave up: too many restarts", actor=event.path or "root", error=str(event))
        case DeadLetter(message=message, why=why):
            _log.debug("dead letter", actor=event.path, message=type(message).__name__, why=why)
        case Overflowed(message=message):
            _log.warning("mailbox full", actor=event.path, message=type(message).__name__)
        case Stuck(stack=stack):
            _log.error("does not stop", actor=event.path, waits_at=" < ".join(reversed(stack)))
