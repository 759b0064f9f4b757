"""`pegasus send`: one message from a script, and what the agent answers."""

from __future__ import annotations

import sys
from functools import partial
from random import Random

import trio

from pegasus.cli.dial import find_daemon
from pegasus.client import Conversation, FindEndpoint, NotConnected, Offline, Online, open_conversation
from pegasus.host import Home
from pegasus.messages import ChannelInfo, OutboundMessage
from pegasus.settings import Settings
from pegasus.terminal import Turn


def run_send(home: Home, settings: Settings, *, text: str, channel: str, wait: float) -> int:
    """Send as `cli:<channel>` and print the replies on stdout; gives the exit code, 0 when at least one came.

    Returns when the agent has finished with the message and said something, at the latest after `wait` seconds. Replies to
    earlier messages of this conversation that nobody has seen yet go to stderr.
    """
    try:
        replies = trio.run(_send, partial(find_daemon, home, settings), ChannelInfo("cli", channel), text, wait)
    except NotConnected as error:
        return _complain(str(error))
    if replies == 0:
        return _complain(f"no reply within {wait:g} s; it will wait in the conversation cli:{channel}")
    return 0


async def _send(locate: FindEndpoint, channel: ChannelInfo, text: str, wait: float) -> int:
    """The number of replies. Raises NotConnected if the daemon cannot be reached or refuses the message."""
    locate()
    async with open_conversation(locate, channel, random=Random()) as conversation:  # noqa: S311
        with trio.move_on_after(wait):
            return await _exchange(conversation, text)
        return 0


async def _exchange(conversation: Conversation, text: str) -> int:
    turn = Turn(text)
    replies = 0
    before: int | None = None
    async for event in conversation:
        turn.handle(event)
        match event:
            case Online(seq=seq) if before is None:
                before = seq
                await conversation.send(text)
            case Offline() if before is None or event.retry_in is None:
                raise NotConnected(event.reason)
            case OutboundMessage(text=said, seq=seq):
                late = before is not None and seq <= before
                print(said, file=sys.stderr if late else sys.stdout, flush=True)
                replies += not late
        if turn.rejected is not None:
            raise NotConnected(f"the gateway refused the message: {turn.rejected.message}")
        if turn.over and replies:
            break
    return replies


def _complain(line: str) -> int:
    print(f"pegasus: {line}", file=sys.stderr)
    return 1
