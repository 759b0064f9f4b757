"""The servers and adapters below `channels` in the tree: the gateway, the HTTP server, and adapters of chat services.

All of them are made from the settings here. `tree` starts them, and parks an adapter that crashes again and again.

Who may write is not an adapter's matter. All adapters and the gateway share one `Intake`, which decides about each
message by the settings in force. So a change of `allow_from` or `groups` counts at once, and no adapter is restarted
for it (ACCESS_KEYS).

An adapter talks to its service with credentials of the settings. When these change, the adapter is made anew and only
the actor of its type is restarted: connections to other services, and the clients of the gateway, notice nothing. The
switchboard looks routes up in a mapping that stays the same object, for the same reason.

The sockets of both servers are opened by the daemon before the tree starts. They outlive a restart of the actors that
accept on them, so a client that connects meanwhile waits instead of being refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from actors import ActorInfo, Child, Inbox, Ref, Supervisor, supervisor
from pegasus.access import Access, TokenBook, rules_of
from pegasus.app.approvals import ANSWER_TIMEOUT
from pegasus.app.control_plane import MESSAGE_METHODS, READ_METHODS
from pegasus.app.environment import (
    ADAPTER,
    APPROVALS,
    BUS,
    GATEWAY,
    GUEST_LIMITS,
    SWITCHBOARD,
    TASK_AGENT,
    TASK_LISTENER,
    Environment,
)
from pegasus.app.services import Services
from pegasus.app.tree import CHILD_BACKOFF, CHILD_INTENSITY, AgentTree, ChannelGroup
from pegasus.channels import AdapterMessage, make_adapter
from pegasus.gateway import GatewayConfig, GatewayMessage, Listeners, Methods, run_gateway
from pegasus.host import wall_clock
from pegasus.identity import Persona
from pegasus.intake import DiskLimits, GuestDisk, GuestLimits, Intake, run_guest_limits
from pegasus.main_agent import MainAgents, TaskDelegation
from pegasus.mcp_server import mcp_operations
from pegasus.messages import ChannelInfo, InboundMessage, Json, TaskProgress
from pegasus.observe import Activity
from pegasus.settings import SERVICE_SECTIONS, HttpSettings, LiveValue, Settings
from pegasus.storage import Lease, run_while_owner
from pegasus.tasks import TaskAgentMessage
from pegasus.tools import size_of
from pegasus.web import HttpConfig, WebServices, run_http

if TYPE_CHECKING:
    from pegasus.channels import ServiceAdapter, ServiceContext
    from pegasus.web import Conversations, Operation

PERMANENT: Final = (
    "journal",
    APPROVALS,
    "tasks/persister",
    BUS,
    TASK_AGENT,
    TASK_LISTENER,
    SWITCHBOARD,
    GATEWAY,
)
"""Actors without which the agent is not ready, beside the Main Agent."""
DRAINED: Final = "this node gives everything back, and takes nothing until it is started again"
"""Reason for which a drained node is not ready."""
_CHANNELS: Final = "channels/"
ACCESS_KEYS: Final = ("access", "allow_from", "groups")
"""Keys of a channel's section that its adapter does not depend on: who may write is decided before."""


# ------------------------------------------------------------------ adapters of services


class ServiceChannels:
    """The adapters that the settings enable. They follow the settings once `follow` was called.

    An adapter is an object that outlives the restarts of its actor. It is the receiver of its service's webhooks, too. A reload puts
    another object in its place if the settings of its type have changed, and restarts the actor of this type alone. What it has not
    delivered waits in the outbox, where the next run finds it; what is under way has `STOP_GRACE` seconds to end.

    Example::

        channels = ServiceChannels(services, intake, describe_commands(answers))
        group = await start_channels(tree, gateway, channels.children())
        channels.follow(group)
    """

    def __init__(self, services: Services, intake: Intake, commands: Mapping[str, str]) -> None:
        """Make the adapter of each channel type in the settings; none runs yet. commands: chat commands with their meaning."""
        self.adapters: dict[str, ServiceAdapter] = {}
        """By channel type. The object stays the same."""
        self._services = services
        self._intake = intake
        self._commands = commands
        self._group: ChannelGroup | None = None
        # Every adapter is made before the first one runs, so that a webhook that comes at once finds its receiver.
        for type in SERVICE_SECTIONS:
            self._make(type)
        self._note_owners()

    def children(self) -> dict[str, Child[AdapterMessage]]:
        """Return the adapters as children of the channels."""
        return {type: self._child(type) for type in self.adapters}

    def follow(self, group: ChannelGroup) -> None:
        """Carry out changes of the settings from now on. group: the running channels.

        Called once, when the channels run. Before that a reload cannot reach the adapters, as nothing could restart them.
        """
        self._group = group
        in_force = self._services.environment.in_force
        in_force.when_changed(self._change, "channels.", "http.public_url", "agent.owners")
        in_force.after_replacement(self._take_up_parked)

    def _take_up_parked(self) -> None:
        """Try every parked channel again, with an adapter made from the settings in force.

        A reload is how an operator says that the cause is mended, even where no setting has changed: a token may have been
        made valid again at the service.
        """
        for type in [type for type, adapter in self.adapters.items() if adapter.state.state == "parked"]:
            self._renew(type)

    def _change(self, changed: frozenset[str]) -> None:
        """Replace the adapters whose settings have changed, and add and remove some.

        Several keys of one type are one renewal. A new public address concerns all types, since any of them may have
        a webhook there.
        """
        for type in SERVICE_SECTIONS:
            if "http.public_url" in changed or any(_is_of_adapter(key, type) for key in changed):
                self._renew(type)
        self._note_owners()

    def _renew(self, type: str) -> None:
        """Put an adapter made from the settings in force in the place of the one that is there, if any.

        The old object leaves the mapping first, so no webhook reaches an adapter that is about to stop.
        """
        there = self.adapters.pop(type, None)
        self._make(type)
        if self._group is not None and (there is not None or type in self.adapters):
            self._group.change(type, self._child(type) if type in self.adapters else None)

    def _make(self, type: str) -> None:
        """Make the adapter of a channel type; none if its section is missing or off, or the type has no adapter of its own."""
        section = self._services.environment.settings.channels.get(type)
        if section is None or not section.enabled:
            return
        context = service_context(self._services, self._intake, self._commands)
        if (made := make_adapter(type, section, context)) is not None:
            self.adapters[type] = made

    def _child(self, type: str) -> Child[AdapterMessage]:
        """Return the actor of an adapter. Its function is a method of the adapter, so a restart goes on with the same object."""
        journal, adapter = self._services.journal, self.adapters[type]
        if self._services.environment.shared is None:
            return Child(ADAPTER, adapter.run, journal, backoff=CHILD_BACKOFF)

        async def run(inbox: Inbox[AdapterMessage], lease: Lease) -> None:
            adapter.note_owner(lease)
            try:
                await adapter.run(inbox, journal)
            finally:
                adapter.note_owner(None)

        # A service is heard at one node: two that poll would take each other's messages.
        adapter.note_owner(None)
        held = partial(run_while_owner, journal=journal, key=f"channel/{type}", run=run)
        return Child(ADAPTER, held, backoff=CHILD_BACKOFF)

    def _note_owners(self) -> None:
        """Let the pairing book know where owners can be asked with buttons."""
        environment = self._services.environment
        environment.pairing.owner_channels = owner_channels(environment.owners.now, self.adapters)


def owner_channels(owners: Iterable[str], adapters: Mapping[str, ServiceAdapter]) -> list[ChannelInfo]:
    """Return the direct conversations with owners on services that have buttons.

    An owner is `<type>:<person>` in the settings. Entries for all persons of a type ("*") name nobody who could be written
    to. The person's id is the id of the conversation too, which holds for direct conversations on these services.
    """
    places = (entry.partition(":") for entry in owners)
    return [
        ChannelInfo(type, person, person)
        for type, _, person in places
        if person not in ("", "*") and type in adapters and adapters[type].has_buttons
    ]


def service_context(services: Services, intake: Intake, commands: Mapping[str, str]) -> ServiceContext:
    """Return what the adapters of services are given. commands: chat commands with their meaning."""
    environment = services.environment
    settings = environment.settings
    from pegasus.channels import ServiceContext

    return ServiceContext(
        intake=intake,
        clock=environment.clock,
        random=environment.random,
        owners=environment.owners,
        public_url=settings.http.public_url,
        commands=commands,
        decide=services.approvals.decide,
    )


async def open_intake(tree: AgentTree, environment: Environment) -> Intake:
    """Start the actor that counts what guests send, and return the way in for the gateway and all adapters.

    Its rules are handles that follow the settings.
    """
    in_force = environment.in_force
    limits = in_force.follow(_guest_limits, "limits.")
    disk_limits = in_force.follow(_disk_limits, "limits.guest_disk_mb", "media.keep_days")
    given = tree.journal, environment.clock, disk_limits, environment.guests, size_of, environment.is_shared
    make_disk = partial(GuestDisk, *given)
    guests = Child("guests", run_guest_limits, limits, make_disk, backoff=CHILD_BACKOFF)
    await tree.root.start_child(Child("intake", supervisor([guests], intensity=CHILD_INTENSITY)))
    return Intake(
        tree.journal,
        in_force.follow(_access_of, "channels."),
        in_force.follow(lambda settings: settings.agent.owners, "agent.owners"),
        environment.pairing,
        limits,
        tree.root.ref(GUEST_LIMITS),
        environment.folder_problem,
    )


def _disk_limits(settings: Settings) -> DiskLimits:
    return DiskLimits(settings.limits.guest_disk_mb << 20, settings.media.keep_days)


def _access_of(settings: Settings) -> Access:
    sections = settings.channels.items()
    return Access({type: rules_of(type, rules.access, rules.allow_from, rules.groups) for type, rules in sections})


def _guest_limits(settings: Settings) -> GuestLimits:
    return GuestLimits(settings.limits.guest_messages_per_minute, settings.limits.guest_waiting)


def _is_of_adapter(key: str, type: str) -> bool:
    """Return whether the adapter of a channel type depends on a key.

    Example: `channels.telegram.bot_token` is a key of the adapter, `channels.telegram.allow_from` is not.
    """
    return key.startswith(f"channels.{type}.") and key.split(".")[2] not in ACCESS_KEYS


# ------------------------------------------------------------------ the gateway


def make_gateway_config(
    token: str, persona: LiveValue[Persona], tokens: TokenBook, connections: int, settings: Settings
) -> GatewayConfig:
    """Return the gateway's behaviour. token: that of the home. connections: how many it may have open.

    The gateway reads it for each connection and frame through a handle, so a reload needs no restart and ends no
    connection. The name of the agent is that of the persona of this run.
    """
    return GatewayConfig(
        token=token,
        tokens=tokens,
        read_methods=READ_METHODS,
        message_methods=MESSAGE_METHODS,
        agent=persona.now.name,
        origins=frozenset(settings.gateway.allowed_origins),
        max_frame_bytes=settings.gateway.max_frame_bytes,
        compression=settings.gateway.compression,
        max_media_bytes=settings.media.max_bytes,
        max_connections=connections,
    )


def gateway_child(
    tree: AgentTree,
    config: LiveValue[GatewayConfig],
    intake: Intake,
    listeners: Sequence[trio.SocketListener],
    methods: Methods,
    reply_listeners: Listeners,
) -> Child[GatewayMessage]:
    """Return the gateway as a child of the channels.

    Its listeners and methods stay the same over restarts of the actor. said: listeners to replies within this process,
    which the HTTP API uses for answers to its own messages.
    """
    # A client that connects sees tasks and approvals as they are, before the events that change them.
    unfinished = partial(_open_tasks, tree.root.ref(TASK_AGENT), wall_clock)
    open_approvals = tree.services.approvals.open_notices
    run = partial(run_gateway, open_tasks=unfinished, open_approvals=open_approvals, listeners=reply_listeners)
    return Child("gateway", run, config, intake, listeners, methods, backoff=CHILD_BACKOFF)


async def _open_tasks(agent: Ref[TaskAgentMessage], clock: Callable[[], int]) -> Sequence[TaskProgress]:
    """Return the present state of all unfinished tasks; () while the task system does not run or answer.

    The greeting of a client must not wait for recovery, so the list is empty if it is not there in ANSWER_TIMEOUT seconds.
    """
    with trio.move_on_after(ANSWER_TIMEOUT):
        tasks = await TaskDelegation(agent).unfinished()
        return [task.progress(clock()) for task in tasks or ()]
    return ()


# ------------------------------------------------------------------ the HTTP server


def http_config(settings: HttpSettings, listeners: Sequence[trio.SocketListener], connections: int) -> HttpConfig:
    """Return the server's behaviour by the settings. connections: how many it may have open.

    port: the one that was bound, as the setting may be 0. It is part of the addresses that the server accepts in `Host`.
    """
    return HttpConfig(
        host=settings.host,
        port=listeners[0].socket.getsockname()[1] if listeners else 0,
        public_url=settings.public_url,
        allowed_hosts=settings.allowed_hosts,
        max_body_bytes=settings.max_body_bytes,
        max_connections=connections,
    )


def http_child(
    services: WebServices, listeners: Sequence[trio.SocketListener], doors: Sequence[Callable[[], Sequence[Operation]]]
) -> Child[object]:
    """Return the HTTP server as a child of the supervisor that parks it. doors: return the routes beside its own."""

    def operations(conversations: Conversations) -> Sequence[Operation]:
        return [*(operation for door in doors for operation in door()), *mcp_operations(conversations)]

    return Child("server", partial(run_http, doors=operations), services, listeners, backoff=CHILD_BACKOFF)


def health_of(
    root: Supervisor,
    main_agents: Sequence[str],
    may_work: trio.Event,
    adapters: Iterable[ServiceAdapter],
    activity: Activity,
) -> Mapping[str, Json]:
    """Return `ready`, the permanent actors that do not run in `down`, and the channels that are parked in `parked`.

    The daemon is not ready before people can connect, while a permanent actor does not run, while the process waits for its
    database, or once it is drained. A parked channel makes no difference: the rest runs on. main_agents: paths of the actors of the
    Main Agent.
    """
    # One snapshot of all actors. No actor is asked: a probe must answer while actors hang.
    states = {info.path: info.state for info in _walk(root.tree())}
    down = [path for path in (*PERMANENT, *main_agents) if states.get(path) != "up"]
    if activity.waits_for:
        down.append(activity.waits_for)
    if activity.is_draining:
        down.append(DRAINED)
    parked = [
        path.removeprefix(_CHANNELS)
        for path, state in states.items()
        if path.startswith(_CHANNELS) and path.count("/") == 1 and state == "down" and path not in PERMANENT
    ]
    # An adapter may also park itself, for instance when its service refuses the credentials; its actor is up then.
    parked += [adapter.state.type for adapter in adapters if adapter.state.state == "parked"]
    return {"ready": may_work.is_set() and not down, "down": list(down), "parked": [*sorted(set(parked))]}


def _walk(info: ActorInfo) -> list[ActorInfo]:
    return [info, *(below for child in info.children for below in _walk(child))]


def withdraw_message(main_agent: MainAgents, message: InboundMessage) -> None:
    """Tell the Main Agent that the sender of a message has gone. An agent that is being restarted works on it all the same."""
    main_agent.withdraw(message.channel.address, message.id)


def url_of(scheme: str, host: str, listeners: Sequence[trio.SocketListener]) -> str:
    """Return the address that clients connect to, with the port that was chosen if the setting is 0.

    An IPv6 address stands in brackets. listeners: all of them have the same port.
    """
    port = listeners[0].socket.getsockname()[1]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
