"""An editor: the official Python client of the Agent Client Protocol, which talks with `pegasus acp`.

The client is of asyncio, so each editor has a loop in a thread of its own; what a test awaits is carried out there.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import trio
from acp import PROTOCOL_VERSION, Client, RequestError, connect_to_agent, text_block
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    CreateTerminalResponse,
    DeniedOutcome,
    ReadTextFileResponse,
    RequestPermissionResponse,
    TerminalExitStatus,
    TerminalOutputResponse,
    WaitForTerminalExitResponse,
)

from tests.blackbox.support.command import PROGRAM
from tests.blackbox.support.daemon import Daemon
from tests.blackbox.support.waiting import until

T = TypeVar("T")
CANCELLED = RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))


def selected(option: str) -> RequestPermissionResponse:
    """The answer of an editor whose person has chosen this."""
    return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=option))


class Terminal:
    """A terminal of the editor, with one command."""

    def __init__(self, process: Any) -> None:
        self.process = process
        self.output = ""
        self.is_released = False

    async def end(self) -> None:
        written, _ = await self.process.communicate()
        self.output = written.decode()

    def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()


class Editor(Client):
    """One editor. updates: what it was shown, in order; asked: permission requests, which `answer` answers.

    buffers: texts of the files that are open, by path; file_calls: what was read and written; terminals: all that there were.
    """

    def __init__(self) -> None:
        self.updates: list[tuple[str, Any]] = []
        self.asked: list[Any] = []
        self.buffers: dict[str, str] = {}
        self.file_calls: list[tuple[str, str]] = []
        self.terminals: list[Terminal] = []
        self.answer: Callable[[Any], Awaitable[RequestPermissionResponse]] = self.never
        self.agent: Any = None
        self.process: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_over = asyncio.Event()
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=[self._live()], daemon=True)

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._has_begun.set()
        await self._is_over.wait()
        if self.agent is not None:
            self.process.stdin.close()
            await self.agent.close()
            await self.process.wait()
        for terminal in self.terminals:
            terminal.kill()
            await terminal.process.communicate()

    # ------------------------------------------------------------ what the agent calls

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        self.updates.append((session_id, update))

    async def request_permission(self, options: Any, session_id: str, tool_call: Any, **more: Any) -> Any:
        self.asked.append((tool_call, [option.option_id for option in options]))
        return await self.answer(tool_call)

    async def never(self, tool_call: Any) -> RequestPermissionResponse:
        return await asyncio.get_running_loop().create_future()

    async def read_text_file(self, path: str, session_id: str, **more: Any) -> ReadTextFileResponse:
        self.file_calls.append(("read", path))
        if path not in self.buffers:
            raise RequestError(-32000, "this file is private")
        return ReadTextFileResponse(content=self.buffers[path])

    async def write_text_file(self, content: str, path: str, session_id: str, **more: Any) -> None:
        self.file_calls.append(("write", path))
        self.buffers[path] = content
        await asyncio.to_thread(Path(path).write_text, content)

    async def create_terminal(self, command: str, session_id: str, **more: Any) -> CreateTerminalResponse:
        process = await asyncio.create_subprocess_exec(
            command,
            *more["args"],
            cwd=more["cwd"],
            env=os.environ | {each.name: each.value for each in more["env"]},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self.terminals.append(Terminal(process))
        return CreateTerminalResponse(terminal_id=str(len(self.terminals) - 1))

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str, **more: Any) -> Any:
        terminal = self.terminals[int(terminal_id)]
        await terminal.end()
        return WaitForTerminalExitResponse(exit_code=terminal.process.returncode)

    async def terminal_output(self, session_id: str, terminal_id: str, **more: Any) -> TerminalOutputResponse:
        terminal = self.terminals[int(terminal_id)]
        status = TerminalExitStatus(exit_code=terminal.process.returncode)
        return TerminalOutputResponse(output=terminal.output, truncated=False, exit_status=status)

    async def kill_terminal(self, session_id: str, terminal_id: str, **more: Any) -> None:
        self.terminals[int(terminal_id)].kill()

    async def release_terminal(self, session_id: str, terminal_id: str, **more: Any) -> None:
        self.terminals[int(terminal_id)].kill()
        self.terminals[int(terminal_id)].is_released = True

    # ------------------------------------------------------------ what a test does

    async def do(self, work: Awaitable[T]) -> T:
        """Await something of the client, in its thread."""

        async def wrapped() -> T:
            return await work

        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(wrapped(), self._loop)
        return await trio.to_thread.run_sync(future.result, abandon_on_cancel=True)

    async def begin(self, daemon: Daemon, capabilities: ClientCapabilities | None = None) -> None:
        """Start the program and initialize."""
        self._thread.start()
        self._has_begun.wait()
        command = [*PROGRAM, "--home", str(daemon.home), *daemon.options, "acp"]

        async def connect() -> None:
            pipe, limit = asyncio.subprocess.PIPE, 64 << 20
            self.process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, env=daemon.env, cwd=daemon.home.parent, limit=limit
            )
            self.agent = connect_to_agent(self, self.process.stdin, self.process.stdout)
            await self.agent.initialize(protocol_version=PROTOCOL_VERSION, client_capabilities=capabilities)

        await self.do(connect())

    async def new(self, folder: Path) -> str:
        """The id of a new session."""
        return str((await self.do(self.agent.new_session(cwd=str(folder), mcp_servers=[]))).session_id)

    async def prompt(self, session: str, text: str, *blocks: Any) -> str:
        """The reason why the prompt is over."""
        return str((await self.do(self.ask(session, text, *blocks))).stop_reason)

    def ask(self, session: str, text: str, *blocks: Any) -> Awaitable[Any]:
        """The prompt as the client makes it."""
        return self.agent.prompt(session_id=session, prompt=[text_block(text), *blocks])

    def of(self, kind: str, session: str = "") -> list[Any]:
        """The updates of one kind."""
        return [update for id, update in list(self.updates) if update.session_update == kind and session in ("", id)]

    def said(self, session: str = "") -> str:
        """Everything that the agent has said, as an editor shows it that joins all text."""
        return "".join(update.content.text for update in self.of("agent_message_chunk", session))

    async def shown(self, kind: str, fits: Callable[[Any], bool] = lambda update: True) -> Any:
        """The first update of this kind that fits."""
        found = await until(lambda: [each for each in self.of(kind) if fits(each)], f"an update {kind}")
        return found[0]

    def kill(self) -> None:
        """kill -9 of the program: the editor dies, and its child with it."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()

    async def close(self) -> None:
        """Close the editor's end, as one does that is left."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._is_over.set)
            await trio.to_thread.run_sync(self._thread.join, 5)
        self.kill()
        if self._loop is not None:
            await trio.to_thread.run_sync(self._thread.join, 5)


@asynccontextmanager
async def editing(daemon: Daemon, **capabilities: Any) -> AsyncIterator[Editor]:
    """An editor that is connected, for as long as the block lasts."""
    editor = Editor()
    try:
        await editor.begin(daemon, ClientCapabilities(**capabilities) if capabilities else None)
        yield editor
    finally:
        with trio.CancelScope(shield=True):
            await editor.close()


def texts(blocks: Sequence[Any]) -> str:
    """The text of a tool call's content."""
    return "".join(block.content.text for block in blocks or () if block.type == "content")
