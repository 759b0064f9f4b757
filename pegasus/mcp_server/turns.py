"""`AskedTurns`: a message that comes over MCP, its turn, and the answer.

A message is on disk before anybody waits for its turn. A call that names an idempotency key may be made again, also after a crash of
the agent: its message is the same one, is answered once, and the call gets that answer. So the answer to such a call is acknowledged
only when the next message of its conversation shows that its client goes on; until then it is kept on disk. Without a key nobody can
ask again, and the answer counts as received at once.

A program wrote the message, perhaps for a person: it is marked as relayed (`RELAYED`), so that nothing in it counts as words of the
owner that allow a call of a tool.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import attrs
import trio

from actors import Signal
from pegasus.channels import OnSaid
from pegasus.messages import RELAYED, Address, InboundMessage, Json, OutboundMessage, ReplyDraft
from pegasus.web import (
    ApiError,
    ApiRequest,
    Conversations,
    TurnTranscript,
    failures_as_errors,
    message_of,
    new_message_id,
)

ASKED: Final = "mcp_request"
"""Key in the `state` of a request's scope: the request as `pegasus.web` has checked it."""
MOST_GIVEN: Final = 500
"""Conversations whose last answer is kept for a call that is made again."""
PROGRESS_EVERY: Final = 0.5
"""Seconds between two notes of progress. A draft comes with each word of a model."""
STILL_WORKING: Final = 10.0
"""Seconds of silence after which a client hears that the work goes on. Some give up on a call that says nothing for a minute."""
LONGEST_NOTE: Final = 300
"""Characters of a note of progress."""


class TurnProgress:
    """Notes about what the agent is doing in a turn. A client that reads slowly gets the newest one."""

    def __init__(self, report: Callable[[float, None, str], Awaitable[None]]) -> None:
        """report: sends a note, with a number that grows."""
        self._report = report
        self._note = ""
        self._news = Signal()

    async def take(self, said: OutboundMessage | ReplyDraft) -> None:
        """Note what is being said. Never waits."""
        note = said.text_with_names if isinstance(said, OutboundMessage) else said.activity or said.text
        lines = note.strip().splitlines()
        if lines:
            self._note = lines[-1][-LONGEST_NOTE:]
            self._news.notify()

    async def run(self) -> None:
        """Send the notes until cancelled."""
        n, seen = 0, self._news.count
        while True:
            n += 1
            with trio.move_on_after(STILL_WORKING):
                await self._news.wait(seen)
            seen, note = self._news.count, self._note or "working"
            await self._report(n, None, note)
            await trio.sleep(PROGRESS_EVERY)


@attrs.frozen(eq=False, repr=False)
class AskedTurns:
    """Turns of messages."""

    conversations: Conversations
    _given: OrderedDict[Address, tuple[str, Sequence[OutboundMessage]]] = attrs.field(factory=OrderedDict, init=False)
    """Id of the last message that was sent with a key, and its replies."""

    def message(
        self, request: ApiRequest, text: str, *, conversation: str, key: str, files: Sequence[Json]
    ) -> InboundMessage:
        """Return a message, which is not sent yet. Raises ApiError.

        conversation: name of one of its client's own; "" for the usual one.
        key: the client's own id of the message, "" for none. files: as the protocol of the gateway has them.
        """
        channel: dict[str, Json] = {"channelId": request.grant.below(conversation)} if conversation else {}
        message = message_of(
            request, {"text": text, "id": key or None, "channel": channel or None, "media": list(files) or None}
        )
        id = key or new_message_id(message.channel.address)
        return attrs.evolve(message, id=id, metadata={**message.metadata, RELAYED: True})

    async def run(
        self,
        request: ApiRequest,
        message: InboundMessage,
        *,
        has_key: bool,
        seconds: float,
        on_said: OnSaid | None = None,
    ) -> TurnTranscript | ApiError:
        """Send a message, and return when its turn has ended or the time is over; an ApiError if it is refused.

        Cancelled, the message is worked on all the same; see `ApiRequest.services.withdraw`.
        """
        try:
            with failures_as_errors():
                address = message.channel.address
                id, replies = self._given.get(address, ("", ()))
                if id != message.id:
                    self._given.pop(address, None)
                    if replies:
                        await self.conversations.acknowledge_turn(address, replies)
                turn = await self.conversations.converse(message, request.grant, seconds, on_said, wants_unasked=True)
                if turn.is_done and has_key:
                    await self._count_as_given(address, message.id, turn.replies)
                elif turn.is_done:
                    await self.conversations.acknowledge_turn(address, turn.replies)
                return turn
        except ApiError as error:
            return error

    async def revisit(self, address: Address, id: str, item: int, seconds: float) -> TurnTranscript:
        """Return the turn of a message that was sent before, see `Conversations`. Raises ApiError."""
        with failures_as_errors():
            turn = await self.conversations.revisit(address, id, item, seconds)
            if turn.is_done:
                await self._count_as_given(address, id, turn.replies)
        return turn

    async def _count_as_given(self, address: Address, id: str, replies: Sequence[OutboundMessage]) -> None:
        """Keep the replies to a message that its client may send again. The oldest of many count as received."""
        # Without the files, which are loaded again when they are asked for.
        self._given[address] = id, [attrs.evolve(reply, media=()) for reply in replies]
        if len(self._given) > MOST_GIVEN:
            oldest, (_, given) = self._given.popitem(last=False)
            await self.conversations.acknowledge_turn(oldest, given)
