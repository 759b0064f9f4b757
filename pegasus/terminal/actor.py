"""The terminal beside the daemon in the same process: an actor under `channels` that is an ordinary gateway client."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import trio

from actors import Inbox
from pegasus.messages import ChannelInfo

CLI = ChannelInfo("cli", "main")


async def terminal(
    inbox: Inbox[object],
    url: str,
    token: str,
    history: Path,
    random: Random,
    on_quit: Callable[[], object],
    most: int = 1 << 20,
) -> None:
    """Chat with the daemon this process is; to be started when it is ready, since the imports take a while.

    url, token: the gateway's. history: the file of what was typed. on_quit: called when the user leaves or the
    terminal is gone; the actor then waits to be stopped. most: the gateway's max_frame_bytes. Told to stop, or
    cancelled, it gives the terminal back within two seconds. Raises what went wrong on the screen.
    """
    inbox.started()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_until_told, inbox, nursery.cancel_scope)
        await _chat(url, token, history, random, most)
        on_quit()
        with suppress(OSError):
            os.write(2, b"Stopping; Ctrl-C ends it at once.\n")
        await trio.sleep_forever()


async def _chat(url: str, token: str, history: Path, random: Random, most: int) -> None:
    from pegasus.client import Endpoint
    from pegasus.terminal.chat import chat

    await chat(Endpoint(url, token), CLI, history, random, most=most, own=True)


async def _until_told(inbox: Inbox[object], everything: trio.CancelScope) -> None:
    async for _ in inbox:
        pass
    everything.cancel()
