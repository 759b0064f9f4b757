"""A life of the whole agent, made from a seed: people write on several channels, the model answers by a script, and the
machine fails in every way we know.

`story` says what is going to happen, `script` has the model and the channels, `verdict` says what is not as it should be
afterwards; here is what holds them together. A new thing that the agent can do is a new kind of Step: what the model calls
(`Script._call`), how one sees in the result that it is done (`_missing`), and what must have come of it (`verdict`).
"""

from __future__ import annotations

import errno
from contextlib import suppress

import trio

from actors import ActorError
from pegasus.channels.intake import submit
from pegasus.messages import InboundMessage
from pegasus.storage.messages import Accepted, LastSeq, StorageError, Waiting
from pegasus.testing.memory_disk import MemoryDisk, PowerLoss
from pegasus.testing.world import open_world
from tests.simulation.script import Client, Script
from tests.simulation.story import PLACES, Story

LONGEST = 400.0
"""Seconds in which an undisturbed world must have answered everything."""
TRIES = 30
"""Worlds that may end in vain after the story's own disasters are over."""


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


class Life:
    """One story on one disk. wrong: what was seen to be wrong while it ran; `verdict` says the rest."""

    def __init__(self, simulation):
        self.story = Story(simulation.random)
        self.note = simulation.note
        self.plans = {plan.number: plan for plan in self.story.plans}
        self.model = Script(self)
        self.clients = [Client(kind, self) for kind in dict.fromkeys(place.type for place in PLACES)]
        self.disk = Machine(self.story.slow_disk)
        self.world = None
        self.accepted = {}
        self.known = set()
        self.wrong = []
        self.ended = []
        self._news = trio.Event()
        self._people = 0
        self.worlds = 0
        self.finished = False

    async def run(self):
        disasters = iter(self.story.disasters)
        async with trio.open_nursery() as nursery:
            for place in PLACES:
                nursery.start_soon(self._person, [plan for plan in self.story.plans if plan.channel == place])
            nursery.start_soon(self._refuse)
            nursery.start_soon(self._stop)
            for _ in range(len(self.story.disasters) + TRIES):
                if await self._one_world(next(disasters, None)):
                    self.finished = True
                    break
            nursery.cancel_scope.cancel()

    async def _one_world(self, disaster):
        """Whether everything was settled in it, and no disaster came after."""
        settled = False
        if disaster and disaster.operation:
            self.disk.lose_power(disaster.operation)
        try:
            async with open_world(self.model, disk=self.disk, channels=self.clients) as world:
                self.world = world
                self._ring()
                with trio.move_on_after(disaster.after if disaster else LONGEST) as scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._cancel_when_dark, scope)
                        await self._settle(world)
                        settled = True
                        nursery.cancel_scope.cancel()
                if disaster:
                    await self._turn_off(world)
        except* (ActorError, StorageError, PowerLoss) as group:
            self.note(f"the process ends: {group.exceptions[0]!r}")
            settled = False
        finally:
            self.world = None
        self._turn_on(disaster)
        return settled and disaster is None

    async def _cancel_when_dark(self, scope):
        await self.disk.dark.wait()
        scope.cancel()

    async def _turn_off(self, world):
        if not self.disk.dark.is_set():
            self.disk.lose_power()
        with suppress(ActorError):
            await world.root.stop()

    def _turn_on(self, disaster):
        if disaster and disaster.kind == "power":
            self.disk.crash(disaster.torn)
        else:
            self.disk.reopen()
        self.disk.dark = trio.Event()
        self.worlds += 1
        self.note(f"a world has ended: {disaster.kind if disaster else 'no disaster'}")

    async def _settle(self, world):
        """Wait until all was sent, answered and delivered."""
        while self._people < len(PLACES) or not await self._is_quiet(world):  # noqa: ASYNC110
            await trio.sleep(0.5)  # nobody tells when there is nothing more to do

    async def _is_quiet(self, world):
        try:
            if await world.journal.ask(Waiting) or (await world.status()).thinking_about is not None:
                return False
            for place in PLACES:
                client = next(client for client in self.clients if client.kind == place.type)
                if await world.journal.ask(LastSeq, place.address) != len(client.seen[place.channel_id]):
                    return False
        except ActorError:
            return False
        return True

    # ---------------------------------------------------------------- people and troubles

    async def _person(self, plans):
        async with trio.open_nursery() as nursery:
            for plan in plans:
                await trio.sleep(plan.pause)
                for pause in plan.again:
                    nursery.start_soon(self._send, plan, pause)
                await self._send(plan, 0)
        self._people += 1

    async def _send(self, plan, pause):
        await trio.sleep(pause)
        message = InboundMessage(plan.text, plan.channel, plan.id)
        with trio.move_on_after(float("inf") if plan.impatient is None else plan.impatient):
            result = await self._insist(message)
            self.known.add(plan.channel.address)
            self.note(f"#{plan.number} is accepted as {result.n}")
            if self.accepted.setdefault(plan.number, result.n) != result.n:
                self.wrong.append(f"{plan.text} was accepted twice: {self.accepted[plan.number]} and {result}")

    async def _insist(self, message):
        while True:
            while self.world is None:
                await self._news.wait()
            with suppress(ActorError, StorageError):
                if isinstance(result := await submit(self.world.journal, message), Accepted):
                    return result
            await trio.sleep(0.2)

    def _ring(self):
        news, self._news = self._news, trio.Event()
        news.set()

    async def _refuse(self):
        for pause, how, seconds in self.story.refusals:
            await trio.sleep(pause)
            if how == "full":
                self.disk.files.capacity = sum(len(self.disk.content(path)) for path in self.disk.paths()) + 100
                await trio.sleep(seconds)
                self.disk.files.capacity = None
            else:
                self.disk.fail(1 + int(seconds), errno.EIO, 1 if how == "error" else 4)

    async def _stop(self):
        for pause in self.story.stops:
            await trio.sleep(pause)
            if self.world is not None:
                with suppress(ActorError):
                    self.ended += await self.world.stop_thinking("an operator")
