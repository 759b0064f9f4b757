"""Entry of the chat: one conversation on whatever stdin and stdout are, a person's terminal or pipes.

A prompt that is drawn again and again needs a terminal on both sides that understands escape sequences. With a pipe on one
side, or TERM=dumb (an editor's shell), the chat is by lines, which works everywhere. Both use the same `Conversation`, so that
they reconnect and acknowledge in the same way.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from random import Random

import trio

from pegasus.client import Endpoint, FindEndpoint, open_conversation
from pegasus.formatting import plural
from pegasus.host import print_error
from pegasus.terminal.interactive import ChatConfig, ConversationLike, InteractiveChat, MakeScreen
from pegasus.terminal.line_chat import InputLines, LineChat, write_all
from pegasus.terminal.neutral import neutralise


async def run_chat(where: FindEndpoint | Endpoint, config: ChatConfig, random: Random) -> int:
    """Chat until the user leaves or the input ends; return 0, or 1 when a message was not taken.

    where: the daemon, or a function that finds it, asked again before each new connection. random: for message ids and
    the jitter of reconnecting. Raises DaemonGone when there is nobody to talk with. Cancelled, it ends at once and leaves
    the terminal as it was.

    Example::

        code = await run_chat(Endpoint("ws://127.0.0.1:7717", token), config, Random())
    """
    async with open_conversation(where, config.channel, random=random) as conversation:
        if has_screen():
            make_screen = await trio.to_thread.run_sync(_import_screen, config)
            return await _on_screen(InteractiveChat(conversation, make_screen, config))
        return await _on_pipes(conversation, config.max_frame_bytes)


def has_screen() -> bool:
    """Return True if there is a terminal on both sides that can do more than print."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


async def _on_screen(chat: InteractiveChat) -> int:
    """Chat at a screen; return the exit code. Text that was typed and could not be sent is never dropped without a word."""
    unsent = await chat.run()
    if unsent:
        _report(f"{plural(unsent, 'message')} could not be sent")
    return 1 if unsent else 0


async def _on_pipes(conversation: ConversationLike, max_frame_bytes: int) -> int:
    """Chat by lines; return the exit code. Replies go to stdout as they are, unless it is a terminal."""
    write = partial(_write_output, neutral=sys.stdout.isatty())
    lines = InputLines(sys.stdin.fileno(), longest=max_frame_bytes)
    return await LineChat(conversation, write, _report, max_frame_bytes=max_frame_bytes).run(lines)


async def _write_output(text: str, *, neutral: bool) -> None:
    """Write to stdout; neutral: for a terminal, where escape sequences would take effect."""
    await write_all(sys.stdout.fileno(), neutralise(text) if neutral else text)


def _import_screen(config: ChatConfig) -> MakeScreen:
    """Import prompt_toolkit and rich, which takes a tenth of a second: in a thread, so that the connection is made meanwhile."""
    from pegasus.terminal.screen import Screen

    def make(on_message: Callable[[str], None], on_leave: Callable[[], None]) -> Screen:
        colour = not os.environ.get("NO_COLOR")
        return Screen(config.history, on_message=on_message, on_leave=on_leave, colour=colour, skills=config.skills)

    return make


def _report(line: str) -> None:
    """Print a line about a message that was not taken on stderr."""
    print_error(f"pegasus: {line}")
