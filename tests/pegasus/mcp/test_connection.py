"""Lists of servers that mean harm."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pegasus.mcp.connection import McpConnection
from pegasus.mcp.faults import LARGEST_MESSAGE, ServerDown


def connection(answer):
    """A connection to a server that gives this answer to each request."""

    async def send(method, params, options):
        return answer

    session = SimpleNamespace(_stamp=lambda data, options: None, _dispatcher=SimpleNamespace(send_raw_request=send))
    client = SimpleNamespace(session=session, server_capabilities=SimpleNamespace(prompts=True))
    return McpConnection(client, None)


async def test_a_list_whose_pages_are_large_and_do_not_end_does_not_fill_the_memory():
    page = {"prompts": [{"name": "x" * (LARGEST_MESSAGE // 4)}], "nextCursor": "more"}
    with pytest.raises(ServerDown, match="16 MB together"):
        await connection(page).list_prompts()


async def test_a_list_of_many_small_pages_ends_too():
    with pytest.raises(ServerDown, match="500 pages"):
        await connection({"prompts": [{"name": "x"}], "nextCursor": "more"}).list_prompts()
