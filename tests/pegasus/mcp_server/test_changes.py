"""Who follows the log of a task hears of a change also when the server has fallen behind."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio
import trio.testing
from mcp.types import SubscriptionFilter, SubscriptionsListenRequestParams

from pegasus.events import Event, EventType, RecentEvents
from pegasus.events.bus import MAX_KEPT
from pegasus.mcp_server.changes import ResourceChanges
from pegasus.mcp_server.resources import log_address, memory_address


class Client:
    """A client, as far as subscriptions see it. `told` are the addresses that it has heard of."""

    def __init__(self):
        self.told = []
        self.session = self
        self.request_id = 1
        self.request = SimpleNamespace(headers={"mcp-session-id": "s"}, grant=None)

    async def send_resource_updated(self, uri):
        self.told.append(uri)

    async def send_notification(self, note, related_request_id=None):
        self.told += [note.params.uri] if hasattr(note.params, "uri") else []

    async def content(self, context, uri):
        """Resources that exist: all."""


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_gap_in_the_events_is_a_change_of_each_log_that_is_followed(is_stream, autojump_clock, monkeypatch):
    async def log(caller, params):
        return {"changes": []}

    recent, client, changes = RecentEvents(first=1), Client(), ResourceChanges()
    services = SimpleNamespace(recent=recent, methods={"memory.log": log})
    uris = [log_address("lost"), memory_address("people.md")]
    async with trio.open_nursery() as nursery:
        if is_stream:
            monkeypatch.setattr(
                "pegasus.mcp_server.changes.TokenReach", lambda _: SimpleNamespace(sees_everything=True)
            )
            wanted = SubscriptionFilter(resource_subscriptions=uris)
            params = SubscriptionsListenRequestParams.model_construct(notifications=wanted)
            nursery.start_soon(changes.listen, client, params, client)
        else:
            for uri in uris:
                await changes.subscribe(client, uri, client)
        nursery.start_soon(changes.watch, services)
        await trio.testing.wait_all_tasks_blocked()
        recent.add(Event(EventType.TASK_CREATED, 1, "task", "lost"))
        for _ in range(MAX_KEPT):
            recent.add(Event(EventType.TASK_CREATED, 1, "task", "other"))
        await trio.testing.wait_all_tasks_blocked()
        assert client.told == [log_address("lost")]
        recent.add(Event(EventType.TASK_CREATED, 1, "task", "other"))
        await trio.testing.wait_all_tasks_blocked()
        assert client.told == [log_address("lost")]
        nursery.cancel_scope.cancel()
