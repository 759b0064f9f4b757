"""A year of the whole agent with a conversation for each chat, in virtual time."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress

import attrs
import trio

from actors import ActorError
from pegasus.access import Principal, Role
from pegasus.main_agent.session import chat_key
from pegasus.models.base import ModelError, ModelResponse, Usage, without_request_fences
from pegasus.schedule.jobs import AddJob, ListJobs, draft_job
from pegasus.storage import StorageError
from pegasus.wire import encode_json
from tests.simulation.office.story import ANY_CHAT, JOBS, OfficeStory
from tests.simulation.thirty_days.agent import Agent, moments_of
from tests.simulation.thirty_days.life import Life
from tests.simulation.thirty_days.story import DAY, HOUR

MOST_CHATS = 6
"""Chats in memory at once: fewer than there are, so that each is parked and resumed again and again."""


WINDOW = 12
"""Messages that a session may have, before older ones become notes."""


class OfficeAgent(Agent):
    """A model that now and then cannot be asked. hit: how often it was then asked about each number."""

    def __init__(self, story, *more):
        super().__init__(*more)
        self._outages = story.outages
        self.hit = Counter()
        self.notes = 0

    async def generate(self, request):
        now = trio.current_time()
        if any(begin <= now < end for begin, end in self._outages):
            if request.label.role != "compact":
                self.hit[moments_of(without_request_fences(request).turns)[-1].number] += 1
            await trio.sleep(1)
            raise ModelError("scripted: an outage", kind="server")
        if "historyEntry" in request.system:
            return await self._write_notes(request)
        return await super().generate(request)

    async def _write_notes(self, request):
        """A good answer, mostly; now and then nonsense, none in time, or a refusal."""
        self._send(request, is_main=False)
        self.notes += 1
        await trio.sleep(100 if self.notes % 7 == 3 else 2)
        numbers = dict.fromkeys(re.findall(r"#\d+", request.turns[0].text.split("<transcript>")[-1]))
        text = encode_json({"historyEntry": f"They spoke of {' '.join(numbers) or 'nothing'}."[:3000]})
        stop = "end" if self.notes % 11 else "refusal"
        return ModelResponse("hm" if self.notes % 5 == 2 else text, (), Usage(100, 40), stop)


class OfficeLife(Life):
    """counts: tasks of Trio and chats in memory, each morning. jobs_at, ended_at: wall clock when a job was made, and at the end."""

    story_of = OfficeStory

    def __init__(self, random, **options):
        super().__init__(random, **options)
        self.settings = attrs.evolve(self.settings, scope="chat", max_active_chats=MOST_CHATS)
        self.wires.per_chat = True
        fails = {plan.number for plan in self.plans.values() if plan.fails}
        window = self.agent.window
        self.agent = OfficeAgent(self.story, self.wires.send, self._takes, fails, self.wrong)
        self.agent.window = window
        self.worker._summarise = self.agent.generate
        self.counts = []
        self.jobs_at = {}

    def _actor(self, path):
        """A chat that is in memory for ANY_CHAT; all of them together where there is none."""
        if path != ANY_CHAT:
            return super()._actor(path)
        agents = [super(OfficeLife, self)._actor(f"main-agent/chats/{chat_key(p.address)}") for p in self.story.places]
        return next((agent for agent in agents if agent.alive), super()._actor("main-agent/chats"))

    def _chosen(self):
        chosen = super()._chosen()
        return attrs.evolve(chosen, session=attrs.evolve(chosen.session, memory_window=WINDOW))

    async def run(self):
        await super().run()
        self.ended_at = self.clock()

    async def _attend(self, world):
        """See that the jobs are there, and look at the world every morning."""
        with suppress(ActorError, StorageError):
            await self._make_jobs(world)
        while True:
            await trio.sleep_until((trio.current_time() // DAY + 1) * DAY - 8 * HOUR)  # 4 h UTC
            with suppress(ActorError):
                chats = (await world.status()).chats
                self.counts.append((trio.lowlevel.current_statistics().tasks_living, chats))
                if chats > MOST_CHATS:
                    self.wrong.append(f"{chats} chats are in memory")
            await trio.sleep(9 * HOUR)

    async def _make_jobs(self, world):
        keeper = world.root.ref("schedule/keeper")
        known = {job.prompt for job in await keeper.ask(ListJobs)}
        for job in JOBS:
            if job.prompt not in known:
                values = {"schedule": {"cron": job.cron, "tz": job.tz}, "prompt": job.prompt}
                by = Principal(Role.OWNER, self.story.owners)
                self.jobs_at[job.number] = self.clock()
                await keeper.ask(AddJob, draft_job(values, self.clock(), by, job.channel))


def is_apology(text: str) -> bool:
    return re.search("did not answer|cannot be reached|gave no answer", text) is not None
