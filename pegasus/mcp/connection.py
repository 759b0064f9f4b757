"""A connection to one server by the official SDK: opening it, its list of tools, its calls.

Importing the SDK takes half a second and some 30 MB, so that `server` imports this file in a thread, when the first server is
connected.

Two of the SDK's habits are replaced, since servers are not trusted:

* Results are checked against the schema that the server has given for them by a library that takes hostile patterns for hours.
  Here they are not checked: what a result holds is the model's to judge, and nothing in the product relies on its form.
* A list of tools is validated field by field in one piece, a third of a second for ten thousand tools. Here the fields that are used
  are read from the raw answer, in slices (`listing.read_tools`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import trio
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    REQUEST_TIMEOUT,
    CallToolResult,
    Implementation,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)
from pydantic import ValidationError

from pegasus import __version__
from pegasus.formatting import first_cause
from pegasus.mcp.faults import ServerDown
from pegasus.mcp.listing import clean
from pegasus.mcp.stdio import ServerProgram, open_program
from pegasus.messages import Metadata

if TYPE_CHECKING:
    from mcp.shared.dispatcher import CallOptions

MOST_PAGES: Final = 500
"""Pages of a list. A server that has always one more page does not answer."""
LONGEST_REASON: Final = 300
"""Characters of a server's words in a reason."""


class CallFailed(Exception):
    """A call that the server has refused, or that its end has cut off. The text is for the model."""


class McpConnection:
    """An open connection: `async with open_connection(program, on_change) as connection: await connection.list_tools()`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def protocol(self) -> str:
        """Version of the protocol that both sides speak."""
        return self._client.protocol_version

    @property
    def instructions(self) -> str:
        """The server's words about how to use it; "" if it has none."""
        return self._client.instructions or ""

    async def list_tools(self) -> list[object]:
        """Return the entries of the server's list of tools, unchecked. Raises MCPError, ServerDown."""
        if self._client.server_capabilities.tools is None:
            return []
        return await self._list("tools/list", "tools")

    async def _list(self, method: str, key: str) -> list[object]:
        found: list[object] = []
        cursor: object = None
        for _ in range(MOST_PAGES):
            answer = await self._request(method, {"cursor": cursor} if cursor is not None else {})
            page = answer.get(key)
            if not isinstance(page, list):
                raise ServerDown(f"its answer to {method} has no list")
            found += page
            cursor = answer.get("nextCursor")
            if not isinstance(cursor, str) or not page:
                return found
        raise ServerDown(f"its answer to {method} has more than {MOST_PAGES} pages")

    async def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the raw answer to a request. It goes through the session's own stamp, which the newest protocol requires."""
        session = self._client.session
        data: dict[str, Any] = {"method": method, "params": params}
        options: CallOptions = {}
        session._stamp(data, options)
        return await session._dispatcher.send_raw_request(method, data["params"], options)

    async def call_tool(self, name: str, arguments: Metadata) -> CallToolResult:
        """Return the result of a tool. Raises CallFailed. Cancelled: the server is told that nobody waits any more."""
        return await self._call(self._client.call_tool(name, dict(arguments)))

    async def _call(self, call: Awaitable[CallToolResult]) -> CallToolResult:
        try:
            return await call
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                raise CallFailed("it ended during the call, so it is unknown whether the call had an effect") from None
            raise CallFailed(f"it refused the call: {clean(error.message, LONGEST_REASON)}") from None
        except ValidationError:
            raise CallFailed("its answer does not follow the protocol") from None
        except (trio.BrokenResourceError, trio.ClosedResourceError, RuntimeError) as error:
            raise CallFailed(f"the call failed: {clean(str(error), LONGEST_REASON)}") from None


@asynccontextmanager
async def open_connection(
    program: ServerProgram, on_change: Callable[[], None], *, legacy: bool
) -> AsyncIterator[McpConnection]:
    """Run a server, agree with it on a version of the protocol, and yield the connection.

    on_change: called when the server says that its lists have changed. legacy: do not ask for the newest protocol first, for a
    server that has ended when it was asked.

    Raises ServerDown, also when the server ends within the block, which is cancelled then.
    """

    async def take(message: object) -> None:
        if isinstance(message, ToolListChangedNotification | ResourceListChangedNotification):
            on_change()

    client = Client(
        open_program(program),
        client_info=Implementation(name="pegasus", version=__version__),
        message_handler=take,
        mode="legacy" if legacy else "auto",
        cache=None,
    )
    try:
        async with client:
            client.session.validate_tool_result = _accept_result  # type: ignore[method-assign]
            yield McpConnection(client)
    except Exception as error:  # groups of nurseries too; a cancel is none of these
        downs = error.split(ServerDown)[0] if isinstance(error, ExceptionGroup) else None
        reason = explain(
            first_cause(downs or error)
        )  # what has ended the connection says more than what follows from it
        if reason is None:
            raise
        raise ServerDown(reason) from None


def explain(error: BaseException) -> str | None:
    """Return the reason why a server cannot be used, None for an error that is a defect of this program."""
    match error:
        case ServerDown():
            return str(error)
        case MCPError() if error.code == CONNECTION_CLOSED:
            return "it closed the connection"
        case MCPError() if error.code == REQUEST_TIMEOUT:
            return "it did not answer"
        case MCPError():
            return f"it refused: {clean(error.message, LONGEST_REASON)}"
        case ValidationError():
            return "its answers do not follow the protocol"
        case OSError() | RuntimeError():
            return clean(str(error), LONGEST_REASON) or type(error).__name__
    return None


async def _accept_result(name: str, result: CallToolResult) -> None:
    """Take every result as it is."""
