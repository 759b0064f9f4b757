"""MCP servers at an address: Streamable HTTP and SSE, with servers made by the SDK, and one that floods."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import Book, Thought, say, serving
from tests.blackbox.support.mcp_settings import reached, states
from tests.blackbox.support.ports import free_port, until_listening
from tests.blackbox.support.waiting import until_async

SCRIPT = Path(__file__).parent / "support" / "mcp_http.py"
PATHS = {"streamable-http": "/mcp", "sse": "/sse"}


@asynccontextmanager
async def http_server(port: int, transport: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    """The server of `mcp_http.py`, which listens when the block begins."""
    process = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, str(SCRIPT), str(port), transport], stdout=subprocess.DEVNULL
    )
    try:
        await until_listening(port)
        yield process
    finally:
        process.kill()
        process.wait()


def address(port, path, key="letmein", timeout=10.0):
    return {
        "mcp.servers.web.url": f"http://127.0.0.1:{port}{path}",
        "mcp.servers.web.headers.x-key": key,
        "mcp.servers.web.timeout": timeout,
    }


@pytest.mark.parametrize("transport", PATHS)
async def test_tools_resources_and_prompts(tmp_path, transport):
    calls = (
        Call("web__echo", {"text": "hello"}),
        Call("web__list_resources", {}),
        Call("web__read_resource", {"uri": "note://today"}),
        Call("web__get_prompt", {"name": "greet", "arguments": {"name": "Ada"}}),
        Call("web__read_resource", {"uri": "note://never"}),
    )
    seen = []

    def tell(view):
        seen.extend(view.results)
        return say("used")

    port, book = free_port(), Book({"use": [Thought(calls=calls), tell]})
    async with http_server(port, transport), serving(tmp_path, book, address(port, PATHS[transport])) as daemon:
        state = await reached(daemon, "web")
        assert state["protocol"] == {"streamable-http": "2026-07-28", "sse": "2025-11-25"}[transport]
        async with daemon.client() as client:
            assert await client.ask("use") == "used"
        echo, resources, resource, prompt, missing = seen
        assert "hello" in echo
        assert json.loads(resources)["resources"][0]["uri"] == "note://today"
        assert json.loads(resource) == {"text": "nothing"}
        assert json.loads(prompt) == {"messages": [{"role": "user", "text": "Greet Ada kindly."}]}
        assert missing.startswith("Error: the MCP server web: it refused the call: ")


async def test_a_server_that_was_away_is_used_again(tmp_path):
    echo = [Thought(calls=(Call("web__echo", {"text": "hello"}),)), lambda view: say(view.results[0])]
    port, book = free_port(), Book({"one": echo, "two": echo, "three": echo})
    async with serving(tmp_path, book, address(port, "/mcp")) as daemon, daemon.client() as client:
        assert (await reached(daemon, "web", "down"))["reason"] == "nothing answers at its address"
        async with http_server(port, "streamable-http"):
            await reached(daemon, "web", timeout=30)
            assert "hello" in await client.ask("one")
        assert (await client.ask("two")).startswith("Error: the MCP server web")
        async with http_server(port, "streamable-http"):
            await reached(daemon, "web", timeout=30)
            assert "hello" in await client.ask("three")


@pytest.mark.parametrize("transport", PATHS)
async def test_a_list_that_changes_is_read_again(tmp_path, transport):
    book = Book({"grow": [Thought(calls=(Call("web__grow", {}),)), say("grown")]})
    port = free_port()
    async with http_server(port, transport), serving(tmp_path, book, address(port, PATHS[transport])) as daemon:
        before = (await reached(daemon, "web"))["tools"]
        async with daemon.client() as client:
            assert await client.ask("grow") == "grown"

            async def has_changed() -> bool:
                return (await states(client))["web"]["tools"] != before

            await until_async(has_changed, "the new list")


async def test_a_wrong_key_is_named_and_not_shown(tmp_path):
    port = free_port()
    settings = address(port, "/mcp", key="wrong-key-0815")
    async with http_server(port, "streamable-http"), serving(tmp_path, Book(), settings, start=False) as daemon:
        daemon.configure()
        checked = await daemon.command("mcp", "check")
        reason = "it refuses the access (status 401); see headers and auth in its settings"
        assert (checked.code, checked.out) == (1, f"web  failed: {reason}\n")


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (HEAD + b"\r\n" + b"[" * 30_000_000, "it sent a message of more than 8 MB"),
        (HEAD + b"content-encoding: gzip\r\n\r\n\x1f\x8b", "it answers with packed data, which was not asked for"),
        (
            b"HTTP/1.1 307 Moved\r\nlocation: http://127.0.0.1:1/mcp\r\ncontent-length: 0\r\n\r\n",
            "it refused: Redirect to",
        ),
        (b"no HTTP at all\r\n\r\n", "the connection broke"),
        (b"", "did not answer within"),
    ],
    ids=["huge", "packed", "redirected", "garbage", "silent"],
)
async def test_an_address_that_misbehaves(tmp_path, nursery, answer, reason):
    """What it sends is bounded, and a redirect to another place is not followed."""

    async def serve(stream):
        await stream.receive_some(65536)
        if not answer:
            await trio.sleep_forever()
        try:
            await stream.send_all(answer)
            await stream.aclose()
        except trio.BrokenResourceError:
            pass

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, serve, [listener])
    settings = address(listener.socket.getsockname()[1], "/mcp", timeout=3.0)
    async with serving(tmp_path, Book(), settings, start=False) as daemon:
        daemon.configure()
        checked = await daemon.command("mcp", "check")
        assert checked.code == 1
        assert reason in checked.out
