"""Typed messages on their way from the prompt to the agent.

They wait in a bounded queue, so that a paste cannot fill the memory while the daemon is away. `/stop` does not wait in it, and
`/stop all` empties it: a person who wants to end something must not wait behind what was typed before.

Messages that the agent has not answered yet are counted for the question that is asked before leaving. The agent works on the messages
of a conversation in their order. So a reply to one of them shows that the earlier ones are done, too: they were answered together, or
in silence. No reply shows that the last ones ended in silence; the chat then asks the agent whether anything waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import trio

from actors import Signal
from pegasus.client import Conversation
from pegasus.formatting import plural
from pegasus.intake import lane_of
from pegasus.messages import Media
from pegasus.terminal.line_chat import frame_bytes
from pegasus.terminal.prompt_rules import is_stop, is_stop_all
from pegasus.terminal.turn_watch import ask_work

WAITING_SECONDS: Final = 3.0
"""Seconds that the agent may take to say whether anything waits."""
MAX_UNSENT: Final = 1000
"""Typed messages that may wait for the conversation; a person does not type more, a runaway paste does."""


class UnansweredMessages:
    """Ids of messages that were handed over and have no answer, in order."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def last(self) -> str | None:
        """Id of the message that was handed over last; None if all have their answers."""
        return next(reversed(self._ids), None)

    def add(self, id: str, text: str) -> None:
        """Add a message. A command that passes the queue is left out: it is answered at once."""
        if lane_of(text) == "main":
            self._ids[id] = None

    def remove(self, id: str) -> None:
        """Remove a message that was not taken."""
        self._ids.pop(id, None)

    def note_answer(self, id: object) -> bool:
        """Remove the message with this id and all before it; return whether it is one of them."""
        if id not in self._ids:
            return False
        for earlier in list(self._ids):
            del self._ids[earlier]
            if earlier == id:
                break
        return True


class TypedMessages:
    """The queue of typed messages, in Trio's thread. `run` hands them to the conversation.

    notice: shows a line about a message that is not sent. changed: called when the number of unsent messages may have changed.
    """

    def __init__(
        self,
        conversation: Conversation,
        max_frame_bytes: int,
        notice: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        self.unanswered = UnansweredMessages()
        """Messages that were handed over and not answered yet."""
        self.last_id = ""
        """Id of the message that was handed over last."""
        self._conversation = conversation
        self._max_frame_bytes = max_frame_bytes
        self._notice = notice
        self._changed = changed
        self._queue: deque[tuple[str, tuple[Media, ...]]] = deque()
        """Messages with their attachments that are not handed over yet."""
        self._added = Signal()
        """Wakes the task that hands them over."""
        self._sending = trio.CancelScope()
        """Around the wait of that task until the conversation has room for the first of them."""
        self._urgent: deque[str] = deque()
        """Messages that passed the queue (/stop) and are not handed over yet."""

    @property
    def unsent(self) -> tuple[str, ...]:
        """Texts that the agent has not accepted yet, in the order in which they would be."""
        return (*self._conversation.unaccepted_texts, *self._urgent, *(text for text, _ in self._queue))

    def __len__(self) -> int:
        return self._conversation.unaccepted + len(self._urgent) + len(self._queue)

    def add(self, text: str, media: tuple[Media, ...] = ()) -> None:
        """Queue a message, or show why it is not sent: too large, or too many waiting. `run` must run."""
        size, limit = frame_bytes(text, media), self._max_frame_bytes
        if size > limit:
            self._notice(f"Not sent: {size:,} bytes; the agent takes {limit:,} at most.")
        elif is_stop(text):
            discarded = len(self._queue) if is_stop_all(text) else 0
            if discarded:
                self._sending.cancel()
                self._queue.clear()
            self._urgent.append(text)
            self._nursery.start_soon(self._send_urgent, text, discarded)
        elif len(self._queue) >= MAX_UNSENT:
            self._notice(f"Not sent: {MAX_UNSENT} messages are waiting to be sent already.")
        else:
            self._queue.append((text, media))
            self._added.notify()
        self._changed()

    async def run(self) -> None:
        """Hand over the queued messages in order, until cancelled. `send` waits while too many are not accepted yet."""
        async with trio.open_nursery() as self._nursery:
            while True:
                while self._queue:
                    with trio.CancelScope() as self._sending:
                        text, media = self._queue[0]
                        self.last_id = await self._conversation.send(text, media=media)
                        self._queue.popleft()
                        self.unanswered.add(self.last_id, text)
                    self._changed()
                await self._added.wait()

    async def _send_urgent(self, text: str, discarded: int) -> None:
        """Hand over a message before everything that waits; `/stop all` in its place. discarded: messages that are gone already."""
        if is_stop_all(text):
            discarded += await self._conversation.discard()
        if discarded:
            were = "was" if discarded == 1 else "were"
            self._notice(f"Discarded: {plural(discarded, 'message')} that {were} not sent yet.")
        self.last_id = await self._conversation.send(text, is_urgent=True)
        self._urgent.remove(text)
        self._changed()


async def is_nothing_waiting(conversation: Conversation) -> bool:
    """Return True if the agent says that no message of this conversation waits or is in work."""
    work = await ask_work(conversation, WAITING_SECONDS)
    return work is not None and not work.get("waiting")
