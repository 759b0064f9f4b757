"""One chat over one conversation, on whatever stdin and stdout are: a person's terminal, or pipes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import trio

from pegasus.client import Endpoint, FindEndpoint, open_conversation
from pegasus.messages import ChannelInfo
from pegasus.terminal.lines import LineChat
from pegasus.terminal.neutral import neutralise
from pegasus.terminal.pipes import Lines, write_all
from pegasus.terminal.talk import Chat, MakeScreen, Talk


async def chat(
    where: FindEndpoint | Endpoint, channel: ChannelInfo, history: Path, random: Random, *, most: int, own: bool = False
) -> int:
    """Talk until the user leaves or the input ends; gives an exit code: 0, or 1 when a message was not taken.

    most: bytes the gateway takes in a frame. own: the daemon is this very process: it is waited for when it is away at
    the start, ends with the chat, and is not stopped by Ctrl-Z. Raises Gone when there is nobody to talk with.
    Cancelled, it ends at once and leaves the terminal as it was.
    """
    async with open_conversation(where, channel, random=random) as talk:
        if fits_screen():
            make_screen = await trio.to_thread.run_sync(_screen_maker, history, not own)
            return await _on_screen(Chat(talk, make_screen, most=most, own=own))
        return await _on_pipes(talk, most)


def fits_screen() -> bool:
    """Whether there is a terminal on both sides that can do more than print."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


async def _on_screen(talking: Chat) -> int:
    unsent = await talking.run()
    if unsent:
        _complain(f"{unsent} message{'' if unsent == 1 else 's'} could not be sent")
    return 1 if unsent else 0


async def _on_pipes(talk: Talk, most: int) -> int:
    write = partial(write_all, sys.stdout.fileno())
    safe = (lambda text: write(neutralise(text))) if sys.stdout.isatty() else write
    return await LineChat(talk, safe, _complain, most=most).run(Lines(sys.stdin.fileno(), longest=most))


def _screen_maker(history: Path, suspend: bool) -> MakeScreen:
    """Imports prompt_toolkit and rich, which takes a tenth of a second: not for Trio's thread."""
    from pegasus.terminal.screen import Screen

    def make(said: Callable[[str], None], left: Callable[[], None]) -> Screen:
        colour = not os.environ.get("NO_COLOR")
        return Screen(history, said=said, left=left, colour=colour, suspend=suspend)

    return make


def _complain(line: str) -> None:
    sys.stderr.write(f"pegasus: {line}\n")
