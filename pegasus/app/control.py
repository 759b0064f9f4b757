"""The control plane behind the command line: what a program may ask the running daemon.

A client sends a `call` frame with a method's name; `ControlPlane.methods` is the table that the gateway looks it up in.
This file has the methods about the daemon as a whole; those about tasks, memory and the persona are in `control_methods`.

The table is written out name by name, as it is the list of what a client with the token may do. A method has no
state of its own: it asks the actor that knows, and a restart of that actor changes nothing here. Methods that
only read have a deadline of five seconds for each actor, since an operator calls them when something hangs; the
answer is then an error or lacks that part. `stop` has none: its answer means that the work has ended, and the
gateway bounds the call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import attrs
import trio

from actors import ActorError, ActorInfo, Ref, Supervisor
from pegasus import __version__
from pegasus.app.control_methods import MemoryMethods, PersonaMethods, TaskMethods
from pegasus.gateway import Caller, Method, Params
from pegasus.main_agent import EndedWork, GetStatus, MainAgentMessage, Stop
from pegasus.messages import Json
from pegasus.models import BreakerStatus, ModelService
from pegasus.storage import JournalMessage, Waiting
from pegasus.tasks import ListTasks

ANSWER_TIMEOUT = 5.0
"""Seconds an actor may take to report its state."""


@attrs.frozen(eq=False)
class ControlPlane:
    """The methods `status`, `usage`, `tree` and `stop`, and the table of all methods.

    For example:

        control = ControlPlane(root=root, journal=journal, main_agent=main_agent, …)
        answer = await control.methods()["status"](caller, {})
    """

    root: Supervisor
    """The root supervisor, whose tree `tree` shows."""
    journal: Ref[JournalMessage]
    """Asked how many messages wait."""
    main_agent: Ref[MainAgentMessage]
    """Asked about its work, and to stop it."""
    agent_name: str
    """The name of the persona."""
    started_at: int
    """Wall clock of the start, in ms since the epoch."""
    clock: Callable[[], int]
    """Wall clock, in ms since the epoch."""
    models: ModelService
    """The models with their usage and circuit breakers."""
    tasks: TaskMethods
    """Methods about tasks, `tasks.…` on the wire."""
    memory: MemoryMethods
    """Methods about memory, `memory.…` on the wire."""
    persona: PersonaMethods
    """Methods about the persona, `persona.…` on the wire."""

    def methods(self) -> dict[str, Method]:
        """Return all methods by the names that they have on the wire."""
        return {
            "status": self.status,
            "usage": self.usage,
            "tree": self.tree,
            "stop": self.stop,
            "tasks.list": self.tasks.list,
            "tasks.show": self.tasks.show,
            "tasks.replay": self.tasks.replay,
            "tasks.cancel": self.tasks.cancel,
            "tasks.resume": self.tasks.resume,
            "memory.list": self.memory.list,
            "memory.show": self.memory.show,
            "memory.log": self.memory.log,
            "memory.undo": self.memory.undo,
            "memory.search": self.memory.search,
            "persona.list": self.persona.list,
            "persona.accept": self.persona.accept,
            "persona.reject": self.persona.reject,
        }

    async def status(self, caller: Caller, params: Params) -> Json:
        """Return what the daemon is doing.

        The Main Agent and the journal must answer, otherwise ActorError becomes an error frame. Tasks are null
        instead, because the task system starts after the daemon has announced itself. Times are in seconds,
        `startedAt` in ms since the epoch.
        """
        agent = await self.main_agent.ask(GetStatus, timeout=ANSWER_TIMEOUT)
        waiting = await self.journal.ask(Waiting, timeout=ANSWER_TIMEOUT)
        usage = await self.models.usage_report()
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
            "tasks": await self._count_tasks(),
            "handled": agent.turns,
            "sessionEntries": agent.entries,
            "usage": {key: usage[key] for key in ("today", "budgets") if key in usage},
            "failingModels": [_breaker_json(model, status) for model, status in self.models.breakers().items()],
        }

    async def _count_tasks(self) -> Json:
        """Return how many tasks are in which state; null while the task system is down or does not answer in time."""
        if not self.tasks.agent.alive:
            return None
        try:
            tasks = await self.tasks.agent.ask(ListTasks, timeout=ANSWER_TIMEOUT)
        except ActorError:
            return None
        states = Counter(task.state.value for task in tasks)
        return {
            "working": states["reasoning"] + states["acting"],
            "waiting": states["idle"],
            "suspended": states["suspended"],
        }

    async def usage(self, caller: Caller, params: Params) -> Json:
        """Return what model calls have used.

        Tokens and costs of today and before, with the budgets of the settings, as `UsageTracker` reports them.
        """
        return await self.models.usage_report()

    async def tree(self, caller: Caller, params: Params) -> Json:
        """Return the live supervision tree.

        It is a snapshot of what the supervisors know; no actor is asked, so it works while actors hang.
        """
        await trio.lowlevel.checkpoint()
        return actor_json(self.root.tree())

    async def stop(self, caller: Caller, params: Params) -> Json:
        """Do what /stop does, for all channels; return what was ended once it has ended.

        Cancelling the call does not take the stop back.
        """
        ended = await self.main_agent.ask(Stop, f"a control call ({caller.type})")
        return {"ended": [_ended_json(work) for work in ended]}


def _breaker_json(model: str, status: BreakerStatus) -> Json:
    """Return the state of a model's circuit breaker. `retryIn` is in seconds; the model is not called before."""
    return {
        "model": model,
        "breaker": status.state,
        "failures": status.failures,
        "retryIn": round(status.seconds, 1),
        "why": status.why,
    }


def _ended_json(work: EndedWork) -> Json:
    """Return a piece of work that was ended: its kind, a short description, and how long it had taken, in seconds."""
    return {"kind": work.kind, "what": work.what, "seconds": round(work.seconds, 2)}


_WIRE_NAMES = {
    "high_water": "highWater",
    "message_age": "messageAge",
    "shutdown_budget": "shutdownBudget",
    "waiting_at": "waitingAt",
}
"""Fields of ActorInfo that have another name on the wire, which uses camel case."""


def actor_json(info: ActorInfo) -> Json:
    """Return an actor and all below it as JSON. Fields without a value are left out; times are in seconds.

    The keys are part of the contract with clients. A field that is added to ActorInfo appears on its own, but
    needs an entry in `_WIRE_NAMES` if its name has an underscore.
    """
    fields = attrs.asdict(info, recurse=False)
    node: dict[str, Json] = {
        _WIRE_NAMES.get(key, key): round(value, 3) if isinstance(value, float) else value
        for key, value in fields.items()
        if key != "children" and value is not None
    }
    if info.children:
        node["children"] = [actor_json(child) for child in info.children]
    return node
