"""`pegasus chat`: the terminal chat with a daemon that is running."""

from __future__ import annotations

import signal
import sys
from functools import partial
from random import Random

import trio

from pegasus.cli.dial import find_daemon
from pegasus.host import Home
from pegasus.messages import ChannelInfo
from pegasus.settings import Settings
from pegasus.terminal.chat import chat
from pegasus.terminal.talk import Gone

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_chat(home: Home, settings: Settings, *, channel: str) -> int:
    """Chat as `cli:<channel>` until the user leaves or stdin ends; gives the exit code.

    1 with a line on stderr when no daemon runs, it refuses, or it goes away for good; 128 + n after signal n. A reader of
    stdout that left is no error.
    """
    try:
        return trio.run(_chat, home, settings, channel)
    except Gone as error:
        sys.stderr.write(f"pegasus: {error}\n")
        return 1


async def _chat(home: Home, settings: Settings, channel: str) -> int:
    code = 0
    failure: Gone | None = None
    async with trio.open_nursery() as nursery:
        ended = await nursery.start(_watch_signals, nursery.cancel_scope)
        try:
            code = await chat(
                partial(find_daemon, home, settings),
                ChannelInfo("cli", channel),
                home.history,
                Random(),  # noqa: S311
                most=settings.gateway.max_frame_bytes,
            )
        except Gone as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return 128 + ended[0] if ended else code


async def _watch_signals(
    everything: trio.CancelScope, task_status: trio.TaskStatus[list[int]] = trio.TASK_STATUS_IGNORED
) -> None:
    received: list[int] = []
    with trio.open_signal_receiver(*_ENDING) as signals:
        task_status.started(received)
        async for number in signals:
            received.append(number)
            everything.cancel()
