"""The worlds of a life: one after the other on one disk, and how people reach whichever is there."""

from __future__ import annotations

from contextlib import suppress

import trio

from actors import ActorError
from pegasus.intake import Intake
from pegasus.settings import LiveValue
from pegasus.storage import Accepted, StorageError, Waiting
from pegasus.testing.memory_disk import MemoryDisk, PowerLoss


class Machine(MemoryDisk):
    """A disk that says when the machine has failed."""

    def __init__(self, delay):
        super().__init__(delay)
        self.dark = trio.Event()

    async def run(self, work, *args):
        try:
            return await super().run(work, *args)
        except PowerLoss:
            self.dark.set()
            raise

    async def fill(self, seconds):
        """Have room for hardly anything more, for a while."""
        self.files.capacity = sum(len(self.content(path)) for path in self.paths()) + 100
        await trio.sleep(seconds)
        self.files.capacity = None


class Worlds:
    """world: the one that is there, None between two. accepted: numbers of items, by those of messages. wrong: what was seen to be."""

    def __init__(self, disk, retry, owners=()):
        self.disk = disk
        self.world = None
        self.worlds = 0
        self.accepted = {}
        self.wrong = []
        self.finished = False
        self._retry = retry
        self._owners = owners
        self._news = trio.Event()

    def _begin(self, world):
        self.world = world
        news, self._news = self._news, trio.Event()
        news.set()

    async def _cancel_when_dark(self, scope):
        await self.disk.dark.wait()
        scope.cancel()

    async def _turn_off(self, world):
        if not self.disk.dark.is_set():
            self.disk.lose_power()
        with suppress(ActorError):
            await world.root.stop()

    async def _is_idle(self, world):
        return not await world.journal.ask(Waiting) and (await world.status()).thinking_about is None

    async def _insist(self, number, message):
        """Send it to whichever world there is, until one has accepted it."""
        while True:
            while self.world is None:
                await self._news.wait()
            with suppress(ActorError, StorageError):
                result = await Intake(self.world.journal, owners=LiveValue(self._owners)).submit(message)
                if isinstance(result, Accepted):
                    break
            await trio.sleep(self._retry)
        self.note(f"#{number} is accepted as {result.n}")
        if self.accepted.setdefault(number, result.n) != result.n:
            self.wrong.append(f"{message.text} was accepted twice: {self.accepted[number]} and {result}")
