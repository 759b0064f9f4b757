"""`Pusher`: tells each browser what nobody has seen.

Nothing is put into a queue here. For each subscription the pusher compares what the journal and the approvals hold with what the row
says that its browser was told, and sends what is missing:

* replies of its conversation that nobody has acknowledged. A page acknowledges when somebody has it in front of them, so what was seen
  on any screen is not sent. All that wait are one message, about the newest;
* to owners, approvals that wait and that no page has shown to an owner;
* for an approval that its browser was asked about and that waits no more, what takes the place of the question.

So a crash loses nothing: the next start compares again. What the push service had taken just before, and the row does not say yet, is
sent once more, and replaces itself on the screen. What was seen or answered while the service was out of reach is not sent at all.

Each message waits for GRACE seconds: a page that is open says within that time that it has shown it. A push service that fails is
asked again with growing pauses, or when it says.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from actors import ActorError, Signal
from pegasus.access import CONTROL, MESSAGE, TokenGrant
from pegasus.channels import MOST_REPLIES
from pegasus.host import HomeError
from pegasus.messages import Address, ApprovalNotice, ChannelInfo
from pegasus.observe import get_logger
from pegasus.push.config import PushServices, channel_of
from pegasus.push.keys import VapidKey, ensure_key
from pegasus.push.notices import PushNotice, answered_notice, approval_notice, reply_notice
from pegasus.push.sending import PushResult, PushState, send_push
from pegasus.push.subscriptions import JOURNAL_TIMEOUT, PushSubscription
from pegasus.retry import Pauses, retry
from pegasus.storage import OpenReplies, Posted, StorageError
from pegasus.tools import AddressGuard

GRACE: Final = 2.0
"""Seconds in which a page that somebody looks at says that it has shown something."""
LOOK_AGAIN: Final = 300.0
"""Seconds after which a subscription is looked at without a sign: what is said while the gateway is down gives none."""
FIRST_PAUSE: Final = 5.0
"""Seconds after the first failure of a push service."""
LONGEST_PAUSE: Final = 900.0
"""Seconds after many failures in a row."""
GIVE_UP_AFTER: Final = 3 * 86_400.0
"""Seconds of failures alone after which a subscription is forgotten. The page makes another one when it is opened."""
MOST_FIRST: Final = 2000
"""Things to tell whose beginning is remembered."""
MOST_ENDS: Final = 200
"""Approvals whose answer is remembered, for the words of the notification."""

_log = get_logger("push")


class Pusher:
    """The subscriptions that are served, each by a task of its own: a push service that hangs holds up no other browser."""

    def __init__(self, services: PushServices) -> None:
        self._services = services
        self._key: VapidKey | None = None
        self._first: dict[str, float] = {}
        """Time at which each thing to tell was first found, by its name. Trio's clock."""
        self._ends: dict[str, str] = {}
        """States of the approvals that were answered since the start, by id."""
        self._served: set[str] = set()

    async def run(self) -> None:
        """Notify browsers until cancelled."""
        book = self._services.book
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._note_ends)
            while True:
                seen = book.changed.count
                for id in book.rows.keys() - self._served:
                    self._served.add(id)
                    nursery.start_soon(self._serve, id)
                await book.changed.wait(seen)

    async def _note_ends(self) -> None:
        """Remember what became of approvals."""
        with self._services.listeners.listen(None) as notices:
            async for notice in notices:
                if isinstance(notice, ApprovalNotice) and notice.state != "open":
                    self._ends[notice.id] = notice.state
                    if len(self._ends) > MOST_ENDS:
                        del self._ends[next(iter(self._ends))]

    async def _serve(self, id: str) -> None:
        """Tell one browser what there is to tell, until its subscription ends."""
        try:
            wake = Signal()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._wake_on, self._services.book.changed, wake)
                nursery.start_soon(self._wake_on_notice, None, wake)
                await self._tell(id, wake, nursery)
                nursery.cancel_scope.cancel()
        finally:
            self._served.discard(id)
            self._services.book.changed.notify()  # the browser may have subscribed again meanwhile

    async def _wake_on(self, changed: Signal, wake: Signal) -> None:
        seen = changed.count
        while True:
            await changed.wait(seen)
            seen = changed.count
            wake.notify()

    async def _wake_on_notice(self, address: Address | None, wake: Signal) -> None:
        with self._services.listeners.listen(address) as heard:
            async for _ in heard:
                wake.notify()

    async def _tell(self, id: str, wake: Signal, nursery: trio.Nursery) -> None:
        """Do the work of `_serve`. nursery: of the tasks that wake it."""
        book = self._services.book
        pauses, failing_since = Pauses(FIRST_PAUSE, LONGEST_PAUSE, self._services.random), math.inf
        heard: Address | None = None
        while (row := book.rows.get(id)) is not None:
            seen = wake.count
            try:
                grant = await book.grant_of(row)
                if grant is None or not grant.allows(MESSAGE):
                    _log.info("a browser is notified no more: it is signed out", id=id)
                    await book.remove(id)
                    return
                channel = channel_of(grant)
                if heard != channel.address:
                    heard = channel.address
                    nursery.start_soon(self._wake_on_notice, heard, wake)
                notice, told, due = await self._next(row, grant, channel)
                if notice is None:
                    with trio.move_on_after(max(0.05, min(self._services.look, due - trio.current_time()))):
                        await wake.wait(seen)
                    continue
                result = await self._send(row, notice)
                if result.state is PushState.GONE:
                    _log.info("a browser is notified no more: its subscription is gone", id=id, reason=result.reason)
                    await book.remove(id)
                    return
                if result.state is not PushState.LATER:
                    if result.state is PushState.REFUSED:
                        _log.warning("a push service has refused a message", id=id, reason=result.reason)
                    await retry(told, (StorageError, ActorError))  # what is known to be told is not told again
                    pauses.reset()
                    failing_since = math.inf
                    continue
                failing_since = min(failing_since, trio.current_time())
                if trio.current_time() - failing_since > GIVE_UP_AFTER:
                    _log.warning("a browser is notified no more: its push service fails", id=id, reason=result.reason)
                    await book.remove(id)
                    return
                seconds = max(pauses.next(), result.after)
                _log.info("a push service is tried again", id=id, seconds=round(seconds), reason=result.reason)
            except (StorageError, ActorError, HomeError) as error:
                seconds = pauses.next()
                _log.warning("a browser cannot be notified now", id=id, seconds=round(seconds), reason=str(error))
            await trio.sleep(seconds)

    async def _next(
        self, row: PushSubscription, grant: TokenGrant, channel: ChannelInfo
    ) -> tuple[PushNotice | None, Callable[[], Awaitable[None]], float]:
        """Return what is to be sent, how to note that it was, and when to look again if there is nothing."""
        services, book = self._services, self._services.book
        agent, due = services.agent(), trio.current_time() + LOOK_AGAIN
        notices = await services.open_notices() if grant.is_owner(channel, services.owners.now) else ()
        for id in row.approvals if notices is not None else ():
            if id not in {notice.id for notice in notices or ()}:
                # What became of it is announced a moment after it waits no more; of a time before the start it is not known.
                if id not in self._ends and (when := self._due(f"end of {id}")) > trio.current_time():
                    due = min(due, when)
                    continue
                rest = tuple(other for other in row.approvals if other != id)
                return (
                    answered_notice(agent, id, self._ends.get(id, "")),
                    partial(book.note, row.id, approvals=rest),
                    due,
                )
        for notice in notices or ():
            if notice.id in row.approvals or book.is_seen(notice.id):
                continue
            if (when := self._due(notice.id)) > trio.current_time():
                due = min(due, when)
                continue
            told = (*row.approvals, notice.id)
            message = approval_notice(
                agent,
                notice,
                with_text=row.text,
                may_decide=grant.allows(CONTROL),
                now=services.clock(),
                clean=services.clean,
            )
            return message, partial(book.note, row.id, approvals=told), due
        ask = partial(services.journal.ask, timeout=JOURNAL_TIMEOUT)
        waiting = await ask(OpenReplies, channel.address, MOST_REPLIES) if row.about == "all" else ()
        if unseen := [reply for reply in waiting if reply.seq > row.replies]:
            last = unseen[-1]
            if (when := self._due(f"{channel.address} {last.seq}")) > trio.current_time():
                due = min(due, when)
            elif (reply := (await ask(Posted, (last.key,)))[0]) is not None:
                message = reply_notice(agent, reply, len(unseen) - 1, with_text=row.text)
                return message, partial(book.note, row.id, replies=last.seq), due
        return None, trio.lowlevel.checkpoint, due

    def _due(self, name: str) -> float:
        """Return when something may be told."""
        if len(self._first) > MOST_FIRST:  # of what was told long ago
            del self._first[next(iter(self._first))]
        return self._first.setdefault(name, trio.current_time()) + GRACE

    async def _send(self, row: PushSubscription, notice: PushNotice) -> PushResult:
        services = self._services
        if self._key is None:
            self._key = await trio.to_thread.run_sync(ensure_key, services.key_file)
        guard = AddressGuard(services.settings.now.allowed_hosts)
        return await send_push(row, notice, self._key, guard, services.clock(), services.contact())
