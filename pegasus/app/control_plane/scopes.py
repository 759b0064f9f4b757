"""Names of the methods for which less than the scope "control" is enough; the gateway asks for them before a method is imported."""

from __future__ import annotations

READ_METHODS = frozenset(
    {
        "status",
        "usage",
        "tree",
        "conversation",
        "history",
        "markdown",
        "completions",
        "tasks.list",
        "tasks.show",
        "tasks.replay",
        "tasks.log",
        "cron.list",
        "events.subscribe",
        "memory.list",
        "memory.show",
        "memory.log",
        "memory.search",
        "persona.list",
        "pair.list",
        "mcp.list",
        "mcp.tools",
        "channels.list",
        "nodes.list",
        "skills.list",
    }
)
"""Methods that only show something: a token with the scope "read" may call them. All others need "control"."""
MESSAGE_METHODS = frozenset({"interrupt"})
"""Methods that do no more than a message of the same client could do: the scope "message" is enough."""
