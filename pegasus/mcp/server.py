"""One server: its actor, its connection, its tools, and calls of them.

`run_server` is the actor. It connects, reads the list of tools, reads it again when the server says that it has changed, and ends
with `ServerDown` when the server does; its supervisor starts it again with growing pauses. So a server that is dead, hangs or comes
and goes costs a timer and nothing else.

`McpServer` is what outlives these runs: the present state, and the tools as they were last seen. Tools of a server that is down stay
in the list, so that the model's prompt, and with it the provider's cache, does not change each time a server is restarted; their
calls fail at once with a sentence.

A call ends when its caller is cancelled, by /stop or a deadline; the SDK tells the server about that. `calls` has what happens when
the server asks the person something meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from actors import Inbox, Signal
from pegasus.host import command_name
from pegasus.mcp.calls import ReportProgress, ServerCalls, Work
from pegasus.mcp.faults import ServerDown, first_fault
from pegasus.mcp.listing import (
    GET_PROMPT,
    READ_RESOURCE,
    ListedTool,
    clean,
    extra_tools,
    read_listing,
    read_tools,
)
from pegasus.mcp.place import RISK, ServerPlace
from pegasus.mcp.results import ResultReader
from pegasus.mcp.sorting import SortedTool, identity_of, is_sorted, shown_name, sort_tool
from pegasus.mcp.tokens import TokenFile
from pegasus.messages import Json, Metadata
from pegasus.observe import get_logger
from pegasus.outside import Untrusted
from pegasus.redaction import Redactor
from pegasus.sandbox import NO_SANDBOX, Sandbox
from pegasus.settings import McpServerSettings
from pegasus.tools import (
    AwaitsOwner,
    Effect,
    ResultWithImages,
    Tool,
    ToolContext,
    ToolError,
    command_environment,
    hidden_path,
    may_be_walls,
)
from pegasus.wire import decode_json, encode_json

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from pegasus.mcp.connection import McpConnection
    from pegasus.mcp.stdio import ServerProgram, Streams

DRAIN: Final = 60.0
"""Seconds that calls under way may take when the settings of their server have changed."""
GRACE: Final = 2.0
"""Seconds that a program has to end after its stdin was closed and it was asked to."""
QUIET: Final = 2.0
"""Seconds between two readings of a list that changes all the time."""
SHORTEST_TOKEN: Final = 8
"""Characters from which a fact of the token's file is taken for a token; shorter ones are words, such as its type."""
SHORTEST_SECRET: Final = 4
"""Characters from which a value of the environment or of a header is masked in the server's words."""
LONGEST_INSTRUCTIONS: Final = 2_000
"""Characters of a server's instructions."""
_log = get_logger("mcp")


@attrs.frozen(eq=False, repr=False)
class ServerState:
    """State of a server, for people.

    It holds nothing of the settings, so it may be shown to everyone who may see the status.

    Example::

        ServerState("time", "up", 2, "", "2025-11-25")
        ServerState("github", "down", 12, "the program ended with exit code 1")
    """

    name: str
    """Name of the server in the settings."""
    state: str
    """"off" (by the settings), "connecting", "up" or "down"."""
    tools: int = 0
    """Tools that exist here."""
    reason: str = ""
    """Reason why it is down."""
    protocol: str = ""
    """Version of the protocol, where it is up."""


class McpServer:
    """A server of the settings. It lives as long as these settings; `run_server` runs it once for each connection.

    Example::

        server = McpServer("time", settings.mcp.servers["time"], files_context(workspace), home.path / "mcp")
        nursery.start_soon(server.run)   # raises ServerDown when it ends
        server.state                     # ServerState("time", "up", 2, "", "2025-11-25") when it is connected
    """

    def __init__(
        self,
        name: str,
        settings: McpServerSettings,
        files: ToolContext,
        folder: Path,
        sandbox: Sandbox = NO_SANDBOX,
        on_change: Callable[[], None] = lambda: None,
        grace: float = GRACE,
    ) -> None:
        """Take the settings of a server; `run` connects it.

        files: context with the workspace. folder: `mcp` of the home, with files of access tokens and a folder for each program.
        sandbox: walls around programs. on_change: called when the tools have changed. grace: seconds that a program has to end.
        """
        self.name = name
        self.settings = settings
        self.tools: tuple[Tool, ...] = ()
        """Tools as they were last seen."""
        self.instructions = ""
        """The server's words about how to use it, cleaned and cut."""
        self.state = ServerState(name, "connecting" if settings.enabled else "off")
        self.on_up: Callable[[], None] = lambda: None
        """Called when it is connected and its tools are known."""
        self._files = files
        self._grace = grace
        # What a server does is mostly elsewhere, so it has a network, as far as commands may have one at all.
        self._sandbox = attrs.evolve(sandbox, network="all")
        self._token_file = TokenFile(folder / f"{name}.json")
        self._place = ServerPlace(folder / name, files.workspace)
        self._results = ResultReader(name, files)
        self._on_change = on_change
        self._listed: tuple[ListedTool, ...] = ()
        """Tools of its list that exist here, as they were last seen."""
        self._has_inherited = False
        """Its tools are still those of the server before."""
        self._has_advised = False
        """An owner was told that nobody has sorted its tools."""
        self._is_retired = False
        """Another server takes its place: it begins no calls any more."""
        self._calls = ServerCalls(name, settings.timeout)
        self._open: tuple[McpConnection, trio.Nursery] | None = None
        """The connection, and the nursery of its calls."""
        self._has_changed = Signal()
        """Given when the server has said that its lists have changed."""
        self._legacy = False
        """Begin with the older protocol. Some servers end when they are asked for the newest one, so attempts alternate."""
        self._sse = False
        """Its address speaks the older transport."""
        self._redactor = Redactor((*settings.env.values(), *settings.headers.values()), shortest=SHORTEST_SECRET)
        """Masks the values of environment and headers in the server's words."""

    # ------------------------------------------------------------------ the connection

    async def run(self) -> None:
        """Connect and stay connected. Raises ServerDown when that fails or ends. Cancelled: nothing of the server is left."""
        self.state = attrs.evolve(self.state, state="connecting", protocol="")
        reason = f"it did not answer within {self.settings.timeout:g} s"
        try:
            with trio.CancelScope(deadline=trio.current_time() + self.settings.timeout) as scope:
                await self._connect(scope)
        except Exception as error:
            cause = first_fault(error)
            # A defect is raised as it is: the supervisor parks this server alone, and the log has the traceback.
            if not isinstance(cause, ServerDown | trio.TooSlowError):
                self.state = attrs.evolve(
                    self.state, state="down", reason="a defect; the log has the details", protocol=""
                )
                raise
            if isinstance(cause, ServerDown):
                reason = self._redactor.apply(str(cause))
        if self._is_walled and self.state.state == "connecting":
            reason += await trio.to_thread.run_sync(self._about_walls, reason)
        self.state = attrs.evolve(self.state, state="down", reason=reason, protocol="")
        raise ServerDown(f"the MCP server {self.name} is down: {reason}")

    async def _connect(self, scope: trio.CancelScope) -> None:
        """Connect, and follow the changes of the lists. scope: has the deadline of the first list, which is lifted then."""
        # The import of the SDK takes half a second, in which others run.
        await trio.to_thread.run_sync(_import_connection)
        from pegasus.mcp.oauth import make_auth
        from pegasus.mcp.remote import RemoteServer, open_remote
        from pegasus.mcp.stdio import open_program

        if self.settings.command:
            program = await trio.to_thread.run_sync(self._program)
            legacy = self._legacy
            # Turned round before the attempt, because a program that ends during it says nothing about the reason. A
            # connection that works sets it back (`_converse`).
            self._legacy = not legacy
            await self._converse(open_program(program), scope, legacy=legacy)
            return
        remote = RemoteServer(self.settings.url, self.settings.headers, make_auth(self.settings, self._token_file))
        try:
            await self._converse(open_remote(remote, sse=self._sse), scope, legacy=False)
        except ServerDown as error:
            # A second attempt makes sense only for a server that was reached, refused, and never worked in this way.
            if self._sse or not error.is_refusal or self.state.state == "up":
                raise _with_status(error, remote.status) from None
            try:  # servers that have only the older transport refuse the newer one
                await self._converse(open_remote(remote, sse=True), scope, legacy=True)
            except ServerDown as other:
                raise other if self._sse else _with_status(error, remote.status) from None

    @property
    def _is_walled(self) -> bool:
        return bool(self.settings.command) and self.settings.sandbox and self._sandbox.kind != "none"

    def _about_walls(self, reason: str) -> str:
        """Return how the walls may have to do with a failed start, and what to set; "" if nothing speaks for it. Blocks briefly."""
        env = command_environment(os.environ, self.settings.env)
        walls = self._place.walls(self.settings, self._sandbox, env["PATH"])
        key = f"mcp.servers.{self.name}.sandbox = false"
        named = hidden_path(reason, walls)
        if hidden := self._place.hidden(self.settings, walls, env["PATH"]) or ([named] if named else []):
            return (
                f"; the walls around it hide {', '.join(hidden)}. Put programs where everybody may read, as in /usr/local, and the "
                f"names of folders with data into sandbox.writable; or set {key}, with which it may do all that you can"
            )
        if may_be_walls(reason):
            return f"; it runs within walls, which may be the reason: see sandbox.writable and sandbox.allowed_hosts, or set {key}"
        return ""

    def _program(self) -> ServerProgram:
        """Return the program to run, after making its folder. Raises ServerDown. Blocks briefly."""
        from pegasus.mcp.stdio import ServerProgram

        settings, place = self.settings, self._place
        place.make()
        if risk := place.risk(settings, is_confined=self._sandbox.kind != "none"):
            _log.warning(
                "an MCP server may run code that others have written", server=self.name, reason=f"{risk}; {RISK}"
            )
        env = command_environment(os.environ, place.environment(settings) if self._is_walled else settings.env)
        return ServerProgram(
            (settings.command, *settings.args),
            place.cwd(settings),
            env,
            place.walls(settings, self._sandbox, env["PATH"]) if settings.sandbox else NO_SANDBOX,
            self._log_line,
            self._grace,
        )

    async def _converse(
        self, streams: AbstractAsyncContextManager[Streams], scope: trio.CancelScope, *, legacy: bool
    ) -> None:
        """Open a connection over these streams, and follow the changes of the lists for ever. Raises ServerDown."""
        from pegasus.mcp.connection import open_connection

        async with open_connection(streams, self._has_changed.notify, legacy=legacy, ask=self._calls.ask) as connection:
            self._legacy = legacy
            self._sse = legacy and bool(self.settings.url)
            # Instructions stand in the prompt like the tools do, so a change of them is told in the same way.
            seen = self._has_changed.count  # before each reading: a change during it leads to another one
            words, self.instructions = self.instructions, clean(connection.instructions, LONGEST_INSTRUCTIONS)
            await self._read_lists(connection, is_changed=words != self.instructions)
            self.state = ServerState(self.name, "up", len(self.tools), "", connection.protocol)
            _log.info("MCP server connected", server=self.name, tools=len(self.tools), protocol=connection.protocol)
            # It is connected and its tools are known: from here on only the server itself ends this.
            scope.deadline = float("inf")
            async with trio.open_nursery() as nursery:
                self._open = connection, nursery
                try:
                    self.on_up()
                    nursery.start_soon(self._follow_changes, connection, seen)
                    await connection.broken.wait()
                finally:
                    self._open = None
                raise ServerDown("it has ended the session")

    async def _follow_changes(self, connection: McpConnection, seen: int) -> None:
        """Read the lists again whenever the server says that they have changed. Raises ServerDown if it does not answer then."""
        while True:
            await self._has_changed.wait(seen)
            # A server may tell of each of a thousand changes. All that come within the pause cost one reading.
            await trio.sleep(QUIET)
            seen = self._has_changed.count
            with trio.move_on_after(self.settings.timeout) as scope:
                await self._read_lists(connection)
            if scope.cancelled_caught:
                raise ServerDown(f"it did not answer within {self.settings.timeout:g} s")
            self.state = attrs.evolve(self.state, tools=len(self.tools))

    async def _read_lists(self, connection: McpConnection, *, is_changed: bool = False) -> None:
        """Read the lists of tools and prompts, and make tools of them. is_changed: something else about the server has changed."""
        listed = list(await read_tools(self.name, await connection.list_tools()))
        names = {tool.spec.name for tool in listed}
        extras = extra_tools(self.name, has_resources=connection.has_resources, prompts=await connection.list_prompts())
        listed += [tool for tool in extras if tool.spec.name not in names]
        wanted = [tool for tool in listed if any(fnmatchcase(tool.own_name, name) for name in self.settings.tools)]
        # Inherited tools call the server before this one, so none of them is taken over even if it looks the same.
        before = {} if self._has_inherited else {tool.name: tool for tool in self.tools}
        self._has_inherited = False
        self._listed = tuple(wanted)
        self._make_tools(before, is_changed=is_changed)

    def _make_tools(self, before: dict[str, Tool], *, is_changed: bool = False) -> None:
        made = tuple(self._make_tool(tool, before) for tool in self._listed)
        if is_changed or made != self.tools:
            self.tools = made
            self._on_change()

    def sorted_tools(self) -> tuple[SortedTool, ...]:
        """Return the tools with their kinds, for people."""
        trusted = attrs.evolve(self.settings, trust="hints")
        return tuple(
            SortedTool(
                shown_name(tool.own_name),
                sort_tool(tool.own_name, tool.hints, self.settings),
                sort_tool(tool.own_name, tool.hints, trusted),
                tool.hints.text,
            )
            for tool in self._listed
        )

    def sort_anew(self, settings: McpServerSettings) -> None:
        """Take settings that differ in the kinds of tools only. The connection and calls under way go on."""
        self.settings = settings
        self._make_tools({tool.name: tool for tool in self.tools})

    def _log_line(self, line: str) -> None:
        _log.info("MCP server wrote", server=self.name, line=self._redactor.apply(line))

    # ------------------------------------------------------------------ the end

    def inherit(self, other: McpServer) -> None:
        """Have the tools of a server whose place it takes until its own are known, so that prompts stay the same; their calls fail."""
        self.tools, self.instructions, self._has_inherited = other.tools, other.instructions, True

    async def retire(self) -> None:
        """Take no calls any more, and wait until those under way have ended, for `DRAIN` seconds at most.

        Cancelled: calls under way go on until the connection ends. New ones are refused all the same.
        """
        self._is_retired = True
        await self._calls.finish(DRAIN)

    # ------------------------------------------------------------------ calls

    def _make_tool(self, listed: ListedTool, before: dict[str, Tool]) -> Tool:
        """Return a tool of the server; the one from before where nothing has changed about it."""
        known = before.get(listed.spec.name)
        kind = sort_tool(listed.own_name, listed.hints, self.settings)
        identity = encode_json(identity_of(self.settings, listed.own_name, listed.hints))
        if known is not None and (known.spec, known.kind, known.identity) == (listed.spec, kind, identity):
            return known

        async def run(arguments: Metadata, context: ToolContext) -> ResultWithImages | AwaitsOwner:
            """Call the tool. The connection is looked up at each call, so a tool survives a restart of its server."""
            return await self.call(listed, arguments, context)

        more = "Ask for less, if the tool has a parameter for that."
        # Its reach is the default, the farthest: nobody here knows what a server does.
        return Tool(
            listed.spec,
            run,
            "mcp",
            Effect.ONCE,
            more,
            source=Untrusted.MCP,
            timeout=self.settings.timeout,
            kind=kind,
            server=self.name,
            identity=identity,
            advice=self._advise,
        )

    def _advise(self) -> str:
        """Return how an owner is asked less about the tools of this server, where nobody has said what they do: once, then ""."""
        if self._has_advised or is_sorted(self.settings):
            return ""
        self._has_advised = True
        return (
            f"Nobody has said what the tools of {self.name} do, so each call counts as one that changes something; "
            f"`{command_name()} mcp add {self.name}`, or the web page (Channels), sorts them, "
            "and those that only read are asked about no more"
        )

    async def call(self, tool: ListedTool, arguments: Metadata, context: ToolContext) -> ResultWithImages | AwaitsOwner:
        """Return the result of a tool, or that it waits for an owner. Raises ToolError, at once if the server is down."""

        def begin() -> tuple[trio.Nursery, Work]:
            """Return where the call runs, and its work. Raises ToolError if there is no connection at this moment."""
            if self._is_retired:
                raise ToolError(
                    f"the MCP server {self.name} is being connected anew with other settings; try again soon"
                )
            if self._open is None:
                reason = f": {self.state.reason}" if self.state.reason else ""
                raise ToolError(
                    f"the MCP server {self.name} is not connected{reason}. Its tools cannot be used at the moment"
                )
            connection, nursery = self._open
            return nursery, partial(self._work, connection, tool, arguments)

        made = await self._calls.make(tool.spec.name, context, begin)
        if isinstance(made, AwaitsOwner) or not self.settings.auth:
            return made
        return attrs.evolve(made, result=self._without_tokens(made.result))

    async def _work(
        self, connection: McpConnection, tool: ListedTool, arguments: Any, report: ReportProgress
    ) -> ResultWithImages:
        """Return the result of a call on this connection. Raises ToolError."""
        from pegasus.mcp.connection import CallFailed

        try:
            if not tool.is_extra:
                result = await connection.call_tool(tool.own_name, arguments, report)
                return await self._results.read_call(result)
            if tool.own_name == READ_RESOURCE:
                return await self._results.read_resource(await connection.read_resource(arguments["uri"]))
            if tool.own_name == GET_PROMPT:
                prompt = await connection.get_prompt(arguments["name"], arguments.get("arguments") or {})
                return await self._results.read_prompt(prompt)
            return ResultWithImages(read_listing(*await connection.list_resources()), ())
        except CallFailed as error:
            raise ToolError(f"the MCP server {self.name}: {error}") from None

    def _without_tokens(self, result: Json) -> Json:
        """Return a result without the access tokens of the server, which it has seen and may repeat.

        The tokens are read from the file at each result, since a refresh replaces them.
        """
        found = self._token_file.read().get("tokens")
        tokens = [value for value in found.values() if isinstance(value, str)] if isinstance(found, dict) else []
        secrets = [value for value in tokens if len(value) >= SHORTEST_TOKEN]
        return decode_json(Redactor(secrets).apply(encode_json(result)))


def _import_connection() -> None:
    import pegasus.mcp.connection  # noqa: F401


def _with_status(error: ServerDown, status: int) -> ServerDown:
    """Return the reason with the HTTP status of the last refusal, which says more than the SDK's words for it."""
    if error.is_refusal and status in (401, 403):
        return ServerDown(f"it refuses the access (status {status}); see headers and auth in its settings")
    return ServerDown(f"{error} (status {status})") if status and error.is_refusal else error


async def run_server(inbox: Inbox[object], server: McpServer) -> None:
    """Run a server as an actor, which is up at once. Crashes with ServerDown when the server is down.

    It counts as started before it is connected, so a server that hangs does not hold up the start of the agent.
    """
    inbox.started()
    await server.run()
