"""Chat of one person at a screen: typed text goes to the conversation, events of the conversation go to the screen.

Two threads take part. Trio's thread owns the conversation and all state of `InteractiveChat`. The screen runs
prompt_toolkit on an asyncio loop in a thread of its own (see `screen`), because the two loops cannot share one. They meet
in two places only: methods of the screen may be called from any thread and return at once; what the user does is handed
to Trio's thread with `run_sync_soon`.

A reply is acknowledged when the next event is asked for, and the next event is asked for when the reply has been drawn.
So a chat that is killed while it prints gets the same reply again the next time.

Leaving waits for two things, each with a bound: typed messages that are not accepted yet (ACCEPT_SECONDS), because a person
who types a message and leaves expects it to be sent; and the screen's thread (CLOSE_SECONDS), because the terminal's modes must
be restored before the shell's prompt appears. What was not accepted in time is counted, and the command says so.

The protocols `ConversationLike` and `ScreenLike` are the two sides as this file uses them. Tests run the chat with a scripted
conversation and a screen without a terminal, in virtual time.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import attrs
import trio

from pegasus.client import ConversationEvent, MessageAccepted, MessageRejected, Offline, Online
from pegasus.messages import ChannelInfo, OutboundMessage, Progress, Typing
from pegasus.terminal.commands import SkillNames, is_stop
from pegasus.terminal.status import ChatStatus
from pegasus.terminal.tty import restore_terminal

MAX_UNSENT: Final = 1000
"""Typed messages that may wait for the conversation; a person does not type more, a runaway paste does."""
ACCEPT_SECONDS: Final = 2.0
"""Seconds that leaving waits for the messages just typed to be accepted."""
CLOSE_SECONDS: Final = 2.0
"""Seconds a screen may take to end; one that hangs in a write is abandoned, and the terminal restored without it."""
FRAME_OVERHEAD: Final = 256
"""Bytes of a message frame around its text (type, id, braces), rounded up. The gateway makes the exact check."""


class DaemonGone(Exception):
    """There is no daemon to talk with, or not any more; str() is one line for a person."""


@attrs.frozen
class ChatConfig:
    """Values of a chat that its caller knows: address, files, and facts about the daemon.

    Example::

        ChatConfig(ChannelInfo("cli", "main"), home.history, max_frame_bytes=1 << 20, model="anthropic/claude")
    """

    channel: ChannelInfo
    """Address of the conversation."""
    history: Path
    """File of the typed messages."""
    max_frame_bytes: int
    """Size above which the gateway refuses a message."""
    model: str = ""
    """Model of the agent, for the greeting; "" = not known."""
    stops_agent: bool = False
    """Leaving the chat stops the agent too; the greeting says so."""
    skills: SkillNames | None = None
    """Skills that a person may call by name."""


class ConversationLike(Protocol):
    """Part of `pegasus.client.Conversation` that a chat uses."""

    @property
    def unaccepted(self) -> int:
        """Number of messages that were sent and not yet accepted."""

    async def send(self, text: str) -> str:
        """Hand over a message."""

    def __aiter__(self) -> AsyncIterator[ConversationEvent]:
        """Return the events. Asking for the next one acknowledges the reply that was returned before."""


class ScreenLike(Protocol):
    """Screen as the chat uses it. `run` blocks; the others return at once, in any thread."""

    def run(self) -> None:
        """Show the prompt until `close`."""

    def reply(self, agent: str, text: str, shown: Callable[[], None]) -> None:
        """Print a reply, then call `shown`."""

    def notice(self, text: str) -> None:
        """Print a remark that is not the agent's."""

    def status(self, status: ChatStatus) -> None:
        """Show the status line."""

    def resized(self) -> None:
        """Lay the prompt out for another window size."""

    def close(self) -> None:
        """Make `run` return."""


MakeScreen: TypeAlias = Callable[[Callable[[str], None], Callable[[], None]], ScreenLike]
"""Constructor of a screen from `on_message` and `on_leave`, both callable from its thread."""


def frame_bytes(text: str) -> int:
    """Return the size of a message frame with this text, in bytes.

    It is computed before sending: a frame that is too large ends the connection, and with it everything that is under way.
    """
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")) + FRAME_OVERHEAD


class InteractiveChat:
    """Chat of one person at one screen. Make it inside trio.run, and call `run` once.

    Example::

        async with open_conversation(find, config.channel, random=random) as conversation:
            unsent = await InteractiveChat(conversation, make_screen, config).run()

    Typed messages pass through a bounded channel, so that a paste cannot fill the memory while the daemon is away. `/stop` does
    not wait in it: a person who stops the agent means everything that is queued, too.
    """

    def __init__(self, conversation: ConversationLike, make_screen: MakeScreen, config: ChatConfig) -> None:
        self._config = config
        self._conversation = conversation
        self._events = aiter(conversation)
        self._token = trio.lowlevel.current_trio_token()
        """Way from the screen's thread into Trio's."""
        self._typed_in, self._typed = trio.open_memory_channel[str](MAX_UNSENT)
        """Typed messages that are not handed to the conversation yet."""
        self._left = trio.Event()
        """Set when the user leaves, the screen has ended, or the daemon has refused for good."""
        self._all_accepted = trio.Event()
        """Set whenever no typed message waits for being accepted; replaced by `_wait_accepted`."""
        self._agent = "Pegasus"
        """Name of the agent, from the gateway's welcome."""
        self._status = ChatStatus()
        """Facts that the status line shows at present."""
        self._urgent = 0
        """Messages that passed the queue (/stop) and are not handed over yet."""
        self._offline_reason = ""
        """Reason of the last failed or lost connection, for DaemonGone."""
        self._refused = False
        """There will be no other attempt to connect."""
        self._screen = make_screen(self._on_message, self._on_leave)

    async def run(self) -> int:
        """Chat until the user leaves; return how many messages could not be handed over.

        Messages typed just before leaving are given ACCEPT_SECONDS to be accepted. Raises DaemonGone if there is no
        daemon at the start or it refuses for good, and what went wrong on the screen. Cancelled, it ends at once. The
        terminal is restored in every case.
        """
        await self._handle(await anext(self._events))
        if not self._status.online:
            raise DaemonGone(self._offline_reason)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._send_typed)
            nursery.start_soon(self._handle_events)
            nursery.start_soon(self._watch_window_size)
            failure = await self._run_screen()
            if failure is None and self._status.online:
                await self._wait_accepted()
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if self._refused:
            raise DaemonGone(self._offline_reason)
        return self._unsent

    async def _run_screen(self) -> Exception | None:
        """Return when the user has left or the screen has ended.

        Its failure is returned instead of raised: inside the nursery it would arrive wrapped in a group, beside cancellations.
        """
        try:
            async with running(self._screen) as ended, trio.open_nursery() as waiting:
                waiting.start_soon(_set_after, ended, self._left)
                await self._left.wait()
                waiting.cancel_scope.cancel()
        except Exception as error:
            return error
        return None

    async def _wait_accepted(self) -> None:
        """Return when every typed message has been accepted, ACCEPT_SECONDS at the latest."""
        with trio.move_on_after(ACCEPT_SECONDS):
            while self._unsent:
                self._all_accepted = trio.Event()
                await self._all_accepted.wait()

    # ---------------------------------------------------------------- called in the screen's thread

    def _on_message(self, text: str) -> None:
        """Pass a typed text to Trio's thread. After the end of trio.run it is dropped."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._queue, text)

    def _on_leave(self) -> None:
        """Report to Trio's thread that the user leaves."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._left.set)

    # ---------------------------------------------------------------- sending

    def _queue(self, text: str) -> None:
        """Queue a typed text, or show why it is not sent: too large, or too many waiting."""
        size, limit = frame_bytes(text), self._config.max_frame_bytes
        if size > limit:
            self._screen.notice(f"Not sent: {size:,} bytes; the gateway takes {limit:,} at most.")
        elif is_stop(text):  # passes everything that waits
            self._urgent += 1
            self._nursery.start_soon(self._send_urgent, text)
        else:
            try:
                self._typed_in.send_nowait(text)
            except trio.WouldBlock:
                self._screen.notice(f"Not sent: {MAX_UNSENT} messages are waiting to be sent already.")
        self._update_status()

    async def _send_typed(self) -> None:
        """Send the queued texts in order. `send` waits while too many are not accepted yet."""
        async for text in self._typed:
            await self._conversation.send(text)
            self._update_status()

    async def _send_urgent(self, text: str) -> None:
        """Send a text beside the queue."""
        await self._conversation.send(text)
        self._urgent -= 1
        self._update_status()

    @property
    def _unsent(self) -> int:
        """Number of typed texts that the daemon has not accepted yet."""
        return self._typed_in.statistics().current_buffer_used + self._urgent + self._conversation.unaccepted

    async def _watch_window_size(self) -> None:
        """Pass SIGWINCH on, which reaches the main thread only."""
        if threading.current_thread() is threading.main_thread():
            with trio.open_signal_receiver(signal.SIGWINCH) as signals:
                async for _ in signals:
                    self._screen.resized()

    # ---------------------------------------------------------------- events

    async def _handle_events(self) -> None:
        """Handle events until the conversation ends, which it does only after a refusal for good."""
        async for event in self._events:
            await self._handle(event)
        self._left.set()

    async def _handle(self, event: ConversationEvent) -> None:
        """Show an event: a reply is printed, everything else changes the status line."""
        now = self._status
        match event:
            case OutboundMessage():
                await self._show(event)
            case Typing(active=active):
                self._update_status(attrs.evolve(now, thinking=active, draft=""))
            case Progress(text=text):
                self._update_status(attrs.evolve(now, draft=text))
            case MessageAccepted():
                self._update_status()
            case MessageRejected(code=code, message=message):
                self._screen.notice(f"Not taken: {message} ({code})")
                self._update_status()
            case Online(agent=agent):
                self._greet(agent)
            case Offline(reason=reason, retry_in=retry):
                self._offline_reason, self._refused = reason, retry is None
                lost = now.lost or now.online
                self._update_status(attrs.evolve(now, online=False, lost=lost, thinking=False))

    def _greet(self, agent: str) -> None:
        """Show the connection; the first time with a line that names the agent, its model and the way out.

        A reconnection is visible in the status line only.
        """
        self._agent = agent
        if not self._status.lost:
            model = f" ({self._config.model})" if self._config.model else ""
            leaving = f"stops {agent}" if self._config.stops_agent else f"leaves, and {agent} goes on"
            self._screen.notice(f"Talking with {agent}{model}. /help shows what there is, Ctrl-D {leaving}.")
        self._update_status(attrs.evolve(self._status, online=True))

    async def _show(self, reply: OutboundMessage) -> None:
        """Return when the reply has been drawn.

        Until then no other event is taken, so that the reply is acknowledged only after a person could see it.
        """
        drawn = trio.Event()

        def on_drawn() -> None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(drawn.set)

        attached = [f"[attached: {file.name}, {file.mime}]" for file in reply.media]
        self._screen.reply(self._agent, "\n\n".join([reply.text, *attached]), on_drawn)
        await drawn.wait()

    def _update_status(self, status: ChatStatus | None = None) -> None:
        """Show this status, or the present one, with the number of unsent messages as it is now."""
        status = attrs.evolve(status or self._status, unsent=self._unsent)
        if status != self._status:
            self._status = status
            self._screen.status(status)
        if not self._unsent:
            self._all_accepted.set()


async def _set_after(first: trio.Event, then: trio.Event) -> None:
    """Set `then` once `first` is set."""
    await first.wait()
    then.set()


@asynccontextmanager
async def running(screen: ScreenLike) -> AsyncIterator[trio.Event]:
    """Run the screen in a thread of its own while the block runs; yield the event of its end.

    Leaving the block, in whatever way, closes the screen and waits for it, CLOSE_SECONDS at most: a thread that hangs in a
    write to a terminal that does not take it cannot be ended, so it is abandoned and the terminal's modes are restored without
    it. Raises what the screen's thread raised, unless the block raised itself.
    """
    ended = trio.Event()
    waiting = trio.CancelScope(shield=True)
    failure: Exception | None = None

    async def run() -> None:
        nonlocal failure
        with waiting:
            try:
                await trio.to_thread.run_sync(screen.run, abandon_on_cancel=True)
            except Exception as error:
                failure = error
        if waiting.cancelled_caught:
            restore_terminal()
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        try:
            yield ended
        finally:
            screen.close()
            waiting.deadline = trio.current_time() + CLOSE_SECONDS
    if failure is not None:
        raise failure
