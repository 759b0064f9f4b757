"""What the agent can do besides speaking: tools, the check of their arguments, and the one way they are run.

One file per category.
"""

from pegasus.tools.base import Effect, Tool, ToolContext, ToolError, ToolOutcome, run_tool
from pegasus.tools.system import current_time

__all__ = ["Effect", "Tool", "ToolContext", "ToolError", "ToolOutcome", "current_time", "run_tool"]
