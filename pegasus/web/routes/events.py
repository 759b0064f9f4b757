"""Events as they happen, as server-sent events: `GET /api/events`.

One sequence for all streams: events of tasks by their names, `tree` for what happens to actors, `approval` and `usage`. Each event is
written once, as the bytes that every stream sends. The last MAX_KEPT are kept, so a client that comes back with `Last-Event-ID` gets
what it has missed; if some of that is gone, or the server was started anew, a `gap` comes first.

A stream reads at its own speed: a slow client holds only its position and does not delay others. It finds a gap when it is MAX_KEPT
behind. Nothing is gathered before the first stream is opened.

A client that finds a `gap` reads the present state by the other routes, and goes on with the events behind it. The first number is
the wall clock in ms at the start, so a number that a client has of an earlier run is smaller than all numbers of this one.

A stream ends with the rights of its client, as every request does (`app`). Events of approvals show arguments of tool calls, so they
go to tokens with the scope "control" only.

The numbers of usage have no event of their own. They are asked for every USAGE_CHECK seconds while somebody listens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import attrs
import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from actors import ActorError, Exited, GaveUp, Restarting, Signal, Started, Stuck
from actors import Event as TreeEvent
from pegasus.access import CONTROL, READ
from pegasus.events import EventReader
from pegasus.gateway import BadParams, Caller
from pegasus.messages import ApprovalNotice, Json
from pegasus.observe import get_logger
from pegasus.web.config import WebServices
from pegasus.web.operations import Operation
from pegasus.web.requests import QUIET, ApiRequest, EventStreamResponse
from pegasus.wire import encode_json, to_wire

MAX_KEPT: Final = 1000
"""Events that are kept."""
USAGE_CHECK: Final = 5.0
"""Seconds between two looks at what models have used, while somebody follows events."""

_log = get_logger("web")


@attrs.frozen
class SentEvent:
    r"""An event of the sequence."""

    n: int
    """Number in the sequence, which grows by 1; the `id` of the event for clients."""
    name: str
    """Name of the event, as "TASK_COMPLETED", "tree", "approval" or "usage". Streams leave out approvals by it."""
    frame: bytes = attrs.field(repr=False)
    """The event as it is sent."""


class EventFeed:
    """The sequence of events. Example: `feed.add("tree", {"path": "journal", "change": "started"})`."""

    def __init__(self, first: int) -> None:
        """Begin without events. first: number of the first one, greater than all that an earlier run has given."""
        self._kept: deque[SentEvent] = deque(maxlen=MAX_KEPT)
        self.newest = first - 1
        """Number of the newest event; that before the first one while there is none."""
        self.is_open = True
        """False when the server stops: streams end."""
        self._news = Signal()
        self.readers = 0
        """Streams that are open."""
        self.wanted = trio.Event()
        """Set when the first stream was opened."""

    def add(self, name: str, data: Mapping[str, Json]) -> None:
        """Number an event, keep it for streams that come back, and wake the streams. Never waits."""
        self.newest += 1
        frame = f"id: {self.newest}\nevent: {name}\ndata: {encode_json(data)}\n\n".encode("utf-8", "replace")
        self._kept.append(SentEvent(self.newest, name, frame))
        self._news.notify()

    def after(self, n: int) -> tuple[Sequence[SentEvent], bool]:
        """Return the kept events with larger numbers, and whether some between them and `n` are missing.

        A number that is larger than the newest is from elsewhere, and counts as a gap: all kept events are returned then.
        """
        # Numbers have no gaps, so the place of an event follows from its number, and no stream has to search.
        oldest = self.newest - len(self._kept) + 1
        is_gap = not oldest - 1 <= n <= self.newest
        if is_gap:
            return list(self._kept), True
        return [self._kept[index] for index in range(n - oldest + 1, len(self._kept))], False

    async def wait_beyond(self, n: int) -> None:
        """Wait until there is an event with a larger number, or until the feed is closed.

        All streams wait in the same place and are woken together; each then sends its own part. Cancelled,
        nothing has changed.
        """
        while self.newest <= n and self.is_open:
            await self._news.wait()

    def close(self) -> None:
        """End all streams."""
        self.is_open = False
        self._news.notify()


# ------------------------------------------------------------------ where events come from


async def gather_events(services: WebServices, feed: EventFeed) -> None:
    """Add what happens to the feed from the first stream on, until cancelled.

    Each source is a task of its own, so that a slow one holds up no other. What happened before is not in the
    feed: the other routes show the state.
    """
    await feed.wanted.wait()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_follow_tasks, services, feed)
        nursery.start_soon(_follow_tree, services, feed)
        nursery.start_soon(_follow_approvals, services, feed)
        nursery.start_soon(_follow_usage, services, feed)


async def _follow_tasks(services: WebServices, feed: EventFeed) -> None:
    """Add the events of tasks.

    `recent` keeps the last of them for other readers, too. When more come at once than it keeps, the oldest are missing here.
    """
    async for events, _ in EventReader(services.recent):
        for each in events:
            feed.add(str(each.event["type"]), {key: value for key, value in each.event.items() if key != "type"})


async def _follow_tree(services: WebServices, feed: EventFeed) -> None:
    async for event in services.tree_events():
        data = tree_change(event)
        if data is not None:
            feed.add("tree", data)


def tree_change(event: TreeEvent) -> dict[str, Json] | None:
    """Return what happened to an actor; None for what is no change of the tree."""
    match event:
        case Started():
            return {"path": event.path, "change": "started", "attempt": event.attempt}
        case Exited():
            return {"path": event.path, "change": "ended", "how": type(event.exit).__name__, "attempt": event.attempt}
        case Restarting():
            return {"path": event.path, "change": "restarting", "delay": round(event.delay, 2)}
        case GaveUp():
            return {"path": event.path, "change": "gaveUp"}
        case Stuck():
            return {"path": event.path, "change": "stuck"}
    return None


async def _follow_approvals(services: WebServices, feed: EventFeed) -> None:
    with services.listeners.listen(None) as notices:
        async for notice in notices:
            if isinstance(notice, ApprovalNotice):
                feed.add("approval", to_wire(notice))


async def _follow_usage(services: WebServices, feed: EventFeed) -> None:
    """Add an event when the numbers of today have changed. The first look is the state, not a change.

    The method adds up a whole day, so it is asked every few seconds and not after each call of a model. An
    error is a part of the agent that is being restarted; the next look makes up for it.
    """
    method = services.methods.get("usage")
    last: Json = None
    while method is not None:
        if feed.readers:
            with suppress(ActorError, BadParams):
                report = await method(Caller("api", "events"), {})
                today = report.get("today") if isinstance(report, Mapping) else None
                if isinstance(today, Mapping) and today != last:
                    if last is not None:
                        feed.add("usage", {"today": today})
                    last = today
        await trio.sleep(USAGE_CHECK)


# ------------------------------------------------------------------ streams


class EventResponse(EventStreamResponse):
    """One stream. after: number of the last event that the client has seen; None: it begins now.

    Cancelled (the client has gone, or the server stops at once), the stream ends without a last piece, which
    clients take as a reason to connect again.
    """

    def __init__(self, request: ApiRequest, feed: EventFeed, after: int | None) -> None:
        super().__init__()
        self._request = request
        self._feed = feed
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client has gone or the server stops.

        All events that are there go out as one piece. Where there are none for QUIET seconds a comment does, which a client ignores.
        """
        # The header goes out before the first event, so that a client knows that it is connected although
        # nothing happens.
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        feed = self._feed
        feed.readers += 1
        feed.wanted.set()
        seen = feed.newest if self._after is None else self._after
        # Tells browsers to connect again after 2 s, and serves as the first piece.
        part = b"retry: 2000\n\n"
        sees_approvals = self._request.grant.allows(CONTROL)
        try:
            while feed.is_open:
                events, is_gap = feed.after(seen)
                if is_gap:
                    part += b"event: gap\ndata: {}\n\n"
                part += b"".join(each.frame for each in events if sees_approvals or each.name != "approval")
                seen = feed.newest
                if part:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                part = b": nothing new\n\n"
                with trio.move_on_after(QUIET):
                    await feed.wait_beyond(seen)
                    part = b""
        finally:
            feed.readers -= 1
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class EventRoutes:
    """The handler of event streams."""

    def __init__(self, feed: EventFeed) -> None:
        self._feed = feed

    async def stream(self, request: ApiRequest) -> Response:
        """Stream events from now on, or those after `Last-Event-ID`."""
        # Browsers send it by themselves when they connect again.
        text = request.http.headers.get("last-event-id")
        after = None
        if text is not None:  # one that makes no sense is one that is not known
            after = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
        return EventResponse(request, self._feed, after)


def event_operations(feed: EventFeed) -> tuple[Operation, ...]:
    """Return the operation of this file."""
    summary = "Events of tasks, the tree, approvals and usage, as server-sent events"
    return (Operation("GET", "/api/events", EventRoutes(feed).stream, summary, READ),)
