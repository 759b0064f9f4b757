"""`EditorTools`: files and terminals of the editor, as tools that the agent may use for the work of a session.

The daemon calls them over the gateway (`tools.offer`); each call becomes requests of the Agent Client Protocol. A command runs in a
terminal of its own, which is released in any case: killed by its timeout, and by the cancellation of the call. A call that comes
while the editor is going away fails with the connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import trio

from pegasus.acp.link import INTERNAL_ERROR, EditorGone, EditorLink, RpcError
from pegasus.acp.requests import EditorCapabilities
from pegasus.client import ClientError
from pegasus.messages import Json
from pegasus.wire import encode_json, is_unicode

RELEASE_SECONDS: Final = 5.0
"""Seconds that the editor has to kill and release a terminal, whatever else is cancelled."""

CallDaemon = Callable[[str, Mapping[str, Json]], Awaitable[Mapping[str, Any]]]


def offered_tools(editor: EditorCapabilities, *, runs_commands: bool) -> list[Json]:
    """Return the tools that the editor can carry out. runs_commands: commands are to run in its terminals."""
    return [
        *(["run_command"] if editor.terminal and runs_commands else []),
        *(["read_text_file"] if editor.fs.read_text_file else []),
        *(["write_text_file"] if editor.fs.write_text_file else []),
    ]


class EditorTools:
    """Carries out calls of the daemon in the editor."""

    def __init__(
        self,
        session_id: str,
        link: EditorLink,
        call: CallDaemon,
        show_terminal: Callable[[str, str], Awaitable[None]],
        nursery: trio.Nursery,
        room: int,
    ) -> None:
        """Take the ways to both sides.

        call: calls a method of the daemon. show_terminal: shows a terminal, its id last, as part of a tool call. room: bytes of an
        answer. The daemon ends the connection at a larger frame.
        """
        self._session = session_id
        self._show_terminal = show_terminal
        self._link = link
        self._call = call
        self._nursery = nursery
        self._room = room
        self._running: dict[str, trio.CancelScope] = {}
        """Calls under way, by id."""

    def take(self, event: Mapping[str, Any]) -> None:
        """Begin a call, or cancel one."""
        id = str(event.get("call"))
        if event.get("type") == "call":
            self._running[id] = trio.CancelScope()
            self._nursery.start_soon(self._carry_out, id, event)
        elif (scope := self._running.get(id)) is not None:
            scope.cancel()

    def cancel_all(self) -> None:
        """End what the daemon has asked for over a connection that is lost."""
        for scope in self._running.values():
            scope.cancel()

    async def _carry_out(self, id: str, event: Mapping[str, Any]) -> None:
        with suppress(ClientError, EditorGone), self._running[id]:
            try:
                result = await self._run(event, event.get("arguments") or {})
                self._check(result)
                answer: Mapping[str, Json] = {"result": result}
            except RpcError as error:
                answer = {"error": f"the editor: {error}"}
            await self._call("tools.result", {"call": id, **answer})
        self._running.pop(id, None)

    def _check(self, result: Mapping[str, Json]) -> None:
        """Raise RpcError for a result that no frame takes."""
        if any(isinstance(value, str) and not is_unicode(value) for value in result.values()):
            raise RpcError(INTERNAL_ERROR, "its answer holds half a surrogate pair, which is no text")
        if (size := len(encode_json(result).encode())) > self._room:
            raise RpcError(INTERNAL_ERROR, f"its answer has {size:,} bytes, allowed: {self._room:,}")

    async def _run(self, event: Mapping[str, Any], arguments: Mapping[str, Any]) -> Mapping[str, Json]:
        """Return what the editor gives back. Raises RpcError, EditorGone."""
        match event.get("tool"):
            case "read_text_file":
                answer = await self._ask("fs/read_text_file", {"path": arguments["path"]})
                return {"content": answer.get("content")}
            case "write_text_file":
                await self._ask("fs/write_text_file", {"path": arguments["path"], "content": arguments["content"]})
                return {}
            case _:
                return await self._command(str(event.get("for")), arguments)

    async def _command(self, call: str, arguments: Mapping[str, Any]) -> Mapping[str, Json]:
        """Run a command in a terminal of the editor, at most for `seconds`. call: the tool call that shows it."""
        env: list[Json] = [{"name": name, "value": value} for name, value in arguments["env"].items()]
        created = await self._ask(
            "terminal/create",
            {
                "command": "sh",
                "args": ["-c", arguments["command"]],
                "env": env,
                "cwd": arguments["cwd"],
                "outputByteLimit": arguments["outputBytes"],
            },
        )
        terminal: dict[str, Json] = {"terminalId": created.get("terminalId")}
        try:
            await self._show_terminal(call, str(created.get("terminalId")))
            with trio.move_on_after(arguments["seconds"]) as scope:
                await self._ask("terminal/wait_for_exit", terminal)
            if scope.cancelled_caught:
                await self._ask("terminal/kill", terminal)
            written = await self._ask("terminal/output", terminal)
        finally:
            with trio.move_on_after(RELEASE_SECONDS, shield=True), suppress(RpcError, EditorGone):
                await self._ask("terminal/release", terminal)
        status, output, truncated = (written.get(key) for key in ("exitStatus", "output", "truncated"))
        if isinstance(output, str) and len(output) > arguments["outputBytes"]:
            output, truncated = output[-arguments["outputBytes"] :], True
        return {
            "output": output,
            "truncated": truncated,
            "timedOut": scope.cancelled_caught,
            **({key: status.get(key) for key in ("exitCode", "signal")} if isinstance(status, Mapping) else {}),
        }

    async def _ask(self, method: str, params: Mapping[str, Json]) -> Mapping[str, Any]:
        answer = await self._link.request(method, {"sessionId": self._session, **params})
        return answer if isinstance(answer, Mapping) else {}
