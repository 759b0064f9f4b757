"""The MCP server of the real process, with the client of the official SDK."""

from __future__ import annotations

import httpx2
import pytest

from tests.blackbox.support import Book, Daemon, serving
from tests.blackbox.support.mcp_client import LEGACY, MODERN, mcp_client, stdio_client_of
from tests.blackbox.support.serving import standing
from tests.blackbox.test_tokens import add

HTTP = {"http.enabled": True, "http.port": 0}
ALL = ["send_message", "list_tasks", "get_task", "cancel_task", "answer_task", "search_memory"]

pytestmark = [
    # The SDK's client leaves streams to the garbage collector.
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    """One daemon for all tests that do not end it."""
    settings = {"models.default": "offline/stand-in", "http.public_url": "https://pegasus.example", **HTTP}
    yield from standing(Daemon(tmp_path_factory.mktemp("mcp") / "home", settings), start=True)


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
async def test_a_message_is_answered_and_its_progress_told(tmp_path, mode):
    notes = []

    async def note(progress, total, message):
        notes.append(message)

    async with serving(tmp_path, Book(), HTTP) as daemon, mcp_client(daemon, mode=mode) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ALL
        assert all(tool.description and tool.output_schema and tool.annotations for tool in tools)
        sent = await client.call_tool("send_message", {"text": "hello ☎"}, progress_callback=note)
    assert [part.text for part in sent.content] == ["echo: hello ☎"]
    assert sent.structured_content["replies"] == [{"text": "echo: hello ☎", "files": []}]
    assert sent.structured_content["done"] is True
    assert notes[-1] == "echo: hello ☎"


async def test_whoever_has_no_token_is_told_where_to_get_one(daemon):
    url = f"{daemon.at.http}/mcp"
    async with httpx2.AsyncClient() as http:
        for headers in ({}, {"authorization": "Bearer wrong"}):
            refused = await http.post(url, json={}, headers=headers)
            way_in = refused.headers["www-authenticate"].partition('resource_metadata="')[2].rstrip('"')
            assert (refused.status_code, way_in) == (
                401,
                "https://pegasus.example/.well-known/oauth-protected-resource/mcp",
            )
        described = (await http.get(way_in.replace("https://pegasus.example", daemon.at.http))).json()
        assert described["resource"] == "https://pegasus.example/mcp"
        assert described["scopes_supported"] == ["message", "read", "control"]


@pytest.mark.parametrize(
    ("options", "tools", "forms"),
    [
        (("--scope", "message"), ALL[:5], ["task-log"]),
        (("--scope", "read"), ["list_tasks", "get_task", "search_memory"], ["memory", "task-log"]),
        (("--scope", "message,read,control"), ALL, ["memory", "task-log", "archive"]),
        (("--scope", "message,read,control", "--channel", "desk"), ALL[:5], ["task-log"]),
    ],
)
async def test_a_token_shows_what_its_scopes_and_its_conversation_reach(daemon, options, tools, forms, name):
    token = await add(daemon, name, *options)
    async with mcp_client(daemon, token) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == tools
        assert [form.name for form in (await client.list_resource_templates()).resource_templates] == forms


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
async def test_an_assistant_that_starts_its_servers_itself_talks_with_the_agent_that_runs(tmp_path, mode):
    async with serving(tmp_path, Book(), HTTP) as daemon, stdio_client_of(daemon, mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ALL
        sent = await client.call_tool("send_message", {"text": "hello"})
        assert [part.text for part in sent.content] == ["echo: hello"]
