"""One call of one tool."""

from pegasus.tools import ToolContext, ToolExecutor


async def run_tool(tool, arguments, timeout, context=None):
    """The outcome of a call without a gate, which has so many seconds."""
    executor = ToolExecutor([tool], timeouts={tool.name: timeout})
    return await executor.run(tool, arguments, context or ToolContext())
