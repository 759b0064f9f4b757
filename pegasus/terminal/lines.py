"""A chat for pipes: each line of the input is one message, the replies are lines of the output, nothing else is.

A message is sent when the turn of the one before has ended, so that a script reads like a conversation. A turn ends when
the agent stops thinking about it, after whatever it said, or nothing; a command that passes the queue has no such turn,
and ends with its answer.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import TypeAlias

import trio

from pegasus.client import ConversationEvent, MessageAccepted, MessageRejected, Offline, Online
from pegasus.messages import OutboundMessage, Typing
from pegasus.terminal.keys import is_leave
from pegasus.terminal.talk import Gone, Talk, frame_bytes

AWAY_SECONDS = 60.0
"""How long a daemon that was there may be away (a restart) before the script is told that it is gone."""
DOUBT_SECONDS = 30.0
"""Who was away may have missed the end of a turn: after a new connection, this long without a sign of life ends it."""
ANSWERED_SECONDS = 2.0
"""The same, once the turn has had a reply."""

ANSWERED_AT_ONCE = frozenset({"/stop", "/help", "/status", "/usage", "/model", "/persona"})
"""Commands that pass the queue: no thought begins and ends with them."""

Write: TypeAlias = Callable[[str], Awaitable[None]]


class Turn:
    """One message and what becomes of it: pure, fed with events, `over` when the next may be sent."""

    def __init__(self, text: str) -> None:
        self.dropped: MessageRejected | None = None
        self._command = text.strip().partition(" ")[0].lower() in ANSWERED_AT_ONCE
        self._accepted = False
        self._replied = False
        self._thinking = False
        self._thought = False

    @property
    def over(self) -> bool:
        if self.dropped is not None:
            return True
        return self._accepted and not self._thinking and (self._thought or (self._command and self._replied))

    def hear(self, event: ConversationEvent) -> None:
        match event:
            case MessageAccepted():
                self._accepted = True
            case MessageRejected():
                self.dropped = event
            case OutboundMessage():
                self._replied = True
            case Typing(active=True):
                self._thinking = self._thought = True
            case Typing(active=False):
                self._thinking = False
            case Offline():
                self._thinking = self._thought = False

    def presume_over(self) -> None:
        """Nobody will say that it ended any more."""
        self._thought = True
        self._thinking = False

    @property
    def patience(self) -> float:
        """Seconds of silence after which a turn in doubt is taken to be over."""
        return ANSWERED_SECONDS if self._replied else DOUBT_SECONDS

    @property
    def in_doubt(self) -> bool:
        """Accepted, and not known to be thought about: after a lost connection nobody may tell its end."""
        return self._accepted and not self._thinking and not self.over


class LineChat:
    """Messages from the lines given to `run`, replies to `write`, complaints (a line each) to `complain`.

    `write` may raise BrokenPipeError: then nobody reads any more, and the chat ends quietly. most: bytes a message
    frame may have.
    """

    def __init__(self, talk: Talk, write: Write, complain: Callable[[str], None], *, most: int) -> None:
        self._events = aiter(talk)
        self._talk = talk
        self._write = write
        self._complain = complain
        self._most = most
        self._online = trio.Event()
        self._away_since: float | None = None
        self._doubtful_since: float | None = None
        self._turn = Turn("")
        self._over = trio.Event()
        self._failure: Gone | None = None
        self._code = 0

    async def run(self, lines: AsyncIterable[str]) -> int:
        """The exit code: 0 when every line was taken and its turn has ended, 1 when one was not taken. Raises Gone."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, nursery.cancel_scope)
            await self._online.wait()
            number = 0
            async for line in lines:
                number += 1
                if is_leave(line):
                    break
                if line.strip():
                    await self._say(line, number)
            nursery.cancel_scope.cancel()
        if self._failure is not None:
            raise self._failure
        return self._code

    async def _say(self, line: str, number: int) -> None:
        size = frame_bytes(line)
        if size > self._most:
            return self._untaken(number, f"{size:,} bytes; the gateway takes {self._most:,} at most")
        turn = self._turn = Turn(line)
        self._over = trio.Event()
        self._doubtful_since = None
        await self._talk.send(line)
        await self._over.wait()
        if turn.dropped is not None:
            self._untaken(number, f"{turn.dropped.message} ({turn.dropped.code})")
        return None

    def _untaken(self, number: int, why: str) -> None:
        self._complain(f"line {number} was not taken: {why}")
        self._code = 1

    # ---------------------------------------------------------------- the agent's side

    async def _listen(self, everything: trio.CancelScope) -> None:
        try:
            while True:
                with trio.move_on_at(self._deadline()) as scope:
                    await self._hear(await anext(self._events))
                if scope.cancelled_caught:
                    self._give_up()
                if self._turn.over:
                    self._over.set()
        except Gone as error:
            self._failure = error
        except (BrokenPipeError, StopAsyncIteration):
            pass
        everything.cancel()

    def _deadline(self) -> float:
        if self._away_since is not None:
            return self._away_since + AWAY_SECONDS
        if self._doubtful_since is not None and self._turn.in_doubt:
            return self._doubtful_since + self._turn.patience
        return math.inf

    def _give_up(self) -> None:
        if self._away_since is not None:
            raise Gone(f"the daemon went away and has not come back for {AWAY_SECONDS:g} s")
        self._turn.presume_over()

    async def _hear(self, event: ConversationEvent) -> None:
        match event:
            case OutboundMessage(text=text):
                await self._write(text + "\n")
            case Offline(reason=reason, retry_in=retry):
                if retry is None or not self._online.is_set():
                    raise Gone(reason)
                if self._away_since is None:
                    self._away_since = trio.current_time()
            case Online():
                self._away_since = None
                self._online.set()
        if self._doubtful_since is not None or isinstance(event, Offline):
            self._doubtful_since = trio.current_time()
        self._turn.hear(event)
