"""The routes of the MCP server: `/mcp` (Streamable HTTP), and the description of how to get in.

Everything that a request must pass is checked by `pegasus.web` before it comes here: the Host, the token, and that the token still
counts. A browser's cookie is not enough, since the clients here are programs. The body is read here, within the bounds of all
requests, and handed to the SDK's server of the token, which is made at the first request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs
import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pegasus import web
from pegasus.access import SCOPES, TokenGrant
from pegasus.mcp_server.turns import ASKED, AskedTurns
from pegasus.web import ApiError, ApiRequest, Conversations, Operation, json_response
from pegasus.wire import SnakeCase

if TYPE_CHECKING:
    from pegasus.mcp_server.server import TokenServer

PATH: Final = "/mcp"
METADATA_PATH: Final = "/.well-known/oauth-protected-resource"
"""Path of the description by RFC 9728; that of /mcp is below it."""


class McpDoor:
    """The handlers of the routes; one object for each run of the HTTP server."""

    def __init__(self, conversations: Conversations) -> None:
        self._turns = AskedTurns(conversations)
        self._servers: dict[TokenGrant, TokenServer] = {}
        self._opening = trio.Lock()

    def operations(self) -> Sequence[Operation]:
        """Return the routes."""
        way_in = f"{METADATA_PATH}{PATH}"
        words = {
            "POST": "A message of an MCP client",
            "GET": "Notifications for an MCP client",
            "DELETE": "End a session of an MCP client",
        }
        return (
            *(
                Operation(
                    method,
                    PATH,
                    self._serve,
                    text,
                    "",
                    form=_form,
                    challenge=way_in,
                    body=object if method == "POST" else None,
                )
                for method, text in words.items()
            ),
            Operation("GET", METADATA_PATH, _describe, "Scopes of /mcp (RFC 9728)", None, form=_metadata_form),
            Operation("GET", way_in, _describe, "Scopes of /mcp (RFC 9728)", None, form=_metadata_form),
        )

    async def _serve(self, request: ApiRequest) -> Response:
        grant = request.grant
        if request.visitor.is_page:
            raise ApiError(
                401, "unauthorized", "no token (Authorization: Bearer …); a browser's session does not count here"
            )
        body = await request.body() if request.http.method == "POST" else b""
        server = self._servers.get(grant) or await self._open(request)
        if request.http.method == "DELETE":
            server.forget(request.http.headers.get("mcp-session-id", ""))
        request.http.scope["state"][ASKED] = request
        return _McpResponse(server, body)

    async def _open(self, request: ApiRequest) -> TokenServer:
        """Return the server for the clients of a token, which runs. The SDK is imported in a thread: that takes a second."""
        grant = request.grant
        async with self._opening:
            if grant not in self._servers:  # by another request meanwhile
                make = await trio.to_thread.run_sync(_import_server)
                server = make(request.services, self._turns, grant)
                await request.nursery.start(server.run, lambda: self._servers.pop(grant, None))
                self._servers[grant] = server
            return self._servers[grant]


def _import_server() -> type[TokenServer]:
    from pegasus.mcp_server.server import TokenServer

    return TokenServer


class _McpResponse(Response):
    """The answer of the SDK's server to one request."""

    def __init__(self, server: TokenServer, body: bytes) -> None:
        super().__init__()
        self._server = server
        self._read = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have it answered. Cancelled, the server is told that the client has gone."""
        await self._server.answer(scope, self._read, send)


async def _describe(request: ApiRequest) -> Response:
    """Return the description of the protected resource. There is one where the settings name the address for the outside."""
    public = request.services.config.now.public_url
    if not public:
        raise ApiError(404, "not_found", "there is no description of this resource: http.public_url is not set")
    agent = request.services.gateway_config.now.agent
    return json_response(attrs.asdict(ResourceMetadata(f"{public.rstrip('/')}{PATH}", agent, ["header"], list(SCOPES))))


@attrs.frozen
class ResourceMetadata(SnakeCase):
    """Description of /mcp for clients that look for a way in (RFC 9728)."""

    resource: str
    resource_name: str
    bearer_methods_supported: list[str]
    scopes_supported: list[str]


def _form() -> web.Form:
    """Return the types of /mcp: JSON-RPC as the specification of MCP has it."""
    answer = Mapping[str, object]
    errors = (400, 403, 404, 405, 406, 408, 413, 415, 503)
    return web.Form(answer=answer, media=("text/event-stream",), others={202: None}, errors=errors)


def _metadata_form() -> web.Form:
    return web.Form(answer=ResourceMetadata, errors=(404,))
