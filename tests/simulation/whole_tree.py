"""A life of the whole agent, made from a seed: people write on several channels, the model answers by a script, and the
machine fails in every way we know.

`story` says what is going to happen, `script` has the model and the channels, `verdict` says what is not as it should be
afterwards; here is what holds them together. A new thing that the agent can do is a new kind of Step: what the model calls
(`Script._call`), how one sees in the result that it is done (`_missing`), and what must have come of it (`verdict`).
"""

from __future__ import annotations

import errno
from contextlib import suppress
from datetime import UTC, datetime

import trio

from actors import ActorError
from pegasus.access import ApprovalRequest, AskedCall, FindApproval, Principal, Role, SeekApproval
from pegasus.messages import InboundMessage
from pegasus.schedule import AddJob, ListJobs, draft_job
from pegasus.settings import AgentSettings, Settings
from pegasus.storage import LastSeq, StorageError
from pegasus.testing.memory_disk import PowerLoss
from pegasus.testing.world import open_world, wall_clock
from tests.simulation.machine import Machine, Worlds
from tests.simulation.script import Client, Script
from tests.simulation.story import PLACES, Story

EVERYBODY = tuple(sorted({f"{place.type}:*" for place in PLACES}))
"""Entries of `agent.owners`: what guests may do has tests of its own."""
MONOLOGUE = Settings(agent=AgentSettings(speech="monologue", owners=EVERYBODY))
"""The model of a life falls silent on purpose, and nobody is to ask it again."""
LONGEST = 400.0
"""Seconds in which an undisturbed world must have answered everything."""
JOB_DUE = 0.5
"""Seconds that a job waits at least."""
TRIES = 30
"""Worlds that may end in vain after the story's own disasters are over."""


class Life(Worlds):
    """One story on one disk. wrong: what was seen to be wrong while it ran; `verdict` says the rest."""

    def __init__(self, simulation):
        self.story = Story(simulation.random)
        super().__init__(Machine(self.story.slow_disk), retry=0.2, owners=EVERYBODY)
        self.note = simulation.note
        self.plans = {plan.number: plan for plan in (*self.story.plans, *self.story.jobs)}
        self.model = Script(self)
        self.clients = [Client(kind, self) for kind in dict.fromkeys(place.type for place in PLACES)]
        self.known = set()
        self.ended = []
        self.answers = {question.number: [] for question in self.story.questions}
        """Ids of the messages that answer each question, and their channels."""
        self._busy = len(PLACES) + len(self.story.jobs) + len(self.story.questions)

    async def run(self):
        disasters = iter(self.story.disasters)
        async with trio.open_nursery() as nursery:
            for place in PLACES:
                nursery.start_soon(self._person, [plan for plan in self.story.plans if plan.channel == place])
            for plan in self.story.jobs:
                nursery.start_soon(self._schedule, plan)
            for question in self.story.questions:
                nursery.start_soon(self._ask_owners, question)
            nursery.start_soon(self._refuse)
            nursery.start_soon(self._stop)
            nursery.start_soon(self._interrupt)
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
            async with open_world(self.model, disk=self.disk, channels=self.clients, settings=MONOLOGUE) as world:
                self._begin(world)
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
        while self._busy or not await self._is_quiet(world):  # noqa: ASYNC110
            await trio.sleep(0.5)  # nobody tells when there is nothing more to do

    async def _is_quiet(self, world):
        try:
            if not await self._is_idle(world):
                return False
            for place in PLACES:
                client = next(client for client in self.clients if client.type == place.type)
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
        self._busy -= 1

    async def _send(self, plan, pause):
        await trio.sleep(pause)
        message = InboundMessage(plan.text, plan.channel, plan.id)
        with trio.move_on_after(float("inf") if plan.impatient is None else plan.impatient):
            await self._insist(plan.number, message)
            self.known.add(plan.channel.address)

    async def _schedule(self, plan):
        """Make a job that runs once, and wait until it has."""

        async def has_run(world):
            keeper = world.root.ref("schedule/keeper")
            job = next((job for job in await keeper.ask(ListJobs) if job.prompt == plan.text), None)
            if job is None:
                at = datetime.fromtimestamp(wall_clock() / 1000 + JOB_DUE + plan.pause, UTC).isoformat()
                values, person = {"schedule": {"at": at}, "prompt": plan.text}, Principal(Role.OWNER, plan.channel)
                job = await keeper.ask(AddJob, draft_job(values, wall_clock(), person, plan.channel))
                self.note(f"{plan.text} is scheduled as {job.id}")
            self.accepted[plan.number] = job.id
            return job.next is None

        await self._until(has_run)

    async def _ask_owners(self, question):
        """Ask owners about a reply, have them answer it, and wait until an answer was carried out."""
        to, key = question.to, f"held/{question.number}"
        arguments = {"channelType": to.type, "channelId": to.channel_id, "text": question.text}
        request = ApprovalRequest((AskedCall(key, "reply", arguments, "as scripted"),), Role.OWNER, PLACES[0], "")

        async def is_carried_out(world):
            keeper = world.root.ref("approvals/keeper")
            if not (answers := self.answers[question.number]):
                approval = await keeper.ask(SeekApproval, request)
                async with trio.open_nursery() as nursery:
                    for place, pause, is_allowed in question.answers:
                        nursery.start_soon(self._answer, answers, approval.id, place, pause, is_allowed)
            found = await keeper.ask(FindApproval, key)
            if found.is_open:  # whoever has answered was told that it cannot be done now
                await self._answer(answers, found.id, PLACES[0], 1, False)
            return found.is_carried_out

        await trio.sleep(question.pause)
        await self._until(is_carried_out)

    async def _answer(self, answers, id, place, pause, is_allowed):
        await trio.sleep(pause)
        message_id = f"{id} {len(answers)}"
        answers.append((place.address, message_id))
        await self._insist(
            message_id, InboundMessage(f"/{'approve' if is_allowed else 'deny'} {id}", place, message_id)
        )
        self.known.add(place.address)

    async def _until(self, is_done):
        """Call a function with the world that is there until it returns true; what fails is tried again."""
        while True:
            if self.world is not None:
                with suppress(ActorError, StorageError):
                    if await is_done(self.world):
                        break
            await trio.sleep(0.5)
        self._busy -= 1

    async def _refuse(self):
        for pause, how, seconds in self.story.refusals:
            await trio.sleep(pause)
            if how == "full":
                await self.disk.fill(seconds)
            else:
                self.disk.fail(1 + int(seconds), errno.EIO, 1 if how == "error" else 4)

    async def _stop(self):
        for pause in self.story.stops:
            await trio.sleep(pause)
            if self.world is not None:
                with suppress(ActorError):
                    self.ended += await self.world.stop_thinking("an operator")

    async def _interrupt(self):
        for pause, place in self.story.interrupts:
            await trio.sleep(pause)
            if self.world is not None:
                with suppress(ActorError):
                    person = Principal(Role.OWNER, place)
                    ended = await self.world.tree.main_agent.interrupt(place.address, person, "a person")
                    self.ended += [ended] if ended is not None else []
