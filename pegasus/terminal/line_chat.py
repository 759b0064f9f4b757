"""Chat for pipes: each line of the input is one message, the replies are lines of the output, and nothing else is.

A message is sent when the turn of the one before has ended (`TurnWatch`), so that a script reads like a conversation.

Only replies are written to stdout, so that a script can use them. Everything else goes to stderr through `report`, and
the exit code says whether every line was taken. A reply that comes between two turns, such as the result of a background task,
is written as well; a script that needs the answer to one message uses `pegasus send`.
"""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final

import trio

from pegasus.access import APPROVE, DENY
from pegasus.client import Conversation, ConversationEvent, NotConnected, Offline, Online
from pegasus.formatting import plural, truncate
from pegasus.messages import ApprovalNotice, Media, OutboundMessage
from pegasus.terminal.prompt_rules import is_leave
from pegasus.terminal.turn_watch import TurnWatch
from pegasus.wire import encode_json

UNSENT_WIDTH: Final = 200
"""Characters that are shown of a message that was not sent."""
FRAME_OVERHEAD: Final = 256
"""Bytes of a message frame around its text (type, id, braces), rounded up. The gateway makes the exact check."""
_CHUNK: Final = 65536
"""Bytes that are read at a time: what a pipe holds on Linux."""

_MOST_CHUNKS: Final = 64
"""Chunks that are read at most only to be counted: four megabytes."""


class DaemonGone(Exception):
    """There is no daemon to talk with, or not any more; str() is one line for a person.

    Raised by both kinds of chats when the daemon refuses the connection, or stays away for too long. The command prints it
    and ends with exit code 1.
    """


def frame_bytes(text: str, media: Iterable[Media] = ()) -> int:
    """Return the size of a message frame with this text and these attachments, in bytes.

    It is computed before sending: a frame that is too large ends the connection, and with it everything that is under way.
    """
    attached = sum(
        FRAME_OVERHEAD + len(encode_json([file.name, file.mime]).encode()) + len(file.data) for file in media
    )
    return len(encode_json(text).encode()) + FRAME_OVERHEAD + attached


def describe_rejection(code: str, message: str) -> str:
    """Return why a message was not taken, without the words of the protocol: fields are named as a person knows them."""
    if code == "too_large":
        return "it is larger than the agent takes"
    field, colon, rest = message.partition(": ")
    return rest if colon and field.startswith("message.") else message


class LineChat:
    """Chat over lines: messages from the lines given to `run`, replies to `write`, problems to `report`.

    write: may raise BrokenPipeError, when nobody reads any more; the chat then ends quietly. report: takes one line.
    max_frame_bytes: size above which the gateway refuses a message. count_rest: returns the number of lines that have come and were
    not read yet, for a report of what was not sent.
    """

    def __init__(
        self,
        conversation: Conversation,
        write: Callable[[str], Awaitable[None]],
        report: Callable[[str], None],
        *,
        max_frame_bytes: int,
        count_rest: Callable[[], int] = lambda: 0,
        greet: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """write: returns when the reader has taken the text. greet: says who is there, by the agent's name; None: nobody looks."""
        self._greet = greet
        self._watch = TurnWatch(conversation)
        self._conversation = conversation
        self._write = write
        self._report = report
        self._max_frame_bytes = max_frame_bytes
        self._count_rest = count_rest
        self._online = trio.Event()
        """Set by the first connection; no line is sent before."""
        self._turn_over = trio.Event()
        """Set at the end of the turn that runs, or has run last."""
        self._failure: DaemonGone | None = None
        """Reason to give up; raised by `run`, outside of its nursery."""
        self._code = 0
        """Exit code so far."""
        self._number = 0
        """Number of the line that was sent last."""

    async def run(self, lines: AsyncIterable[str]) -> int:
        """Send all lines; return 0 when every line was taken and its turn has ended, 1 when one was not taken.

        Raises DaemonGone when there is no daemon at the start, or it stays away for AWAY_SECONDS.
        """
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._handle_events, nursery.cancel_scope)
                await self._online.wait()
                async for line in lines:
                    self._number += 1
                    if is_leave(line):
                        break
                    if line.strip():
                        await self._send(line, self._number)
                nursery.cancel_scope.cancel()
        finally:  # also when a signal ends the chat
            self._report_unsent()
        if self._failure is not None:
            raise self._failure
        return self._code

    async def _send(self, line: str, number: int) -> None:
        """Send a line and wait for the end of its turn."""
        size = frame_bytes(line)
        if size > self._max_frame_bytes:
            self._report_untaken(number, f"{size:,} bytes; the agent takes {self._max_frame_bytes:,} at most")
            return
        self._turn_over = trio.Event()
        await self._watch.send(line)
        await self._turn_over.wait()
        if (rejected := self._watch.rejected) is not None:
            self._report_untaken(number, describe_rejection(rejected.code, rejected.message))

    def _report_untaken(self, number: int, why: str) -> None:
        """Report a line that the gateway does not take; the exit code is then 1, and the next line is sent."""
        self._report(f"line {number} was not taken: {why}")
        self._code = 1

    def _report_unsent(self) -> None:
        """Report the lines that were not sent when the daemon is gone or a signal ends the chat; the first one with its text.

        Later lines may not have come yet, so only of those that have come the number is known.
        """
        unsent = [truncate(text, UNSENT_WIDTH) for text in self._conversation.unaccepted_texts]
        # Without a daemon at the start nothing was begun.
        has_failed = self._failure is not None and self._online.is_set()
        rest = self._count_rest() if unsent or has_failed else 0
        first = self._number + 1 - len(unsent)
        if unsent and not rest:
            self._report(f"line {first} was not sent, nor any line after it: {unsent[0]}")
        elif rest:
            verb = "was" if len(unsent) + rest == 1 else "were"
            text = f": {unsent[0]}" if unsent else ""
            self._report(f"{plural(len(unsent) + rest, 'line')} {verb} not sent, from line {first} on{text}")

    # ---------------------------------------------------------------- events

    async def _handle_events(self, everything: trio.CancelScope) -> None:
        """Handle events until the end."""
        try:
            while True:
                event = await self._watch.next_event()
                if event is not None:
                    await self._handle(event)
                if self._watch.is_over:
                    self._turn_over.set()
        except (DaemonGone, NotConnected) as error:
            self._failure = DaemonGone(str(error))
        except (BrokenPipeError, StopAsyncIteration):
            pass
        everything.cancel()

    async def _handle(self, event: ConversationEvent) -> None:
        """Print a reply, or note that the daemon is away or there."""
        match event:
            case OutboundMessage(text_with_names=text):
                await self._write(text + "\n")
            case ApprovalNotice(id=id, tool=tool, state="open", question=question):
                what = f"the {question.source} asks: {question.text};" if question else "waits for your yes:"
                self._report(f"{truncate(tool, 80)} {what} {APPROVE} {id}, or {DENY} {id}")
            case Offline(reason=reason, retry_in=retry) if retry is None or not self._online.is_set():
                raise DaemonGone(reason)
            case Online(agent=agent):
                if self._greet is not None and not self._online.is_set():
                    await self._greet(agent)
                self._online.set()


# ------------------------------------------------------------------ pipes


class InputLines:
    """Lines of a file descriptor as an asynchronous iterator, without their ends; invalid UTF-8 becomes U+FFFD.

    longest: bytes kept of a line, and one more, so that whoever checks the size sees that it is too much; the rest is
    read and dropped. The descriptor is read with os.read in a thread that may be abandoned: `sys.stdin` has a lock which
    such a thread would keep at exit. Cancelled while waiting, the thread stays in its read until there is something.
    """

    def __init__(self, fd: int, *, longest: int) -> None:
        self._fd = fd
        self._longest = longest
        self._ready: deque[bytes] = deque()
        """Complete lines that are not returned yet; at most those of one chunk."""
        self._begun = b""
        """Beginning of a line whose end is not read yet."""
        self._ended = False
        """The end of the input was read."""
        self._is_reading = False
        """A thread waits for input. A second read beside it could wait, too."""

    def __aiter__(self) -> InputLines:
        return self

    async def __anext__(self) -> str:
        while not self._ready and not self._ended:
            self._is_reading = True  # stays so if a cancel leaves the thread in its read
            self._add(await trio.to_thread.run_sync(os.read, self._fd, _CHUNK, abandon_on_cancel=True))
            self._is_reading = False
        if not self._ready:
            raise StopAsyncIteration
        return self._ready.popleft().removesuffix(b"\r").decode("utf-8", "replace")

    def count_rest(self) -> int:
        """Return the number of lines that have come and were not returned yet, without blank ones. They are lost for the iterator.

        Nothing is waited for. What a program goes on to write, or a file holds beyond _MOST_CHUNKS, is not counted.
        """
        with suppress(OSError):
            for _ in range(_MOST_CHUNKS):
                if self._ended or self._is_reading or not select.select([self._fd], [], [], 0)[0]:
                    break
                self._add(os.read(self._fd, _CHUNK))
        return sum(bool(line.strip()) for line in (*self._ready, *([] if self._ended else [self._begun])))

    def _add(self, chunk: bytes) -> None:
        """Split a chunk into lines; the last one may be incomplete."""
        self._ended = not chunk
        *complete, begun = chunk.split(b"\n")
        for line in complete:
            self._ready.append(self._extended(line))
            self._begun = b""
        self._begun = self._extended(begun)
        if self._ended and self._begun:
            self._ready.append(self._begun)

    def _extended(self, more: bytes) -> bytes:
        """Return the line begun so far with more text, cut above the longest that is kept."""
        return (self._begun + more)[: self._longest + 1]
