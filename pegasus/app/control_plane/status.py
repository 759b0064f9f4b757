"""The control plane's methods about the daemon as a whole: `status`, `usage`, `tree`, `stop`, and the servers and channels it has.

Those that only read have a deadline of five seconds for each actor, since an operator calls them when something hangs; the answer is
then an error or lacks that part. `stop` has none: its answer means that the work has ended, and the gateway bounds the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import trio

import actors
import pegasus
from actors import ActorInfo, Ref, Supervisor
from pegasus import __version__
from pegasus.app.approvals import ANSWER_TIMEOUT, ApprovalFlow
from pegasus.app.environment import ADAPTER
from pegasus.channels import ServiceAdapter
from pegasus.gateway import Caller, Method, Params
from pegasus.identity import Persona
from pegasus.main_agent import MainAgents, TaskDelegation, ended_json, gather_status, status_json
from pegasus.mcp import McpServers, servers_json
from pegasus.messages import Json
from pegasus.models import ModelService
from pegasus.observe import Activity
from pegasus.sandbox import NO_SANDBOX, Sandbox
from pegasus.settings import LiveValue
from pegasus.storage import JournalMessage, Waiting
from pegasus.tasks import TaskAgentMessage
from pegasus.wire import camel, to_wire

SETTLING = 1.0
"""Seconds that a report waits for the search for a local model, so that a greeting names the model that will answer."""
CODE: Final = tuple(Path(package.__path__[0]) for package in (pegasus, actors))
"""Folders with the code that runs here."""


@attrs.frozen(eq=False, repr=False)
class StatusMethods:
    """The daemon: `status`, `usage`, `tree`, `stop`, `mcp.list`, `channels.list`.

    Example::

        status = StatusMethods(root=root, journal=journal, main_agent=main_agent, …)
        answer = await status.status(caller, {})
        answer["model"], answer["waiting"], answer["uptime"]
    """

    root: Supervisor
    """The root supervisor, whose tree `tree` shows."""
    journal: Ref[JournalMessage]
    """Asked how many messages wait."""
    main_agent: MainAgents
    """Asked about its work, and to stop it."""
    started_at: int
    """Wall clock of the start, in ms since the epoch."""
    clock: Callable[[], int]
    """Wall clock, in ms since the epoch."""
    models: ModelService
    """The models with their usage and circuit breakers."""
    tasks: Ref[TaskAgentMessage]
    """The agent of the task system, asked about its tasks."""
    persona: LiveValue[Persona]
    """The persona of this run, for its name."""
    approvals: ApprovalFlow
    """Knows the calls that wait for an owner."""
    mcp: McpServers = attrs.field(factory=McpServers)
    """MCP servers; none unless given."""
    sandbox: LiveValue[Sandbox] = attrs.field(factory=lambda: LiveValue(NO_SANDBOX))
    """The walls around commands."""
    activity: Activity = attrs.field(factory=Activity)
    """Knows whether the process waits for its database."""
    node: str = ""
    """Name of this node, where several share the state."""
    adapters: Mapping[str, ServiceAdapter] = attrs.field(factory=dict)
    """Adapters of services by channel type, which a reload may change."""

    def methods(self) -> dict[str, Method]:
        """Return the methods by the names that they have on the wire."""
        return {
            "status": self.status,
            "usage": self.usage,
            "tree": self.tree,
            "stop": self.stop,
            "mcp.list": self.list_servers,
            "channels.list": self.list_channels,
        }

    async def status(self, caller: Caller, params: Params) -> Json:
        """Return what the daemon is doing.

        The Main Agent and the journal must answer, otherwise ActorError becomes an error frame. Tasks are null
        instead, because the task system starts after the daemon has announced itself. Times are in seconds,
        `startedAt` in ms since the epoch. `database`: why the process waits for its database, absent if it does not.
        `codeChanged`: the code on disk is another one than the one that runs, so that what is loaded at its first use may
        not fit. The facts are those of the chat's /status.
        """
        with trio.move_on_after(SETTLING):  # a chat that has started the agent asks before the first search has ended
            await self.models.settle()
        activity = self.activity
        agent = await self.main_agent.status(ANSWER_TIMEOUT)
        not_done = await self.journal.ask(Waiting, timeout=ANSWER_TIMEOUT)
        usage = await self.models.usage_report()
        work = TaskDelegation(self.tasks)
        facts = await gather_status(agent, not_done, work, self.clock(), ANSWER_TIMEOUT)
        return {
            "agent": self.persona.now.name,
            "version": __version__,
            **({"node": self.node} if self.node else {}),
            **(
                {"database": activity.reason if caller.has_own_door else activity.waits_for}
                if activity.waits_for
                else {}
            ),
            "startedAt": self.started_at,
            "codeChanged": await trio.to_thread.run_sync(was_changed, CODE, self.started_at),
            "uptime": round((self.clock() - self.started_at) / 1000, 1),
            **status_json(facts),
            "mcp": servers_json(self.mcp.states()),
            "channels": [to_wire(adapter.state) for adapter in self.adapters.values()],
            "sandbox": {
                "kind": self.sandbox.now.kind,
                "state": self.sandbox.now.state,
                "walled": self.sandbox.now.is_confined,
                "description": self.sandbox.now.description,
            },
            "approvals": len(await self.approvals.open_notices()),
            "granted": await self.approvals.count_grants(),
            "usage": {key: usage[key] for key in ("today", "budgets") if key in usage},
            "failingModels": [
                {
                    "model": model,
                    "breaker": status.state,
                    "failures": status.failures,
                    "retryIn": round(status.seconds, 1),
                    "why": status.why,
                }
                for model, status in self.models.breakers().items()
            ],
        }

    async def usage(self, caller: Caller, params: Params) -> Json:
        """Return what model calls have used.

        Tokens and costs of today and before, with the budgets of the settings, as `UsageTracker` reports them. With `days` (true) also
        those of each day of this month and the last, by model and channel.
        """
        report = await self.models.usage_report()
        return {**report, "days": await self.models.daily_usage()} if params.get("days") is True else report

    async def tree(self, caller: Caller, params: Params) -> Json:
        """Return the live supervision tree.

        It is a snapshot of what the supervisors know; no actor is asked, so it works while actors hang.
        """
        await trio.lowlevel.checkpoint()
        states = [adapter.state for adapter in self.adapters.values()]
        reasons = {f"channels/{state.type}/{ADAPTER}": state.reason for state in states if state.state == "parked"}
        return actor_json(self.root.tree(), reasons)

    async def list_servers(self, caller: Caller, params: Params) -> Json:
        """Return the state of each MCP server."""
        await trio.lowlevel.checkpoint()
        return {"servers": servers_json(self.mcp.states())}

    async def list_channels(self, caller: Caller, params: Params) -> Json:
        """Return the state of each adapter of a service."""
        await trio.lowlevel.checkpoint()
        return {"channels": [to_wire(adapter.state) for adapter in self.adapters.values()]}

    async def stop(self, caller: Caller, params: Params) -> Json:
        """Do what /stop does, for all channels; return what was ended once it has ended.

        Cancelling the call does not take the stop back.
        """
        ended = await self.main_agent.stop(f"a control call ({caller.type})")
        return {"ended": [ended_json(work) for work in ended]}


def actor_json(info: ActorInfo, reasons: Mapping[str, str]) -> dict[str, Json]:
    """Return an actor and all below it as JSON. Fields without a value are left out; times are in seconds.

    The keys are the camelCase names of ActorInfo's fields and part of the contract with clients.

    reasons: by path, why an adapter is parked. Its actor is up, since it goes on reading its mailbox; to a person it does not work.
    """
    node: dict[str, Json] = {
        camel(key): round(value, 3) if isinstance(value, float) else value
        for key, value in attrs.asdict(info, recurse=False).items()
        if key != "children" and value is not None
    }
    if info.children:
        node["children"] = [actor_json(child, reasons) for child in info.children]
    reason = reasons.get(info.path)
    return node if reason is None else {**node, "state": "parked", "reason": reason}


def was_changed(folders: Sequence[Path], since: int) -> bool:
    """Return whether Python files in these folders were written after this time, in ms since the epoch. Takes milliseconds."""
    files = (file for folder in folders for file in folder.rglob("*.py"))
    try:
        return any(file.lstat().st_mtime_ns > since * 1_000_000 for file in files)
    except FileNotFoundError:  # it is being replaced
        return True
