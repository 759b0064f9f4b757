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
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from itertools import chain
from types import MappingProxyType
from typing import Final

import attrs
import trio

from actors import ActorError, Ref
from pegasus.access import AccessDenied, TokenGrant
from pegasus.channels import MOST_REPLIES, AckTracker, FollowedTurn, OnSaid, TurnFollower
from pegasus.gateway import ClientUpdate, Listeners, MessagesMissed
from pegasus.intake import JOURNAL_TIMEOUT, Intake, InvalidMessage, TooManyMessages
from pegasus.main_agent import OWN_TURN, QUESTION, item_of_key
from pegasus.messages import IN_REPLY_TO, Address, ApprovalNotice, InboundMessage, Metadata, OutboundMessage
from pegasus.storage import (
    Accepted,
    JournalMessage,
    OpenReplies,
    Overloaded,
    Posted,
    StorageError,
    UnacknowledgedReply,
    load_files,
)
from pegasus.web.visitors import ApiError

API: Final = "api"
"""Channel type of programs."""
MOST_TURNS: Final = 500
"""Turns that are remembered for clients that repeat a request, or ask again for what a response has carried."""
MOST_BYTES: Final = 32 << 20
"""Bytes of the files of the replies in one response, or a little more."""
PAGE: Final = 200
"""Replies in one answer to `replies_after`, beside those that responses have carried."""
LOOK_AGAIN: Final = 10.0
"""Seconds after which a long poll looks into the journal, whatever it has heard."""


@attrs.frozen
class TurnTranscript:
    """Outcome of a message."""

    item: int
    """Number of the message in the queue."""
    replies: tuple[OutboundMessage, ...]
    """In the order of their numbers."""
    is_done: bool
    """The turn has ended. If not, the time was over before."""
    is_stopped: bool = False
    """Somebody has stopped it. A process that was started since does not know."""

    @property
    def is_whole(self) -> bool:
        """True if the agent has said all that it wanted to say."""
        return self.is_done and not self.is_stopped


@attrs.define(eq=False, repr=False)
class PendingRequest(FollowedTurn):
    """A request that waits for the end of a turn, and the replies that it is given."""

    is_unclaimed: Callable[[OutboundMessage], bool] | None = None
    """Returns whether a reply was said unasked and is given to nobody yet. None: this request gets nothing of the kind."""
    acknowledged_up_to: int = 0
    """Number up to which all replies of the conversation are acknowledged, as far as is known here."""

    def wants(self, reply: OutboundMessage) -> bool:
        """Return whether it is to have a reply."""
        if self.is_own(reply) or self.is_unclaimed is None:
            return self.is_own(reply)
        return reply.seq > self.acknowledged_up_to and self.is_unclaimed(reply)


class Conversations:
    """Messages through HTTP; one object for each run of the server."""

    def __init__(self, intake: Intake, listeners: Listeners, was_stopped: Callable[[int], bool]) -> None:
        """was_stopped: returns whether somebody has stopped the turn of an item."""
        self._intake = intake
        self._was_stopped = was_stopped
        self._listeners = listeners
        self._journal: Ref[JournalMessage] = intake.journal
        self._turns: OrderedDict[tuple[Address, str], TurnTranscript] = OrderedDict()
        """Ended turns by conversation and id of the message, the oldest first."""
        self._follower = TurnFollower(intake.journal)
        self._taken = AckTracker(intake.journal, partial(intake.journal.ask, OpenReplies))
        self._waiting: dict[PendingRequest, None] = {}
        """Requests that wait, in the order in which they came."""

    async def submit(
        self, message: InboundMessage, grant: TokenGrant, added: Metadata = MappingProxyType({})
    ) -> Accepted:
        """Return when the message is on disk. Raises ApiError, ActorError and StorageError. added: as for `Intake.send`."""
        try:
            answer = await self._intake.send(message, grant, is_bridge=False, added=added)
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
        added: Metadata = MappingProxyType({}),
    ) -> TurnTranscript:
        """Send a message; return when its turn has ended, or after so many seconds. on_said: takes what is said meanwhile.

        on_accepted: called when the message is on disk. Nothing is said before, and no refusal comes behind it.

        wants_unasked: the turn has what was said unasked as well, before its own replies. added: as for `Intake.send`.

        The message goes on being handled when the time is over, and when this is cancelled. Raises as `submit`.
        """
        address, deadline = message.channel.address, trio.current_time() + seconds
        message = attrs.evolve(message, metadata={**message.metadata, OWN_TURN: True})
        request = PendingRequest(address, message.id, is_unclaimed=self._is_unclaimed if wants_unasked else None)
        self._waiting[request] = None
        try:
            with self._listeners.listen(address) as messages:
                # Listening has begun before: a reply could otherwise come between the two and be heard by
                # nobody.
                accepted = await self.submit(message, grant, added)
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
                await self._follow(request, messages, deadline, on_said)
                turn = self._transcript(request)
                # At once, so that no other request gets what was said unasked, too.
                self._taken.add(reply for reply in turn.replies if not request.is_own(reply))
        finally:
            # However it ends. What it was given unasked and has not carried is free for other requests again.
            del self._waiting[request]
        if turn.is_done:
            self._remember(address, message.id, turn)
        return turn

    async def revisit(self, address: Address, id: str, item: int, seconds: float) -> TurnTranscript:
        """Return the turn of a message that was sent before, when it has ended or after so many seconds.

        id, item: of the message, as its transcript had them. Raises ActorError and StorageError.
        """
        known = self._turns.get((address, id))
        if known is not None:
            return attrs.evolve(known, replies=await self._load(known.replies))
        request = PendingRequest(address, id, item)
        self._waiting[request] = None
        try:
            with self._listeners.listen(address) as messages:
                await self._follow(request, messages, trio.current_time() + seconds, None)
        finally:
            del self._waiting[request]
        turn = self._transcript(request)
        if turn.is_done:
            self._remember(address, id, turn)
        return turn

    def _transcript(self, request: PendingRequest) -> TurnTranscript:
        """Return what a request is given so far."""
        replies = tuple(request.replies[seq] for seq in sorted(request.replies))
        return TurnTranscript(request.item, replies, request.is_done, self._was_stopped(request.item))

    async def _follow(
        self,
        request: PendingRequest,
        messages: trio.MemoryReceiveChannel[ClientUpdate | ApprovalNotice | MessagesMissed],
        deadline: float,
        on_said: OnSaid | None,
    ) -> None:
        """Gather replies until the item is done, or until the deadline. Most come by `messages`."""
        if request.is_unclaimed is not None:
            # Its own come in the order of what is said. Those that a response has carried need not be read again.
            others = [
                each.key
                for each in await self._follower.open_replies(request.address)
                if item_of_key(each.key) != request.item and not self._taken.has(each.address, each.seq)
            ]
            for reply in await self._follower.load(others, request.wants):
                request.take(reply)

        async def hear() -> None:
            async for message in messages:
                request.take(message)

        async def finish() -> None:
            await self._follower.gather(request)
            with suppress(trio.WouldBlock):
                while True:
                    request.take(messages.receive_nowait())
            request.end()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear)
            if on_said is None:
                with trio.move_on_at(deadline):
                    await finish()
            else:
                nursery.start_soon(finish)
                await request.tell(on_said, deadline)
            nursery.cancel_scope.cancel()

    def _remember(self, address: Address, id: str, turn: TurnTranscript) -> None:
        """Keep a turn that has ended, for a client that repeats its request or asks for the replies again.

        Files are left out: they are on disk, and are loaded again when they are asked for. So the memory of MOST_TURNS turns is
        bounded by their texts.
        """
        turn = attrs.evolve(turn, replies=tuple(attrs.evolve(reply, media=()) for reply in turn.replies))
        self._turns[address, id] = turn
        if len(self._turns) > MOST_TURNS:
            self._turns.popitem(last=False)

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
        is_carried = any(each.address == address and seq in each.replies for each in self._waiting)
        return not is_answer and not is_carried and not self._taken.has(address, seq)

    # ---------------------------------------------------------------- replies

    async def replies_after(self, address: Address, after: int, seconds: float) -> Sequence[OutboundMessage]:
        """Return the replies with larger numbers that are still known; wait for one if there is none.

        Those behind MOST_BYTES of files are left for the next request. Raises ActorError, StorageError.
        """
        deadline = trio.current_time() + seconds
        with self._listeners.listen(address) as messages:
            while True:
                carried = chain.from_iterable(turn.replies for key, turn in self._turns.items() if key[0] == address)
                found = {reply.seq: reply for reply in carried if reply.seq > after}
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
        """Return the oldest replies in the outbox with larger numbers, PAGE at most. Raises ActorError and StorageError."""
        # Not by `Unacknowledged`: to ask for replies after a number would acknowledge those before it.
        waiting = await self._journal.ask(OpenReplies, address, MOST_REPLIES, timeout=JOURNAL_TIMEOUT)
        keys = [each.key for each in waiting if each.seq > after][:PAGE]
        posted = await self._journal.ask(Posted, tuple(keys), timeout=JOURNAL_TIMEOUT) if keys else ()
        return [reply for reply in posted if reply is not None]


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
