"""Conversations of programs that come without a WebSocket: a message, the end of its turn, and the replies.

A turn ends when the agent needs to do nothing more about the message (`ItemDone` of the journal), with replies or in silence. The
replies of the turn are those to the same address that were numbered since the message was taken. Messages of one conversation are
handled in order, so that while one waits the replies to those before it come: each of these has a request of its own, or they are
part of the answer. What is said to a later message before the turn ends is part of it as well: the turn has taken that message along.

Replies that a response has carried are acknowledged, so that the agent does not keep them for a client that will never ask. A response
may get lost, and the client then repeats its request with the same id: so the last turns are remembered, in memory only.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Final

import attrs
import trio

from actors import ActorError, Ref
from pegasus.gateway import Behind, Listeners, Said
from pegasus.intake import JOURNAL_TIMEOUT, Denied, Intake, InvalidMessage, TooManyMessages
from pegasus.messages import Address, ApprovalNotice, InboundMessage, OutboundMessage, Progress, Typing
from pegasus.policy import TokenGrant
from pegasus.storage import (
    Accepted,
    Acknowledge,
    ItemDone,
    JournalMessage,
    LastSeq,
    Overloaded,
    StorageError,
    Unacknowledged,
    load_files,
)
from pegasus.web.errors import ApiError

API: Final = "api"
"""Channel type of programs."""
MOST_TURNS: Final = 500
"""Turns that are remembered for clients that repeat a request."""
MOST_ADDRESSES: Final = 200
"""Conversations whose last replies are remembered."""
REMEMBERED: Final = 20
"""Replies of one conversation that are."""
ON_THE_WAY: Final = 1.0
"""Seconds that replies of an ended turn are waited for; afterwards they are read from the journal."""
RETRY: Final = 0.2
"""Seconds before the journal is asked again after it was restarted."""
MOST_BYTES: Final = 32 << 20
"""Bytes of the files of the replies in one response, or a little more."""
CHECK: Final = 10.0
"""Seconds after which a long poll looks into the journal, whatever it has heard."""


@attrs.frozen
class HttpTurn:
    """A message and what came of it."""

    item: int
    """Number of the message in the queue."""
    replies: tuple[OutboundMessage, ...]
    """In the order of their numbers."""
    is_done: bool
    """The turn has ended. If not, the time was over before."""


OnSaid = Callable[[Said], Awaitable[None]]
"""Takes a draft or a reply as it comes. It is not cancelled when the turn ends."""


class _TurnEnded:
    """Mark of the end of the turn among what is said."""


class Conversations:
    """Messages through HTTP; one object for each run of the server.

    Example::

        turn = await conversations.converse(message, grant, seconds=30)
        [reply.text for reply in turn.replies], turn.is_done
    """

    def __init__(self, intake: Intake, listeners: Listeners) -> None:
        self._intake = intake
        self._listeners = listeners
        self._journal: Ref[JournalMessage] = intake.journal
        self._turns: OrderedDict[tuple[Address, str], HttpTurn] = OrderedDict()
        """Ended turns by conversation and id of the message, the oldest first."""
        self._begun: OrderedDict[tuple[Address, str], int] = OrderedDict()
        """The number of the last reply before each turn, by conversation and id of the message."""
        self._items: OrderedDict[tuple[Address, str], int] = OrderedDict()
        """Numbers of messages whose requests wait for their replies, or have had them, by conversation and id."""
        self._replies: OrderedDict[Address, deque[OutboundMessage]] = OrderedDict()
        """Replies that were acknowledged by a response."""

    async def submit(self, message: InboundMessage, grant: TokenGrant) -> Accepted:
        """Return when the message is on disk. Raises ApiError, ActorError and StorageError."""
        is_vouched = grant.vouches_for(message.channel.type)
        try:
            answer = await self._intake.send(message, is_vouched=is_vouched, is_bridge=False)
            result = await answer.get(JOURNAL_TIMEOUT)
        except InvalidMessage as error:
            raise ApiError(400, "bad_request", str(error)) from None
        except Denied as error:
            raise ApiError(403, "forbidden", f"not accepted: {error}") from None
        except TooManyMessages as error:
            raise ApiError(429, "overloaded", f"not accepted: {error}") from None
        if isinstance(result, Overloaded):
            whose = "of yours " if result.of_sender else ""
            waiting = f"not accepted: {result.waiting} messages {whose}are waiting already; send it again later"
            raise ApiError(429, "overloaded", waiting)
        return result

    async def converse(
        self, message: InboundMessage, grant: TokenGrant, seconds: float, on_said: OnSaid | None = None
    ) -> HttpTurn:
        """Send a message; return when its turn has ended, or after so many seconds. on_said: takes what is said meanwhile.

        The message goes on being handled when the time is over, and when this is cancelled. Raises as `submit`.
        """
        address = message.channel.address
        with self._listeners.listen(address) as said:
            before = await self._last_seq(address)
            accepted = await self.submit(message, grant)
            key = (address, message.id)
            known = self._turns.get(key)
            if accepted.duplicate and known is not None:
                known = attrs.evolve(known, replies=await self._load(known.replies))
                if on_said is not None:
                    for reply in known.replies:
                        await on_said(reply)
                return known
            before = self._begun.setdefault(key, before)  # a repeated request also gets what came before it
            if len(self._begun) > MOST_TURNS:
                self._begun.popitem(last=False)
            self._items[key] = accepted.n
            if len(self._items) > MOST_TURNS:
                self._items.popitem(last=False)
            turn = None
            try:
                turn = await self._follow(accepted.n, address, before, said, trio.current_time() + seconds, on_said)
            finally:
                if turn is None or not turn.is_done:  # its replies are for whoever asks
                    self._items.pop(key, None)
        if turn.is_done:
            self._remember(address, message.id, turn)
        return turn

    async def _follow(
        self,
        n: int,
        address: Address,
        before: int,
        said: trio.MemoryReceiveChannel[Said | ApprovalNotice | Behind],
        deadline: float,
        on_said: OnSaid | None,
    ) -> HttpTurn:
        """Gather the replies after the number `before` until the item is done, or until the deadline."""
        replies: dict[int, OutboundMessage] = {}
        of_others: set[int] = set()
        """Numbers of replies that other requests have."""

        async def take(message: object) -> None:
            if isinstance(message, OutboundMessage):
                if message.seq <= before or message.seq in replies:
                    return
                if self._item_of(message) < n:
                    of_others.add(message.seq)
                    return
                replies[message.seq] = message
            if isinstance(message, Progress) and 0 < message.item < n:
                return
            if on_said is not None and isinstance(message, OutboundMessage | Progress | Typing):
                await on_said(message)

        sender, news = trio.open_memory_channel[object](0)
        is_done = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_copy, said, sender)
            nursery.start_soon(self._wait_for_item, n, sender)
            while not is_done and (message := await _receive_until(news, deadline)) is not None:
                is_done = isinstance(message, _TurnEnded)
                await take(message)
            last = await self._last_seq(address) if is_done else before
            until = trio.current_time() + ON_THE_WAY
            while (
                len(replies) + len(of_others) < last - before
                and (message := await _receive_until(news, until)) is not None
            ):
                await take(message)
            nursery.cancel_scope.cancel()
        if len(replies) + len(of_others) < last - before:
            for reply in await self._unacknowledged(address, 0):
                if before < reply.seq <= last and reply.seq not in replies:
                    await take(await load_files(reply, self._journal))
        return HttpTurn(n, tuple(replies[seq] for seq in sorted(replies)), is_done)

    def _item_of(self, reply: OutboundMessage) -> float:
        """Return the number of the message that a reply answers, infinity if no request waits or has waited for it."""
        return self._items.get((reply.channel.address, str(reply.metadata.get("inReplyTo"))), math.inf)

    async def _wait_for_item(self, n: int, sender: trio.MemorySendChannel[object]) -> None:
        """Send the end of the turn when the item is done. A journal that is being restarted is asked again."""
        while True:
            try:
                await self._journal.ask(ItemDone, n)
            except (ActorError, StorageError):
                await trio.sleep(RETRY)
            else:
                await sender.send(_TurnEnded())
                return

    def _remember(self, address: Address, id: str, turn: HttpTurn) -> None:
        turn = attrs.evolve(turn, replies=tuple(attrs.evolve(reply, media=()) for reply in turn.replies))
        self._turns[address, id] = turn
        if len(self._turns) > MOST_TURNS:
            self._turns.popitem(last=False)
        self._replies.setdefault(address, deque(maxlen=REMEMBERED)).extend(turn.replies)
        self._replies.move_to_end(address)
        if len(self._replies) > MOST_ADDRESSES:
            self._replies.popitem(last=False)

    async def acknowledge(self, address: Address, seq: int) -> None:
        """Note that a client has all replies up to this number. Raises ActorError."""
        await self._journal.tell(Acknowledge(address, seq))

    # ---------------------------------------------------------------- replies

    async def replies_after(self, address: Address, after: int, seconds: float) -> Sequence[OutboundMessage]:
        """Return the replies with larger numbers that are still known; wait for one if there is none.

        Those behind MOST_BYTES of files are left for the next request. Raises ActorError, StorageError.
        """
        deadline = trio.current_time() + seconds
        with self._listeners.listen(address) as said:
            while True:
                found = {reply.seq: reply for reply in self._replies.get(address, ()) if reply.seq > after}
                found |= {reply.seq: reply for reply in await self._unacknowledged(address, after)}
                if found or trio.current_time() >= deadline:
                    return await self._load([found[seq] for seq in sorted(found)], MOST_BYTES)
                with trio.move_on_at(min(deadline, trio.current_time() + CHECK)):
                    async for message in said:
                        if isinstance(message, OutboundMessage | Behind):
                            break

    async def _load(self, replies: Sequence[OutboundMessage], most: float = math.inf) -> tuple[OutboundMessage, ...]:
        """Return the replies with their files, but none behind the one at which these reach `most` bytes."""
        loaded, size = [], 0
        for reply in replies:
            loaded.append(await load_files(reply, self._journal))
            size += sum(file.size for file in reply.files)
            if size >= most:
                break
        return tuple(loaded)

    async def _unacknowledged(self, address: Address, after: int) -> Sequence[OutboundMessage]:
        """Return the replies in the outbox with larger numbers. Asks for more and more, because the oldest come first."""
        limit = 200
        while True:
            found = await self._journal.ask(
                Unacknowledged, address.type, address.channel_id, (), limit, timeout=JOURNAL_TIMEOUT
            )
            wanted = [reply for reply in found if reply.seq > after]
            if wanted or len(found) < limit:
                return wanted
            limit *= 4

    async def _last_seq(self, address: Address) -> int:
        return await self._journal.ask(LastSeq, address, timeout=JOURNAL_TIMEOUT)


async def _copy(
    said: trio.MemoryReceiveChannel[Said | ApprovalNotice | Behind], sender: trio.MemorySendChannel[object]
) -> None:
    async for message in said:
        await sender.send(message)


async def _receive_until(news: trio.MemoryReceiveChannel[object], deadline: float) -> object | None:
    """Return the next message, None if there is none at the deadline."""
    with trio.move_on_at(deadline):
        return await news.receive()
    return None


def own_channel_id(grant: TokenGrant, home_token: str) -> str:
    """Return the conversation of a client that names none: that of its token, or one derived from it that does not tell it."""
    if grant.token.channel_id:
        return grant.token.channel_id
    secret = home_token if grant.is_home else grant.token.hash
    return f"token-{sha256(f'api {secret}'.encode()).hexdigest()[:12]}"
