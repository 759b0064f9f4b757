"""What the agent can do besides speaking: tools, the check of their arguments, and the one way they are run.

One file per category.
"""

from pegasus.tools.base import Effect, Tool, ToolContext, ToolError, ToolOutcome, check_arguments, parameters, run_tool
from pegasus.tools.collections import ALL_TASK_TOOLS, MAIN_AGENT, REFLECTION
from pegasus.tools.context import base_context
from pegasus.tools.executor import ToolExecutor, cut
from pegasus.tools.identity import persona_tool
from pegasus.tools.memory import found_json, memory_tools
from pegasus.tools.registry import ToolRegistry
from pegasus.tools.standard import standard_tools
from pegasus.tools.system import current_time

__all__ = [
    "ALL_TASK_TOOLS",
    "MAIN_AGENT",
    "REFLECTION",
    "Effect",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolExecutor",
    "ToolOutcome",
    "ToolRegistry",
    "base_context",
    "check_arguments",
    "current_time",
    "cut",
    "found_json",
    "memory_tools",
    "parameters",
    "persona_tool",
    "run_tool",
    "standard_tools",
]
