"""Delivery of what comes from the agent: the hub frames it and gives it to the feeds of the clients that it is for.

A reply goes to all clients that greeted with its exact address. If there are none it goes to the bridges of its
channel type. Dictionaries make this cost the same with one client and with thousands. The hub never waits for a client, so
one that is slow delays nobody.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeAlias

import attrs
import trio

from actors import Ref
from pegasus.gateway.listeners import Listeners
from pegasus.gateway.reply_feed import ReplyFeed, Routes
from pegasus.gateway.send_queue import SendQueue
from pegasus.messages import ApprovalNotice, OutboundMessage, Progress, TaskProgress, Typing
from pegasus.observe import get_logger
from pegasus.policy import OWNER_GRANT, TokenGrant
from pegasus.protocol import HelloFrame, encode_frame
from pegasus.settings import InForce
from pegasus.storage import Connected, Disconnected, JournalMessage

OpenTasks: TypeAlias = Callable[[], Awaitable[Sequence[TaskProgress]]]
"""Returns the present state of all unfinished tasks, () if the task system does not answer. Raises nothing."""

OpenApprovals: TypeAlias = Callable[[], Awaitable[Sequence[ApprovalNotice]]]
"""Returns the calls that wait for an owner, () if that cannot be told now. Raises nothing."""

_log = get_logger("gateway")


async def _no_tasks() -> Sequence[TaskProgress]:
    """Return no tasks: there is no task system."""
    return ()


async def _no_approvals() -> Sequence[ApprovalNotice]:
    """Return no approvals: nobody is asked."""
    return ()


class Hub:
    """The feeds of all greeted clients; one hub for each run of the gateway.

    After a crash of the gateway a new hub begins empty, and fills as the clients connect again. Nothing is lost by that: what
    was pushed and not acknowledged is read from the journal when its client greets.
    """

    def __init__(
        self,
        journal: Ref[JournalMessage],
        open_tasks: OpenTasks | None = None,
        open_approvals: OpenApprovals | None = None,
        owners: InForce[Collection[str]] = InForce(()),
        listeners: Listeners | None = None,
    ) -> None:
        """Prepare.

        listeners: readers within the process; None: there are none.

        open_tasks: returns the unfinished tasks of all conversations; None: there are none. open_approvals: returns the calls that
        wait for an owner; None: nobody is asked. owners: the setting `agent.owners`.
        """
        self._journal = journal
        self._routes = Routes()
        self._open_tasks = open_tasks or _no_tasks
        self._open_approvals = open_approvals or _no_approvals
        self._owners = owners
        self._listeners = listeners or Listeners()

    async def join(self, hello: HelloFrame, queue: SendQueue, grant: TokenGrant = OWNER_GRANT) -> ReplyFeed:
        """Return a new feed for a client that has greeted. From now on it is given what is for its channel.

        grant: rights of its token. A client that may not get replies only makes calls.

        The journal gets Connected, so that the agent may write to the channel, unless the client only makes calls.
        Raises ActorError. Cancelled, nobody has joined.
        """
        hello = hello if grant.hears else attrs.evolve(hello, calls_only=True)
        if not hello.calls_only:
            await self._journal.tell(Connected(hello.channel.type, hello.channel.channel_id))
        feed = ReplyFeed(hello, queue, self._journal, self._routes, grant)
        if grant.hears:
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

    def deliver(self, reply: OutboundMessage) -> None:
        """Hand a reply to the clients of its address, or the bridges of its type. For the others it waits in the outbox."""
        frame = encode_frame(reply)
        self._listeners.publish(reply)
        for feed in self._routes.recipients(reply.channel.type, reply.channel.channel_id):
            feed.deliver(reply.channel.channel_id, reply.seq, frame)

    def typing(self, typing: Typing) -> None:
        """Announce that the agent thinks, or has stopped thinking. The end of a turn follows the replies it gave."""
        frame = encode_frame(attrs.evolve(typing, after=0))
        self._listeners.publish(typing)
        for feed in self._routes.recipients(typing.channel.type, typing.channel.channel_id):
            feed.send_behind(typing.channel.channel_id, typing.after, frame)

    def progress(self, draft: Progress) -> None:
        """Show a reply while it is written."""
        frame = encode_frame(draft)
        self._listeners.publish(draft)
        for feed in self._routes.recipients(draft.channel.type, draft.channel.channel_id):
            feed.send_draft(draft.channel.channel_id, frame, is_withdrawal=draft.is_withdrawal)

    def task(self, task: TaskProgress) -> None:
        """Show what a task is doing."""
        frame = encode_frame(task)
        for feed in self._routes.recipients(task.channel.type, task.channel.channel_id):
            feed.show_state(task.task_id, frame)

    def approval(self, notice: ApprovalNotice) -> None:
        """Show owners a call that waits for them, or what became of it."""
        frame = encode_frame(notice)
        self._listeners.publish(notice)
        for feed in self._routes.all():
            if feed.is_owners(self._owners.now):
                feed.show_state(_approval_name(notice), frame)

    async def show_what_is_open(self, feed: ReplyFeed) -> None:
        """Show a client that was welcomed the unfinished tasks of its conversations, and an owner the approvals.

        A state that was pushed meanwhile is newer.
        """
        if feed.is_owners(self._owners.now):
            for notice in await self._open_approvals():
                feed.show_state(_approval_name(notice), encode_frame(notice), is_old=True)
        tasks = await self._open_tasks()
        for task in tasks:
            if feed in self._routes.recipients(task.channel.type, task.channel.channel_id):
                feed.show_state(task.task_id, encode_frame(task), is_old=True)
        feed.states_shown()

    def catch_up(self) -> None:
        """Have every feed read the journal: some replies were not handed over."""
        for feed in self._routes.all():
            feed.catch_up()


def _approval_name(notice: ApprovalNotice) -> str:
    """Return the name of an approval among the states that are shown. No task has such an id."""
    return f"approval {notice.id}"
