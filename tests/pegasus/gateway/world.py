"""A gateway on a real socket with a journal that keeps everything in memory, for tests of the protocol."""

import json
from contextlib import asynccontextmanager

import trio
from trio_websocket import ConnectionClosed, open_websocket_url

from actors import Child, Mailbox, open_supervisor
from pegasus.access import Access
from pegasus.channels import CatchUp, DeliverReply
from pegasus.gateway import GatewayConfig, open_listeners, run_gateway
from pegasus.gateway.delivery import Hub
from pegasus.gateway.server import Server
from pegasus.gateway.services import GatewayServices
from pegasus.intake import Intake
from pegasus.messages import Address, ChannelInfo, OutboundMessage, Typing
from pegasus.settings import LiveValue
from pegasus.storage import Accept, Accepted, Acknowledge, Connected, Disconnected, LastSeq, NextReplies, Unacknowledged
from pegasus.storage.messages import DueReply

TOKEN = "s3cret"


async def take(queue):
    """The frames of the next write to a client; [] if the queue is closed and empty."""
    taken = []

    class Socket:
        async def write(self, frames):
            taken.extend(frames)
            scope.cancel()
            await trio.lowlevel.checkpoint()

    with trio.CancelScope() as scope:
        await queue.write_to(Socket(), 30)
    return taken


class FakeJournal:
    """What the gateway sees of the journal. `hold` makes Accept wait; `verdict` answers it instead."""

    def __init__(self):
        self.accepted = []  # (message, lane), each id once
        self.known = set()
        self.unreadable = set()
        self.outbox = {}  # address → list of replies not acknowledged
        self.last = {}  # address → seq
        self.acks = []
        self.acknowledged = []
        self.presence = []
        self.pages = []
        self.held = []
        self.hold = False
        self.slow = trio.Event()
        self.slow.set()
        self.verdict = None
        self.failure = None
        self.handed = []
        self.on_accept = trio.Event()
        self.waiting = None
        self.fresh = []
        self.position = 0
        self.changed = trio.Condition()

    async def run(self, inbox):
        async for message in inbox:
            await self.slow.wait()
            self.handle(message)
            async with self.changed:
                self.changed.notify_all()

    async def until(self, condition):
        with trio.fail_after(30):
            async with self.changed:
                while not condition():
                    await self.changed.wait()

    def handle(self, message):
        match message:
            case Accept(reply, inbound, lane):
                self.on_accept.set()
                if self.hold:
                    self.held.append((reply, inbound, lane))
                else:
                    self.accept(reply, inbound, lane)
            case LastSeq(reply, address):
                self.answer(reply, self.last.get(address, 0))
            case Unacknowledged(reply, type, channel_id, after, limit, with_acknowledged):
                self.pages.append(limit)
                for known, seq in after:
                    self.acknowledge(Address(type, known), seq)
                found = tuple(self.unacknowledged(type, channel_id))[:limit]
                if with_acknowledged:
                    found = (*self.acknowledged_above(Address(type, channel_id), dict(after)[channel_id]), *found)[
                        :limit
                    ]
                self.answer(reply, tuple(message for message in found if message.seq not in self.unreadable))
            case Acknowledge(address, seq):
                self.acks.append((address, seq))
                self.acknowledge(address, seq)
            case Connected() | Disconnected():
                self.presence.append(message)
            case NextReplies(reply, handed):
                self.handed.append(handed)
                self.waiting = reply
                self.give()

    def answer(self, reply, value):
        if self.failure is not None:
            reply.fail(self.failure)
        else:
            reply.send(value)

    def accept(self, reply, inbound, lane):
        if isinstance(self.verdict, Exception):
            reply.fail(self.verdict)
            return
        if self.verdict is not None:
            reply.send(self.verdict)
            return
        key = (inbound.channel.address, inbound.id)
        duplicate = key in self.known
        if not duplicate:
            self.known.add(key)
            self.accepted.append((inbound, lane))
        self.answer(reply, Accepted(len(self.accepted), duplicate))

    def release(self):
        self.hold = False
        for held in self.held:
            self.accept(*held)
        self.held.clear()

    def acknowledged_above(self, address, seq):
        return [reply for reply in self.acknowledged if reply.channel.address == address and reply.seq > seq]

    def acknowledge(self, address, seq):
        self.acknowledged += [reply for reply in self.outbox.get(address, []) if reply.seq <= seq]
        self.outbox[address] = [m for m in self.outbox.get(address, []) if m.seq > seq]

    def unacknowledged(self, type, channel_id):
        for address, messages in self.outbox.items():
            if address.type == type and channel_id in (None, address.channel_id):
                yield from messages

    def post(self, channel, text, **fields):
        address = channel.address
        seq = self.last[address] = self.last.get(address, 0) + 1
        message = OutboundMessage(text, channel, seq, **fields)
        self.outbox.setdefault(address, []).append(message)
        self.position += 1
        self.fresh.append(DueReply(self.position, message))
        self.give()
        return message

    def give(self):
        if self.waiting is not None and self.fresh:
            reply, self.waiting = self.waiting, None
            reply.send(tuple(self.fresh))
            self.fresh = []


class World:
    """A running gateway. `say` is what the agent does: put a reply in the outbox and push it."""

    def __init__(self, supervisor, journal, port):
        self.supervisor = supervisor
        self.journal = journal
        self.port = port
        self.url = f"ws://127.0.0.1:{port}"
        self.ref = supervisor.ref("gateway")

    async def say(self, channel, text, **fields):
        message = self.journal.post(channel, text, **fields)
        await self.ref.tell(DeliverReply(message))
        return message

    async def push(self, message):
        await self.ref.tell(DeliverReply(message))

    async def crash(self):
        """What no adapter message is: the gateway fails over it and is started again."""
        await self.ref.tell(DeliverReply(None))

    async def catch_up(self):
        await self.ref.tell(CatchUp())

    async def typing(self, channel, active, after=0):
        await self.ref.tell(Typing(channel, active, after))

    @asynccontextmanager
    async def client(self, channel="c1", type="web", *, hello=None, headers=(), subprotocols=("pegasus.v1",), **fields):
        """A raw client; says hello unless hello=False. channel None: a bridge."""
        async with open_websocket_url(
            self.url, subprotocols=list(subprotocols), extra_headers=list(headers), disconnect_timeout=5
        ) as socket:
            client = RawClient(socket)
            try:
                if hello is None:
                    who = {"type": type} if channel is None else {"type": type, "channelId": channel}
                    client.welcome = await client.hello(channel=who, **fields)
                yield client
            finally:
                if socket.closed:  # trio-websocket leaves the stream open when the other side closed first
                    await socket._stream.aclose()


class RawClient:
    """Frames in and out as dictionaries."""

    def __init__(self, socket):
        self.socket = socket
        self.welcome = None

    async def hello(self, **fields):
        await self.send(type="hello", **{"token": TOKEN, **fields})
        return await self.get()

    async def send(self, raw=None, **frame):
        await self.socket.send_message(json.dumps(frame) if raw is None else raw)

    async def get(self):
        with trio.fail_after(30):
            return json.loads(await self.socket.get_message())

    async def closed(self):
        """Read until the connection is closed; the frames before, and the close code."""
        frames = []
        with trio.fail_after(10):
            try:
                while True:
                    frames.append(json.loads(await self.socket.get_message()))
            except ConnectionClosed as error:
                return frames, error.reason.code

    async def quiet(self):
        """Nothing else is on its way: the answer to an unknown call is the next frame."""
        await self.send(type="call", id="quiet", method="no-such")
        frame = await self.get()
        assert frame.get("id") == "quiet", frame


async def echo(caller, params):
    return {"caller": caller.channel_id, "params": dict(params)}


@asynccontextmanager
async def world(*, methods=None, journal=None, mailbox=None, open_tasks=None, **config):
    journal = journal or FakeJournal()
    listeners = await open_listeners("127.0.0.1", 0)
    rules = {"access": LiveValue(Access(config.pop("access", {}))), "owners": LiveValue(config.pop("owners", ()))}
    if "pairing" in config:
        rules["pairing"] = config.pop("pairing")
    settings = GatewayConfig(**{"token": TOKEN, "agent": "Peggy", **config})
    table = {"echo": echo} if methods is None else methods
    try:
        async with open_supervisor([Child("journal", journal.run, mailbox=Mailbox(1024))]) as supervisor:
            child = Child(
                "gateway",
                run_gateway,
                LiveValue(settings),
                Intake(supervisor.ref("journal"), **rules),
                listeners,
                table,
                open_tasks,
                mailbox=mailbox or Mailbox(1024),
            )
            await supervisor.start_child(child)
            yield World(supervisor, journal, listeners[0].socket.getsockname()[1])
    finally:
        for listener in listeners:
            await listener.aclose()


def make_server(journal, **config):
    """A server without a listener, and its hub: for tests over streams in memory, in virtual time."""
    hub = Hub(journal)
    return Server(GatewayServices(LiveValue(GatewayConfig(token=TOKEN, **config)), Intake(journal), hub, {})), hub


WEB = ChannelInfo("web", "c1")
