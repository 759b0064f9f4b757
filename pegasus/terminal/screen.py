"""The prompt and what is printed above it: prompt_toolkit on an asyncio loop of its own, in a thread of its own.

Trio's loop and asyncio's never meet: `run` blocks its thread, every other public method may be called from any thread
and only queues a callback, and what the user does is told through the callables given at the start, in this thread.

The prompt is one application that runs as long as the chat, not one per line, and text is written above it by erasing
it, writing, and drawing it again. So the terminal never leaves raw mode: keys typed meanwhile are read by us later and
never echoed into the middle of a reply. The cursor's position is never asked for (CPR): the answer would come as keys
after the end.
"""

from __future__ import annotations

import asyncio
import errno
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.output import ColorDepth, Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output

from pegasus.terminal.bindings import Deeds, bindings
from pegasus.terminal.history import HistoryFile
from pegasus.terminal.keys import HELP, LEAVING_HINT, Verdict, is_help
from pegasus.terminal.layout import STYLE, Commands, chat_layout, is_command
from pegasus.terminal.markdown import Paper
from pegasus.terminal.neutral import repair
from pegasus.terminal.restore import forget_stdout, terminal_noted
from pegasus.terminal.status import FRAME_SECONDS, Status, status_line
from pegasus.terminal.stray import stderr_above

_TERMINAL_GONE = (errno.EIO, errno.EPIPE, errno.ENXIO, errno.EBADF)


class Screen:
    """One chat on one terminal.

    said: called with each text to send. left: called once, when the user leaves or the terminal is gone.
    suspend: whether Ctrl-Z stops the process; a daemon had better not stand still.
    """

    def __init__(
        self,
        history: Path,
        *,
        said: Callable[[str], None],
        left: Callable[[], None],
        colour: bool = True,
        suspend: bool = False,
        input: Input | None = None,
        output: Output | None = None,
    ) -> None:
        self._said = said
        self._left = left
        self._colour = colour
        self._suspend = suspend
        self._input = input
        self._output = output
        self._paper = Paper(colour=colour)
        self._buffer = Buffer(
            multiline=True, history=HistoryFile(history), completer=Commands(), complete_while_typing=is_command
        )
        self._unicode = True
        self._status = Status()
        self._hint = ""
        self._thinking_since = 0.0
        self._ticking = False
        self._lock = Lock()
        self._waiting: list[Callable[[], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    # ---------------------------------------------------------------- from any thread

    def reply(self, agent: str, text: str, shown: Callable[[], None]) -> None:
        """Print what the agent said, then call `shown` (in the screen's thread)."""

        def show() -> None:
            self._print(self._paper.reply(agent, text, self._width))
            shown()

        self._post(show)

    def notice(self, text: str) -> None:
        """Print a remark that is not the agent's."""
        self._post(lambda: self._print(self._paper.notice(text, self._width)))

    def status(self, status: Status) -> None:
        """Show how things stand, under the prompt."""
        self._post(lambda: self._set_status(status))

    def resized(self) -> None:
        """Tell that the window has another size (SIGWINCH reaches the main thread only)."""
        self._post(self._redraw)

    def close(self) -> None:
        """End the chat: `run` erases the prompt, restores the terminal and returns. May be called twice."""
        self._closed = True
        self._post(self._exit)

    def _post(self, deed: Callable[[], None]) -> None:
        with self._lock:
            if self._loop is None:
                self._waiting.append(deed)
            else:
                with suppress(RuntimeError):  # its loop is closed: there is no screen any more
                    self._loop.call_soon_threadsafe(deed)

    # ---------------------------------------------------------------- in the screen's thread

    def run(self) -> None:
        """Block until the user leaves or `close` is called; raises what went wrong on the screen."""
        with terminal_noted(), stderr_above(self.notice):
            asyncio.run(self._main())

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._failed)
        app = self._app = self._application()
        with self._lock:
            self._loop = loop
            for deed in self._waiting:
                loop.call_soon(deed)
        try:
            await app.run_async(pre_run=self._exit_if_closed, handle_sigint=False, set_exception_handler=False)
        except EOFError:
            self._gone()
        except OSError as error:
            if error.errno not in _TERMINAL_GONE:
                raise
            self._gone()

    def _gone(self) -> None:
        if self._output is None:
            forget_stdout()
        self._left()

    def _application(self) -> Application[None]:
        output = self._output or create_output(stdout=sys.stdout)
        if isinstance(output, Vt100_Output):
            output.enable_cpr = False
        self._unicode = (output.encoding() or "").lower().replace("-", "") == "utf8"
        prompt = self._prompt = "› " if self._unicode else "> "
        app: Application[None] = Application(
            layout=chat_layout(self._buffer, prompt, self._status_text),
            key_bindings=bindings(self._buffer, self._deeds(), lambda: self._status.thinking),
            style=STYLE,
            color_depth=None if self._colour else ColorDepth.DEPTH_1_BIT,
            input=self._input or create_input(),
            output=output,
            erase_when_done=True,
            terminal_size_polling_interval=None,
        )
        app.key_processor.before_key_press += lambda _: self._show_hint("")
        return app

    def _deeds(self) -> Deeds:
        return {
            Verdict.SEND: self._send,
            Verdict.NEW_LINE: self._break_line,
            Verdict.CLEAR: self._buffer.reset,
            Verdict.STOP: lambda: self._said("/stop"),
            Verdict.HINT: lambda: self._show_hint(LEAVING_HINT),
            Verdict.SUSPEND: self._stand_still,
            Verdict.LEAVE: self._leave,
            Verdict.IGNORE: self._buffer.reset,
        }

    def _send(self) -> None:
        text = repair(self._buffer.text).strip("\n").rstrip()
        self._buffer.append_to_history()
        self._buffer.reset()
        self._print(self._paper.said(self._prompt, text))
        if is_help(text):
            self._print(self._paper.notice(HELP, self._width))
        self._said(text)

    def _break_line(self) -> None:
        self._buffer.delete_before_cursor()
        self._buffer.insert_text("\n")

    def _leave(self) -> None:
        self._left()
        self._exit()

    def _stand_still(self) -> None:
        if self._suspend:
            self._app.suspend_to_background()
        else:
            self._show_hint(f"Ctrl-Z would make the agent stand still; {LEAVING_HINT}")

    def _exit(self) -> None:
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    def _exit_if_closed(self) -> None:
        if self._closed:
            self._exit()

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception") or RuntimeError(context["message"])
        if self._app.is_running and not self._app.is_done:
            self._app.exit(exception=error)

    # ---------------------------------------------------------------- what is seen

    @property
    def _width(self) -> int:
        return self._app.output.get_size().columns

    def _print(self, text: str) -> None:
        output = self._app.output
        self._app.renderer.erase()
        output.write_raw(text.replace("\n", "\r\n"))
        output.flush()
        self._app.invalidate()

    def _redraw(self) -> None:
        self._app.renderer.erase(leave_alternate_screen=False)
        self._app.invalidate()

    def _set_status(self, status: Status) -> None:
        if status.thinking and not self._status.thinking:
            self._thinking_since = asyncio.get_running_loop().time()
        self._status = status
        self._app.invalidate()
        if status.thinking and not self._ticking:
            self._tick()

    def _tick(self) -> None:
        self._ticking = self._status.thinking
        if self._ticking:
            self._app.invalidate()
            asyncio.get_running_loop().call_later(FRAME_SECONDS, self._tick)

    def _show_hint(self, hint: str) -> None:
        if hint != self._hint:
            self._hint = hint
            self._app.invalidate()

    def _status_text(self) -> StyleAndTextTuples:
        seconds = asyncio.get_running_loop().time() - self._thinking_since
        return [("class:status", status_line(self._status, seconds, self._hint, unicode=self._unicode))]
