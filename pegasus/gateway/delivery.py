"""Delivery of what comes from the agent: `Hub` gives it to its clients, and to `Listeners` within the process.

**Clients.** A reply goes, as a frame, to the feeds of all clients that greeted with its exact address. If there are none it goes to
the bridges of its channel type. Dictionaries make this cost the same with one client and with thousands. The hub never waits for a
client, so one that is slow delays nobody.

**Listeners** are readers within the process, such as the HTTP API. One listens to an address, or follows approvals. It is no
recipient: replies still go to the clients and bridges of the address, and nothing is acknowledged by listening. Nothing that is
published waits for a reader. One that is behind by MAX_BEHIND gets `MessagesMissed`, and asks the journal.
The object outlives restarts of the gateway; what the agent says while the gateway is down reaches nobody here, so a reader also
asks the journal now and then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

import attrs
import trio

from actors import ActorError, Ref
from pegasus.access import OWNER_GRANT, TokenGrant
from pegasus.gateway.config import Caller, Params, notice_for
from pegasus.gateway.reply_feed import ReplyFeed, Routes
from pegasus.gateway.send_queue import SendQueue
from pegasus.messages import (
    Address,
    ApprovalNotice,
    FileEdit,
    Json,
    OutboundMessage,
    ReplyDraft,
    Said,
    TaskProgress,
    Typing,
)
from pegasus.observe import get_logger
from pegasus.protocol import HelloFrame, encode_frame
from pegasus.settings import LiveValue
from pegasus.storage import Connected, Disconnected, JournalMessage, StorageError, load_files
from pegasus.wire import to_wire

MAX_BEHIND: Final = 100
"""Messages that wait for a reader."""

ClientUpdate: TypeAlias = OutboundMessage | ReplyDraft | Typing

OpenTasks: TypeAlias = Callable[[], Awaitable[Sequence[TaskProgress]]]
"""Returns the present state of all unfinished tasks, () if the task system does not answer. Raises nothing."""

OpenApprovals: TypeAlias = Callable[[], Awaitable[Sequence[ApprovalNotice]]]
"""Returns the calls that wait for an owner, () if that cannot be told now. Raises nothing."""

_log = get_logger("gateway")


class MessagesMissed:
    """Note in place of messages that a reader has missed."""


Heard: TypeAlias = ClientUpdate | ApprovalNotice | MessagesMissed


class Listeners:
    """Readers by address. One writer, the gateway; any number of readers.

    Example::

        with listeners.listen(Address("api", "main")) as said:
            async for message in said: ...
    """

    def __init__(self) -> None:
        self._readers: dict[Address | None, dict[trio.MemorySendChannel[Heard], None]] = {}
        """By address; those of approvals by None."""

    @contextmanager
    def listen(self, address: Address | None) -> Iterator[trio.MemoryReceiveChannel[Heard]]:
        """Yield a channel with the messages to this address from now on; None: with the approvals that are new or answered."""
        sender, receiver = trio.open_memory_channel[Heard](MAX_BEHIND)
        readers = self._readers.setdefault(address, {})
        readers[sender] = None
        try:
            yield receiver
        finally:
            del readers[sender]
            if not readers and self._readers.get(address) is readers:
                del self._readers[address]
            sender.close()
            receiver.close()

    def publish(self, message: ClientUpdate | ApprovalNotice) -> None:
        """Give a message to its readers. Never waits."""
        key = None if isinstance(message, ApprovalNotice) else message.channel.address
        for sender in self._readers.get(key, ()):
            if sender.statistics().current_buffer_used < MAX_BEHIND - 1:
                sender.send_nowait(message)
            elif sender.statistics().current_buffer_used < MAX_BEHIND:
                sender.send_nowait(MessagesMissed())


@attrs.define(eq=False, repr=False)
class Hub:
    """The feeds of all greeted clients; one hub for each run of the gateway.

    After a crash of the gateway a new hub begins empty, and fills as the clients connect again. Nothing is lost by that: what
    was pushed and not acknowledged is read from the journal when its client greets.
    """

    _journal: Ref[JournalMessage]
    _open_tasks: OpenTasks | None = None
    """Returns the unfinished tasks of all conversations; None: there are none."""
    _open_approvals: OpenApprovals | None = None
    """Returns the calls that wait for an owner; None: nobody is asked."""
    _owners: LiveValue[Collection[str]] = attrs.field(factory=lambda: LiveValue(()))
    """The setting `agent.owners`."""
    _listeners: Listeners = attrs.field(factory=Listeners)
    """Readers within the process."""
    _routes: Routes = attrs.field(init=False, factory=Routes)

    async def join(
        self, hello: HelloFrame, queue: SendQueue, grant: TokenGrant = OWNER_GRANT, sent: Collection[str] = ()
    ) -> ReplyFeed:
        """Return a new feed for a client that has greeted. From now on it is given what is for its channel.

        grant: rights of its token. A client that may not get replies only makes calls. sent: ids of its last messages, which grow.

        The journal gets Connected, so that the agent may write to the channel, unless the client only makes calls.
        Raises ActorError. Cancelled, nobody has joined.
        """
        hello = hello if grant.gets_replies else attrs.evolve(hello, calls_only=True)
        if not hello.calls_only:
            await self._journal.tell(Connected(hello.channel.type, hello.channel.channel_id))
        feed = ReplyFeed(hello, queue, self._journal, self._routes, grant, sent)
        if grant.gets_replies:
            self._routes.add(feed)
        return feed

    async def leave(self, feed: ReplyFeed) -> None:
        """Forget a client that has gone; bridges take over what it did not acknowledge.

        The journal gets Disconnected if it got Connected. That takes a second at most, also when cancelled.
        """
        for bridge in self._routes.remove(feed):
            bridge.catch_up(feed.channel.channel_id)
        if not feed.calls_only:
            with trio.move_on_after(1.0) as scope:
                scope.shield = True
                await self._journal.tell(Disconnected(feed.channel.type, feed.channel.channel_id))

    async def deliver(self, reply: OutboundMessage) -> None:
        """Hand a reply to the clients of its address, or the bridges of its type. For the others it waits in the outbox.

        If its files cannot be read now, the clients' feeds read the reply from the journal again.
        """
        if reply.files:
            try:
                reply = await load_files(reply, self._journal)
            except (ActorError, StorageError) as error:
                _log.error("the files of a reply cannot be read", to=str(reply.channel.address), reason=str(error))
                self.catch_up()
                return
        self._listeners.publish(reply)
        frame = encode_frame(reply)
        for feed in self._routes.recipients(reply.channel.type, reply.channel.channel_id):
            feed.deliver(reply.channel.channel_id, reply.seq, frame)

    def typing(self, typing: Typing) -> None:
        """Announce that the agent thinks, or has stopped thinking. The end of a turn follows the replies it gave."""
        self._listeners.publish(typing)
        frame = encode_frame(Typing(typing.channel, typing.active))
        for feed in self._routes.recipients(typing.channel.type, typing.channel.channel_id):
            feed.send_behind(typing.channel.channel_id, typing.after, frame)

    def progress(self, draft: ReplyDraft) -> None:
        """Show a reply while it is written."""
        self._listeners.publish(draft)
        frame = encode_frame(draft)
        for feed in self._routes.recipients(draft.channel.type, draft.channel.channel_id):
            feed.send_draft(draft.channel.channel_id, frame, is_last=draft.is_last)

    def task(self, task: TaskProgress) -> None:
        """Show what a task is doing."""
        frame = encode_frame(task)
        for feed in self._routes.recipients(task.channel.type, task.channel.channel_id):
            feed.show_state(task.task_id, frame)

    def edit(self, edit: FileEdit) -> None:
        """Show the owners of a conversation what a task has changed in a file."""
        frame = encode_frame(edit)
        for feed in self._routes.recipients(edit.channel.type, edit.channel.channel_id):
            if feed.is_owners(self._owners.now):
                feed.show_said(frame)

    def said(self, said: Said) -> None:
        """Show what was said to the other clients of the conversation, as far as they are an owner's terminals and pages."""
        feeds = self._routes.of_chat(said.chat, said.channel) if said.chat else self._routes.all()
        if hearers := [feed for feed in feeds if feed.hears(said, self._owners.now)]:
            frame = encode_frame(said)
            for feed in hearers:
                feed.show_said(frame)

    def approval(self, notice: ApprovalNotice) -> None:
        """Show owners a call that waits for them, or what became of it."""
        self._listeners.publish(notice)
        # One frame for each kind of reader, since there may be many of them, and arguments may be long.
        frames = [encode_frame(notice_for(notice, is_own_door=is_own_door)) for is_own_door in (False, True)]
        for feed in self._routes.all():
            if feed.is_owners(self._owners.now):
                feed.show_state(_approval_name(notice), frames[feed.has_own_door])

    async def show_what_is_open(self, feed: ReplyFeed) -> None:
        """Show a client that was welcomed the unfinished tasks of its conversations, and an owner the approvals.

        A state that was pushed meanwhile is newer.
        """
        if self._open_approvals is not None and feed.is_owners(self._owners.now):
            for notice in await self._open_approvals():
                frame = encode_frame(notice_for(notice, is_own_door=feed.has_own_door))
                feed.show_state(_approval_name(notice), frame, is_old=True)
        for task in await self._open_tasks() if self._open_tasks is not None else ():
            if feed in self._routes.recipients(task.channel.type, task.channel.channel_id):
                feed.show_state(task.task_id, encode_frame(task), is_old=True)
        feed.states_shown()

    async def list_clients(self, caller: Caller, params: Params) -> Json:
        """Return the conversations of the clients that are connected, without bridges and programs that only make calls: `clients`."""
        await trio.lowlevel.checkpoint()
        channels = [feed.channel.info for feed in self._routes.all() if not feed.calls_only]
        return {"clients": [to_wire(channel.address) for channel in channels if channel is not None]}

    def catch_up(self) -> None:
        """Have every feed read the journal: some replies were not handed over."""
        for feed in self._routes.all():
            feed.catch_up()


def _approval_name(notice: ApprovalNotice) -> str:
    """Return the name of an approval among the states that are shown. No task has such an id."""
    return f"approval {notice.id}"
