"""The way in from a service: messages, which are given again until they are on disk, and an end of what would go on for ever.

While it cannot be read who was let in, messages of people whom the settings do not name are held like those that the disk refuses.
They pile up at the service, and Telegram gives nothing behind 100 of them. So after HELD_FOR they are refused: their writers read why,
and may write again. Each such message is a reason to read the file again.

Two programs that answer each other never end: another bot in a chat; or a service that refuses each reply, of which the agent is told,
which then says something about it there, which is refused as well. `BotLoopLimit` ends that.
"""

from __future__ import annotations

from typing import Final

import trio

from actors import ActorError, Answer
from pegasus.access import AccessDenied, PeopleUnreadable, is_group
from pegasus.channels.service_contract import NotKept, ServiceContext
from pegasus.intake import JOURNAL_TIMEOUT, InvalidMessage, QuotaReached, TooManyMessages
from pegasus.messages import Address, ChannelInfo, InboundMessage, Metadata
from pegasus.observe import get_logger
from pegasus.storage import Accepted, Commit, Overloaded, Post, StorageError

HELD_FOR: Final = 600.0
"""Seconds for which messages are held because it cannot be read who was let in."""
MOST_TOLD: Final = 20
"""Conversations that are told of it, so that a crowd of strangers costs nothing."""
COUNTED_FOR: Final = 3600.0
"""Seconds after which a count begins anew."""
MOST_COUNTED: Final = 1_000
"""Conversations that are counted. The one that was counted the longest time ago is forgotten first."""

_UNKNOWN: Final = (
    "I cannot look up at the moment who may write to me, because my disk does not let me. "
    "So I have not read your message; please write again later."
)

_log = get_logger("channels")


class MessageIntake:
    """Gives messages of one service to the agent."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._sent: set[tuple[str, str]] = set()
        """Messages that were given to the intake, and may not be on disk yet: given again, they do not count twice."""
        self._unreadable_since: float | None = None
        """Trio's clock when it could first not be read who was let in; None if it always could."""
        self._told: set[Address] = set()
        """Conversations that were told of it."""

    async def accept(self, *messages: InboundMessage) -> list[bool]:
        """Give messages to the agent, in this order. On return each is on disk (True), or will never be taken (False).

        Never taken is what somebody sends who may not write, or writes too much. The same id is taken once, however often it comes.
        Raises NotKept if one of them may not be on disk: then submit all again.
        """
        try:
            answers = [await self._send(message) for message in messages]
            kept = [
                answer is not None and await self._is_kept(message, await answer.get(JOURNAL_TIMEOUT))
                for message, answer in zip(messages, answers, strict=True)
            ]
        except (StorageError, ActorError) as error:
            raise NotKept(str(error)) from error
        self._sent.difference_update(map(_key, messages))
        return kept

    async def _send(self, message: InboundMessage) -> Answer[Accepted | Overloaded] | None:
        """Send a message to the journal; return its answer, None if the message will never be taken."""
        try:
            answer = await self._context.intake.send(message, is_repeated=_key(message) in self._sent)
        except (QuotaReached, TooManyMessages) as error:
            await self._hold_back(message, str(error))
        except (AccessDenied, InvalidMessage) as error:
            _log.debug("a message was not taken", channel=message.channel.type, reason=str(error))
        except PeopleUnreadable as error:
            await self._refuse_unknown(message.channel, message.metadata, error)
        else:
            self._sent.add(_key(message))
            return answer
        return None

    async def refusal_of(self, channel: ChannelInfo, metadata: Metadata) -> AccessDenied | None:
        """Return why the person on this channel may not write, None if they may: before files are fetched for a message.

        metadata: that of the message. Raises NotKept if it cannot be known at the moment.
        """
        try:
            await self._context.intake.check_write(channel, metadata)
        except AccessDenied as refusal:
            return refusal
        except PeopleUnreadable as error:
            try:
                return await self._refuse_unknown(channel, metadata, error)
            except (StorageError, ActorError) as failure:
                raise NotKept(str(failure)) from failure
        except ActorError as error:
            raise NotKept(str(error)) from error
        return None

    async def _refuse_unknown(self, channel: ChannelInfo, metadata: Metadata, error: PeopleUnreadable) -> AccessDenied:
        """Return the refusal of somebody who may have been let in or not, after telling them of it where strangers get an answer.

        Raises the error while it is to be hoped that the file can be read soon, and StorageError, ActorError.
        """
        if self._unreadable_since is None:
            self._unreadable_since = trio.current_time()
        if trio.current_time() < self._unreadable_since + HELD_FOR:
            raise error
        _log.error("a message was refused: nobody knows whether its writer was let in", reason=str(error))
        intake, address = self._context.intake, channel.address
        rules = intake.access.now.rules.get(channel.type)
        is_answered = rules is not None and rules.access == "pairing" and not is_group(channel, metadata)
        if is_answered and address not in self._told and len(self._told) < MOST_TOLD:
            post = Post(
                f"unreadable/{address}/{self._context.clock()}", _UNKNOWN, channel.channel_id, channel, channel.type
            )
            await intake.journal.ask(Commit, (), (post,))
            self._told.add(address)
        return AccessDenied(str(error))

    async def _is_kept(self, message: InboundMessage, answer: Accepted | Overloaded) -> bool:
        """Return whether a message is on disk. Raises NotKept if there is no room at the moment."""
        if isinstance(answer, Accepted):
            return True
        if not answer.of_sender:
            raise NotKept(answer.reason)
        await self._hold_back(message, answer.reason)
        return False

    async def _hold_back(self, message: InboundMessage, reason: str) -> None:
        """Tell somebody who writes too much when to go on, once a minute. Raises StorageError, ActorError."""
        where = message.channel
        post = Post(
            f"limit/{where.address}/{self._context.clock() // 60_000}", reason, where.channel_id, where, where.type
        )
        await self._context.intake.journal.ask(Commit, (), (post,))


def _key(message: InboundMessage) -> tuple[str, str]:
    """Return what tells a message from all others of the channel type."""
    return message.channel.channel_id, message.id


class BotLoopLimit:
    """Counter of events in each conversation, until something else happens there, or an hour is over.

    Example::

        bots = BotLoopLimit(5)
        bots.has_room("-1001")     # True until it was counted five times
        bots.count("-1001")
        bots.reset("-1001")        # a person has written
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._counts: dict[str, tuple[int, float]] = {}
        """By channelId: the count, and Trio's clock at the first event."""

    def count(self, channel_id: str) -> None:
        """Count an event."""
        count, since = self._count_of(channel_id)
        self._counts.pop(channel_id, None)  # put at the end
        self._counts[channel_id] = (count + 1, since)
        if len(self._counts) > MOST_COUNTED:
            del self._counts[next(iter(self._counts))]

    def has_room(self, channel_id: str) -> bool:
        """Return whether the next event is one of the first `limit`."""
        return self._count_of(channel_id)[0] < self._limit

    def _count_of(self, channel_id: str) -> tuple[int, float]:
        """Return the count of a conversation, and when it began."""
        now = trio.current_time()
        count, since = self._counts.get(channel_id, (0, now))
        return (count, since) if now - since <= COUNTED_FOR else (0, now)

    def reset(self, channel_id: str) -> None:
        """Begin anew for this conversation."""
        self._counts.pop(channel_id, None)
