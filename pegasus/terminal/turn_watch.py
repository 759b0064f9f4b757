"""The end of a message's turn, as a client of the gateway sees it: for the chat of a pipe and for `pegasus send`.

A turn ends when the agent stops thinking about the message, with replies or in silence. A command that jumps the queue has no such
turn: it ends with its answer. Signs of it are events, and events may be lost: with the connection, say, since typing events are not
repeated. And no sign tells that the last background task was reported. So while a turn is waited for, the daemon is also asked every
CHECK_SECONDS whether anything is under way for the conversation. Its answer counts when every reply that it names has come.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import trio

from pegasus.client import (
    ClientError,
    Conversation,
    ConversationEvent,
    MessageAccepted,
    MessageRejected,
    NotConnected,
    Offline,
    Online,
)
from pegasus.intake import lane_of
from pegasus.messages import Media, OutboundMessage, TaskProgress, Typing
from pegasus.wire import from_wire

CHECK_SECONDS: Final = 3.0
"""Seconds between two questions whether anything is under way."""
ANSWER_SECONDS: Final = 10.0
"""Seconds that the daemon may take to answer one."""
AWAY_SECONDS: Final = 60.0
"""Seconds that a daemon may be away (a restart) before it is given up."""


class TurnWatch:
    """Sends messages in a conversation, one after the other, and finds out when the turn of each is over.

    Example::

        watch = TurnWatch(conversation)
        await watch.next_event()             # Online
        await watch.send("hello")
        while not watch.is_over:
            event = await watch.next_event()
    """

    rejected: MessageRejected | None
    """Refusal of the gateway, if it does not take the message."""
    is_accepted: bool
    """The message is on the daemon's disk."""
    has_replied: bool
    """There was a reply."""

    def __init__(self, conversation: Conversation, *, until_done: bool = False) -> None:
        """until_done: the background tasks of the conversation are waited for, too."""
        self.away_since: float | None = None
        """Time of the lost connection on Trio's clock; None while there is one."""
        self.before: int | None = None
        """Number of the last reply before the first connection. Those up to it may have been acknowledged, and do not come again."""
        self.tasks: Sequence[TaskProgress] = ()
        """Tasks of the conversation that have not ended, as of the last answer of the daemon."""
        self._conversation = conversation
        self._events = aiter(conversation)
        self._until_done = until_done
        self._begin("")

    def _begin(self, text: str) -> None:
        self.rejected, self.is_accepted, self.has_replied = None, False, False
        self._is_command = lane_of(text) == "control"
        """The message jumps the queue: no typing events, and its reply is the end."""
        self._is_thinking = self._was_thinking = False
        """The agent works on the conversation at this moment, and has begun to since the message was sent."""
        self._is_done = False
        """The daemon has said that nothing is under way."""
        self._look_at = math.inf
        """Time of the next question, on Trio's clock."""

    async def send(self, text: str, media: Sequence[Media] = ()) -> None:
        """Send the next message."""
        self._begin(text)
        await self._conversation.send(text, media=media)

    @property
    def is_over(self) -> bool:
        """True when nothing more will come of the message."""
        return self.rejected is not None or self._is_done or (self._has_ended and not self._until_done)

    @property
    def _has_ended(self) -> bool:
        """True if the signs say so."""
        is_answered = self._was_thinking or (self._is_command and self.has_replied)
        return self.is_accepted and not self._is_thinking and is_answered

    async def next_event(self) -> ConversationEvent | None:
        """Return the next event; None if the turn is over without one.

        Raises StopAsyncIteration behind the last event, and NotConnected if the daemon stays away for AWAY_SECONDS.
        """
        while True:
            away = self.away_since
            with trio.move_on_at(self._look_at if away is None else away + AWAY_SECONDS):
                event = await anext(self._events)
                self._note(event)
                return event
            if away is not None:
                raise NotConnected(f"the daemon went away and has not come back for {AWAY_SECONDS:g} s")
            if await self._look():
                return None

    def _note(self, event: ConversationEvent) -> None:
        match event:
            case MessageAccepted():
                self.is_accepted = True
                self._look_at = trio.current_time() + CHECK_SECONDS
            case MessageRejected():
                self.rejected = event
            case OutboundMessage(seq=seq) if seq > (self.before or 0):
                self.has_replied = True
            case Typing(active=active):
                self._is_thinking = active
                self._was_thinking |= active
            case Offline():
                self._is_thinking = self._was_thinking = False
                if self.away_since is None:
                    self.away_since = trio.current_time()
            case Online(seq=seq):
                self.away_since = None
                self.before = seq if self.before is None else self.before
        if self._has_ended and self._until_done:
            self._look_at = trio.current_time()

    async def _look(self) -> bool:
        """Ask the daemon whether anything is under way; return whether the turn is over."""
        work = await ask_work(self._conversation, ANSWER_SECONDS)
        if work is not None:
            self.tasks = [from_wire(task, TaskProgress) for task in work["tasks"]]
            at_work = self._until_done and any(task.state != "SUSPENDED" for task in self.tasks)
            # All three must hold: no message waits, no task works, and the last reply that the daemon knows has come.
            seen = max(self.before or 0, self._conversation.last_seq or 0)
            self._is_done = not work["waiting"] and not at_work and seen >= work["seq"]
        self._look_at = math.inf if self._is_done else trio.current_time() + CHECK_SECONDS
        return self._is_done


async def ask_work(conversation: Conversation, timeout: float) -> Mapping[str, Any] | None:
    """Return what is under way for a conversation, None if the daemon does not say so; timeout: seconds."""
    channel = conversation.channel
    try:
        answer = await conversation.call(
            "conversation", {"type": channel.type, "channelId": channel.channel_id}, timeout=timeout
        )
    except ClientError:
        return None
    return answer if isinstance(answer, Mapping) else None
