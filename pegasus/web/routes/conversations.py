"""Conversations of programs that come without a WebSocket: a message, the end of its turn, and the replies.

A request waits for the end of a turn (`TurnFollower`). Its message is joined with no other message, whatever `agent.when_busy` says,
since one reply would then answer several.

What the agent says unasked, such as the result of a task, is kept for `replies_after`. A client that has no way of asking for it gets
it with its next answer instead (`wants_unasked`).

Replies that a response has carried are acknowledged, so that the agent does not keep them for a client that will never ask; others
are not, see `AckTracker`. A response may get lost, and the client then repeats its request with the same id: so the last turns are
remembered, in memory only.

An answer that its client may fetch by `replies_after` is kept until it does. Meanwhile the journal keeps all replies behind it, too,
since it is told "everything up to this number". Those that were carried are known in memory only: after a restart, what was said
unasked is given again. docs/http.md says so where messages are explained.
"""

from __future__ import annotations

import math
import secrets
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Final

import attrs
import trio

from actors import ActorError, Ref
from pegasus.access import AccessDenied, TokenGrant
from pegasus.channels import AckTracker, TurnFollower
from pegasus.gateway import ClientUpdate, Listeners, MessagesMissed
from pegasus.intake import JOURNAL_TIMEOUT, Intake, InvalidMessage, TooManyMessages
from pegasus.main_agent import IN_REPLY_TO, OWN_TURN, QUESTION, item_of_key
from pegasus.messages import Address, ApprovalNotice, InboundMessage, OutboundMessage, ReplyDraft
from pegasus.storage import (
    Accepted,
    ItemDone,
    JournalMessage,
    OpenReplies,
    Overloaded,
    Posted,
    StorageError,
    Unacknowledged,
    UnacknowledgedReply,
    load_files,
)
from pegasus.web.visitors import ApiError

API: Final = "api"
"""Channel type of programs."""
MOST_TURNS: Final = 500
"""Turns that are remembered for clients that repeat a request."""
MOST_ADDRESSES: Final = 200
"""Conversations whose last replies are remembered."""
MOST_REMEMBERED: Final = 20
"""Replies of one conversation that are."""
MOST_BYTES: Final = 32 << 20
"""Bytes of the files of the replies in one response, or a little more."""
LOOK_AGAIN: Final = 10.0
"""Seconds after which a long poll looks into the journal, whatever it has heard."""


@attrs.frozen
class HttpTurn:
    """A message and what came of it.

    Example: `HttpTurn(17, (reply,), is_done=True)`, or `HttpTurn(17, (), is_done=False)` for one that still
    works when its time is over.
    """

    item: int
    """Number of the message in the queue."""
    replies: tuple[OutboundMessage, ...]
    """In the order of their numbers."""
    is_done: bool
    """The turn has ended. If not, the time was over before."""


OnSaid = Callable[[OutboundMessage | ReplyDraft], Awaitable[None]]
"""Takes a draft or a reply as it comes. It is not cancelled when the turn ends."""


class _WaitingRequest:
    """A request that waits for the end of a turn, and the replies that it is given."""

    def __init__(
        self,
        address: Address,
        message_id: str,
        on_said: OnSaid | None,
        is_unclaimed: Callable[[OutboundMessage], bool] | None,
    ) -> None:
        """Wait for the turn of a message, without replies yet.

        is_unclaimed: returns whether a reply was said unasked and is given to nobody yet. None: this request gets nothing of the kind.
        """
        self.address = address
        self.message_id = message_id
        self.item = 0
        """Number of the message in the queue, once it is accepted."""
        self.acknowledged_up_to = 0
        """Number up to which all replies of the conversation are acknowledged, as far as is known here."""
        self._on_said = on_said
        self._is_unclaimed = is_unclaimed
        self.unasked: dict[int, OutboundMessage] = {}
        """Replies that were said unasked, by number."""
        self._replies: dict[int, OutboundMessage] = {}
        """Replies to the message, by number."""

    @property
    def wants_unasked(self) -> bool:
        """True if it gets what was said unasked, too."""
        return self._is_unclaimed is not None

    def has(self, seq: int) -> bool:
        """Return whether it has a reply."""
        return seq in self._replies

    def wants(self, reply: OutboundMessage) -> bool:
        """Return whether it is to have a reply, and has not."""
        if item_of_key(reply.key) == self.item:
            return not self.has(reply.seq)
        return self._is_unclaimed is not None and reply.seq > self.acknowledged_up_to and self._is_unclaimed(reply)

    async def take(self, message: object) -> None:
        """Take a reply if it is wanted, and show it or a draft of one to the client. Anything else is left out."""
        if isinstance(message, ReplyDraft):
            if message.item == self.item and self._on_said is not None:
                await self._on_said(message)
        elif isinstance(message, OutboundMessage) and self.wants(message):
            is_own = item_of_key(message.key) == self.item
            (self._replies if is_own else self.unasked)[message.seq] = message
            if self._on_said is not None:
                await self._on_said(message)

    def turn(self, *, is_done: bool) -> HttpTurn:
        """Return what there is, in the order in which it was said."""
        found = self.unasked | self._replies
        return HttpTurn(self.item, tuple(found[seq] for seq in sorted(found)), is_done)


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
        self._replies: OrderedDict[Address, deque[OutboundMessage]] = OrderedDict()
        """Replies that were acknowledged by a response."""
        self._follower = TurnFollower(intake.journal)
        self._taken = AckTracker(intake.journal, partial(intake.journal.ask, OpenReplies))
        self._waiting: dict[_WaitingRequest, None] = {}
        """Requests that wait, in the order in which they came."""

    async def submit(self, message: InboundMessage, grant: TokenGrant) -> Accepted:
        """Return when the message is on disk. Raises ApiError, ActorError and StorageError."""
        try:
            answer = await self._intake.send(message, grant, is_bridge=False)
            result = await answer.get(JOURNAL_TIMEOUT)
        except InvalidMessage as error:
            raise ApiError(400, "bad_request", str(error)) from None
        except AccessDenied as error:
            raise ApiError(403, "forbidden", f"not accepted: {error}") from None
        except TooManyMessages as error:
            raise ApiError(429, "overloaded", f"not accepted: {error}") from None
        if isinstance(result, Overloaded):
            raise ApiError(429, "overloaded", f"not accepted: {result.reason}")
        return result

    async def converse(
        self,
        message: InboundMessage,
        grant: TokenGrant,
        seconds: float,
        on_said: OnSaid | None = None,
        *,
        on_accepted: Callable[[], Awaitable[None]] | None = None,
        wants_unasked: bool = False,
    ) -> HttpTurn:
        """Send a message; return when its turn has ended, or after so many seconds. on_said: takes what is said meanwhile.

        on_accepted: called when the message is on disk. Nothing is said before, and no refusal comes behind it.

        wants_unasked: the turn has what was said unasked as well, before its own replies.

        The message goes on being handled when the time is over, and when this is cancelled. Raises as `submit`.
        """
        address, deadline = message.channel.address, trio.current_time() + seconds
        message = attrs.evolve(message, metadata={**message.metadata, OWN_TURN: True})
        request = _WaitingRequest(address, message.id, on_said, self._is_unclaimed if wants_unasked else None)
        self._waiting[request] = None
        try:
            with self._listeners.listen(address) as messages:
                # Listening has begun before: a reply could otherwise come between the two and be heard by
                # nobody.
                accepted = await self.submit(message, grant)
                if on_accepted is not None:
                    await on_accepted()
                # A repeated request whose turn has ended is answered from memory. If the turn still runs, the
                # request waits for its end like the first one; the journal has joined the two by their id.
                known = self._turns.get((address, message.id))
                if accepted.duplicate and known is not None:
                    known = attrs.evolve(known, replies=await self._load(known.replies))
                    if on_said is not None:
                        for reply in known.replies:
                            await on_said(reply)
                    return known
                request.item = accepted.n
                turn = await self._follow(request, messages, deadline)
                self._taken.add(request.unasked.values())  # at once, so that no other request gets it, too
        finally:
            # However it ends. What it was given unasked and has not carried is free for other requests again.
            del self._waiting[request]
        if turn.is_done:
            self._remember(address, message.id, turn)
        return turn

    async def _follow(
        self,
        request: _WaitingRequest,
        messages: trio.MemoryReceiveChannel[ClientUpdate | ApprovalNotice | MessagesMissed],
        deadline: float,
    ) -> HttpTurn:
        """Gather replies until the item is done, or until the deadline.

        What is said comes by `said`, in most cases. The rest is read from the journal when the item is done. A reply that another
        client of the conversation has acknowledged by then is not found there any more, but has been said before.
        """
        address, n = request.address, request.item
        if request.wants_unasked:
            found = await self._follower.open_replies(address)
            # Its own come in the order of what is said. Those that a response has carried need not be read again.
            others = [each for each in found if item_of_key(each.key) != n and not self._taken.has(address, each.seq)]
            await self._take_posted(request, others)
        ended, receiving = trio.Event(), trio.CancelScope()

        async def wait_for_end() -> None:
            """Ask the journal until the item is done, then end the wait for what is said."""
            await self._follower.ask(ItemDone, n)
            ended.set()
            receiving.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_end)
            while not ended.is_set():
                receiving = trio.CancelScope(deadline=deadline)
                with receiving:
                    message = await messages.receive()
                if receiving.cancelled_caught:
                    break
                await request.take(message)
            nursery.cancel_scope.cancel()
        if not ended.is_set():
            return request.turn(is_done=False)
        found = await self._follower.open_replies(address)
        with suppress(trio.WouldBlock):
            while True:
                await request.take(messages.receive_nowait())
        missing = [each for each in found if item_of_key(each.key) == n and not request.has(each.seq)]
        await self._take_posted(request, missing)
        return request.turn(is_done=True)

    async def _take_posted(self, request: _WaitingRequest, found: Sequence[UnacknowledgedReply]) -> None:
        """Give a request those of these replies that it wants."""
        for reply in await self._follower.load([each.key for each in found], request.wants):
            await request.take(reply)

    def _remember(self, address: Address, id: str, turn: HttpTurn) -> None:
        """Keep a turn that has ended, for a client that repeats its request or asks for the replies again.

        Files are left out: they are on disk, and are loaded again when they are asked for. So the memory of MOST_TURNS turns is
        bounded by their texts.
        """
        turn = attrs.evolve(turn, replies=tuple(attrs.evolve(reply, media=()) for reply in turn.replies))
        self._turns[address, id] = turn
        if len(self._turns) > MOST_TURNS:
            self._turns.popitem(last=False)
        self._replies.setdefault(address, deque(maxlen=MOST_REMEMBERED)).extend(turn.replies)
        self._replies.move_to_end(address)
        if len(self._replies) > MOST_ADDRESSES:
            self._replies.popitem(last=False)

    async def acknowledge(self, address: Address, seq: int) -> None:
        """Note that a client has all replies up to this number. Raises ActorError."""
        await self._taken.acknowledge_up_to(address, seq)
        self._note_acknowledged(address, seq)

    async def acknowledge_turn(self, address: Address, replies: Sequence[OutboundMessage]) -> None:
        """Note that a response has carried these replies. While the journal is being restarted, that is left to the next one.

        An answer that no client can ask for any more is passed over, or it would keep all replies behind it from being acknowledged.
        """
        self._taken.add(replies)
        with suppress(ActorError, StorageError):
            self._note_acknowledged(address, await self._taken.acknowledge(address, self._is_abandoned))

    def _note_acknowledged(self, address: Address, seq: int) -> None:
        """Keep requests that wait from taking what others have had: they may still come to these replies."""
        for request in self._waiting:
            if request.address == address:
                request.acknowledged_up_to = max(seq, request.acknowledged_up_to)

    async def _is_abandoned(self, found: UnacknowledgedReply) -> bool:
        """Return whether a reply answers a message whose id its client does not know, and whose request has ended."""
        [reply] = await self._journal.ask(Posted, (found.key,))
        id = "" if reply is None else str(reply.metadata.get(IN_REPLY_TO, ""))
        return id.startswith(_own_id_prefix(found.address)) and not self._is_waited_for(found.address, id)

    def _is_waited_for(self, address: Address, id: str) -> bool:
        """Return whether a request waits for the end of the turn of this message."""
        return any((each.address, each.message_id) == (address, id) for each in self._waiting)

    def _is_unclaimed(self, reply: OutboundMessage) -> bool:
        """Return whether a reply answers no message of its conversation, and is in no response yet."""
        address, seq = reply.channel.address, reply.seq
        id = str(reply.metadata.get(IN_REPLY_TO, ""))
        is_answer = (
            QUESTION in reply.metadata or id.startswith(_own_id_prefix(address)) or self._is_waited_for(address, id)
        )
        is_carried = any(each.address == address and seq in each.unasked for each in self._waiting)
        return not is_answer and not is_carried and not self._taken.has(address, seq)

    # ---------------------------------------------------------------- replies

    async def replies_after(self, address: Address, after: int, seconds: float) -> Sequence[OutboundMessage]:
        """Return the replies with larger numbers that are still known; wait for one if there is none.

        Those behind MOST_BYTES of files are left for the next request. Raises ActorError, StorageError.
        """
        deadline = trio.current_time() + seconds
        with self._listeners.listen(address) as messages:
            while True:
                found = {reply.seq: reply for reply in self._replies.get(address, ()) if reply.seq > after}
                found |= {reply.seq: reply for reply in await self._unacknowledged(address, after)}
                if found or trio.current_time() >= deadline:
                    return await self._load([found[seq] for seq in sorted(found)], MOST_BYTES)
                # Anything that is said in the conversation ends the wait, but the journal decides what there
                # is. A listener that could not keep up hears `MessagesMissed` instead of a reply, and looks as well.
                with trio.move_on_at(min(deadline, trio.current_time() + LOOK_AGAIN)):
                    async for message in messages:
                        if isinstance(message, OutboundMessage | MessagesMissed):
                            break

    async def _load(
        self, replies: Sequence[OutboundMessage], max_bytes: float = math.inf
    ) -> tuple[OutboundMessage, ...]:
        """Return the replies with their files, but none behind the one at which these reach `max_bytes` bytes."""
        loaded, size = [], 0
        for reply in replies:
            loaded.append(await load_files(reply, self._journal))
            size += sum(file.size for file in reply.files)
            if size >= max_bytes:
                break
        return tuple(loaded)

    async def _unacknowledged(self, address: Address, after: int) -> Sequence[OutboundMessage]:
        """Return the replies in the outbox with larger numbers. Asks for more and more, because the oldest come first.

        Raises ActorError and StorageError. The number of replies that are asked for grows fourfold, so that few
        questions are made.
        """
        # The journal is not asked for replies after a number, because that would acknowledge those before it.
        limit = 200
        while True:
            found = await self._journal.ask(
                Unacknowledged, address.type, address.channel_id, (), limit, timeout=JOURNAL_TIMEOUT
            )
            wanted = [reply for reply in found if reply.seq > after]
            if wanted or len(found) < limit:
                return wanted
            limit *= 4


def _own_id_prefix(address: Address) -> str:
    """Return the beginning of the ids that `new_message_id` makes for a conversation. It does not tell the address."""
    return f"v1-{sha256(str(address).encode()).hexdigest()[:8]}-"


def new_message_id(address: Address) -> str:
    """Return the id of a message whose client names none, and so cannot ask for the answer again.

    It shows the conversation that the message was sent in: a message of another one may be answered here, too.
    """
    return _own_id_prefix(address) + secrets.token_hex(8)


def channel_id_of(grant: TokenGrant, home_token: str) -> str:
    """Return the conversation of a client that names none: that of its token, or one derived from it that does not tell it."""
    if grant.channel_id:
        return grant.channel_id
    secret = home_token if grant.is_home else grant.token.hash
    return f"token-{sha256(f'api {secret}'.encode()).hexdigest()[:12]}"
