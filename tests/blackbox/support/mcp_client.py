"""The official SDK's client, at the MCP server of a daemon."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.blackbox.support.command import environment
from tests.blackbox.support.daemon import Daemon

LEGACY, MODERN = "legacy", "auto"
"""The protocol with sessions, and that of requests which stand for themselves."""


@asynccontextmanager
async def mcp_client(daemon: Daemon, token: str = "", mode: str = MODERN, **more: Any) -> AsyncIterator[Client]:
    """A client with this token; the owner's, if none is given."""
    headers = {"authorization": f"Bearer {token or daemon.token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        transport = streamable_http_client(f"{daemon.at.http}/mcp", http_client=http)
        async with Client(transport, mode=mode, cache=None, **more) as client:
            yield client


@asynccontextmanager
async def stdio_client_of(daemon: Daemon, mode: str = MODERN) -> AsyncIterator[Client]:
    """A client of `pegasus mcp serve` for the home of this daemon."""
    program = StdioServerParameters(
        command=sys.executable, args=["-m", "pegasus", "--home", str(daemon.home), "mcp", "serve"], env=environment()
    )
    async with Client(stdio_client(program), mode=mode, cache=None) as client:
        yield client
