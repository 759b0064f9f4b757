"""The task system in this process: real disk, journal, bus, persister, agent and tools, put together as the daemon does."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

import attrs
import trio

from actors import ActorInfo, Child, Inbox, Ref, Started, Supervisor, open_supervisor, supervisor
from benchmarks.processes import BenchError
from benchmarks.provider import Provider
from benchmarks.wires import Wire
from pegasus import settings as sections
from pegasus.access import ListApprovals
from pegasus.app import Environment
from pegasus.app.environment import TASK_AGENT
from pegasus.app.services import build_services
from pegasus.app.tree import task_system_child
from pegasus.identity import BUILT_IN
from pegasus.main_agent import StoredArchives
from pegasus.memory import FolderReader, Memory
from pegasus.messages import Address, ChannelInfo, Json, Metadata
from pegasus.models import (
    AssistantTurn,
    ChatChoices,
    Lane,
    LanguageModel,
    ModelRequest,
    ModelResponse,
    ModelService,
    PromptSize,
    ToolCall,
    ToolSpec,
    TraitStore,
    Usage,
    UsageTracker,
)
from pegasus.settings import LiveSettings, LiveValue, Settings
from pegasus.storage import FileDisk, FolderFiles, JournalMessage, run_journal
from pegasus.tasks import Notify, Submit, TaskAgentMessage, TaskState, Wait
from pegasus.tasks.log.task_logs import GetPending, PersisterMessage
from pegasus.tools import Tool, ToolContext, parameters, standard_tools

STEPS = 10
JOB = f"Take {STEPS} steps."
FOR_OWNER: Metadata = {"channel": {"type": "cli", "channelId": "main"}}
"""Work of which nobody knows who asked for it has a guest's rights."""
PATIENCE = 300.0
"""Seconds until a run counts as failed."""


def now() -> int:
    return time.time_ns() // 1_000_000


_USAGE = Usage(1000, 20)


class Listener:
    """Hears what comes of tasks, and remembers only how many there were."""

    def __init__(self) -> None:
        self.heard = 0
        self._news = trio.Event()

    async def run(self, inbox: Inbox[Notify]) -> None:
        async for message in inbox:
            self.heard += len(message.notifications)
            message.reply.send(None)
            self._news.set()
            self._news = trio.Event()

    async def until(self, heard: int) -> None:
        while self.heard < heard:
            await self._news.wait()


@attrs.frozen(eq=False)
class TaskSystem:
    """One that is up. began: when it was asked to come up, up: when it was (time.perf_counter)."""

    root: Supervisor
    agent: Ref[TaskAgentMessage]
    listener: Listener
    began: float
    up: float

    async def run(self, text: str = JOB) -> float:
        """Seconds from when a task is submitted until who waits for it has its result."""
        began = time.perf_counter()
        task_id = await self.agent.ask(partial(Submit, text=text, metadata=FOR_OWNER))
        outcome = await self.agent.ask(Wait, task_id)
        seconds = time.perf_counter() - began
        if outcome.state is not TaskState.COMPLETED or not outcome.result:
            raise BenchError(f"a task ended as {outcome.state}: {outcome.error}")
        return seconds

    async def rest(self) -> None:
        """Until everybody has been told, every look back is over, and pending.json is empty and written."""
        with trio.fail_after(PATIENCE):
            persister: Ref[PersisterMessage] = self.root.ref("tasks/persister")
            while await persister.ask(GetPending) or _has_tasks(self.root.tree()):  # noqa: ASYNC110 nobody says so
                await trio.sleep(0.01)


async def _watch(inbox: Inbox[object]) -> None:
    """Run in place of the other actors that hear of tasks, whose messages would be dead letters. No call waits for an approval."""
    async for message in inbox:
        if isinstance(message, ListApprovals):
            message.reply.send(())


def _has_tasks(info: ActorInfo) -> bool:
    return info.path.rpartition("/")[2].startswith("task:") or any(map(_has_tasks, info.children))


def settings(*, recovery: str = "fail", max_queued: int = 100) -> Settings:
    """As many calls at once as tasks: else five tasks wait for each other's, which is what they are told to do."""
    return Settings(
        tasks=sections.TaskSettings(
            recovery=recovery, max_iterations=STEPS + 5, max_concurrent_tools=5, max_queued=max_queued
        ),
        models=sections.ModelSettings(max_concurrent_calls=6),
    )


class Timed:
    """A model whose calls are timed. seconds: so far, all of tasks' own thoughts together."""

    def __init__(self, model: LanguageModel) -> None:
        self.name = model.name
        self.seconds = 0.0
        self._model = model

    async def generate(self, request: ModelRequest) -> ModelResponse:
        began = time.perf_counter()
        response = await self._model.generate(request)
        if any(tool.name == "step" for tool in request.tools):
            self.seconds += time.perf_counter() - began
        return response


class Prompt:
    """A model in this process that answers at once: so many steps, then the result. steps None: it never answers."""

    name = "bench/prompt"

    def __init__(self, steps: int | None) -> None:
        self._steps = steps

    async def generate(self, request: ModelRequest) -> ModelResponse:
        await trio.lowlevel.checkpoint()
        if self._steps is None:
            await trio.sleep_forever()
        taken = sum(isinstance(turn, AssistantTurn) for turn in request.turns)
        if taken >= self._steps or not any(tool.name == "step" for tool in request.tools):
            return ModelResponse("All steps are done, and this is what came of them.", (), _USAGE, "end")
        left = self._steps - taken
        calls = (ToolCall(f"call_{left}", "step", {"left": left}),)
        return ModelResponse("I take the next step.", calls, _USAGE, "tool_calls")


def remote(server: Provider, wire: Wire) -> ModelService:
    """The real models room, with a provider on loopback."""
    known = sections.ModelSettings(default="bench/steps", max_concurrent_calls=6)
    bench = sections.ProviderSettings(type=wire.name, api_key="no-key", base_url=server.base_url(wire))
    return ModelService(known, {"bench": bench}, rng=Random(0))


@attrs.frozen(eq=False)
class _Models:
    """A `ModelSource` of one function."""

    model_for: Callable[[str], LanguageModel]
    usage: UsageTracker | None = None
    traits: TraitStore = attrs.field(factory=TraitStore)
    chat_choices: ChatChoices = attrs.field(factory=ChatChoices)
    embedder: None = None

    def client(self, role: str = "default", lane: Lane = "work") -> LanguageModel:
        return self.model_for(role)

    def audio(self, role: str) -> None:
        return None

    def for_chat(self, chat: Address) -> _Models:
        return self

    def context_window(self, role: str = "default") -> int:
        return 128_000

    async def measure(self, request: ModelRequest, share: float) -> PromptSize:
        return PromptSize(0, self.context_window())

    async def usage_text(self, channel: ChannelInfo | None = None) -> str:
        return ""


@asynccontextmanager
async def task_system(
    data: Path, model_for: Callable[[str], LanguageModel], chosen: Settings, listener: Listener | None = None
) -> AsyncIterator[TaskSystem]:
    """The system on this data folder, up when the agent is; stopped on leaving."""
    ear = listener or Listener()
    disk = FileDisk(data)
    workspace = data / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    environment = Environment(
        in_force=LiveSettings(chosen),
        disk=disk,
        models=_Models(model_for),
        persona=LiveValue(BUILT_IN),
        base_persona=LiveValue(BUILT_IN),
        clock=now,
        random=Random(),
        workspace=workspace,
        open_memory=lambda ref: Memory(ref, FolderReader(data / "memory")),
        make_tools=lambda memory: (*standard_tools(chosen.tools, memory, now), step()),
        archives=lambda files: StoredArchives(FolderFiles(data), files),
    )
    async with open_supervisor(name="bench") as root:
        events = root.events()
        ref: Ref[JournalMessage] = await root.start_child(Child("journal", partial(run_journal, clock=now), disk))
        await root.start_child(Child("main-agent", supervisor([Child("notifications", ear.run)])))
        for group, name in (("channels", "switchboard"), ("approvals", "keeper")):
            await root.start_child(Child(group, supervisor([Child(name, _watch)])))
        services = build_services(environment, ref, root.ref, ())
        # Nobody is told of the results here, so nothing waits behind a reflection.
        services = attrs.evolve(services, make_tasks=partial(attrs.evolve, services.tasks, reflect_after=0.0))
        environment.may_work.set()
        began = time.perf_counter()
        await root.start_child(task_system_child(root, services))
        with trio.fail_after(PATIENCE):
            async for event in events:
                if isinstance(event, Started) and event.path == TASK_AGENT:
                    break
        yield TaskSystem(root, root.ref(TASK_AGENT), ear, began, time.perf_counter())
        await root.stop()


def step() -> Tool:
    """The tool that the provider's script `steps` calls."""

    async def run(arguments: Metadata, context: ToolContext) -> Json:
        left = arguments["left"]
        assert isinstance(left, int)
        return {"left": left - 1, "note": "the lamp was lit again this morning"}

    spec = ToolSpec("step", "Take one step.", parameters({"left": {"type": "integer"}}, "left"))
    return Tool(spec, run)
