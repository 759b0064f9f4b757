"""Which tools belong together: names only, so that whoever builds a set of tools and whoever describes it mean the same.

The types of tasks name theirs in their SUBAGENT.md; a test keeps those in step with these.
"""

from __future__ import annotations

from typing import Final

SYSTEM: Final = ("current_time", "sleep", "get_env", "set_env")
FILE: Final = (
    "read_file",
    "write_file",
    "list_files",
    "delete_file",
    "move_file",
    "get_file_info",
    "edit_file",
    "grep_files",
)
NETWORK: Final = ("http_get", "http_post", "http_request", "web_search")
CODE: Final = ("shell_exec", "run_python")
DATA: Final = ("json_parse", "json_stringify", "base64_encode", "base64_decode")
MEMORY: Final = (
    "memory_list",
    "memory_read",
    "memory_search",
    "memory_write",
    "memory_patch",
    "memory_append",
)
TASK: Final = ("task_list", "task_replay")
NOTIFY: Final = ("notify",)

ALL_TASK_TOOLS: Final = (*SYSTEM, *FILE, *NETWORK, *CODE, *DATA, *MEMORY, *TASK, *NOTIFY)
"""What a task of type general has, MCP servers' tools aside."""

EXPLORE: Final = (
    *("current_time", "get_env", "read_file", "list_files", "get_file_info", "grep_files"),
    *("http_get", "web_search", "json_parse", "base64_decode"),
    *("memory_list", "memory_read", "memory_search", "task_list", "task_replay", "notify"),
)
"""Looking only."""

PLAN: Final = (*EXPLORE, "memory_write", "memory_append")
"""Looking, and noting what came of it."""

REFLECTION: Final = ("memory_read", "memory_write", "memory_patch", "memory_append")
"""For looking back on a finished task; what memory holds is told beforehand, so there is no memory_list."""

MAIN_AGENT: Final = (
    *("current_time", *MEMORY, "task_list", "task_status", "task_replay", "session_archive_read"),
    *("spawn_subagent", "resume_task", "reply", "use_skill"),
)
"""The Main Agent's own; it has no hands (checklist 39)."""
