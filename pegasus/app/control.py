"""The control plane behind the command line: what a program may ask the running daemon (interfaces section 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs
import trio

from actors import ActorError, ActorInfo
from pegasus import __version__
from pegasus.app.commons import AGENT
from pegasus.app.tree import Grown
from pegasus.gateway import Caller, Method, Params
from pegasus.main_agent import EndedWork, GetStatus, Stop
from pegasus.messages import Json
from pegasus.storage import Waiting

if TYPE_CHECKING:
    from actors import Ref
    from pegasus.app.economy import Economy
    from pegasus.models import BreakerStatus
    from pegasus.tasks import AgentMessage

ANSWER = 5.0
"""Seconds an actor may take to say how it is."""


@attrs.frozen(eq=False)
class Control:
    """status, tree and stop. started_at: wall clock, ms. economy, breakers: what models use, and which of them fail."""

    grown: Grown
    agent_name: str
    started_at: int
    clock: Callable[[], int]
    economy: Economy
    breakers: Callable[[], Mapping[str, BreakerStatus]]

    async def status(self, caller: Caller, params: Params) -> Json:
        """What the daemon is doing."""
        agent = await self.grown.main_agent.ask(GetStatus, timeout=ANSWER)
        waiting = await self.grown.journal.ask(Waiting, timeout=ANSWER)
        thinking: Json = None
        if agent.thinking_about is not None:
            thinking = {"about": agent.thinking_about, "seconds": round(agent.thinking_for, 1)}
        return {
            "agent": self.agent_name,
            "version": __version__,
            "startedAt": self.started_at,
            "uptime": round((self.clock() - self.started_at) / 1000, 1),
            "model": agent.model,
            "thinking": thinking,
            "waiting": waiting,
            "tasks": await self._tasks(),
            "handled": agent.turns,
            "sessionEntries": agent.entries,
            "usage": await self.economy.today(),
            "failingModels": [_failing(spec, status) for spec, status in self.breakers().items()],
        }

    def methods(self) -> dict[str, Method]:
        """By their names on the wire; what those of other rooms need is imported at the first call."""
        rooms: Mapping[str, tuple[Callable[[], object], Sequence[str]]] = {
            "tasks": (self._about_tasks, ("list", "show", "replay", "cancel", "resume")),
            "memory": (self._about_memory, ("list", "show", "log", "undo", "search")),
            "persona": (self._about_persona, ("list", "accept", "reject")),
        }
        about = {f"{room}.{name}": _method(make, name) for room, (make, names) in rooms.items() for name in names}
        return {"status": self.status, "tree": self.tree, "stop": self.stop, **about}

    def _about_tasks(self) -> object:
        from pegasus.app.task_control import TaskControl

        return TaskControl(self.grown.root.ref(AGENT))

    def _about_memory(self) -> object:
        from pegasus.app.memory_control import MemoryControl

        return MemoryControl(self.grown.memory())

    def _about_persona(self) -> object:
        from pegasus.app.persona_control import PersonaControl

        parts = self.grown.parts
        return PersonaControl(self.grown.evolution(), parts.persona, parts.settings.agent.owners)

    async def _tasks(self) -> Json:
        """How many tasks are in which state; null while the task system does not run, or does not answer."""
        agent: Ref[AgentMessage] = self.grown.root.ref(AGENT)
        if not agent.alive:
            return None
        from pegasus.tasks import ListTasks

        try:
            tasks = await agent.ask(ListTasks, timeout=ANSWER)
        except ActorError:
            return None
        states = Counter(task.state.value for task in tasks)
        return {
            "working": states["reasoning"] + states["acting"],
            "waiting": states["idle"],
            "suspended": states["suspended"],
        }

    async def tree(self, caller: Caller, params: Params) -> Json:
        """The live supervision tree."""
        await trio.lowlevel.checkpoint()
        return _node(self.grown.root.tree())

    async def stop(self, caller: Caller, params: Params) -> Json:
        """What /stop does; answers with what was ended, once it has ended."""
        ended = await self.grown.main_agent.ask(Stop, f"a control call ({caller.type})")
        return {"ended": [_ended(one) for one in ended]}


def _method(make: Callable[[], object], name: str) -> Method:
    """This method of what `make` gives, which is called for each call."""

    async def call(caller: Caller, params: Params) -> Json:
        method: Method = getattr(make(), name)
        return await method(caller, params)

    return call


def _failing(spec: str, status: BreakerStatus) -> Json:
    return {
        "model": spec,
        "breaker": status.state,
        "failures": status.failures,
        "retryIn": round(status.seconds, 1),
        "why": status.why,
    }


def _ended(one: EndedWork) -> Json:
    return {"kind": one.kind, "what": one.what, "seconds": round(one.seconds, 2)}


_CAMEL = {
    "high_water": "highWater",
    "message_age": "messageAge",
    "shutdown_budget": "shutdownBudget",
    "waiting_at": "waitingAt",
}


def _node(info: ActorInfo) -> Json:
    fields = attrs.asdict(info, recurse=False)
    node: dict[str, Json] = {
        _CAMEL.get(key, key): round(value, 3) if isinstance(value, float) else value
        for key, value in fields.items()
        if key != "children" and value is not None
    }
    if info.children:
        node["children"] = [_node(child) for child in info.children]
    return node
