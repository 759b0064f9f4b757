"""Tools as the settings allow them: the executor of a set of tools, the gate before each call, the tool that speaks.

The Main Agent and the tasks have different tools (`services`, `task_services`), but all their calls pass the same gate, and no result
shows a secret. The gate asks for the rules and the walls that are in force at the call; an executor is made anew when a setting of the
tools changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from actors import Ref
from pegasus.app.environment import Environment
from pegasus.policy import ApprovalMessage, Confinement, Decision, Policy, parse_rules
from pegasus.settings import SANDBOX_KEYS, PolicySettings, Settings
from pegasus.tools import Gate, PolicyGate, Tool, ToolExecutor, base_context, speak_tool

SPEECH_KEYS: Final = ("models.speech", "models.voice")
"""Settings that the tool `speak` depends on."""


def tool_executor(
    environment: Environment,
    settings: Settings,
    gate: Gate,
    tools: Iterable[Tool],
    allows: Callable[[str], bool] = lambda name: True,
) -> ToolExecutor:
    """Return the executor of these tools and of those of MCP servers that are allowed. It removes all secrets from their results."""
    return ToolExecutor(
        tools,
        timeout=settings.tools.timeout,
        timeouts=settings.tools.timeouts,
        secrets=environment.secrets,
        source=environment.mcp,
        allows=allows,
        gate=gate,
    )


def tool_gate(environment: Environment, approvals: Ref[ApprovalMessage]) -> Gate:
    """Return what decides about each tool call. approvals: keeps the calls that wait for an owner."""
    in_force, sandbox = environment.in_force, environment.sandbox
    policy = in_force.follow(lambda settings: _policy_of(settings.policy), "policy.")
    walls = in_force.follow(
        lambda _: Confinement(stands=sandbox.now.is_walled, has_network=sandbox.now.has_network), *SANDBOX_KEYS
    )
    return PolicyGate(policy, walls, approvals)


def _policy_of(settings: PolicySettings) -> Policy:
    """Return the rules of the settings."""
    return Policy(parse_rules(settings.rules), Decision(settings.default), Decision(settings.after_untrusted))


def speak_tools(environment: Environment, settings: Settings) -> tuple[Tool, ...]:
    """Return the tool that speaks, if the settings name a model for it."""
    if not settings.models.speech:
        return ()
    folder = base_context(environment.workspace, (), 0, environment.closed_paths)
    return (speak_tool(partial(environment.models.audio, "speech"), settings.models.voice, folder),)
