"""The link between the daemon and other agents: the routes of A2A, the work behind them, and the tool that delegates.

`pegasus.a2a` is imported here when it is needed and not before: by the first request for it, by a start that finds push notifications
to be delivered, or by the first call of the tool.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from actors import Inbox
from pegasus import web
from pegasus.access import MESSAGE
from pegasus.messages import Json, Metadata
from pegasus.models import ToolSpec
from pegasus.outside import Untrusted
from pegasus.settings import LiveSettings, LiveValue, RemoteAgentSettings, Settings
from pegasus.storage import KeyedStore, until_wanted
from pegasus.tools import Effect, Reach, Tool, ToolContext, parameters

if TYPE_CHECKING:
    from starlette.responses import Response

    from pegasus.a2a import A2aDoor, RemoteAgent
    from pegasus.web import ApiRequest, Form, Operation, WebServices

DELEGATE: Final = "delegate_to_agent"
"""Name of the tool."""
AGENT_KEYS: Final = ("agents.", "tools.allowed_hosts")
"""Settings that the tool depends on."""
_DELEGATE_TIMEOUT: Final = 1800.0
"""Seconds that the other agent may take, unless the settings name the tool; the time of the task bounds it, too."""

_REST: Final = (
    ("POST", "/message:send", "SendMessage", "Send a message to the agent (A2A)"),
    ("POST", "/message:stream", "SendStreamingMessage", "Send a message, and follow its task (A2A)"),
    ("GET", "/tasks", "ListTasks", "Tasks of this client (A2A)"),
    ("POST", "/tasks/{id}:cancel", "CancelTask", "End a task (A2A)"),
    ("GET", "/tasks/{id}:subscribe", "SubscribeToTask", "Follow a task (A2A)"),
    ("POST", "/tasks/{id}:subscribe", "SubscribeToTask", "Follow a task (A2A)"),
    ("GET", "/tasks/{id}", "GetTask", "A task (A2A)"),
    ("POST", "/tasks/{id}/pushNotificationConfigs", "CreateTaskPushNotificationConfig", "Name a push target (A2A)"),
    ("GET", "/tasks/{id}/pushNotificationConfigs", "ListTaskPushNotificationConfigs", "Push targets of a task (A2A)"),
    ("GET", "/tasks/{id}/pushNotificationConfigs/{config}", "GetTaskPushNotificationConfig", "A push target (A2A)"),
    ("DELETE", "/tasks/{id}/pushNotificationConfigs/{config}", "DeleteTaskPushNotificationConfig", "Delete it (A2A)"),
    ("GET", "/extendedAgentCard", "GetExtendedAgentCard", "The agent card for those with a token (A2A)"),
)
"""Method, path below /a2a, operation and summary of each route of HTTP+JSON. The first that fits a request counts."""


class A2aLink:
    """The door for other agents, opened when it is needed. One object for the whole run of the daemon."""

    def __init__(self, services: WebServices, in_force: LiveSettings, resolve: Callable[[str], Path]) -> None:
        """resolve: returns the path that a setting names."""

        def key_file(settings: Settings) -> Path | None:
            return resolve(settings.a2a.signing_key) if settings.a2a.signing_key else None

        self._services = services
        self._is_shared = bool(in_force.now.storage.url)
        self._key_file = in_force.follow(key_file, "a2a.signing_key")
        self._allowed_hosts: LiveValue[tuple[str, ...]] = in_force.follow(
            lambda settings: settings.tools.allowed_hosts, "tools.allowed_hosts"
        )
        self._door: A2aDoor | None = None
        self._lock = trio.Lock()
        self._wanted = trio.Event()

    async def run(self, inbox: Inbox[object]) -> None:
        """Run the actor: it wakes streams and delivers push notifications, from the first request on, or if some wait at a start."""
        inbox.started()
        waiting: KeyedStore[Json] = KeyedStore("a2a-push", lambda name, value: (name, value))
        await waiting.open(self._services.intake.journal)
        if waiting.is_read and not waiting.rows:
            await until_wanted(self._services.intake.journal, "a2a-push", self._wanted)
        await (await self._open()).run()

    async def _open(self) -> A2aDoor:
        """Return the door; import it, and what it needs, first."""
        if self._door is not None:
            return self._door
        async with self._lock:
            if self._door is None:
                make = await trio.to_thread.run_sync(_import_door)
                door = make(self._services, self._key_file, self._allowed_hosts, is_shared=self._is_shared)
                await door.open()
                self._door = door
                self._wanted.set()
            return self._door

    def operations(self) -> Sequence[Operation]:
        """Return the routes."""

        def route(
            method: str,
            path: str,
            name: str,
            summary: str,
            scope: str | None,
            use: Callable[[A2aDoor, ApiRequest], Awaitable[Response]],
        ) -> Operation:
            async def handler(request: ApiRequest) -> Response:
                return await use(await self._open(), request)

            return web.Operation(method, path, handler, summary, scope, form=partial(_form_of, name))

        card, keys = "/.well-known/agent-card.json", "/a2a/keys.json"
        return [
            route("GET", card, "card", "The agent card (A2A)", None, lambda door, request: door.card(request)),
            route(
                "GET", keys, "keys", "The key of its signature (A2A)", None, lambda door, request: door.keys(request)
            ),
            # Some clients put a slash behind the address of the card.
            *(
                route("POST", path, "rpc", "An operation (A2A)", MESSAGE, lambda door, request: door.rpc(request))
                for path in ("/a2a", "/a2a/")
            ),
            *(
                route(method, f"/a2a{path}", operation, summary, MESSAGE, partial(_rest, operation))
                for method, path, operation, summary in _REST
            ),
        ]


def _import_door() -> type[A2aDoor]:
    from pegasus.a2a import A2aDoor

    return A2aDoor


def _form_of(name: str) -> Form:
    from pegasus.a2a import form_of

    return form_of(name)


def _rest(operation: str, door: A2aDoor, request: ApiRequest) -> Awaitable[Response]:
    return door.rest(request, operation)


# ------------------------------------------------------------------ delegating


def delegation_tools(agents: Mapping[str, RemoteAgentSettings], allowed_hosts: Sequence[str]) -> tuple[Tool, ...]:
    """Return the tool that delegates to other agents; none if the settings name none."""
    if not agents:
        return ()
    spec = ToolSpec(
        DELEGATE,
        f"Delegate work to another agent, and wait for its answer. The agents: {', '.join(sorted(agents))}.",
        parameters(
            {
                "url": {"type": "string", "description": "Name of the agent, or its address as in the settings"},
                "text": {"type": "string", "description": "What it is to do. It knows nothing of this conversation"},
                "task": {"type": "string", "description": "Its task that has asked something, to answer that"},
            },
            *("url", "text"),
        ),
    )

    async def run(arguments: Metadata, context: ToolContext) -> Json:
        """Send the message, and follow the other's task until it is over."""
        remote = await trio.to_thread.run_sync(_remote_of, agents, str(arguments["url"]), allowed_hosts)
        return await remote.delegate(str(arguments["text"]), str(arguments.get("task") or ""), context)

    tool = Tool(spec, run, "task", Effect.ONCE, reach=Reach.OUTSIDE, source=Untrusted.OTHER, timeout=_DELEGATE_TIMEOUT)
    return (tool,)


def _remote_of(agents: Mapping[str, RemoteAgentSettings], url: str, allowed_hosts: Sequence[str]) -> RemoteAgent:
    """Return the agent that a call names. Blocks: its client is imported. Raises ToolError."""
    from pegasus.a2a import RemoteAgent, find_agent

    name, agent = find_agent(agents, url)
    return RemoteAgent(name, agent, allowed_hosts)
