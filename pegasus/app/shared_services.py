"""Services that the Main Agent and the task system are both built from.

The two have different tools, but all their calls pass the same gate, and no result shows a secret. The gate asks for the rules and the
walls that are in force at the call; an executor is made anew when a setting of the tools changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import attrs

from actors import Ref
from pegasus.access import ApprovalMessage, Decision, Policy, SandboxState, parse_rules
from pegasus.app.environment import Environment
from pegasus.memory import Memory
from pegasus.settings import SANDBOX_KEYS, PolicySettings, Settings
from pegasus.storage import JournalMessage
from pegasus.tasks import TaskAgentMessage, TaskTypes
from pegasus.tools import Gate, PolicyGate, Tool, ToolExecutor, base_context, speak_tool

SPEECH_KEYS: Final = ("models.speech", "models.voice")
"""Settings that the tool `speak` depends on."""


@attrs.frozen(eq=False, repr=False)
class SharedServices:
    """Services that the Main Agent and the task system are both built from.

    `build_services` makes one and hands it to `main_agent_services` and `task_deps`; no actor gets it.

    Example::

        shared = SharedServices(environment, journal, memory, types, task_agent, tool_gate(environment, approvals))
        executor = shared.executor(environment.settings, [current_time(environment.clock)])
    """

    environment: Environment
    """Everything from outside the tree."""
    journal: Ref[JournalMessage]
    """Writes what is kept."""
    memory: Memory
    """The memory of the agent."""
    types: TaskTypes
    """Types of tasks, built in and of the settings."""
    task_agent: Ref[TaskAgentMessage]
    """The agent of the task system. It need not run yet."""
    gate: Gate
    """Decides about each tool call."""

    def executor(
        self, settings: Settings, tools: Iterable[Tool], allows: Callable[[str], bool] = lambda name: True
    ) -> ToolExecutor:
        """Return the executor of these tools and of those of MCP servers. It removes all secrets from their results.

        allows: whether a tool of an MCP server may be used.

        Returns a new executor at each call, for these settings. The caller keeps it behind a handle that calls this again
        when a setting of the tools has changed.
        """
        return ToolExecutor(
            map(self.environment.adapt_tool, tools),
            timeout=settings.tools.timeout,
            timeouts=settings.tools.timeouts,
            secrets=self.environment.secrets,
            source=self.environment.mcp,
            allows=allows,
            gate=self.gate,
            activity=self.environment.activity,
        )

    def speak_tools(self, settings: Settings) -> tuple[Tool, ...]:
        """Return the tool that speaks, if the settings name a model for it.

        Zero or one tool. Rebuilt when a reload changes SPEECH_KEYS.
        """
        if not settings.models.speech:
            return ()
        environment = self.environment
        folder = base_context(environment.workspace, (), 0, environment.closed_paths, guests=environment.guests)
        return (speak_tool(partial(environment.models.audio, "speech"), settings.models.voice, folder),)


def tool_gate(environment: Environment, approvals: Ref[ApprovalMessage]) -> Gate:
    """Return what decides about each tool call. approvals: keeps the calls that wait for an owner.

    Rules and walls are handles, so the gate need not be made anew at a reload: each call is judged by the settings that
    are in force at that moment. The walls are part of the judgement because a command without walls needs an approval
    in more cases.
    """
    in_force, sandbox = environment.in_force, environment.sandbox
    policy = in_force.follow(lambda settings: _policy_of(settings.policy), "policy.")

    def confinement(_: Settings) -> SandboxState:
        """Return the walls that stand now, as decisions are made from them."""
        found = sandbox.now
        return SandboxState(found.state != "none", found.has_network, is_partial=found.state == "partial")

    walls = in_force.follow(confinement, *SANDBOX_KEYS)
    return PolicyGate(policy, walls, approvals, environment.files, sandbox, environment.clients)


def _policy_of(settings: PolicySettings) -> Policy:
    return Policy(parse_rules(settings.rules), Decision(settings.default), Decision(settings.after_untrusted))
