"""`ResourceChanges`: clients hear that a resource has changed, if they have subscribed to it.

Logs of tasks change with each event. Memory is looked at every MEMORY_CHECK seconds while somebody listens, because people change its
files by hand, too. The notes of an address are joined: a client that reads slowly hears of it once, and reads the newest state.

In the protocol from 2026-07-28 on a subscription is a stream of its own, which the SDK serves. Before, it belongs to a session, and
notes come on the stream that the session's client has opened beside its requests.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, Final

import attrs
import trio
from mcp.server import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_REQUEST, SubscriptionFilter, SubscriptionsListenRequestParams, SubscriptionsListenResult

from actors import ActorError
from pegasus.events import EventReader
from pegasus.gateway import BadParams, Caller
from pegasus.mcp_server.reach import TokenReach
from pegasus.mcp_server.resources import TASKS, ServedResources, log_address, memory_address
from pegasus.storage import StorageError
from pegasus.web import WebServices

MEMORY_CHECK: Final = 2.0
"""Seconds between two looks at the log of memory's changes."""
MOST_CHANGES: Final = 50
"""Changes of memory that one look finds."""
MOST_ADDRESSES: Final = 200
"""Resources that one subscriber may follow."""
MOST_SESSIONS: Final = 100
"""Sessions of a token that may follow resources."""


@attrs.define(eq=False, repr=False)
class SessionSubscription:
    """The resources that the client of a session follows."""

    session: ServerSession
    uris: set[str] = attrs.field(factory=set)
    pending: dict[str, None] = attrs.field(factory=dict)
    """Addresses that it has not been told yet."""
    is_telling: bool = False

    async def tell(self) -> None:
        """Send what is pending. A session that is gone is told nothing."""
        self.is_telling = True
        while self.pending:
            uri = next(iter(self.pending))
            del self.pending[uri]
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self.session.send_resource_updated(uri)
        self.is_telling = False


class ResourceChanges:
    """Subscriptions of the clients of one token. `watch` runs as long as the token counts."""

    def __init__(self) -> None:
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus, max_subscriptions=MOST_SESSIONS)
        self._sessions: OrderedDict[str, SessionSubscription] = OrderedDict()
        """By id of the session. Of too many the oldest is forgotten."""
        self._listened: Counter[str] = Counter()
        """Resources that streams follow, with the number of streams."""
        self._wanted = trio.Event()
        """Set when somebody has subscribed."""

    # ---------------------------------------------------------------- subscribing

    async def listen(
        self, context: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams, served: ServedResources
    ) -> SubscriptionsListenResult:
        """Serve a stream of notes (from 2026-07-28 on) about the resources that its client may see."""
        wanted = params.notifications
        uris: list[str] = []
        for uri in (wanted.resource_subscriptions or ())[:MOST_ADDRESSES]:
            with suppress(MCPError):
                await served.content(context, uri)
                uris.append(uri)
        sees_lists = TokenReach(served.request.grant).sees_everything
        self._wanted.set()
        filter = SubscriptionFilter(
            resource_subscriptions=uris, resources_list_changed=sees_lists and wanted.resources_list_changed
        )
        self._listened.update(uris)
        try:
            return await self._listen(context, params.model_copy(update={"notifications": filter}))
        finally:
            self._listened -= Counter(uris)

    async def subscribe(self, context: ServerRequestContext[Any, Any], uri: str, served: ServedResources) -> None:
        """Let a session follow a resource. Raises MCPError for one that does not exist, or beyond the bound."""
        await served.content(context, uri)
        id = _session_of(context)
        found = self._sessions.setdefault(id, SessionSubscription(context.session))
        self._sessions.move_to_end(id)
        if len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        if len(found.uris) >= MOST_ADDRESSES:
            raise MCPError(INVALID_REQUEST, f"found more than {MOST_ADDRESSES} subscriptions, which is the limit here")
        found.uris.add(uri)
        self._wanted.set()

    def unsubscribe(self, context: ServerRequestContext[Any, Any], uri: str) -> None:
        """End a subscription of a session. One that does not exist is none afterwards either."""
        if (found := self._sessions.get(_session_of(context))) is not None:
            found.uris.discard(uri)
            found.pending.pop(uri, None)

    def forget(self, session_id: str) -> None:
        """Forget a session that its client has ended."""
        self._sessions.pop(session_id, None)

    # ---------------------------------------------------------------- changes

    async def watch(self, services: WebServices) -> None:
        """Tell subscribers of changes, from the first subscription on, until cancelled."""
        await self._wanted.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_tasks, services, nursery)
            nursery.start_soon(self._watch_memory, services, nursery)

    async def _watch_tasks(self, services: WebServices, nursery: trio.Nursery) -> None:
        async for events, is_gap in EventReader(services.recent):
            tasks = dict.fromkeys(str(each.event.get("taskId", "")) for each in events)
            logs = dict.fromkeys(log_address(task_id) for task_id in filter(None, tasks))
            if is_gap:  # any of them may have changed
                logs |= dict.fromkeys(self._followed_logs())
            if is_gap or any(each.event["type"] == "TASK_CREATED" for each in events):
                await self._bus.publish(ResourcesListChanged())
            for uri in logs:
                await self._publish(uri, nursery)

    def _followed_logs(self) -> Iterator[str]:
        for uri in chain(self._listened, *(each.uris for each in self._sessions.values())):
            if uri.startswith(TASKS):
                yield uri

    async def _watch_memory(self, services: WebServices, nursery: trio.Nursery) -> None:
        newest = -1
        while True:
            with suppress(BadParams, ActorError, StorageError):
                method = services.methods["memory.log"]
                log = await method(Caller("api", "mcp"), {"limit": MOST_CHANGES})
                changes: list[Any] = log["changes"] if isinstance(log, dict) else []
                if newest >= 0:
                    for path in dict.fromkeys(change["path"] for change in changes if change["n"] > newest):
                        await self._publish(memory_address(path), nursery)
                newest = max((change["n"] for change in changes), default=max(newest, 0))
            await trio.sleep(MEMORY_CHECK)

    async def _publish(self, uri: str, nursery: trio.Nursery) -> None:
        await self._bus.publish(ResourceUpdated(uri))
        for subscription in self._sessions.values():
            if uri in subscription.uris:
                subscription.pending[uri] = None
                if not subscription.is_telling:
                    nursery.start_soon(subscription.tell)


def _session_of(context: ServerRequestContext[Any, Any]) -> str:
    request = context.request
    id = request.headers.get("mcp-session-id", "") if request is not None else ""
    if not id:
        raise MCPError(INVALID_REQUEST, "subscriptions need a session")
    return str(id)
