"""The control plane behind the command line: what a program may ask the running daemon (interfaces section 3)."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from actors import ActorInfo
from pegasus import __version__
from pegasus.app.tree import Grown
from pegasus.gateway import Caller, Params
from pegasus.main_agent import Ended, GetStatus, Stop
from pegasus.messages import Json
from pegasus.storage.messages import Waiting

ANSWER = 5.0
"""Seconds an actor may take to say how it is."""


@attrs.frozen(eq=False)
class Control:
    """status, tree and stop. started_at: wall clock, ms."""

    grown: Grown
    agent_name: str
    started_at: int
    clock: Callable[[], int]

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
            "handled": agent.turns,
            "sessionEntries": agent.entries,
        }

    async def tree(self, caller: Caller, params: Params) -> Json:
        """The live supervision tree."""
        await trio.lowlevel.checkpoint()
        return _node(self.grown.root.tree())

    async def stop(self, caller: Caller, params: Params) -> Json:
        """What /stop does; answers with what was ended, once it has ended."""
        ended = await self.grown.main_agent.ask(Stop, f"a control call ({caller.type})")
        return {"ended": [_ended(one) for one in ended]}


def _ended(one: Ended) -> Json:
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
