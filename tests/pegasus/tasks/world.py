"""The task system in virtual time: the real bus, agent and tasks; logs in memory; a scripted model."""

import json
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from random import Random

import attrs
import trio

from actors import Child, Mailbox, Strategy, open_supervisor
from pegasus.events import EventType, Subscribe, event_bus
from pegasus.identity import BUILT_IN as PERSONA
from pegasus.models import TraitStore
from pegasus.models.base import ToolSpec
from pegasus.settings import LiveValue
from pegasus.tasks import (
    BUILT_IN_TYPES,
    Reflector,
    Submit,
    TaskDeps,
    TaskLimits,
    TaskLogs,
    TaskUpdate,
    Thinker,
    Wait,
    load_task_types,
    task_agent,
    task_persister,
    task_view,
)
from pegasus.tasks.log.format import PendingTask, parse_events
from pegasus.tasks.log.replay import replay
from pegasus.tools import Effect, Tool, ToolContext, ToolError, ToolExecutor
from tests.pegasus.tasks.lives import task_lines

START = 1_772_020_800_000


def clock():
    return START + int(trio.current_time() * 1000)


class MemoryFolder(TaskLogs):
    """Logs in memory: `gate` writes them as the persister does; they are read without it."""

    def __init__(self):
        super().__init__(None, None)
        self.logs = {}
        self.forgotten = []
        self.refusing = None
        self.lock = trio.Lock()

    async def gate(self, inbox):
        async for message in inbox:
            async with self.lock:
                if self.refusing is not None:
                    await self.refusing.wait()
                self.write(message.events)
                message.reply.send({event.task_id: self.number(event.task_id) for event in message.events})

    def write(self, events):
        for event in events:
            self.logs.setdefault(event.task_id, b"")
            self.logs[event.task_id] += task_lines(event)
            if event.type is EventType.TASK_RESUMED and event.task_id in self.forgotten:
                self.forgotten.remove(event.task_id)

    async def replay(self, task_id):
        async with self.lock:  # behind what was requested before
            return replay(self.logs.get(task_id, b""), task_id, self.number(task_id))

    async def replays(self, task_ids):
        return [replay(self.logs.get(task_id, b""), task_id, self.number(task_id)) for task_id in task_ids]

    async def pending(self):
        return tuple(PendingTask(task_id, 0) for task_id in self.logs if task_id not in self.forgotten)

    async def views_of_day(self, date):
        return tuple(
            task_view(replay(log, task_id).task, number=number)
            for number, (task_id, log) in enumerate(self.logs.items(), 1)
        )

    async def read_events(self, task_id):
        return parse_events(self.logs.get(task_id, b""))

    def number(self, task_id):
        return {task_id: number for number, task_id in enumerate(self.logs, 1)}.get(task_id, 0)

    async def find_numbered(self, number):
        return dict(enumerate(self.logs, 1)).get(number), len(self.logs)

    async def latest(self, count, known):
        tasks = {task_id: replay(log, task_id).task for task_id, log in list(self.logs.items())[-count:]}
        return {
            task_id: None if task_id in known else task_view(task, number=self.number(task_id))
            for task_id, task in tasks.items()
        }

    async def forget(self, *task_ids):
        self.forgotten += task_ids

    def events(self, task_id):
        return [json.loads(line)["event"] for line in self.logs[task_id].splitlines()]


class Listener:
    """Hears notifications."""

    def __init__(self):
        self.heard = []
        self.news = trio.Event()

    async def run(self, inbox):
        async for message in inbox:
            self.heard += message.notifications
            self.news.set()
            self.news = trio.Event()
            message.reply.send(None)

    async def next(self, n):
        with trio.fail_after(86_400):  # virtual time: what never comes fails the test
            while len(self.heard) < n:
                await self.news.wait()
        return self.heard[n - 1]


class Watcher:
    """Sees every event that the bus delivers."""

    def __init__(self):
        self.events = []

    async def run(self, inbox):
        async for message in inbox:
            self.events += message.events


class Observer:
    """Hears how tasks are, as those do who show them to people."""

    def __init__(self, observe, over):
        self.observe = observe
        self.over = over

    async def run(self, inbox):
        async for message in inbox:
            updates = [event.data for event in message.events if isinstance(event.data, TaskUpdate)]
            for update in updates:
                self.observe(update.task, update.ends)
            if over := [each.task.task_id for each in updates if each.task.is_over and (each.ends or not each.run)]:
                self.over(over)


class StubMemory:
    """Long-term memory made of two functions."""

    def __init__(self, index, digest):
        self.index_message = lambda window: index()
        self.for_reflection = digest


@attrs.define(eq=False)
class Desk:
    """A running task system."""

    root: object
    agent: object
    bus: object
    shelf: MemoryFolder
    listener: Listener
    watcher: Watcher
    calls: list

    async def submit(self, text="do it", **fields):
        names = [field.name for field in attrs.fields(Submit)][2:]
        defaults = {field.name: field.default for field in attrs.fields(Submit)}
        values = {name: fields.get(name, defaults[name]) for name in names}
        values["metadata"] = fields.get("metadata", {})
        return await self.agent.ask(Submit, text, *values.values())

    async def outcome(self, task_id):
        return await self.agent.ask(Wait, task_id)

    async def run(self, text="do it", **fields):
        return await self.outcome(await self.submit(text, **fields))


def make_tool(name, run, effect=Effect.ONCE):
    return Tool(ToolSpec(name, name, {"type": "object", "properties": {"x": {}}}), run, "custom", effect)


def standard_tools(calls):
    async def echo(arguments, context):
        calls.append((context.task_id, context.key, arguments.get("x"), trio.current_time()))
        return {"x": arguments.get("x")}

    async def slow(arguments, context):
        calls.append((context.task_id, context.key, "begin", trio.current_time()))
        await trio.sleep(float(arguments.get("x", 10)))
        calls.append((context.task_id, context.key, "end", trio.current_time()))
        return "slept"

    async def broken(arguments, context):
        raise ToolError("it is broken")

    return [
        make_tool("echo", echo),
        make_tool("slow", slow),
        make_tool("look", slow, Effect.PURE),
        make_tool("broken", broken),
    ]


@asynccontextmanager
async def open_desk(
    model,
    *,
    limits=TaskLimits(recovery="fail"),
    shelf=None,
    listener=None,
    memory=None,
    traits=None,
    tools=(),
    timeout=60.0,
    model_for=None,
    window=100_000,
    context=ToolContext(),
    observe=lambda view, ends: None,
    over=lambda task_ids: None,
    before_resuming=trio.lowlevel.checkpoint,
    journal=None,
    owner="",
):
    """owner: of the persister that writes the logs through this journal; without one they are in memory."""
    calls = []
    shelf, listener, watcher = shelf or MemoryFolder(), listener or Listener(), Watcher()
    types, _ = load_task_types(BUILT_IN_TYPES)
    toolbox = ToolExecutor([*standard_tools(calls), *tools], timeout=timeout, timeouts={})
    async with open_supervisor(strategy=Strategy.REST_FOR_ONE, name="desk") as root:
        if journal is None:
            shelf._persister = await root.start_child(Child("gate", shelf.gate))
        else:
            runs = count(1)
            keep = partial(task_persister, new_owner=lambda: f"{owner}-{next(runs)}" if owner else "")
            shelf = TaskLogs(
                await root.start_child(Child("persister", keep, journal, clock, mailbox=Mailbox(64))), None
            )
        bus = await root.start_child(Child("bus", event_bus, mailbox=Mailbox(1024)))
        ear = await root.start_child(Child("listener", listener.run))
        eye = await root.start_child(Child("watcher", watcher.run, mailbox=Mailbox(4096)))
        shelf._bus = bus
        await bus.ask(Subscribe, eye, set(EventType) - {EventType.TASK_UPDATED}, True)
        observer = await root.start_child(Child("observer", Observer(observe, over).run, mailbox=Mailbox(4096)))
        await bus.ask(Subscribe, observer, {EventType.TASK_UPDATED}, True)
        random = Random(owner or 0)
        deps = TaskDeps(
            bus=bus,
            new_task_id=lambda: f"{random.getrandbits(64):016x}",
            clock=clock,
            types=types,
            thinker=Thinker(LiveValue(PERSONA), clock),
            reflector=Reflector(LiveValue(PERSONA)),
            toolbox=LiveValue(toolbox),
            model_for=model_for or (lambda name: model),
            context_window=lambda name: window,
            context=LiveValue(context),
            memory=memory,
            traits=traits or TraitStore(),
            limits=LiveValue(limits),
            make_fence=lambda: "fence00000",
            before_resuming=before_resuming,
            journal=journal,
            is_shared=bool(owner),
        )
        ref = await root.start_child(Child("agent", task_agent, deps, shelf, ear, mailbox=Mailbox(4096), shutdown=10.0))
        yield Desk(root, ref, bus, shelf, listener, watcher, calls)
