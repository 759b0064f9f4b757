"""The task system alone, under another schedule for each seed: whatever dies when, a job is done, ends and is told of once."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress

import pytest
import trio

from actors import ActorError
from actors.testing import Faults, SimulationFailed, simulate
from pegasus.models.base import UserTurn
from pegasus.tasks import FOR_PERSON, Continue, Resume, Suspend, TaskError, TaskState
from pegasus.tasks.agent import recovery
from pegasus.tasks.core.fsm import RESTARTED
from pegasus.tasks.log.replay import replay
from pegasus.tasks.run.deps import TaskLimits
from pegasus.testing.scripted import After, ScriptedModel, call, say
from pegasus.tools import Effect
from tests.pegasus.tasks.world import Listener, MemoryFolder, make_tool, open_desk

SEEDS = int(os.environ.get("PEGASUS_SEEDS", "20"))
FIRST = int(os.environ.get("PEGASUS_FIRST_SEED", "0"))
REPLAY = os.environ.get("PEGASUS_REPLAY")
WEATHER = {
    "fair": Faults(crash=400, cancel=1200, delay=600, max_strikes=6),
    "storm": Faults(crash=80, cancel=300, delay=600, max_strikes=30),
}
OBSERVING = ("pegasus.observe",)
KINDS = ("strikes", "looks", "keyed", "asks", "tells", "answers")
WORLDS = 25


class Hearing(Listener):
    """Hears each word of each task by its number, however often it is told."""

    def __init__(self):
        super().__init__()
        self.told = {}
        self.wrong = []

    async def run(self, inbox):
        async for message in inbox:
            for note in message.notifications:
                if self.told.setdefault((note.task_id, note.n), note) != note:
                    self.wrong.append(
                        f"number {note.n} of {note.task_id} was {self.told[note.task_id, note.n]}, and is {note}"
                    )
            message.reply.send(None)


class Life:
    """Jobs of every kind, and worlds that end until all of them are over. effects: what tools have really done, by task and call."""

    def __init__(self, simulation, mode):
        self.random = simulation.random
        self.note = simulation.note
        self.mode = mode
        self.shelf, self.hearing = MemoryFolder(), Hearing()
        self.jobs = [f"{self.random.choice(KINDS)} {n}" for n in range(self.random.randint(2, 7))]
        self.ends = [self.random.uniform(0, 15) for _ in range(self.random.choice([0, 0, 1, 3]))]
        self.pauses = [self.random.uniform(0, 12) for _ in range(self.random.choice([0, 0, 1, 4]))]
        self.paused = set()
        """Tasks of which a person was told that they are paused, and which nobody has let go on."""
        self.continued = Counter()
        self.effects = Counter()
        self.ids = {}
        self.finished = False

    async def run(self):
        for _ in range(WORLDS):
            try:
                if await self._one_world():
                    self.finished = True
                    return
            except* ActorError as group:
                self.note(f"the process ends: {group.exceptions[0]!r}")

    async def _one_world(self):
        limits = TaskLimits(recovery=self.mode, max_active=3, timeout=10_000.0)
        model = ScriptedModel(self._think)
        async with open_desk(
            model, shelf=self.shelf, listener=self.hearing, limits=limits, tools=self._tools()
        ) as desk:
            with trio.move_on_after(self.ends.pop() if self.ends else 300) as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._pause, desk)
                    for job in self.jobs:
                        await self._submit(desk, job)
                    while not self._is_over():
                        await self._answer(desk)
                        await trio.sleep(1)
                    nursery.cancel_scope.cancel()
            if scope.cancelled_caught:  # as a kill: nothing is drained
                self.note("the process is killed")
                raise ActorError("killed", target="", message_type="")
        return True

    async def _submit(self, desk, job):
        while job not in self.ids:
            with suppress(ActorError, TaskError):
                self.ids[job] = await desk.submit(job, key=job)
                return
            await trio.sleep(0.5)

    async def _pause(self, desk):
        """A person pauses a task now and then, and does not wait for long."""
        while self.pauses:
            await trio.sleep(self.pauses[-1])
            self.pauses.pop()
            with trio.move_on_after(self.random.choice([0.1, 5])), suppress(ActorError, TaskError):
                if self.ids:
                    task_id = self.random.choice([*self.ids.values()])
                    before = self.continued[task_id]
                    view = await desk.agent.ask(Suspend, task_id)
                    if view.waits_for == FOR_PERSON and self.continued[task_id] == before:
                        self.paused.add(task_id)

    async def _answer(self, desk):
        for task_id in self.ids.values():
            task = replay(self.shelf.logs[task_id], task_id).task
            if task.state is not TaskState.SUSPENDED:
                if task_id in self.paused:
                    self.hearing.wrong.append(f"{task_id} was paused, and is {task.state}")
            elif task.context.suspend_reason != FOR_PERSON:
                with suppress(ActorError, TaskError):
                    await desk.agent.ask(Resume, task_id, "blue")
            elif self.random.random() < 0.3:
                self.paused.discard(task_id)
                self.continued[task_id] += 1
                with suppress(ActorError, TaskError):
                    await desk.agent.ask(Continue, task_id)

    def _is_over(self):
        """Every task has ended, and its end was taken."""
        return all(
            found.is_over and (task_id, len(found.notifications)) in self.hearing.told
            for task_id in self.ids.values()
            for found in [replay(self.shelf.logs[task_id], task_id)]
        )

    def _think(self, request):
        job = request.turns[0].text
        done = sum(len(turn.results) for turn in request.turns if isinstance(turn, UserTurn))
        kind = job.split()[0]
        pause = self.random.choice([0, 0.5, 2])
        if kind == "answers" or (kind == "asks" and len(request.turns) > 1) or done:
            return After(pause, f"{job} is done")
        made = {
            "strikes": (call("strike", "a"), call("strike", "b")),
            "looks": (call("gaze", "a"), call("gaze", "b"), call("strike", "c")),
            "keyed": (call("keep", "a"), call("strike", "b")),
            "asks": (call("ask_user", "q", question="Which?"),),
            "tells": (call("notify", "n", message=f"{job} is half done"), call("strike", "b")),
        }[kind]
        return After(pause, say("", *made))

    def _tools(self):
        async def work(arguments, context):
            await trio.sleep(self.random.choice([0, 0.5, 2]))
            self.effects[context.key] += 1
            await trio.sleep(self.random.choice([0, 0.5, 2]))
            return {}

        effects = {"strike": Effect.ONCE, "gaze": Effect.PURE, "keep": Effect.IDEMPOTENT}
        return [make_tool(name, work, effect) for name, effect in effects.items()]


def verdict(life):
    """What is wrong with a life that has ended, in words."""
    if not life.finished:
        return ["it did not come to its end"]
    wrong = list(life.hearing.wrong)
    if len(life.shelf.logs) != len(life.jobs):
        wrong.append(f"{life.jobs} have become {len(life.shelf.logs)} tasks")
    for job, task_id in life.ids.items():
        wrong += [f"{job}: {problem}" for problem in _judge(life, job, task_id)]
    return wrong


def _is_honest(end, job, mode):
    return (
        end == f"{job} is done"
        or "InjectedCrash" in end
        or "a simulated cancel" in end
        or (mode == "fail" and end == RESTARTED)
    )


def _judge(life, job, task_id):
    found = replay(life.shelf.logs[task_id], task_id)
    told = [note for (id, _), note in sorted(life.hearing.told.items(), key=lambda it: it[0][1]) if id == task_id]
    if told != list(found.notifications):
        yield f"{told} was told, and {found.notifications} has happened"
    ends = [note.text for note in told if note.type in ("completed", "failed")]
    if life.mode == "fail" and job.startswith("asks") and ends[:1] == [RESTARTED]:
        ends = ends[1:] or ends  # it was over, and went on all the same when its question was answered
    if len(ends) != 1 or not _is_honest(ends[0], job, life.mode):
        yield f"its ends were {ends}"
    for entry in found.task.context.messages:
        for made in entry.calls:
            count = life.effects[f"{task_id}/{made.id}"]
            if made.name == "strike" and count > 1:
                yield f"{made.id} has happened {count} times"
            result = next((e.content for e in found.task.context.messages if e.call_id == made.id), "")
            if result == "{}" and not count:
                yield f"{made.id} is said to be done"


def run(mode, seeds=range(1), replay=None, weather="fair", **options):
    """Simulate the lives of these seeds, or repeat one schedule."""
    life = None

    async def main(simulation):
        nonlocal life
        life = Life(simulation, mode)
        await life.run()

    def check(simulation):
        problems = verdict(life)
        assert not problems, "\n".join(problems)

    return simulate(
        main, seeds=seeds, replay=replay, faults=WEATHER[weather], check=check, allow=OBSERVING, twice=0, **options
    )


@pytest.mark.parametrize("weather", WEATHER)
@pytest.mark.parametrize("mode", ["fail", "resume"])
def test_every_job_ends_and_is_told_of_once(mode, weather):
    print(mode, weather, run(mode, range(FIRST, FIRST + SEEDS), REPLAY, weather))


def test_tasks_that_do_again_what_was_under_way_are_found_out(monkeypatch):
    monkeypatch.setattr(recovery, "_result", lambda *args: None)
    with pytest.raises(SimulationFailed, match="has happened 2 times"):
        run("resume", range(200), shrink=10)
