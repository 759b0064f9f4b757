"""A month of the whole agent in virtual time: people, the disasters that befall it, and the worlds between them."""

from __future__ import annotations

import errno
import re
from collections import Counter
from contextlib import suppress

import attrs
import trio

from actors import ActorError
from pegasus import settings
from pegasus.messages import InboundMessage
from pegasus.settings import LimitSettings, ModelSettings, PolicySettings, SessionSettings, Settings, TaskSettings
from pegasus.storage import LastSeq, StorageError
from pegasus.tasks import ListTasks, TaskState
from pegasus.testing.fake_channel import FakeChannel
from pegasus.testing.memory_disk import PowerLoss
from pegasus.testing.world import START, open_world
from tests.simulation.machine import Machine, Worlds
from tests.simulation.thirty_days.agent import Agent
from tests.simulation.thirty_days.story import DAY, HOUR, Errand, Story
from tests.simulation.thirty_days.wires import Wires
from tests.simulation.thirty_days.worker import Worker

WINDOW = 24_000
"""Tokens, so that a month is compacted several times."""
SHUT_DOWN = 4 * DAY
"""Seconds after the last word in which all must be settled."""


class Life(Worlds):
    """One story on one disk. wrong: what was seen to be wrong while it ran; `verdict` says the rest."""

    story_of = Story

    def __init__(self, random, agent=None, **options):
        self.story = self.story_of(random, **options)
        kinds = dict.fromkeys(place.type for place in self.story.places)
        owners = tuple(f"{kind}:*" for kind in kinds)  # what guests may do has tests of its own
        chosen = agent or settings.AgentSettings(when_busy=self.story.when_busy, burst_cap=self.story.burst_cap)
        self.settings = attrs.evolve(chosen, owners=owners)
        super().__init__(Machine(self.story.slow_disk), retry=0.5, owners=self.settings.owners)
        self.random = random
        self.plans = self.story.all
        self.wires = Wires(self.wrong)
        fails = {plan.number for plan in self.plans.values() if plan.fails}
        self.agent = Agent(self.wires.send, self._takes, fails, self.wrong)
        self.worker = Worker(self.wires.send, self._errand, self.agent.generate, self.wrong)
        self.agent.window = self.story.true_window * WINDOW
        self.channels = {kind: _Channel(kind, self) for kind in kinds}
        self.offset = 0
        self.struck = Counter()
        self.log = []
        self._people = 0
        self._sending = None
        self._asked = set()
        self._to_answer = 0

    def clock(self):
        """The wall clock, which does not always go forward; ms since the epoch."""
        return START + self.offset + int(trio.current_time() * 1000)

    def note(self, text):
        self.log.append(f"{trio.current_time() / DAY:.5f} {text}")

    async def run(self):
        ends = [disaster for disaster in self.story.disasters if disaster.ends_the_world]
        async with trio.open_nursery() as nursery:
            self._sending = nursery
            for place in self.story.places:
                nursery.start_soon(self._person, [m for m in self.story.messages if m.channel == place])
            nursery.start_soon(self._strike, [d for d in self.story.disasters if not d.ends_the_world])
            for _ in range(len(ends) + 20):
                if await self._one_world(ends):
                    self.finished = True
                    break
            nursery.cancel_scope.cancel()

    # ---------------------------------------------------------------- worlds

    async def _one_world(self, ends):
        """Whether everything was settled in it."""
        disaster = ends.pop(0) if ends else None
        self.worlds += 1
        self.wires.begin()
        settled = False
        try:
            async with open_world(
                self.agent,
                disk=self.disk,
                channels=tuple(self.channels.values()),
                task_model=self.worker,
                settings=self._chosen(),
                clock=self.clock,
            ) as world:
                self._begin(world)
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._cancel_when_dark, scope)
                        nursery.start_soon(self._attend, world)
                        if disaster:
                            nursery.start_soon(self._befall, disaster, scope)
                        await self._settle(world)
                        settled = True
                        nursery.cancel_scope.cancel()
                if self.disk.dark.is_set() or (not settled and disaster.kind != "restart"):
                    await self._turn_off(world)
        except* (ActorError, StorageError, PowerLoss) as group:
            self.note(f"the process ends: {group.exceptions[0]!r}")
            settled = False
        finally:
            self.world = None
        if not settled:
            self._turn_on(disaster)
            await trio.sleep(self.random.choice([0, 1, 60, 2 * HOUR]))
        return settled

    def _chosen(self):
        """The settings of a world."""
        return Settings(
            agent=self.settings,
            models=ModelSettings(context_window=WINDOW, max_concurrent_calls=50),
            session=SessionSettings(compact_threshold=0.7),
            policy=PolicySettings(rules=({"tool": "reply", "decision": "allow"},)),  # nobody is there to be asked
            limits=LimitSettings(guest_tasks=0),  # the questions of a month stay open; limits have tests of their own
            tasks=TaskSettings(recovery=self.story.recovery, timeout=30 * DAY, max_active=50),
        )

    async def _befall(self, disaster, scope):
        await trio.sleep_until(disaster.at)
        self.note(f"{disaster}")
        self.struck[disaster.kind] += 1
        if disaster.kind == "operation":
            self.disk.lose_power(int(disaster.amount))
        else:
            scope.cancel()

    async def _attend(self, world):
        """What else happens in a world."""

    def _turn_on(self, disaster):
        if self.disk.dark.is_set() and (disaster is None or disaster.kind in ("power", "operation")):
            self.disk.crash(int(disaster.amount) if disaster else 0)
        else:
            self.disk.reopen()
        self.disk.files.capacity = None
        self.disk.dark = trio.Event()

    async def _settle(self, world):
        """Wait until all was said, answered, worked on and delivered. Who was asked something may answer days later."""
        await trio.sleep_until(self.story.days * DAY)
        until = trio.current_time() + SHUT_DOWN
        while self._people < len(self.story.places) or self._to_answer or not await self._is_quiet(world):
            await trio.sleep(30)  # nobody tells when there is nothing more to do
            if trio.current_time() > until:
                self.wrong.append("it does not come to rest")
                return

    async def _is_quiet(self, world):
        try:
            if not await self._is_idle(world):
                return False
            tasks = await world.root.ref("tasks/agent").ask(ListTasks, None)
            if any(task.state not in (TaskState.COMPLETED, TaskState.FAILED, TaskState.SUSPENDED) for task in tasks):
                return False
            for place in self.story.places:
                seen = self.channels[place.type].last.get(place.channel_id, 0)
                if await world.journal.ask(LastSeq, place.address) != seen:
                    return False
        except ActorError:
            return False
        return True

    # ---------------------------------------------------------------- people

    async def _person(self, messages):
        for message in messages:
            await trio.sleep_until(message.at)
            await self._send(message)
        self._people += 1

    async def _send(self, message):
        if message.twice is not None:
            self._sending.start_soon(self._later, attrs.evolve(message, twice=None), message.twice)
        await self._insist(message.number, InboundMessage(message.text, message.channel, message.id))

    async def _later(self, message, pause):
        await trio.sleep(pause)
        await self._send(message)

    async def _answer(self, message):
        self._to_answer += 1
        await self._later(message, message.at)
        self._to_answer -= 1

    def heard(self, reply):
        """Somebody is asked something, and will answer in their own time."""
        self.note(f"{reply.channel.address} {reply.seq}: {reply.text[:60]!r}")
        if asks := re.match(r"#(\d+) asks: ", reply.text):
            plan = self.plans[int(asks[1])]
            if plan.answer is not None and plan.number not in self._asked:
                self._asked.add(plan.number)
                self._sending.start_soon(self._answer, plan.answer)

    # ---------------------------------------------------------------- what they want, and what goes wrong

    def _takes(self, number, done):
        plan = self.plans.get(number)
        if plan is None:
            return 1.0
        return 90.0 if plan.kind == "ponder" and not done else plan.takes

    def _errand(self, number):
        plan = self.plans.get(number)
        return plan.errand if plan is not None and plan.errand else Errand()

    async def _strike(self, disasters):
        for disaster in disasters:
            await trio.sleep_until(disaster.at)
            if self.world is None:
                continue
            self.note(f"{disaster}")
            self.struck[disaster.kind] += 1
            match disaster.kind:
                case "clock":
                    self.offset += int(disaster.amount)
                case "crash":
                    with suppress(ActorError):
                        self._actor(disaster.what)._cell.incarnation.kill("the story")
                case "errors":
                    self.disk.fail(int(disaster.amount), errno.EIO, int(disaster.amount))
                case "full":
                    await self.disk.fill(disaster.amount)

    def _actor(self, path):
        """The actor that is to crash."""
        return self.world.root.ref(path)


class _Channel(FakeChannel):
    """A channel of people who read what comes."""

    def __init__(self, kind, life):
        super().__init__(kind, acknowledges=life.story.acknowledges[kind])
        self._life = life
        self.refused = []
        self.refuses = self._refuses

    @property
    def last(self):
        """The last seq by channelId."""
        return self._delivered

    def _refuses(self, reply):
        found = re.match(r"#(\d+) ", reply.text)
        plan = self._life.plans.get(int(found[1])) if found else None
        unwanted = plan is not None and plan.unwanted and reply.channel.address == plan.channel.address
        if unwanted:
            self.refused.append(reply)
        return unwanted

    async def take(self, reply, journal):
        before = len(self.replies)
        try:
            await super().take(reply, journal)
        finally:
            for new in self.replies[before:]:
                self._life.heard(new)
