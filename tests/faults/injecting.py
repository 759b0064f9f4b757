"""What goes wrong: each fault takes hold of a node or of the database, lets go again, and leaves everything running."""

from __future__ import annotations

import random
import signal
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import attrs
import trio

from tests.faults.house import LEASE, House, Node


@attrs.frozen
class Moment:
    """What a fault is given: the house, the node that it is for, and how long it lasts."""

    house: House
    node: Node
    choices: random.Random

    async def short(self) -> None:
        """Wait for less than a lease."""
        await trio.sleep(self.choices.uniform(0, 0.6) * LEASE)

    async def long(self) -> None:
        """Wait until the lease of a node has ended, and another one may have taken over."""
        await trio.sleep(LEASE * self.choices.uniform(1.1, 1.5))


Fault = Callable[[Moment], Awaitable[None]]


# ------------------------------------------------------------------ of a node


async def kill(at: Moment) -> None:
    """Kill -9, and start it again."""
    at.node.daemon.kill()
    await at.node.start()


async def kill_for_long(at: Moment) -> None:
    """Kill -9, and leave its chats to the others."""
    at.node.daemon.kill()
    await at.long()
    await at.node.start()


async def stop(at: Moment) -> None:
    """SIGTERM, as an upgrade does, and start it again."""
    await at.node.daemon.stop(timeout=40)
    await at.node.start()


async def pause(at: Moment) -> None:
    """SIGSTOP for less than a lease."""
    at.node.daemon.signal(signal.SIGSTOP)
    try:
        await at.short()
    finally:
        at.node.daemon.signal(signal.SIGCONT)


async def pause_for_long(at: Moment) -> None:
    """SIGSTOP for more than a lease: it comes back and knows nothing of what happened."""
    at.node.daemon.signal(signal.SIGSTOP)
    try:
        await at.long()
    finally:
        at.node.daemon.signal(signal.SIGCONT)


NODE_FAULTS: Final[Mapping[str, Fault]] = {
    "kill -9": kill,
    "SIGTERM": stop,
    "SIGSTOP": pause,
}
"""Faults that one node on files survives, too."""


# ------------------------------------------------------------------ of the way to the database


async def cut(at: Moment) -> None:
    """Break its connections, and refuse new ones for a while."""
    assert at.node.link is not None
    await at.node.link.cut()
    await (at.long() if at.choices.random() < 0.3 else at.short())
    at.node.link.restore()


async def silence(at: Moment) -> None:
    """Carry nothing for a while, without a word to either side."""
    assert at.node.link is not None
    at.node.link.silence()
    await (at.long() if at.choices.random() < 0.3 else at.short())
    at.node.link.restore()


async def delay(at: Moment) -> None:
    """Carry everything late."""
    assert at.node.link is not None
    at.node.link.delay = at.choices.uniform(0.02, 0.3)
    await at.short()
    at.node.link.restore()


async def lose_answer(at: Moment) -> None:
    """Lose the answer to something that was asked, which is done."""
    assert at.node.link is not None
    at.node.link.lose_answer()
    await at.short()
    at.node.link.restore()
