"""The HTTP server and the gateway on real sockets, with a journal that keeps everything in memory."""

import json
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

import h11
import httpx
import trio
from trio_websocket import open_websocket_url

from actors import Child, Mailbox, open_supervisor
from pegasus.access import Access, TokenBook, WebSessions
from pegasus.channels import DeliverReply
from pegasus.events import RecentEvents
from pegasus.gateway import BadParams, GatewayConfig, Listeners, NotFound, open_listeners, run_gateway
from pegasus.intake import Intake
from pegasus.models import Usage
from pegasus.push import PushBook, PushServices, push_operations
from pegasus.settings import LiveValue, PushSettings
from pegasus.storage import (
    Accepted,
    Commit,
    ItemDone,
    OpenReplies,
    Posted,
    PutRows,
    ReadFile,
    ReadRows,
    ReplaceFile,
    SetAside,
    UnacknowledgedReply,
)
from pegasus.web import HookDeliveries, HttpConfig, WebServices, run_http
from tests.pegasus.files_of_journal import answer_from
from tests.pegasus.gateway.world import FakeJournal

TOKEN = "s3cret-of-the-home"


class Journal(FakeJournal):
    """The same with files."""

    def __init__(self):
        super().__init__()
        self.files = {}
        self.done = set()
        self.waiting_for = []
        self.posted = {}  # replies by key

    def post(self, channel, text, *, item=None, **fields):
        """Post a reply to the item; None: to the last that was accepted; 0: to none, which is said unasked."""
        n = len(self.accepted) if item is None else item
        key = f"main/{n}/call_{len(self.posted)}"
        if n:
            answered, _ = self.accepted[n - 1]
            fields["metadata"] = {"inReplyTo": answered.id, "question": answered.text[:9], **fields.get("metadata", {})}
        message = self.posted[key] = super().post(channel, text, key=key, **fields)
        return message

    def accept(self, reply, inbound, lane):
        for n, (known, _) in enumerate(self.accepted, 1):
            if (known.channel.address, known.id) == (inbound.channel.address, inbound.id):
                self.answer(reply, Accepted(n, True))
                return
        super().accept(reply, inbound, lane)

    def handle(self, message):
        match message:
            case ReadFile(reply, path):
                self.answer(reply, self.files.get(path, b""))
            case ReadRows(reply, collection, owner):
                self.answer(reply, answer_from(self.files, ReadRows, collection, owner))
            case PutRows(reply, collection, owner, put, delete, content, version):
                if self.failure is None:
                    answer_from(self.files, PutRows, collection, owner, put, delete, content, version)
                self.answer(reply, 0)
            case ReplaceFile(reply, path, content):
                if self.failure is None:
                    self.files[path] = content
                self.answer(reply, None)
            case Commit(reply, appends, ()):
                for path, content in appends:
                    self.files[path] = self.files.get(path, b"") + content
                self.answer(reply, ())
            case SetAside(reply, path, content):
                self.files[copy := f"{path}.bad-1"] = content
                self.answer(reply, copy)
            case ItemDone(reply, n) if n not in self.done:
                self.waiting_for.append((n, reply))
            case ItemDone(reply):
                reply.send(None)
            case OpenReplies(reply, address, limit):
                found = self.outbox.get(address, [])[:limit]
                self.answer(reply, tuple(UnacknowledgedReply(address, each.seq, each.key) for each in found))
            case Posted(reply, keys):
                self.answer(reply, tuple(self.posted.get(key) for key in keys))
            case _:
                super().handle(message)

    async def finish(self, n):
        """The agent needs to do nothing more about the item."""
        self.done.add(n)
        for waiting, reply in self.waiting_for:
            if waiting == n:
                reply.send(None)


async def status(caller, params):
    return {"caller": caller.type, "channelId": caller.channel_id, "name": caller.grant.name}


async def refuse(caller, params):
    raise BadParams("x: found 1, allowed: 2")


async def lack(caller, params):
    raise NotFound('taskId: there is no task "x"')


async def fail(caller, params):
    raise ZeroDivisionError("secret detail")


class Clock:
    """A wall clock that tests move."""

    def __init__(self):
        self.now = 1_772_020_800_000

    def __call__(self):
        return self.now


class World:
    """A running server. `client` is an HTTP client without rights; `owner` shows the token of the home."""

    def __init__(self, supervisor, journal, services, port, withdrawn):
        self.supervisor = supervisor
        self.journal = journal
        self.services = services
        self.sessions = services.sessions
        self.tokens = services.gateway_config.now.tokens
        self.port = port
        self.withdrawn = withdrawn
        """Messages whose senders have gone."""
        self.url = f"http://127.0.0.1:{port}"

    def client(self, token=None, **headers):
        fields = {"authorization": f"Bearer {token}"} if token else {}
        certificates = False  # none are used, and reading them takes longer than most requests
        return httpx.AsyncClient(base_url=self.url, headers={**fields, **headers}, timeout=20, verify=certificates)

    def owner(self, **headers):
        return self.client(TOKEN, **headers)

    @property
    def origin(self):
        return self.url

    async def say(self, channel, text, **fields):
        message = self.journal.post(channel, text, **fields)
        await self.supervisor.ref("gateway").tell(DeliverReply(message))
        return message

    @asynccontextmanager
    async def raw(self):
        """A TCP connection to the server."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        async with stream:
            yield stream

    @asynccontextmanager
    async def socket(self, *headers):
        """A WebSocket on /ws."""
        url = f"ws://127.0.0.1:{self.port}/ws"
        async with open_websocket_url(url, subprotocols=["pegasus.v1"], extra_headers=list(headers)) as socket:
            try:
                yield socket
            finally:
                if socket.closed:  # trio-websocket leaves the stream open when the other side closed first
                    await socket._stream.aclose()


HANDSHAKE = (
    "GET /ws HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
)


async def exchange(there, request):
    """Status and body of the answer to raw bytes."""
    async with there.raw() as stream:
        await stream.send_all(request.encode("latin-1"))
        received = h11.Connection(h11.CLIENT)
        received.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
        received.send(h11.EndOfMessage())
        response, body = None, b""
        with trio.fail_after(20):
            while not isinstance(event := received.next_event(), h11.EndOfMessage | h11.ConnectionClosed):
                match event:
                    case h11.NEED_DATA:
                        received.receive_data(await stream.receive_some(65536))
                    case h11.Response():
                        response = event
                    case h11.Data():
                        body += bytes(event.data)
        return response.status_code, body


async def read_all(stream):
    """Everything until the server closes."""
    data = b""
    with trio.fail_after(20):
        while part := await stream.receive_some(65536):
            data += part
    return data


async def ask(socket, **frame):
    await socket.send_message(json.dumps(frame))
    with trio.fail_after(20):
        return json.loads(await socket.get_message())


class Recorder:
    """A method that notes its params, and answers with them."""

    def __init__(self, error=None):
        self.calls = []
        self.error = error

    async def __call__(self, caller, params):
        self.calls.append(params)
        if self.error is not None:
            raise self.error
        return {"params": dict(params)}


METHODS = {"status": status, "tree": status, "refuse": refuse, "lack": lack, "fail": fail}


@asynccontextmanager
async def world(
    *,
    methods=None,
    journal=None,
    clock=None,
    health=None,
    receivers=None,
    hooks=None,
    gateway=None,
    access=None,
    used=None,
    owners=("api:*",),
    **config,
):
    journal = journal or Journal()
    clock = clock or Clock()
    listeners = await open_listeners("127.0.0.1", 0)
    http = await open_listeners("127.0.0.1", 0)
    withdrawn = []
    table = {**METHODS, **(methods or {})}
    may_serve = trio.Event()
    may_serve.set()
    try:
        async with open_supervisor([Child("journal", journal.run, mailbox=Mailbox(1024))]) as supervisor:
            ref = supervisor.ref("journal")
            tokens = TokenBook()
            await tokens.load(ref, clock)
            values = {"read_methods": {"status", "tree"}, "agent": "Peggy", **(gateway or {})}
            gateway_config = LiveValue(GatewayConfig(token=TOKEN, tokens=tokens, **values))
            sessions = WebSessions(gateway_config)
            await sessions.load(ref, clock)
            deliveries = HookDeliveries()
            await deliveries.load(ref, clock)
            intake = Intake(ref, LiveValue(Access(access or {})), LiveValue(owners))
            said = Listeners()
            recent = RecentEvents(clock())
            port = http[0].socket.getsockname()[1]
            services = WebServices(
                config=LiveValue(HttpConfig(port=port, **config)),
                gateway_config=gateway_config,
                gateway=supervisor.ref("gateway"),
                intake=intake,
                listeners=said,
                methods=table,
                sessions=sessions,
                deliveries=deliveries,
                tasks=supervisor.ref("tasks"),
                bus=supervisor.ref("bus"),
                recent=recent,
                tree_events=supervisor.events,
                hooks=LiveValue(hooks or {}),
                receivers=receivers or {},
                withdraw=withdrawn.append,
                item_usage=lambda n: (used or {}).get(n, Usage()),
                clock=clock,
                may_serve=may_serve,
                health=health or (lambda: {"ready": True, "down": [], "parked": []}),
            )
            push = PushServices(
                book=PushBook(sessions, ref),
                journal=ref,
                listeners=said,
                open_notices=trio.sleep_forever,
                owners=LiveValue(owners),
                settings=LiveValue(PushSettings(allowed_hosts=("127.0.0.1",))),
                contact=str,
                agent=str,
                clean=str,
                key_file=Path("/nowhere/push.key"),
                clock=clock,
                random=Random(1),
            )
            serve = partial(run_http, doors=lambda conversations: push_operations(push))
            await supervisor.start_child(Child("http", serve, services, http))
            args = (gateway_config, intake, listeners, table, None, None, said)
            await supervisor.start_child(Child("gateway", run_gateway, *args, mailbox=Mailbox(1024)))
            yield World(supervisor, journal, services, port, withdrawn)
    finally:
        for listener in [*listeners, *http]:
            await listener.aclose()
