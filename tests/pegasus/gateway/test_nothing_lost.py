"""Clients and bridges come and go at random, acknowledge what they saw, and die; pushes get lost or come twice."""

from random import Random

import pytest
import trio
import trio.testing
from trio_websocket import ConnectionClosed, wrap_client_stream

from actors import Child, Mailbox, open_supervisor
from pegasus.messages import Address, ChannelInfo
from tests.pegasus.gateway.world import FakeJournal, RawClient, make_server

CHANNELS = [ChannelInfo("web", f"c{n}") for n in range(3)]


class Life:
    """A connection that notes what it sees. address None: a bridge."""

    def __init__(self, here, address):
        self.here = here
        self.address = address
        self.seen = {}
        self.client = None
        self.scope = trio.CancelScope()

    async def run(self, last, task_status):
        ours, theirs = trio.testing.memory_stream_pair()
        self.here.nursery.start_soon(self.here.server.serve, theirs, await self.here.server.take_place())
        with self.scope:
            async with trio.open_nursery() as sockets:
                socket = await wrap_client_stream(sockets, ours, "x", "/", subprotocols=["pegasus.v1"])
                self.client = RawClient(socket)
                who = {"type": "web"} if self.address is None else {"type": "web", "channelId": self.address.channel_id}
                assert (await self.client.hello(channel=who, **last))["type"] == "welcome"
                task_status.started()
                try:
                    while True:
                        self.note(await self.client.get())
                except (ConnectionClosed, trio.TooSlowError):
                    pass
        await trio.aclose_forcefully(ours)

    def note(self, frame):
        if frame["type"] != "reply":
            return
        address = Address("web", frame["channel"]["channelId"])
        seqs = self.seen.setdefault(address, [])
        assert self.address in (None, address)
        assert not seqs or frame["seq"] > seqs[-1], "twice, or out of order"
        seqs.append(frame["seq"])
        self.here.seen.setdefault(address, set()).add(frame["seq"])

    async def ack(self, random):
        if not self.seen:
            return
        address = random.choice(sorted(self.seen))
        unacknowledged = [message.seq for message in self.here.journal.outbox.get(address, [])]
        covered = {seq for seq in unacknowledged if seq <= self.seen[address][-1]}
        assert covered <= set(self.seen[address]), "it would acknowledge what it never saw"
        channel = {} if self.address else {"channel": {"type": "web", "channelId": address.channel_id}}
        await self.client.send(type="ack", seq=self.seen[address][-1], **channel)


class Here:
    def __init__(self, server, hub, journal, nursery):
        self.server, self.hub, self.journal, self.nursery = server, hub, journal, nursery
        self.seen = {}
        self.lives = []

    async def connect(self, address, **last):
        life = Life(self, address)
        await self.nursery.start(lambda task_status: life.run(last, task_status))
        self.lives.append(life)
        return life

    async def step(self, random):
        deed = random.choice(["say"] * 6 + ["say twice", "lose", "connect", "bridge", "die", "ack", "ack", "rest"])
        channel = random.choice(CHANNELS)
        if deed in ("say", "say twice"):
            message = self.journal.post(channel, "x")
            for _ in range(2 if deed == "say twice" else 1):
                await self.hub.deliver(message)
        elif deed == "lose":
            self.journal.post(channel, "x")
            self.hub.catch_up()
        elif deed in ("connect", "bridge") and len(self.lives) < 5:
            await self.connect(channel.address if deed == "connect" else None)
        elif deed == "die" and self.lives:
            self.lives.pop(random.randrange(len(self.lives))).scope.cancel()
        elif deed == "ack" and self.lives:
            await random.choice(self.lives).ack(random)
        elif deed == "rest":
            await trio.testing.wait_all_tasks_blocked()
        if random.random() < 0.5:
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("seed", range(40))
async def test_every_reply_is_seen_by_somebody_who_could_acknowledge_it(seed, autojump_clock, monkeypatch):
    monkeypatch.setattr("pegasus.gateway.reply_feed.PAGE", 3)
    monkeypatch.setattr("pegasus.gateway.reply_feed.MAX_KEPT", 3)
    random = Random(seed)
    journal = FakeJournal()
    async with (
        open_supervisor([Child("journal", journal.run, mailbox=Mailbox(4))]) as supervisor,
        trio.open_nursery() as nursery,
    ):
        server, hub = make_server(supervisor.ref("journal"), queue_frames=50)
        here = Here(server, hub, journal, nursery)
        for _ in range(150):
            await here.step(random)
        for life in here.lives:
            life.scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        await here.connect(None)
        await trio.testing.wait_all_tasks_blocked()
        for address, last in journal.last.items():
            assert here.seen.get(address, set()) == set(range(1, last + 1)), str(address)
        nursery.cancel_scope.cancel()
