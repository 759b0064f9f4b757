"""A life of several nodes over one database: people write to any of them, and everything fails in every way that we know.

`story` says what is going to happen, `agents` has what runs on a node; here is what holds them together. Afterwards
`tests.faults.checker`, which knows nothing else than what clients saw and what the tables hold, says what is wrong.
"""

from __future__ import annotations

import json
import math
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from random import Random

import trio

from actors import ActorError, Child, Mailbox, Strategy, open_supervisor
from actors._events import leaf_errors
from pegasus.messages import InboundMessage
from pegasus.storage import (
    Accept,
    Accepted,
    Acknowledge,
    Connected,
    Disconnected,
    StorageError,
    Unacknowledged,
)
from pegasus.storage.database import NodeFacts, run_database_journal
from pegasus.testing.memory_database import Fate, MemoryDatabase
from tests.faults.checker import Conversation, Stored, StoredItem, find_anomalies
from tests.simulation.nodes.agents import agents, schedule, session_path, switchboard
from tests.simulation.nodes.story import LEASE, PLACES, TROUBLE_ENDS, Story

NODE: ContextVar[str] = ContextVar("NODE", default="")
"""Name of the node that a task belongs to."""
START = 1_772_020_800_000
"""Wall clock at virtual time 0, ms since the epoch."""
LONGEST = 120.0
"""Seconds after which everything must be answered."""
JUST_NOW = 0.5
"""Seconds that a node has to notice that it was paused."""
STUCK = 0.5
"""Seconds before its end in which the calls of a process get stuck on their way."""
CLIENT_PATIENCE = 7.0
"""Seconds after which a client tries another node."""


class SimulatedNode:
    """A node, through all its processes. journal: of the one that runs, None between two."""

    def __init__(self, name, cluster):
        self.name = name
        self.jobs = cluster.story.jobs
        self.journal = None
        self.gone = trio.Event()
        self.clients = {}
        self.process = trio.CancelScope()
        self.ending = trio.Event()
        self.rest = 0.5
        self.wakes = -math.inf
        """Time at which its last pause ends."""
        self._cluster = cluster

    @property
    def was_paused(self):
        return trio.current_time() < self.wakes + JUST_NOW

    async def think(self, chat, item, text):
        await self._cluster.think(self, chat, item, text)

    def alone(self, what):
        return self._cluster.alone(self, what)

    def lose_clients(self):
        """The journal or the process ends, and so does every connection."""
        self.journal = None
        self.clients.clear()
        self.gone.set()
        self.gone = trio.Event()

    def deliver(self, reply):
        client = self.clients.get(reply.channel.address)
        if client is not None:
            client.wire.send_nowait(reply)


class Client:
    """The person at one place, who outlives every node."""

    def __init__(self, place, cluster):
        self.place = place
        self.seen = Conversation(str(place.address))
        self.every = cluster.story.acks[place]
        self.has_gap = trio.Event()
        self.journal = None
        self.wire, self.arriving = trio.open_memory_channel(math.inf)
        self._note = cluster.note

    def hear(self, reply):
        """Take a reply that comes next; compare one that came before."""
        before = self.seen.heard.get(reply.seq)
        if before is not None:
            if before["text"] != reply.text:
                self.seen.odd.append(f"reply {reply.seq} was {before['text']!r} and is now {reply.text!r}")
        elif reply.seq == self.seen.last + 1:
            self.seen.heard[reply.seq] = {"text": reply.text, "seq": reply.seq}
            self._note(f"{self.seen.address} has {reply.seq}: {reply.text}")
            if self.every and reply.seq % self.every == 0 and self.journal is not None:
                with suppress(ActorError, trio.WouldBlock):
                    self.journal.tell_nowait(Acknowledge(self.place.address, reply.seq))
        else:
            self.has_gap.set()


class Cluster:
    """One story with its nodes. wrong: what was seen to be wrong."""

    def __init__(self, simulation):
        self.story = story = Story(simulation.random)
        self.random = Random(f"{simulation.seed}/database")
        self.note = simulation.note
        self.wrong = []
        self.finished = False
        self.database = MemoryDatabase(
            fate=self._fate,
            latency=self._latency,
            loses_notice=lambda: self.random.random() < story.lost_notices,
            clock=self._clock,
        )
        self.nodes = {name: SimulatedNode(name, self) for name in story.nodes}
        self.clients = [Client(place, self) for place in PLACES]
        self._pause = simulation.pause
        self._stuck = set()
        """Nodes whose calls are done long after."""
        self._working = {}
        """Nodes that work now on each thing that one node at a time works on."""
        self._shared = set()
        """Things of that kind that several nodes have worked on at a time."""
        self._unsaid = len(PLACES)

    def _clock(self, skew=0):
        return START + skew + int(trio.current_time() * 1000)

    def _latency(self):
        return self.random.uniform(0, self.story.latency) if self.story.latency else 0.0

    def _fate(self, link, method):
        if link in self._stuck:
            return Fate.LATE
        chance = self.random.random() if trio.current_time() < TROUBLE_ENDS else 1.0
        for fate, rate in self.story.rates.items():
            if chance < rate:
                self.note(f"{method} of {link}: {fate.value}")
                return fate
            chance -= rate
        return Fate.DONE

    # ---------------------------------------------------------------- the life

    async def run(self):
        async with trio.open_nursery() as nursery:
            for node in self.nodes.values():
                nursery.start_soon(self._live, node, name=f"node {node.name}")
            for client in self.clients:
                nursery.start_soon(self._stay_connected, client)
                nursery.start_soon(self._say, client)
            nursery.start_soon(self._make_trouble)
            with trio.move_on_after(LONGEST):
                await self._settle()
                self.finished = True
            nursery.cancel_scope.cancel()

    async def _settle(self):
        """Wait until all was said, due and answered, and the tables say so."""
        tables = self.database.tables
        last = max([job.due for job in self.story.jobs], default=0.0)
        while (
            self._unsaid
            or trio.current_time()
            < max(last, *(trouble.at + trouble.seconds for trouble in self.story.troubles), 0) + 1
            or any(each.done_at is None for each in tables.inbox.values())
            or any(client.seen.last < tables.last_seq(client.place.address) for client in self.clients)
            or not all(client.seen.is_complete for client in self.clients)
        ):
            self._look_for_twins()
            for client in self.clients:
                names = [job.name for job in self.story.jobs if job.to == client.place]
                client.seen.jobs = names
            await trio.sleep(0.5)  # nobody tells when there is nothing more to do

    # ---------------------------------------------------------------- nodes

    async def _live(self, node):
        """Run one process after the other."""
        NODE.set(node.name)
        skewed = partial(self._clock, self.story.skews[node.name])
        while True:
            link = self.database.link(node.name)
            node.ending, node.rest = trio.Event(), 0.5
            try:
                with trio.CancelScope() as node.process:
                    await self._process(node, link, skewed)
            except* (
                ActorError
            ) as group:  # its name was taken by its own late registration, or an actor has crashed too often
                self.note(f"node {node.name} ends: {group.exceptions[0]!r}")
            await trio.sleep(node.rest)

    async def _process(self, node, link, clock):
        facts = NodeFacts(node.name)
        async with open_supervisor(strategy=Strategy.REST_FOR_ONE, name=f"node {node.name}") as root:
            journal = await root.start_child(
                Child(
                    "journal",
                    partial(self._journal, node, facts=facts, clock=clock, scope="chat", lease=LEASE),
                    link,
                    mailbox=Mailbox(1024),
                )
            )
            for actor in (agents, schedule, switchboard):
                await root.start_child(Child(actor.__name__, actor, journal, node))
            await node.ending.wait()
            node.lose_clients()

    async def _journal(self, node, mailbox, link, **options):
        """Run the engine, which ends because it is to end, and for no other reason."""
        try:
            await run_database_journal(mailbox, link, **options)
        except Exception as error:
            if all(type(leaf) is StorageError for leaf in leaf_errors(error)):
                self.note(f"the journal of {node.name} ends: {error!r}")  # its name was taken
            elif not (node.ending.is_set() or self.finished):
                self.wrong.append(f"the journal of {node.name} has crashed: {error!r}")
            raise

    async def think(self, node, chat, item, text):
        """Call the model."""
        takes = next(
            (saying.takes for each in self.story.sayings.values() for saying in each if saying.text == text), (0.1,)
        )
        with self.alone(node, chat):
            self.note(f"{node.name} thinks about {text!r}, item {item.n}")
            await trio.sleep(takes[min(item.attempt, len(takes)) - 1])

    @contextmanager
    def alone(self, node, what):
        """Note that a node works on something, which no other may do meanwhile."""
        working = self._working.setdefault(what, [])
        working.append(node)
        try:
            self._look_for_twins()
            yield
        finally:
            working.remove(node)

    def _look_for_twins(self):
        for what, working in self._working.items():
            # A call that a paused process has sent goes on, and nobody can stop that.
            names = sorted({node.name for node in working if not node.was_paused})
            if len(names) > 1 and what not in self._shared:
                self._shared.add(what)
                self.wrong.append(f"{trio.current_time()}: {names} work on {what} at one time")

    async def _make_trouble(self):
        async with trio.open_nursery() as nursery:
            for trouble in self.story.troubles:
                await trio.sleep_until(trouble.at)
                self.note(f"{trouble}")
                nursery.start_soon(self._happen, trouble, self.nodes[trouble.node])

    async def _happen(self, trouble, node):
        database = self.database
        match trouble.kind:
            case "kill" | "stuck":
                if trouble.kind == "stuck":
                    self._stuck.add(node.name)
                    await trio.sleep(STUCK)
                    self._stuck.discard(node.name)
                node.rest = trouble.seconds
                node.ending.set()
                database.kill(node.name)
                node.process.cancel()
            case "stop":
                node.rest = trouble.seconds
                node.ending.set()
            case "pause":
                node.wakes = max(node.wakes, trio.current_time() + trouble.seconds)
                self._pause(lambda task: task.context.get(NODE) == node.name, trouble.seconds)
            case "cut":
                database.cut(node.name)
                await trio.sleep(trouble.seconds)
                database.mend(node.name)
            case "server":
                database.stop()
                await trio.sleep(trouble.seconds)
                database.start()
            case "full":
                database.refusal = "the disk of the database is full"
                await trio.sleep(trouble.seconds)
                database.refusal = ""

    # ---------------------------------------------------------------- people

    async def _node(self):
        """Return a node that runs, as a load balancer finds one."""
        while True:
            running = [node for node in self.nodes.values() if node.journal is not None]
            if running:
                return self.random.choice(running)
            await trio.sleep(0.1)

    async def _say(self, client):
        for saying in self.story.sayings[client.place]:
            await trio.sleep(saying.pause)
            client.seen.said[saying.id] = saying.text
            message = InboundMessage(saying.text, client.place, saying.id)
            numbers = {await self._insist(message)}
            client.seen.accepted.add(saying.id)
            for pause in saying.again:
                await trio.sleep(pause)
                numbers.add(await self._insist(message))
            if len(numbers) > 1:
                client.seen.odd.append(f"{saying.id} was accepted as {numbers}")
        self._unsaid -= 1

    async def _insist(self, message):
        """Send a message until some node has accepted it."""
        while True:
            node = await self._node()
            with suppress(ActorError, StorageError), trio.move_on_after(CLIENT_PATIENCE):
                answer = await node.journal.ask(Accept, message)
                if isinstance(answer, Accepted):
                    return answer.n
            await trio.sleep(0.2)

    async def _stay_connected(self, client):
        while True:
            node = await self._node()
            try:
                await self._attend(client, node, node.journal)
            except* (ActorError, StorageError) as group:
                self.note(f"{client.seen.address} loses node {node.name}: {group.exceptions[0]!r}")
            client.journal = None
            if node.clients.get(client.place.address) is client:
                del node.clients[client.place.address]
            await trio.sleep(0.3)

    async def _attend(self, client, node, journal):
        """Be connected to a node for a while, or until it has gone."""
        address = client.place.address
        await journal.tell(Connected(address.type, address.channel_id))
        try:
            client.wire, client.arriving = trio.open_memory_channel(math.inf)
            node.clients[address], client.journal = client, journal
            with trio.move_on_after(self.story.stays[client.place]):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._cancel_when_gone, node, nursery.cancel_scope)
                    nursery.start_soon(self._receive, client)
                    while True:
                        client.has_gap = trio.Event()
                        await self._catch_up(client, journal)
                        await client.has_gap.wait()
        finally:
            with suppress(ActorError, trio.WouldBlock):
                journal.tell_nowait(Disconnected(address.type, address.channel_id))

    async def _receive(self, client):
        """Hear what arrives over the connection. What is on its way when that ends is lost."""
        async for reply in client.arriving:
            await trio.sleep(self.random.choice([0, 0, 0.05, 0.5]))
            client.hear(reply)

    async def _cancel_when_gone(self, node, scope):
        await node.gone.wait()
        scope.cancel()

    async def _catch_up(self, client, journal):
        address = client.place.address
        after = ((address.channel_id, client.seen.last),)
        for reply in await journal.ask(Unacknowledged, address.type, address.channel_id, after):
            client.hear(reply)

    # ---------------------------------------------------------------- the verdict

    def anomalies(self):
        """What is wrong with the life."""
        if not self.finished:
            open_items = [n for n, each in self.database.tables.inbox.items() if each.done_at is None]
            heard = {client.seen.address: (client.seen.said, client.seen.last) for client in self.clients}
            self.wrong.append(f"it did not come to its end: items {open_items} are open, {heard}")
        return [*self.wrong, *find_anomalies([client.seen for client in self.clients], self._stored())]

    def _stored(self):
        """What the tables hold, for the checker."""
        tables = self.database.tables
        items, replies, lines, numbers = {}, {}, {}, {}
        for n, each in tables.inbox.items():
            id = json.loads(each.item.message)["id"]
            items.setdefault(str(each.item.address), []).append(StoredItem(n, id, each.done_at is not None))
        for address, outbox in tables.outbox.items():
            replies[str(address)] = [
                (seq, each.message.key, each.message.text) for seq, each in sorted(outbox.replies.items())
            ]
        for place in PLACES:
            path = session_path(place.address)
            lines[str(place.address)] = [json.loads(line) for line in tables.lines.get(path, ())]
        return Stored(items, replies, lines, numbers)
