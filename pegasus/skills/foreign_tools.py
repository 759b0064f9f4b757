"""Names of tools in skills that were written for other agents, and the tools that they mean here.

The same few tools have a name in each agent: `Bash`, `exec`, `run_shell_command` and `run_terminal_cmd` are all `shell_exec`. Names
are compared without regard to case, hyphens and underscores, since skills write them by hand.

A list of a foreign skill is kept as narrow as it is: what has no counterpart here stays as a name that no tool has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

_COUNTERPARTS: Final[Mapping[str, str]] = {
    # Claude Code, Codex, Gemini CLI and Qwen Code, Cursor, OpenCode, OpenClaw, Hermes, Copilot, Cline, Amp, Kiro.
    "read_file": "Read view view_file read_files read_many_files view_image open_file fs_read get_file_contents NotebookRead",
    "write_file": "Write create_file write_to_file fs_write save_file",
    "edit_file": "Edit MultiEdit NotebookEdit edit_files replace replace_in_file str_replace apply_patch apply_diff patch "
    "search_replace multi_edit insert_edit_into_file replace_string_in_file",
    "grep_files": "Grep search grep_search search_files search_file_content codebase codebase_search text_search file_search_content",
    "list_files": "Glob LS list find list_dir list_directory find_files find_path file_search glob_file_search",
    "delete_file": "delete remove_file",
    "move_file": "move rename_file",
    "shell_exec": "Bash shell exec terminal execute run command run_command run_commands run_shell_command run_terminal_cmd "
    "run_terminal_command run_in_terminal execute_command execute_bash exec_command local_shell container.exec PowerShell",
    "command_output": "BashOutput TaskOutput get_terminal_output",
    "command_input": "write_stdin send_to_terminal",
    "command_stop": "KillBash KillShell TaskStop",
    "run_python": "code_execution execute_code python code_interpreter run_code",
    "web_fetch": "WebFetch fetch fetch_url fetch_webpage read_web_page web_extract browser_navigate url_fetch read_url",
    "web_search": "WebSearch google_web_search search_web brave_search web",
    "spawn_subagent": "Task Agent spawn_agent delegate_task sessions_spawn run_subagent new_task",
    "use_skill": "Skill activate_skill skill_view",
    "ask_user": "AskUserQuestion ask_followup_question request_user_input clarify question",
    "memory_search": "search_memory recall",
    "memory_read": "memory_get",
    "memory_append": "save_memory update_memory",
    "cron": "cronjob schedule schedule_task CronCreate",
    "reply": "message send_message",
}
"""Names in other agents by the tool here."""
_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "all": ("*",),
    "texteditor": ("read_file", "write_file", "edit_file"),
    "strreplacebasededittool": ("read_file", "write_file", "edit_file"),
    "strreplaceeditor": ("read_file", "write_file", "edit_file"),
    "groupfs": ("read_file", "write_file", "edit_file"),
    "groupruntime": ("shell_exec", "command_*"),
    "groupweb": ("web_search", "web_fetch"),
    "groupmemory": ("memory_search", "memory_read"),
    "process": ("command_*",),
    "memory": ("memory_*",),
}
"""Names that mean several tools here, in the form of `_plain`."""
_WHOLE: Final = ("*", "**", ":*", "")
"""Parts of a tool that are all of it."""
_VERSION: Final = re.compile(r"_20\d{6}$")
"""End of the names of a provider's own tools, such as `bash_20250124`."""


def _plain(name: str) -> str:
    """Return a name as it is compared: without what is in front of it, its version, and hyphens."""
    name = _VERSION.sub("", name.rpartition("/")[2].removeprefix("functions.").removeprefix("default_api:"))
    return re.sub(r"[^a-z0-9]", "", name.lower())


_TOOLS: Final[Mapping[str, str]] = {
    _plain(name): tool for tool, names in _COUNTERPARTS.items() for name in (tool, *names.split())
}

FOR_COMMANDS: Final = ("shell_exec", "command_start")
"""Tools that a list can have for some commands only."""
ONLY_IN_TASKS: Final = (
    *("read_file", "write_file", "edit_file", "grep_files", "list_files", "delete_file", "move_file", "get_file_info"),
    *("shell_exec", "command_start", "run_python", "web_fetch", "web_search"),
    *("http_get", "http_post", "http_request", "download"),
)
"""Tools that a conversation has not, so that a skill which needs one has to run as a task."""


def tools_named(name: str) -> Sequence[str] | None:
    """Return the tools that an entry of a list means here; None for a part of a tool that cannot be allowed by itself.

    tools_named("Bash(git add:*)")    # ("shell_exec(git add *)",)
    tools_named("mcp__github")        # ("github__*",)
    """
    tool, bracket, part = name.partition("(")
    part = part.removesuffix(")").strip()
    if bracket and part not in _WHOLE:
        found = tools_named(tool)
        if found is None or len(found) > 1 or found[0] not in FOR_COMMANDS:
            return None
        # `git:*` and `git *` are two spellings of a beginning.
        part = f"{part.removesuffix(':*')} *" if part.endswith(":*") else part
        return (f"{found[0]}({part})",)
    if tool.startswith("mcp__"):
        # Tools of MCP servers are written with a prefix there. A server alone means all of its tools.
        tool = tool.removeprefix("mcp__")
        return (tool if "__" in tool else f"{tool}__*",)
    plain = _plain(tool)
    return _GROUPS.get(plain) or (_TOOLS.get(plain, tool),)
