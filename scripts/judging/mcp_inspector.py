"""The Inspector of MCP on the command line, against the server on /mcp and against `pegasus mcp serve`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from benchmarks.provider import provider
from benchmarks.workplace import Workplace

from judging.mcp_conformance import node, proxy
from judging.programs import install_npm, run_program
from judging.verdict import Judge, Verdict

PACKAGE: Final = "@modelcontextprotocol/inspector@0.15.0"
CASE_SECONDS: Final = 60
TOOLS: Final = ["send_message", "list_tasks", "get_task", "cancel_task", "answer_task", "search_memory"]


def _is_answered(result: Any) -> bool:
    return "Hello there" in result["content"][0]["text"] and result["structuredContent"]["done"] is True


CASES: Final[dict[str, tuple[Sequence[str], Callable[[Any], bool]]]] = {
    "tools/list": (["tools/list"], lambda result: [tool["name"] for tool in result["tools"]] == TOOLS),
    "send_message": (
        ["tools/call", "--tool-name", "send_message", "--tool-arg", "text=Hello there"],
        _is_answered,
    ),
    "list_tasks": (
        ["tools/call", "--tool-name", "list_tasks"],
        lambda result: result["structuredContent"] == {"tasks": []},
    ),
    "a mistake": (
        ["tools/call", "--tool-name", "get_task", "--tool-arg", "taskId=no"],
        lambda result: result["isError"] is True,
    ),
    "resources/list": (["resources/list"], lambda result: result["resources"] == []),
    "resources/templates/list": (
        ["resources/templates/list"],
        lambda result: len(result["resourceTemplates"]) == 3,
    ),
}
"""What is asked for, and whether the answer is what it should be."""


def _run(place: Workplace) -> Iterator[Verdict]:
    folder = place.folder / "npm"
    install_npm(folder, PACKAGE)
    program = [node(), str(folder / "node_modules/@modelcontextprotocol/inspector/cli/build/cli.js")]
    with provider(place.log) as model:
        home = place.home(provider="openai", base_url=f"{model.root}/v1")
        with place.daemon(home) as daemon, proxy(str(daemon.http)) as url:
            stdio = ["--", sys.executable, "-m", "pegasus", "--home", str(home), "mcp", "serve"]
            for about, server in (("/mcp", [url, "--transport", "http"]), ("pegasus mcp serve", stdio)):
                problems = []
                for name, (method, is_right) in CASES.items():
                    ran = run_program(
                        [*program, "--cli", *server, "--method", *method], seconds=CASE_SECONDS, folder=folder
                    )
                    try:
                        problem = "" if is_right(json.loads(ran.stdout)) else ran.stdout
                    except (ValueError, KeyError, IndexError, TypeError):
                        problem = ran.stdout + ran.stderr
                    if problem:
                        problems.append(f"{name}: {problem[-500:]}")
                yield Verdict(about, len(CASES) - len(problems), len(problems), details="\n".join(problems))


JUDGE: Final = Judge("mcp-inspector", "MCP", "npm @modelcontextprotocol/inspector --cli 0.15.0", _run)
