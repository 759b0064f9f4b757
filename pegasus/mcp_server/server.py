"""The server of the SDK, made of tools, resources and subscriptions. Imported at the first request to /mcp, since it imports the SDK.

One `TokenServer` serves all clients of a token. It ends when the token is revoked: its sessions, the calls under way and the
subscriptions end at once. So no client of one token ever meets a session of another, and a client that opens sessions without end
uses up its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import attrs
import trio
from mcp.server import Server, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    GetTaskRequestParams,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)
from starlette.types import Message, Scope, Send

from pegasus import __version__
from pegasus.access import TokenGrant
from pegasus.mcp_server.changes import ResourceChanges
from pegasus.mcp_server.long_calls import (
    EXTENSION,
    TASK_AFTER,
    LongCall,
    can_have_tasks,
    cancel,
    look_at,
    require_tasks,
)
from pegasus.mcp_server.reach import TokenReach
from pegasus.mcp_server.resources import ServedResources
from pegasus.mcp_server.sessions import SessionManager, can_be_plain, is_plain
from pegasus.mcp_server.tools import GoesOn, ToolRequest, make_tools, run_tool
from pegasus.mcp_server.turns import ASKED, AskedTurns
from pegasus.messages import Json
from pegasus.observe import get_logger
from pegasus.web import ApiError, ApiRequest, WebServices

_INSTRUCTIONS: Final = (
    "{agent} is an agent that always runs: it remembers, has tools of its own, and works on tasks in the background. "
    "Talk to it with send_message; it answers as a person would, so say what you need in whole sentences."
)

Context = ServerRequestContext[Any, Any]

_log = get_logger("mcp-server")


class TokenServer:
    """The server for the clients of one token."""

    def __init__(self, services: WebServices, turns: AskedTurns, grant: TokenGrant) -> None:
        self._services = services
        self._turns = turns
        self._grant = grant
        self._changes = ResourceChanges()
        self._tools = {served.tool.name: served for served in make_tools() if served.is_for(TokenReach(grant))}
        agent = services.gateway_config.now.agent
        server: Server[Any] = Server(
            "pegasus",
            version=__version__,
            title=agent,
            description="An always-on agent",
            instructions=_INSTRUCTIONS.format(agent=agent),
            on_list_tools=self._list_tools,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=self._listen,
        )
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tools/call", CallToolRequestParams, self._call_tool)
        for method, handle in (("get", self._get_task), ("cancel", self._cancel_task), ("update", self._update_task)):
            server.add_request_handler(f"tasks/{method}", GetTaskRequestParams, handle)
        self._manager = SessionManager(server, services.config.now.max_body_bytes)
        """Serves requests while `run` runs."""
        self._nursery: trio.Nursery

    async def run(
        self, on_end: Callable[[], None], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until the token is revoked, or until cancelled because the server stops. on_end: called then, at once."""
        try:
            async with self._manager.run(), trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._changes.watch, self._services)
                task_status.started()
                await self._grant.revoked.wait()
                self._nursery.cancel_scope.cancel()
        finally:
            on_end()

    async def answer(self, scope: Scope, body: bytes, send: Send) -> None:
        """Answer a request. Cancelled, the client has gone: the SDK ends a call of the newest protocol then, and no other.

        The SDK works on it in a task of the server. A client that hangs up as soon as it has read what it needs cancels the request,
        and the SDK would take back the session that it has just opened.
        """
        ended, gone = trio.Event(), trio.Event()
        failures: list[Exception] = []
        is_read = False
        waiting, is_simple = trio.CancelScope(), can_be_plain(scope["headers"], body)

        async def receive_again() -> Message:
            nonlocal is_read
            if is_read:
                await gone.wait()
                return {"type": "http.disconnect"}
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send_while_there(message: Message) -> None:
            if not gone.is_set():
                await send(message)

        async def work() -> None:
            is_plain.set(is_simple)
            try:
                with waiting:
                    await self._manager.handle_request(scope, receive_again, send_while_there)
            except Exception as error:
                failures.append(error)
            finally:
                ended.set()

        self._nursery.start_soon(work)
        try:
            await ended.wait()
        finally:
            gone.set()
            if is_simple:  # the SDK does not notice it there, and would wait for ever where two calls have one id
                waiting.cancel()
        if failures:
            raise failures[0]

    def forget(self, session_id: str) -> None:
        """Forget what belongs to a session that its client has ended."""
        self._changes.forget(session_id)

    # ---------------------------------------------------------------- handlers

    async def _list_tools(self, context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[served.tool for served in self._tools.values()])

    async def _call_tool(self, context: Context, params: CallToolRequestParams) -> CallToolResult | dict[str, Json]:
        served = self._tools.get(params.name)
        if served is None:
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name[:60]!r}; allowed: {', '.join(self._tools)}")
        with _refusals_as_errors():
            request = _request_of(context)
            call = ToolRequest(request, context, params.arguments or {}, self._turns)
            try:
                if can_have_tasks(context):
                    call = attrs.evolve(call, patience=TASK_AFTER)
                return await run_tool(served, call)
            except GoesOn as turn:
                now = request.services.clock()
                task = LongCall(turn.message.channel.address, turn.message.id, turn.item, now)
                return {"resultType": "task", **task.state(now, "working")}

    async def _get_task(self, context: Context, params: GetTaskRequestParams) -> dict[str, Json]:
        with _refusals_as_errors():
            require_tasks(context)
            return await look_at(_request_of(context), self._turns, params.task_id)

    async def _cancel_task(self, context: Context, params: GetTaskRequestParams) -> dict[str, Json]:
        with _refusals_as_errors():
            require_tasks(context)
            cancel(_request_of(context), params.task_id)
            return {}

    async def _update_task(self, context: Context, params: GetTaskRequestParams) -> dict[str, Json]:
        """Take answers to questions, of which a turn has none: it says what it wants to know as a reply."""
        with _refusals_as_errors():
            require_tasks(context)
            LongCall.parse(params.task_id, TokenReach(self._grant))
            return {}

    async def _list_resources(self, context: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        with _refusals_as_errors():
            return await ServedResources(_request_of(context)).list(params)

    async def _list_templates(
        self, context: Context, params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        with _refusals_as_errors():
            return ServedResources(_request_of(context)).templates()

    async def _read_resource(self, context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        with _refusals_as_errors():
            return await ServedResources(_request_of(context)).read(context, params)

    async def _subscribe(self, context: Context, params: SubscribeRequestParams) -> EmptyResult:
        with _refusals_as_errors():
            await self._changes.subscribe(context, params.uri, ServedResources(_request_of(context)))
        return EmptyResult()

    async def _unsubscribe(self, context: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        self._changes.unsubscribe(context, params.uri)
        return EmptyResult()

    async def _listen(self, context: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        with _refusals_as_errors():
            return await self._changes.listen(context, params, ServedResources(_request_of(context)))


def _request_of(context: Context) -> ApiRequest:
    """Return the request that a message came with."""
    assert context.request is not None  # noqa: S101  all come over HTTP
    found: ApiRequest = context.request.scope["state"][ASKED]
    return found


@contextmanager
def _refusals_as_errors() -> Iterator[None]:
    """Turn what a part of the agent refuses into an error of the protocol within the block."""
    try:
        yield
    except ApiError as error:
        raise MCPError(INTERNAL_ERROR if error.status >= 500 else INVALID_PARAMS, error.message) from None
    except MCPError:
        raise
    except Exception as error:  # the SDK would tell the client its text
        _log.exception("a request of an MCP client failed", error=error)
        raise MCPError(INTERNAL_ERROR, "this failed unexpectedly; the log has the details") from None
