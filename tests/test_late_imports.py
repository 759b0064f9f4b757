"""A start imports what a daemon without clients needs, and nothing else; `pegasus.late` explains how the rest is left for later."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pegasus.models
from pegasus.late import late_modules, late_names

ROOT = Path(__file__).resolve().parents[1]
LATE = {
    # libraries
    "anthropic", "anyio", "asyncio", "cronsim", "cryptography", "email", "h11", "httpx2", "jiter", "json_repair", "jsonschema_rs",
    "mcp", "openai", "opentelemetry", "prompt_toolkit", "psycopg", "pydantic", "re2", "rich", "selectolax", "starlette", "tiktoken",
    "tomlkit", "trio_websocket", "tzlocal", "wcwidth", "wsproto", "yaml",
    # what many homes do not use, or when somebody asks for it
    "click.shell_completion", "pegasus.a2a", "pegasus.app.shared_state", "pegasus.app.telemetry", "pegasus.app.undo",
    "pegasus.app.waiting_room", "pegasus.backup", "pegasus.channels.service_contract", "pegasus.channels.slack",
    "pegasus.channels.sms", "pegasus.channels.telegram", "pegasus.cli.chat", "pegasus.cli.mcp_relay", "pegasus.client",
    "pegasus.gateway.connection", "pegasus.importing", "pegasus.installing", "pegasus.main_agent.consolidation",
    "pegasus.main_agent.context_view", "pegasus.mcp.connection", "pegasus.mcp.oauth", "pegasus.mcp.place", "pegasus.mcp.remote",
    "pegasus.mcp.server", "pegasus.mcp.sign_in", "pegasus.mcp.sorting", "pegasus.mcp.stdio", "pegasus.mcp_server.door",
    "pegasus.mcp_server.server", "pegasus.media.document_text", "pegasus.media.pdf_text", "pegasus.memory.search",
    "pegasus.memory.working_copy", "pegasus.models.audio", "pegasus.models.embeddings", "pegasus.models.formats.responses",
    "pegasus.models.providers.offers", "pegasus.moving", "pegasus.push", "pegasus.schedule.words", "pegasus.storage.database",
    "pegasus.tasks.agent.elsewhere", "pegasus.terminal", "pegasus.testing", "pegasus.tools.diffs", "pegasus.update",
    "pegasus.web.app", "pegasus.web.description", "pegasus.web.markdown", "pegasus.web.routes", "pegasus.web.server",
    # what begins behind the ready line
    "pegasus.app.control_plane.status", "pegasus.app.task_services", "pegasus.main_agent.conversation_changes",
    "pegasus.main_agent.session.history", "pegasus.main_agent.think_loop", "pegasus.main_agent.tool_calls",
    "pegasus.models.answers", "pegasus.models.formats.chat", "pegasus.policy.dictation", "pegasus.sandbox.background",
    "pegasus.sandbox.process", "pegasus.schedule.jobs", "pegasus.schedule.scheduler", "pegasus.tasks.agent.agent",
    "pegasus.tasks.core.fsm", "pegasus.tasks.core.task_events", "pegasus.tasks.core.views", "pegasus.tasks.log",
    "pegasus.tasks.run", "pegasus.tools.background", "pegasus.tools.shell", "pegasus.tools.web.search",
}  # fmt: skip
"""What must not be imported before the ready line, with all that is in it. Each is large, or brings much with it."""
FREE = {"pegasus/__main__.py", "pegasus/cli/program.py", "pegasus/sandbox/guard.py", "pegasus/sandbox/mounts.py"}
"""Files in which imports stand where their order wants it: the start itself, and the programs of the guard process."""
START = """
import os, sys
sys.addaudithook(lambda event, args: event == "import" and os.write(1, f"import {args[0]}\\n".encode()))
from pegasus.__main__ import main
main()
"""
"""Program: `pegasus`, which says on stdout what it imports."""


def imported_before_ready(home: Path) -> Iterator[str]:
    home.mkdir()
    (home / "pegasus.toml").write_text("[gateway]\nport = 0\n[http]\nport = 0\n")
    arguments = [sys.executable, "-c", START, "--home", str(home), "run", "--no-cli"]
    with subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        try:
            for line in daemon.stdout:
                if line.startswith("pegasus ready"):
                    return
                yield line.split()[1]
        finally:
            daemon.kill()
    raise AssertionError("the daemon was not ready")


def test_a_start_imports_only_what_a_daemon_without_clients_needs(tmp_path):
    imported = set(imported_before_ready(tmp_path / "home"))
    assert {"trio", "pegasus.app.daemon", "pegasus.storage.journal"} <= imported
    assert sorted(name for name in imported if is_late(name)) == []


def is_late(module: str) -> bool:
    return any(module == late or module.startswith(f"{late}.") for late in LATE)


def test_an_import_within_a_function_is_of_what_is_left_for_later():
    """Imports stand at the top, but for these; and no module is named by a text where a statement would do."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path in files()
        if str(path.relative_to(ROOT)) not in FREE
        for node in late_statements(path)
        if not is_allowed(node)
    ]
    assert found == []


def files() -> Iterator[Path]:
    yield from (path for package in ("pegasus", "actors") for path in sorted((ROOT / package).rglob("*.py")))


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def late_statements(path: Path) -> Iterator[ast.Import | ast.ImportFrom]:
    seen = set()
    for function in ast.walk(tree(path)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom) and node not in seen:
                    seen.add(node)
                    yield node


def is_allowed(node: ast.Import | ast.ImportFrom) -> bool:
    """True if it imports something of LATE, or a name that a package gives out late."""
    if isinstance(node, ast.Import):
        return all(is_late(name.name) for name in node.names)
    module = str(node.module)
    return is_late(module) or any(
        is_late(f"{module}.{name.name}") or name.name in late_modules(module) for name in node.names
    )


def test_a_late_name_is_looked_for_once():
    found = late_names("pegasus.models")("find_calls")
    assert vars(pegasus.models)["find_calls"] is found
