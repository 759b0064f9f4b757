"""Entry of the chat, and the chat of one person at a screen.

A prompt that is drawn again and again needs a terminal on both sides that understands escape sequences. With a pipe on one
side, or TERM=dumb (an editor's shell), the chat is by lines, which works everywhere (`line_chat`). Both use the same
`Conversation`, so that they reconnect and acknowledge in the same way.

In `InteractiveChat` typed text goes to the conversation, and events of the conversation go to the screen.
Two threads take part. Trio's thread owns the conversation and all state of `InteractiveChat`. The screen runs
prompt_toolkit on an asyncio loop in a thread of its own (see `screen`), because the two loops cannot share one. They meet
in two places only: methods of the screen may be called from any thread and return at once; what the user does is handed
to Trio's thread with `run_sync_soon`.

A reply is acknowledged when the next event is asked for, and the next event is asked for when the reply has been drawn.
So a chat that is killed while it prints gets the same reply again the next time.

Leaving waits for two things, each with a bound: typed messages that are not accepted yet (ACCEPT_SECONDS), because a person
who types a message and leaves expects it to be sent; and the screen's thread (CLOSE_SECONDS), because the terminal's modes must
be restored before the shell's prompt appears. What was not accepted in time is counted, and the command says so.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
import trio

from pegasus.client import (
    Conversation,
    ConversationEvent,
    Endpoint,
    FindEndpoint,
    MessageAccepted,
    MessageRejected,
    Offline,
    Online,
    open_conversation,
)
from pegasus.formatting import plural
from pegasus.host import print_error
from pegasus.messages import ChannelInfo, OutboundMessage, Progress, Typing
from pegasus.terminal.line_chat import DaemonGone, InputLines, LineChat, frame_bytes, write_all
from pegasus.terminal.prompt_rules import ChatStatus, is_stop
from pegasus.terminal.tty import neutralise, restore_terminal

if TYPE_CHECKING:  # imports prompt_toolkit and rich
    from pegasus.terminal.screen import Screen

MAX_UNSENT: Final = 1000
"""Typed messages that may wait for the conversation; a person does not type more, a runaway paste does."""
ACCEPT_SECONDS: Final = 2.0
"""Seconds that leaving waits for the messages just typed to be accepted."""
CLOSE_SECONDS: Final = 2.0
"""Seconds a screen may take to end; one that hangs in a write is abandoned, and the terminal restored without it."""


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
    skills: Callable[[], Mapping[str, str]] = dict
    """Returns name and description of the skills that a person may call. Called in the screen's thread; must not raise."""


MakeScreen: TypeAlias = Callable[[Callable[[str], None], Callable[[], None]], "Screen"]
"""Constructor of a screen from `on_message` and `on_leave`, both callable from its thread."""


# ------------------------------------------------------------------ entry


async def run_chat(where: FindEndpoint | Endpoint, config: ChatConfig, random: Random) -> int:
    """Chat until the user leaves or the input ends; return 0, or 1 when a message was not taken.

    where: the daemon, or a function that finds it, asked again before each new connection. random: for message ids and
    the jitter of reconnecting. Raises DaemonGone when there is nobody to talk with. Cancelled, it ends at once and leaves
    the terminal as it was.

    Example::

        code = await run_chat(Endpoint("ws://127.0.0.1:7717", token), config, Random())
    """
    async with open_conversation(where, config.channel, random=random) as conversation:
        if not has_screen():
            # Replies go to stdout as they are, unless it is a terminal, where escape sequences would take effect.
            show = neutralise if sys.stdout.isatty() else str
            lines = InputLines(sys.stdin.fileno(), longest=config.max_frame_bytes)
            write = partial(write_all, sys.stdout.fileno())
            line_chat = LineChat(
                conversation, lambda text: write(show(text)), _report, max_frame_bytes=config.max_frame_bytes
            )
            return await line_chat.run(lines)
        make_screen = await trio.to_thread.run_sync(_import_screen, config)
        unsent = await InteractiveChat(conversation, make_screen, config).run()
    if unsent:  # text that was typed and could not be sent is never dropped without a word
        _report(f"{plural(unsent, 'message')} could not be sent")
    return 1 if unsent else 0


def has_screen() -> bool:
    """Return True if there is a terminal on both sides that can do more than print."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def _import_screen(config: ChatConfig) -> MakeScreen:
    """Import prompt_toolkit and rich, which takes a tenth of a second: in a thread, so that the connection is made meanwhile."""
    from pegasus.terminal.screen import Screen

    return partial(Screen, config.history, colour=not os.environ.get("NO_COLOR"), skills=config.skills)


def _report(line: str) -> None:
    """Print a line about a message that was not taken on stderr."""
    print_error(f"pegasus: {line}")


# ------------------------------------------------------------------ at a screen


class InteractiveChat:
    """Chat of one person at one screen. Make it inside trio.run, and call `run` once.

    Example::

        async with open_conversation(find, config.channel, random=random) as conversation:
            unsent = await InteractiveChat(conversation, make_screen, config).run()

    Typed messages pass through a bounded channel, so that a paste cannot fill the memory while the daemon is away. `/stop` does
    not wait in it: a person who stops the agent means everything that is queued, too.
    """

    def __init__(self, conversation: Conversation, make_screen: MakeScreen, config: ChatConfig) -> None:
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
        self._screen = make_screen(partial(self._post, self._queue), partial(self._post, self._left.set))

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
        """Run the screen in a thread of its own; return when the user has left or the screen has ended.

        Leaving, in whatever way, closes the screen and waits for it, CLOSE_SECONDS at most: a thread that hangs in a write to a
        terminal that does not take it cannot be ended, so it is abandoned and the terminal's modes are restored without it.

        What the screen's thread raised is returned instead of raised: inside the nursery it would arrive wrapped in a group,
        beside cancellations.
        """
        failure: Exception | None = None
        waiting = trio.CancelScope(shield=True)

        async def run() -> None:
            nonlocal failure
            with waiting:
                try:
                    await trio.to_thread.run_sync(self._screen.run, abandon_on_cancel=True)
                except Exception as error:
                    failure = error
            if waiting.cancelled_caught:
                restore_terminal()
            self._left.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            try:
                await self._left.wait()
            finally:
                self._screen.close()
                waiting.deadline = trio.current_time() + CLOSE_SECONDS
        return failure

    async def _wait_accepted(self) -> None:
        """Return when every typed message has been accepted, ACCEPT_SECONDS at the latest."""
        with trio.move_on_after(ACCEPT_SECONDS):
            while self._unsent:
                self._all_accepted = trio.Event()
                await self._all_accepted.wait()

    def _post(self, callback: Callable[..., None], *args: object) -> None:
        """Run the callback in Trio's thread, from the screen's. After the end of trio.run it is dropped."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(callback, *args)

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
        attached = [f"[attached: {file.name}, {file.mime}]" for file in reply.media]
        self._screen.reply(self._agent, "\n\n".join([reply.text, *attached]), partial(self._post, drawn.set))
        await drawn.wait()

    def _update_status(self, status: ChatStatus | None = None) -> None:
        """Show this status, or the present one, with the number of unsent messages as it is now."""
        status = attrs.evolve(status or self._status, unsent=self._unsent)
        if status != self._status:
            self._status = status
            self._screen.status(status)
        if not self._unsent:
            self._all_accepted.set()
