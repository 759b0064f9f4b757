"""Nodes of one agent, with a home each: real processes, their model, and the ways to what they share."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import attrs
import trio

from pegasus.testing.provider import open_provider
from pegasus.testing.provider.answers import Call, ProviderAnswer
from pegasus.testing.provider.requests import ProviderRequest
from tests.blackbox.support import SILENCE, Book, Daemon, Thought, View, echo, say, thinks_with
from tests.blackbox.support.forks import CLOCK_AHEAD
from tests.blackbox.support.work import FOUND_NOTHING, NOTICE, Effects, TaskView, answer, desk, kind_of, spawn
from tests.faults.link import Link, open_link
from tests.faults.server import NodesServer

TOKEN = "token-of-the-trials-0123456789"
LEASE = 3.0
"""Seconds of a node's lease: the shortest that the settings allow."""
PROMPTNESS = 0.15
"""Seconds that the model takes at most, so that faults meet it at work."""


class Mind(Book):
    """The model: it does what a message's kind says (`due_replies`), by what stands in the request alone."""

    def __init__(self, effects: Effects, choices: random.Random) -> None:
        super().__init__(otherwise=_speak)
        self.effects = effects
        self._choices = choices

    async def __call__(self, request: ProviderRequest) -> ProviderAnswer:
        await trio.sleep(self._choices.random() * PROMPTNESS)
        match kind_of(request):
            case "main":
                self.asked.clear()  # a long run asks often, and nobody reads it
                return await super().__call__(request)
            case "task":
                return self._work(TaskView(request))
            case _:
                return FOUND_NOTHING

    def _work(self, view: TaskView) -> ProviderAnswer:
        if not view.made("shell_exec"):
            return Thought("working", (self.effects.shell(view.job),))
        return answer(f"did {view.job}")


def _speak(view: View) -> ProviderAnswer:
    text = view.question.text
    kind, _, id = text.partition(" ")
    if NOTICE.match(text):
        return desk(view)
    if "is due" in text:
        return SILENCE if view.replied else say(text.splitlines()[-1])
    if kind == "do":
        return SILENCE if view.done("spawn_subagent") else Thought(calls=(spawn(id),))
    if kind == "look" and not view.done("current_time"):
        return Thought("what time is it?", (Call("current_time"),))
    if kind == "twice":
        return SILENCE if view.replied else say(f"first: {text}", f"second: {text}")
    return echo(view)


@attrs.define(eq=False)
class Node:
    """One node: its process, and the way from it to the database. is_busy: something happens to it that must end first."""

    daemon: Daemon
    link: Link
    is_busy: bool = False

    @property
    def url(self) -> str | None:
        """Where clients reach it; None while it starts or is gone."""
        return self.daemon.url if self.daemon.alive and self.daemon.at is not None else None

    async def start(self) -> None:
        """Start it again until it is ready: without its database it may give up, as under a supervisor."""
        while self.url is None:
            if not self.daemon.alive:
                self.daemon.spawn()
            with suppress(AssertionError):  # it has ended (Exited), or takes longer than usual
                await self.daemon.ready()


@attrs.define(eq=False)
class House:
    """The nodes, and what they share."""

    nodes: list[Node]
    effects: Effects
    database: NodesServer
    ahead: int = 0
    """Seconds that the wall clock of one node is ahead of ours, and that of another one behind it."""
    one_at_a_time: trio.Lock = attrs.field(factory=trio.Lock)
    """Faults of the database exclude each other."""

    def urls(self) -> list[str]:
        return [url for node in self.nodes if (url := node.url)]


@asynccontextmanager
async def open_house(
    folder: Path, choices: random.Random, database: NodesServer, nodes: int, ahead: int = 0
) -> AsyncIterator[House]:
    """Nodes that are ready, and are killed at the end. ahead: as in `House`."""
    mind = Mind(Effects(folder), choices)
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(open_provider(mind, keep=1))
        mind.server = provider
        house = House([], mind.effects, database, ahead)
        shared = {
            **thinks_with(provider.url),
            "agent.scope": "chat",
            "session.memory_window": 0,
            "gateway.token": TOKEN,
            "models.max_concurrent_calls": 50,
            "tasks.max_active": 9,
            "node.lease": LEASE,
        }
        for number in range(nodes):
            link = await stack.enter_async_context(open_link(database.port))
            own = {"storage.url": database.url(link.port), "node.name": f"node-{number}"}
            clock = {CLOCK_AHEAD: str((0, ahead, -ahead)[number % 3])}
            daemon = Daemon(folder / f"node-{number}", {**shared, **own}, env=clock)
            stack.callback(daemon.kill)
            house.nodes.append(Node(daemon, link))
        async with trio.open_nursery() as nursery:
            for node in house.nodes:
                nursery.start_soon(node.start)
        yield house
        assert provider.invalid == [], "the provider refused requests"
