"""A few messages and actors that the tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio
import trio.testing

from actors import Child, Event, Events, Inbox, Ref, Reply, Supervisor, open_supervisor

settle = trio.testing.wait_all_tasks_blocked


@attrs.frozen
class Add:
    amount: int


@attrs.frozen
class Total:
    reply: Reply[int]
    label: str = ""


@attrs.frozen
class Crash:
    why: str = "boom"


@attrs.frozen
class Work:
    """Takes that long."""

    reply: Reply[str]
    seconds: float


class Boom(Exception):
    pass


async def counter(inbox: Inbox[Add | Total | Crash | Work], start: int = 0) -> None:
    total = start
    async for message in inbox:
        match message:
            case Add(amount):
                total += amount
            case Total(reply, _):
                reply.send(total)
            case Crash(why):
                raise Boom(why)
            case Work(reply, seconds):
                await trio.sleep(seconds)
                reply.send("done")


async def idle(inbox: Inbox[Any]) -> None:
    async for _ in inbox:
        pass


async def never_reads(inbox: Inbox[Any]) -> None:
    inbox.started()
    await trio.sleep_forever()


async def fails_to_start(inbox: Inbox[Any]) -> None:
    raise Boom("no start")


class Probe:
    """An actor that keeps every message it gets, and does with it what it is told to."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.lives = 0

    async def run(self, inbox: Inbox[Any]) -> None:
        self.lives += 1
        async for message in inbox:
            self.got.append(message)
            if isinstance(message, Crash):
                raise Boom(message.why)


@asynccontextmanager
async def tree(*children: Child, **options: Any) -> AsyncIterator[tuple[Supervisor, Events]]:
    """A supervisor and its events, the first starts included."""
    async with open_supervisor(**options) as supervisor:
        events = supervisor.events()
        for child in children:
            await supervisor.start_child(child)
        yield supervisor, events


@asynccontextmanager
async def actor(run: Any, *args: Any, **options: Any) -> AsyncIterator[Ref[Any]]:
    """One actor, in a tree of its own."""
    async with open_supervisor([Child("actor", run, *args, **options)]) as supervisor:
        yield supervisor.ref("actor")


def happened(events: Events, *kinds: type) -> list[Event]:
    """What has happened so far, of these kinds."""
    found = []
    while True:
        try:
            found.append(events.receive_nowait())
        except trio.WouldBlock:
            return [event for event in found if not kinds or isinstance(event, kinds)]


def all_that_waits(inbox: Inbox[Any]) -> list[Any]:
    """What is in the mailbox now."""
    found = []
    while True:
        try:
            found.append(inbox.receive_nowait())
        except trio.WouldBlock:
            return found


async def serve(children: list[Child], *messages: tuple[str, Any], **options: Any) -> None:
    """A tree that is told these messages (path, message), and then serves for ever."""
    async with open_supervisor(children, **options) as supervisor:
        for path, message in messages:
            await supervisor.ref(path).tell(message)
            await settle()
        await trio.sleep_forever()
