"""A person's chat: what is typed goes to the conversation, what the agent says to the screen."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Protocol, TypeAlias

import trio

from pegasus.client import ConversationEvent, MessageAccepted, MessageRejected, Offline, Online
from pegasus.messages import OutboundMessage, Progress, Typing
from pegasus.terminal.keys import is_stop
from pegasus.terminal.status import Status
from pegasus.terminal.thread import ScreenLike, running

UNSENT = 1000
"""Typed messages that may wait for the conversation; a person does not type more, a runaway paste does."""
FAREWELL_SECONDS = 2.0
"""How long leaving waits for what was just typed to be accepted."""
FRAME_OVERHEAD = 256
"""Bytes of a message frame around its text, generously."""

MakeScreen: TypeAlias = Callable[[Callable[[str], None], Callable[[], None]], ScreenLike]
"""Builds a screen from `said` and `left`, both callable from its thread."""


class Talk(Protocol):
    """What of `pegasus.client.Conversation` is used here."""

    @property
    def unaccepted(self) -> int: ...

    async def send(self, text: str) -> str: ...

    def __aiter__(self) -> AsyncIterator[ConversationEvent]: ...


class Gone(Exception):
    """There is nobody to talk with (any more); str() is one line for a person."""


def frame_bytes(text: str) -> int:
    """How large the text makes a message frame, in bytes."""
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")) + FRAME_OVERHEAD


class Chat:
    """One person at one screen; `run` is its life.

    most: bytes a message frame may have. own: the daemon lives in this process; it is waited for when it is away at
    the start, and ends when the user leaves.
    """

    def __init__(self, talk: Talk, make_screen: MakeScreen, *, most: int, own: bool = False) -> None:
        self._events = aiter(talk)
        self._own = own
        self._talk = talk
        self._most = most
        self._token = trio.lowlevel.current_trio_token()
        self._typed_in, self._typed = trio.open_memory_channel[str](UNSENT)
        self._left = trio.Event()
        self._calm = trio.Event()
        self._agent = "Pegasus"
        self._status = Status()
        self._urgent = 0
        self._reason = ""
        self._refused = False
        self._screen = make_screen(self._said, self._leave)

    async def run(self) -> int:
        """Until the user leaves; gives how many messages could not be handed over. Raises Gone.

        What was typed just before leaving is given FAREWELL_SECONDS to be accepted. Cancelled, it ends at once; the
        terminal is restored either way.
        """
        if not self._own:
            await self._hear(await anext(self._events))
            if not self._status.online:
                raise Gone(self._reason)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._send)
            nursery.start_soon(self._listen)
            nursery.start_soon(self._watch_size)
            failure = await self._until_left()
            if failure is None and self._status.online:
                await self._farewell()
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if self._refused:
            raise Gone(self._reason)
        return self._unsent

    async def _until_left(self) -> Exception | None:
        try:
            async with running(self._screen) as ended, trio.open_nursery() as waiting:
                waiting.start_soon(_set_after, ended, self._left)
                await self._left.wait()
                waiting.cancel_scope.cancel()
        except Exception as error:
            return error
        return None

    async def _farewell(self) -> None:
        with trio.move_on_after(FAREWELL_SECONDS):
            while self._unsent:
                self._calm = trio.Event()
                await self._calm.wait()

    # ---------------------------------------------------------------- what the user does, from the screen's thread

    def _said(self, text: str) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._take, text)

    def _leave(self) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._left.set)

    def _take(self, text: str) -> None:
        size = frame_bytes(text)
        if size > self._most:
            self._screen.notice(f"Not sent: {size:,} bytes; the gateway takes {self._most:,} at most.")
        elif is_stop(text):
            self._urgent += 1
            self._nursery.start_soon(self._send_urgent, text)
        else:
            try:
                self._typed_in.send_nowait(text)
            except trio.WouldBlock:
                self._screen.notice(f"Not sent: {UNSENT} messages are waiting to be sent already.")
        self._tell()

    # ---------------------------------------------------------------- tasks

    async def _send(self) -> None:
        async for text in self._typed:
            await self._talk.send(text)
            self._tell()

    async def _send_urgent(self, text: str) -> None:
        await self._talk.send(text)
        self._urgent -= 1
        self._tell()

    async def _listen(self) -> None:
        async for event in self._events:
            await self._hear(event)
        self._left.set()

    async def _watch_size(self) -> None:
        if threading.current_thread() is threading.main_thread():
            with trio.open_signal_receiver(signal.SIGWINCH) as signals:
                async for _ in signals:
                    self._screen.resized()

    # ---------------------------------------------------------------- what the agent's side tells

    async def _hear(self, event: ConversationEvent) -> None:
        match event:
            case OutboundMessage():
                await self._show(event)
            case Typing(active=active):
                self._tell(thinking=active, draft="")
            case Progress(text=text):
                self._tell(draft=text)
            case MessageAccepted():
                self._tell()
            case MessageRejected(code=code, message=message):
                self._screen.notice(f"Not taken: {message} ({code})")
                self._tell()
            case Online(agent=agent):
                self._greet(agent)
            case Offline(reason=reason, retry_in=retry):
                self._reason, self._refused = reason, retry is None
                self._tell(online=False, lost=self._status.lost or self._status.online, thinking=False)

    def _greet(self, agent: str) -> None:
        self._agent = agent
        if not self._status.lost:
            leave = f"ends {agent}" if self._own else "leaves"
            self._screen.notice(f"Talking with {agent}. /help shows what there is, Ctrl-D {leave}.")
        self._tell(online=True)

    async def _show(self, reply: OutboundMessage) -> None:
        shown = trio.Event()

        def on_screen() -> None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(shown.set)

        attached = [f"[attached: {file.name}, {file.mime}]" for file in reply.media]
        self._screen.reply(self._agent, "\n\n".join([reply.text, *attached]), on_screen)
        await shown.wait()

    @property
    def _unsent(self) -> int:
        return self._typed_in.statistics().current_buffer_used + self._urgent + self._talk.unaccepted

    def _tell(
        self,
        *,
        online: bool | None = None,
        lost: bool | None = None,
        thinking: bool | None = None,
        draft: str | None = None,
    ) -> None:
        now = self._status
        self._status = Status(
            online=now.online if online is None else online,
            lost=now.lost if lost is None else lost,
            thinking=now.thinking if thinking is None else thinking,
            unsent=self._unsent,
            draft=now.draft if draft is None else draft,
        )
        if self._status != now:
            self._screen.status(self._status)
        if not self._unsent:
            self._calm.set()


async def _set_after(first: trio.Event, then: trio.Event) -> None:
    await first.wait()
    then.set()
