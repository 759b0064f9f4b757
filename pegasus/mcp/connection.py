"""A connection to one server by the official SDK: opening it, its list of tools, its calls.

Importing the SDK takes half a second and some 30 MB, so that `server` imports this file in a thread, when the first server is
connected.

Two of the SDK's habits are replaced, since servers are not trusted:

* Results are checked against the schema that the server has given for them by a library that takes hostile patterns for hours.
  Here they are not checked: what a result holds is the model's to judge, and nothing in the product relies on its form.
* A list of tools is validated field by field in one piece, a third of a second for ten thousand tools. Here the fields that are used
  are read from the raw answer, in slices (`listing.read_tools`).

For this the file uses private parts of the SDK's session: `_stamp` and `_dispatcher` (a request whose answer is not validated),
`_x_mcp_header_maps` (what the SDK would have learned from a list that it has validated itself), and `validate_tool_result`, which is
replaced. A new version of the SDK is checked for these four names first.

**Errors.** A call (`call_tool`, `read_resource`, `get_prompt`, `list_resources`) raises CallFailed, whose text is for the model; the
connection goes on. Everything else that goes wrong ends the block of `open_connection` and leaves it as one ServerDown, whose text
(`explain`) is for people. So the actor of the server needs to know one exception. What `explain` does not know is a defect of this
program, and passes as it is. The words of servers are cleaned and cut in both; addresses are left out, since they may hold keys.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

import httpx2
import trio
from mcp.client import Client
from mcp.client.auth import OAuthFlowError
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    REQUEST_TIMEOUT,
    URL_ELICITATION_REQUIRED,
    CallToolResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    GetPromptResult,
    Implementation,
    ReadResourceResult,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from pegasus import __version__
from pegasus.mcp.calls import LOST, ReportProgress
from pegasus.mcp.faults import LARGEST_MESSAGE, ServerDown, first_fault
from pegasus.mcp.listing import AT_A_TIME, clean, is_moderate
from pegasus.mcp.questions import BadQuestion, ServerAnswer, ServerQuestion
from pegasus.mcp.stdio import Streams
from pegasus.messages import Metadata
from pegasus.wire import encode_json

T = TypeVar("T")

if TYPE_CHECKING:
    from mcp.shared.dispatcher import CallOptions

# The SDK logs what servers do wrong with a traceback for each message. Here that is a reason of the connection's end.
for _name in ("mcp", "client"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)

MOST_PAGES: Final = 500
"""Pages of a list. A server that has always one more page does not answer."""
SESSION_ENDED: Final = "Session terminated"
"""The SDK's words for an HTTP server that does not know the session any more."""
LONGEST_REASON: Final = 300
"""Characters of a server's words in a reason."""


Ask: TypeAlias = Callable[[ServerQuestion], Awaitable[ServerAnswer]]
"""Returns what the person answers. Raises BadQuestion for a question that nobody is shown."""


class CallFailed(Exception):
    """A call that the server has refused, or that its end has cut off. The text is for the model. The connection goes on.

    Example::

        try:
            result = await connection.call_tool("search", {"query": "trio"})
        except CallFailed as error:   # "it refused the call: …"
            raise ToolError(f"the MCP server {name}: {error}") from None
    """


class McpConnection:
    """An open connection. `open_connection` makes it, and it is of no use after that block.

    Example::

        async with open_connection(open_program(program), on_change, legacy=False) as connection:
            entries = await connection.list_tools()   # unchecked; `read_tools` makes ListedTools of them
            result = await connection.call_tool("get_time", {"zone": "UTC"})

    Any number of calls may be under way at the same time. When the block ends, they fail with CallFailed.
    """

    def __init__(self, client: Client, ask: Ask) -> None:
        self._client = client
        self._ask = ask
        self.broken = trio.Event()
        """Set when the server has ended the session, so that only a new connection helps."""

    @property
    def has_resources(self) -> bool:
        """Return whether the server has resources."""
        return self._client.server_capabilities.resources is not None

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
        found = await self._list("tools/list", "tools")
        return await self._note_headers(found) if self.protocol in MODERN_PROTOCOL_VERSIONS else found

    async def _note_headers(self, found: list[object]) -> list[object]:
        """Note which arguments of each tool go into headers of its calls, too; return the tools that declare it as they must.

        The newest protocol has servers behind gateways in mind (SEP-2243): a call without these headers is refused there, and a tool
        with a wrong declaration is left out. Too large a schema is not looked through.
        """
        kept: list[object] = []
        headers = {}
        for number, entry in enumerate(found):
            if number % AT_A_TIME == 0:
                await trio.lowlevel.checkpoint()
            schema = entry.get("inputSchema") if isinstance(entry, dict) else None
            if not isinstance(entry, dict) or not is_moderate(schema):
                kept.append(entry)
            elif find_invalid_x_mcp_header(schema) is None:
                kept.append(entry)
                headers[str(entry.get("name"))] = x_mcp_header_map(schema)
        self._client.session._x_mcp_header_maps = headers
        return kept

    async def list_prompts(self) -> list[object]:
        """Return the entries of the server's list of prompts, unchecked. Raises as `list_tools`."""
        if self._client.server_capabilities.prompts is None:
            return []
        return await self._list("prompts/list", "prompts")

    async def list_resources(self) -> tuple[list[object], list[object]]:
        """Return the entries of the lists of resources and of templates of their addresses, unchecked. Raises CallFailed."""
        # Templates are optional, so their failure costs nothing of what was found. That of the resources is the answer.
        resources = await self._call(self._list("resources/list", "resources"))
        try:
            return resources, await self._list("resources/templates/list", "resourceTemplates")
        except (MCPError, ServerDown):  # many servers have none
            return resources, []

    async def follow_changes(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` for each change that a server with the newest protocol tells. Older ones notify without being asked.

        Returns when the server does not tell of changes, or has ended doing so.
        """
        if self.protocol not in MODERN_PROTOCOL_VERSIONS:
            return
        try:
            async with self._client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    on_change()
        except (MCPError, SubscriptionLost):
            return

    async def _list(self, method: str, key: str) -> list[object]:
        """Return the entries of all pages of a list, unchecked. key: name of the list in an answer. Raises MCPError, ServerDown.

        An empty page ends the list, even if it names a next one.
        """
        found: list[object] = []
        cursor: object = None
        size = 0
        for _ in range(MOST_PAGES):
            answer = await self._request(method, {"cursor": cursor} if cursor is not None else {})
            page = answer.get(key)
            if not isinstance(page, list):
                raise ServerDown(f"its answer to {method} has no list")
            # The first page is bounded as a message. All pages together must not fill the memory.
            try:
                size += len(encode_json(page)) if found else 0
            except ValueError:
                raise ServerDown(f"its answer to {method} is no JSON") from None
            if size > LARGEST_MESSAGE:
                raise ServerDown(f"its answers to {method} have more than {LARGEST_MESSAGE >> 19} MB together")
            found += page
            cursor = answer.get("nextCursor")
            if not isinstance(cursor, str) or not page:
                return found
        raise ServerDown(f"its answer to {method} has more than {MOST_PAGES} pages")

    async def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the raw answer to a request. It goes through the session's own stamp, which the newest protocol requires.

        The session would validate the answer with its models in one piece; this one is read in slices by the caller.
        """
        session = self._client.session
        data: dict[str, Any] = {"method": method, "params": params}
        options: CallOptions = {}
        session._stamp(data, options)
        return await session._dispatcher.send_raw_request(method, data["params"], options)

    async def call_tool(self, name: str, arguments: Metadata, report: ReportProgress | None = None) -> CallToolResult:
        """Return the result of a tool. Raises CallFailed. Cancelled: the server is told that nobody waits any more.

        report: gets the progress that the server tells: done, total if known, words. A call that is refused until the person has
        been to a page is made once more when they say that they have.
        """
        return await self._call(self._call_tool(name, arguments, report))

    async def _call_tool(self, name: str, arguments: Metadata, report: ReportProgress | None) -> CallToolResult:
        """Return the result of a tool, as the SDK raises errors.

        An older server may refuse a call until pages were opened (URL_ELICITATION_REQUIRED). The person is asked about
        each.
        """
        if self.protocol in MODERN_PROTOCOL_VERSIONS:
            return await self._client.call_tool(name, dict(arguments), progress_callback=report)
        # Older protocols have no results that ask for input, for whose sake the client's own method makes a call in rounds.
        session = self._client.session
        try:
            return await session.call_tool(name, dict(arguments), progress_callback=report)
        except MCPError as error:
            if error.code != URL_ELICITATION_REQUIRED:
                raise
            pages = UrlElicitationRequiredError.from_error(error.error).elicitations
        for page in pages:
            if (await self._ask(ServerQuestion(page.message, url=page.url))).action != "accept":
                raise CallFailed("it wants the owner to open a page first, who has not agreed to that")
        # Once more only: a server that refuses again is reported, so it cannot lead a person from page to page.
        return await session.call_tool(name, dict(arguments), progress_callback=report)

    async def read_resource(self, uri: str) -> ReadResourceResult:
        """Return a resource. Raises CallFailed. Cancelled: as `call_tool`.

        The address comes from the model. The server decides whether it gives it, as nothing is fetched from here.
        """
        return await self._call(self._client.read_resource(uri))

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> GetPromptResult:
        """Return a prompt. Raises CallFailed. Cancelled: as `call_tool`."""
        return await self._call(self._client.get_prompt(name, dict(arguments)))

    async def _call(self, call: Awaitable[T]) -> T:
        """Return the result of a call. Raises CallFailed for everything that a server can do wrong; other errors are defects."""
        try:
            return await call
        except MCPError as error:
            # The call itself is over. The actor waits for `broken` and connects again; until then further calls fail as
            # this one does.
            if error.message == SESSION_ENDED:
                self.broken.set()
            if error.code == CONNECTION_CLOSED:
                # The request may have arrived, so nobody knows whether the call had an effect.
                raise CallFailed(LOST) from None
            raise CallFailed(f"it refused the call: {clean(error.message, LONGEST_REASON)}") from None
        except ValidationError:
            raise CallFailed("its answer does not follow the protocol") from None
        except BadQuestion as error:
            raise CallFailed(f"it asks the owner what cannot be shown: {error}") from None
        except (trio.BrokenResourceError, trio.ClosedResourceError, RuntimeError, ServerDown) as error:
            raise CallFailed(f"the call failed: {clean(str(error), LONGEST_REASON)}") from None


@asynccontextmanager
async def open_connection(
    streams: AbstractAsyncContextManager[Streams],
    on_change: Callable[[], None],
    *,
    legacy: bool,
    ask: Ask | None = None,
) -> AsyncIterator[McpConnection]:
    """Open the streams to a server, agree with it on a version of the protocol, and yield the connection.

    on_change: called when the server says that its lists have changed. legacy: do not ask for the newest protocol first, for a
    server that has ended when it was asked. ask: answers the server's questions to the person; None: it is told that nobody can.

    Raises ServerDown, also when the server ends within the block, which is cancelled then.
    """

    async def take(message: object) -> None:
        """Note that a list has changed. Other notifications, such as log lines of the server, are dropped."""
        if isinstance(message, ToolListChangedNotification | ResourceListChangedNotification):
            on_change()

    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """Answer a question that the server has sent as a request of its own. A bad one is refused as wrong parameters."""
        assert ask is not None  # noqa: S101
        try:
            found = await ask(_question_of(params))
        except BadQuestion as error:
            return ErrorData(code=INVALID_PARAMS, message=str(error))
        return ElicitResult(action=found.action, content=cast("Any", found.values))

    client = Client(
        streams,
        client_info=Implementation(name="pegasus", version=__version__),
        message_handler=take,
        elicitation_callback=answer if ask is not None else None,
        mode="legacy" if legacy else "auto",
        cache=None,
    )
    try:
        async with client:
            # Set after the session exists and before the first call; see the top of this file.
            client.session.validate_tool_result = _accept_result  # type: ignore[method-assign]
            connection = McpConnection(client, ask or _answer_nothing)
            async with trio.open_nursery() as nursery:
                # It waits as long as the server tells of changes, so it is cancelled when the block of the caller is
                # left.
                nursery.start_soon(connection.follow_changes, on_change)
                yield connection
                nursery.cancel_scope.cancel()
    except Exception as error:  # groups of nurseries too; a cancel is none of these
        # One fault ends several tasks of the SDK, and each raises something. Only the first of them is a reason that a
        # person understands.
        cause = first_fault(error)
        reason = explain(cause)
        if reason is None:
            raise
        raise ServerDown(reason, is_refusal=isinstance(cause, MCPError | httpx2.HTTPStatusError)) from None


def _question_of(asked: ElicitRequestParams) -> ServerQuestion:
    """Return a question in the form that is checked."""
    if isinstance(asked, ElicitRequestFormParams):
        return ServerQuestion(asked.message, asked.requested_schema)
    return ServerQuestion(asked.message, url=asked.url)


async def _answer_nothing(asked: ServerQuestion) -> ServerAnswer:
    """Answer a question where nobody can be asked."""
    return ServerAnswer("cancel")


def explain(error: BaseException) -> str | None:
    """Return the reason why a server cannot be used, None for an error that is a defect of this program.

    The order of the cases matters: a closed connection and a timeout are MCPErrors with codes of their own.
    """
    match error:
        case ServerDown():
            return str(error)
        case OAuthFlowError():
            return f"signing in failed: {clean(str(error), LONGEST_REASON)}"
        case MCPError() if error.code == CONNECTION_CLOSED:
            return "it closed the connection"
        case MCPError() if error.code == REQUEST_TIMEOUT:
            return "it did not answer"
        case MCPError():
            return f"it refused: {clean(error.message, LONGEST_REASON)}"
        case ValidationError():
            return "its answers do not follow the protocol"
        case httpx2.HTTPStatusError():  # its text has the address, which may hold a key
            return f"it answers with the status {error.response.status_code}"
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            return "nothing answers at its address"
        case httpx2.HTTPError():
            return f"the connection broke ({type(error).__name__})"
        case OSError() | RuntimeError():
            return clean(str(error), LONGEST_REASON) or type(error).__name__
    return None


async def _accept_result(name: str, result: CallToolResult) -> None:
    """Take every result as it is."""
