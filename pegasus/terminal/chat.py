"""Entry of the chat: by lines or at a screen, and what is said at its end.

A prompt that is drawn again and again needs a terminal on both sides that understands escape sequences. With a pipe on one
side, or TERM=dumb (an editor's shell), the chat is by lines, which works everywhere (`line_chat`). Both use the same
`Conversation`, so that they reconnect and acknowledge in the same way.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Final

import attrs
import trio

from pegasus.client import (
    Endpoint,
    FindEndpoint,
    open_conversation,
    write_line,
)
from pegasus.formatting import plural, truncate
from pegasus.host import print_error
from pegasus.messages import FOLDER
from pegasus.terminal.greeting import ChatConfig, greeting
from pegasus.terminal.history import LONGEST_ENTRY, HistoryFile
from pegasus.terminal.interactive import InteractiveChat, MakeScreen
from pegasus.terminal.leaving import Leave
from pegasus.terminal.line_chat import (
    UNSENT_WIDTH,
    InputLines,
    LineChat,
)
from pegasus.terminal.tty import neutralise

UNSENT_SHOWN: Final = 10
"""Messages that were not sent and are named at the end of the chat; of more than these the number is given."""


@attrs.frozen
class ChatEnd:
    """End of a chat, as `run_chat` returns it to the command."""

    code: int
    """0, or 1 when a message was not taken."""
    leave: Leave = Leave.LEAVE
    """Wish of the user about the agent."""


# ------------------------------------------------------------------ entry


async def run_chat(where: FindEndpoint | Endpoint, config: ChatConfig, random: Random) -> ChatEnd:
    """Chat until the user leaves or the input ends.

    where: the daemon, or a function that finds it, asked again before each new connection. random: for message ids and
    the jitter of reconnecting. Raises DaemonGone when there is nobody to talk with. Cancelled, it ends at once and leaves
    the terminal as it was.
    """
    metadata = {FOLDER: config.folder} if config.folder else None
    async with open_conversation(where, config.channel, random=random, metadata=metadata) as conversation:
        if not has_screen():
            # Replies go to stdout as they are, unless it is a terminal, where escape sequences would take effect.
            show = neutralise if sys.stdout.isatty() else str
            is_seen = sys.stdin.isatty() and sys.stdout.isatty()
            # stdin and stdout are used by their numbers: Python's own buffers would hold lines back.
            lines = InputLines(sys.stdin.fileno(), longest=config.max_frame_bytes)
            stdout = sys.stdout.fileno()

            async def write(text: str) -> None:
                """Return when the reader has taken the text."""
                await write_line(stdout, show(text).encode("utf-8", "replace"))

            line_chat = LineChat(
                conversation,
                write,
                _report,
                max_frame_bytes=config.max_frame_bytes,
                count_rest=lines.count_rest,
                greet=(lambda agent: write(greeting(agent, config) + "\n\n")) if is_seen else None,
            )
            try:
                return ChatEnd(await line_chat.run(lines))
            finally:
                # Texts of a pipe that nobody has taken are kept where a person can find them: in the history of the next chat.
                HistoryFile(config.history).append(*conversation.unaccepted_texts)
        # The connection is being made meanwhile, by the conversation's own tasks.
        make_screen = await trio.to_thread.run_sync(_import_screen, config)
        chat = InteractiveChat(conversation, make_screen, config)
        try:
            leave = await chat.run()
        finally:  # also when a signal or the end of the daemon ends the chat
            unsent = chat.unsent
            _report_unsent(unsent, HistoryFile(config.history))
    return ChatEnd(1 if unsent else 0, leave)


def _report_unsent(texts: Sequence[str], history: HistoryFile) -> None:
    """Print which typed messages were not sent: text that a person has typed is never dropped without a word.

    The prompt has kept them in the history when they were typed, except very long ones, which are added here.
    """
    if not texts:
        return
    history.append(*(text for text in texts if len(text) > LONGEST_ENTRY))
    verb, them = ("was", "it") if len(texts) == 1 else ("were", "them")
    _report(f"{plural(len(texts), 'message')} {verb} not sent; the next chat has {them} in its history (Up):")
    for text in texts[:UNSENT_SHOWN]:
        print_error(f"  {neutralise(truncate(text, UNSENT_WIDTH))}")
    if len(texts) > UNSENT_SHOWN:
        print_error(f"  and {len(texts) - UNSENT_SHOWN:,} more")


def has_screen() -> bool:
    """Return True if there is a terminal on both sides that can do more than print."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def _import_screen(config: ChatConfig) -> MakeScreen:
    """Import prompt_toolkit and rich, which takes a tenth of a second: in a thread, so that the connection is made meanwhile."""
    from pegasus.terminal.screen import Screen

    return partial(
        Screen,
        config.history,
        colour=not os.environ.get("NO_COLOR"),
        max_bytes=config.max_frame_bytes,
        leave_rules=config.leave_rules,
    )


def _report(line: str) -> None:
    """Print a line about a message that was not taken on stderr.

    The name of the program stands in front, since the line may be among those of other programs.
    """
    print_error(f"pegasus: {line}")
