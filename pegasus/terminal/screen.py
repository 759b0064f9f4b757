"""Prompt and what is printed above it: prompt_toolkit on an asyncio loop of its own, in a thread of its own.

Trio's loop and asyncio's never meet. `run` blocks its thread; every other public method may be called from any thread and
only queues a callback for that loop; the user's messages are passed to the callables given at the start, in this thread.

The prompt is one application that runs as long as the chat, not one per line, and text is written above it by erasing
it, writing, and drawing it again. So the terminal never leaves raw mode: keys typed meanwhile are read later and never
echoed into the middle of a reply. The cursor's position is never asked for (CPR): the answer would come as keys after the
end.

prompt_toolkit needs asyncio, and its asyncio needs a thread of its own beside Trio. The alternative, Trio as a guest of the
asyncio loop, would run the conversation inside a loop that a slow terminal blocks: a write waits while an ssh connection hangs.
Here only the screen waits, and the conversation goes on.

Its end has three causes, all of which return from `run`: the user leaves, the chat calls `close`, or the terminal is gone. An
error in a callback of the loop ends it too, and `run` raises that error; otherwise the prompt would stand still without a reason.
"""

from __future__ import annotations

import asyncio
import errno
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final

import attrs
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import ThreadedCompleter
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import merge_key_bindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth, Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output

from pegasus.host import silence_stream
from pegasus.terminal.attachments import AttachmentProblem, describe_attachment, read_attachments
from pegasus.terminal.completion import Suggestions
from pegasus.terminal.copying import CopyableAnswers
from pegasus.terminal.history import HistoryFile
from pegasus.terminal.leaving import NOTHING_RUNS, Leave, LeaveQuestion, LeaveRules, leave_question
from pegasus.terminal.line_chat import frame_bytes
from pegasus.terminal.live_region import LiveRegion
from pegasus.terminal.markdown import ReplyLayout
from pegasus.terminal.pasted import PastedTexts
from pegasus.terminal.prompt import (
    STYLE,
    ChatCompleter,
    ChatHistory,
    KeyEffects,
    PasteReader,
    chat_layout,
    key_bindings,
    offers_choices,
    question_keys,
)
from pegasus.terminal.prompt_rules import KEYS_HELP, LEAVING_HINT, KeyAction, ScreenListener, is_help
from pegasus.terminal.questions import OpenQuestions, Remark
from pegasus.terminal.status_line import FRAME_SECONDS, TASK_SECONDS, ChatStatus, Draft, status_line
from pegasus.terminal.stop_keys import StopKeys
from pegasus.terminal.tty import is_utf8, repair_unicode, stderr_above, terminal_modes_saved

_TERMINAL_GONE: Final = (errno.EIO, errno.EPIPE, errno.ENXIO, errno.EBADF)
"""Errors of a terminal whose window was closed."""


class Screen:
    """One chat on one terminal."""

    def __init__(
        self,
        history: Path,
        listener: ScreenListener,
        *,
        colour: bool = True,
        max_bytes: int = 1 << 20,
        leave_rules: Callable[[], LeaveRules] = LeaveRules,
        input: Input | None = None,
        output: Output | None = None,
    ) -> None:
        """Prepare a screen; nothing is shown before `run`.

        max_bytes: size of the largest message. leave_rules: asked when the user leaves. input, output: prompt_toolkit's, stdin
        and stdout if None.
        """
        self._listener = listener
        self._colour = colour
        self._max_bytes = max_bytes
        self._leave_rules = leave_rules
        self._suggestions = Suggestions()
        """Names that the agent understands."""
        self._question: LeaveQuestion | None = None
        """Question that must be answered before leaving; None while none is asked."""
        self._is_leaving = False
        """The chat was asked who else talks with the agent."""
        self._others = 0
        """Other chats with this agent, when leaving was asked for."""
        self._input = input
        self._output = output
        self._layout = ReplyLayout(colour=colour)
        self._pasted = PastedTexts()
        """Long pasted texts, which are folded on the prompt."""
        self._buffer = Buffer(
            multiline=True,
            history=ChatHistory(HistoryFile(history)),
            completer=ThreadedCompleter(ChatCompleter(lambda: self._suggestions)),
            complete_while_typing=offers_choices,
            on_text_changed=self._on_text_changed,
        )
        self._unicode = True
        """The terminal's encoding is UTF-8; otherwise the prompt and the spinner are ASCII."""
        self._status = ChatStatus()
        """Facts that the status line shows."""
        self._questions = OpenQuestions()
        """Questions about tool calls that wait on the screen."""
        self._answers = CopyableAnswers()
        """Answers that can be copied."""
        self._first_key = 0.0
        """Time at which the present line was begun, on `monotonic`."""
        self._hint = ""
        """Text before the status, until the next key."""
        self._stop_keys = StopKeys(listener, lambda: self._status, self._show_hint, lambda: self._hint)
        """Effects of Ctrl-C and Esc on the agent's work."""
        self._thinking_since = 0.0
        """Time at which the agent began to think, on the loop's clock."""
        self._ticking = False
        """A call of `_tick` is scheduled."""
        self._loop = asyncio.new_event_loop()
        """Loop of the screen's thread. It takes callbacks before it runs, and is closed after the end."""
        self._closed = False
        """`close` was called."""

    # ---------------------------------------------------------------- from any thread

    def reply(self, agent: str, text: str, shown: Callable[[], None]) -> None:
        """Print a reply of the agent in the place of its draft, then call `shown` (in the screen's thread)."""

        def show() -> None:
            """Put the reply in the place of its draft. Runs in the screen's thread."""
            self._live.show(None)
            self._print(self._layout.reply(agent, text, self._width))
            self._answers.add(text)
            shown()  # not after an error: a reply that could not be drawn must come again

        self._post(show)

    def draft(self, draft: Draft | None) -> None:
        """Show a reply that is being written, above the prompt; None withdraws it."""
        self._post(lambda: self._live.show(draft))

    def cut(self, agent: str, text: str) -> None:
        """Print a draft that nobody goes on with, in its place."""
        self._post(lambda: self._live.show(None))
        self._post(lambda: self._print(self._layout.cut(agent, text, self._width)))

    def notice(self, text: str) -> None:
        """Print a remark that is not the agent's."""
        self._post(lambda: self._print(self._layout.notice(text, self._width)))

    def question(self, id: str, tool: str, text: str, *, may_widen: bool, is_new: bool) -> None:
        """Print a question about a tool call, unless it was printed before, and take one letter as its answer from now on."""

        def show() -> None:
            """Print the question and note whether somebody was typing. Runs in the screen's thread."""
            is_empty = not self._buffer.text
            self._questions.add(id, tool, text, now=monotonic(), prompt_is_empty=is_empty, may_widen=may_widen)
            if is_new:
                self._print(self._layout.question(text, self._width))

        self._post(show)

    def question_over(self, id: str = "") -> None:
        """Take no letter as the answer to this question any more; "": to none."""
        self._post(partial(self._questions.remove, id) if id else self._questions.clear)

    def suggest(self, suggestions: Suggestions) -> None:
        """Offer these commands, models and tasks from now on."""
        self._post(lambda: setattr(self, "_suggestions", suggestions))

    def status(self, status: ChatStatus) -> None:
        """Show the status under the prompt."""
        self._post(lambda: self._set_status(status))

    def resized(self) -> None:
        """Draw the prompt for another window size (SIGWINCH reaches the main thread only)."""
        self._post(self._redraw)

    def leave(self, others: int) -> None:
        """Leave, or ask first: the answer to `ScreenListener.on_leaving`. others: chats of other clients with this agent."""
        self._post(lambda: self._leave_or_ask(others) if self._is_leaving else None)

    def close(self) -> None:
        """End the chat: `run` erases the prompt, restores the terminal and returns. May be called twice."""
        self._closed = True
        self._post(self._exit)

    def _post(self, callback: Callable[[], None]) -> None:
        """Run the callback in the screen's thread, or when there is one; drop it after the end."""
        with suppress(RuntimeError):  # the loop is closed: there is no screen any more
            self._loop.call_soon_threadsafe(callback)

    # ---------------------------------------------------------------- in the screen's thread

    def run(self) -> None:
        """Block until the user leaves or `close` is called; raise what went wrong on the screen.

        A terminal that is gone (closed window, lost connection) is an end like any other.
        """
        input = self._input or create_input()
        try:
            # From here on Enter is Enter: what was typed before is in the terminal already, and is counted by the reader of keys.
            with terminal_modes_saved(), input.raw_mode(), stderr_above(self.notice):
                self._app = self._application(input)
                with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                    runner.run(self._main())
        except EOFError:
            self._on_terminal_gone()
        except (OSError, termios.error) as error:
            if error.args[0] not in _TERMINAL_GONE:
                raise
            self._on_terminal_gone()
        finally:
            self._loop.close()

    async def _main(self) -> None:
        """Run the prompt until its end."""
        self._loop.set_exception_handler(self._on_loop_error)
        await self._app.run_async(pre_run=self._exit_if_closed, handle_sigint=False, set_exception_handler=False)

    def _on_terminal_gone(self) -> None:
        """Leave: nothing can be shown any more, and text that stdout still holds must not fail at exit."""
        if self._output is None:
            silence_stream(sys.stdout)
        self._listener.on_leave(Leave.LEAVE)

    def _application(self, input: Input) -> Application[None]:
        """Return the prompt_toolkit application, with the terminal's encoding taken into account.

        The window size is not polled: SIGWINCH reaches the main thread, which calls `resized`.
        """
        if isinstance(input, Vt100Input):
            input.stdin_reader = PasteReader(input.fileno(), encoding=input.stdin.encoding)
        output = self._output or create_output(stdout=sys.stdout)
        if isinstance(output, Vt100_Output):
            # The answer to a question for the cursor's position would arrive as keys after the end, in the shell.
            output.enable_cpr = False
        self._unicode = is_utf8(output.encoding())
        self._live = LiveRegion(self._layout, output.get_size, lambda: self._app.invalidate())  # noqa: PLW0108 made later
        prompt = self._prompt = "› " if self._unicode else "> "
        app: Application[None] = Application(
            layout=chat_layout(
                self._buffer, self._pasted, prompt, self._status_text, self._live.container(), lambda: self._question
            ),
            key_bindings=merge_key_bindings(
                [
                    key_bindings(
                        self._buffer,
                        self._pasted,
                        self._key_effects(),
                        lambda: self._status.thinking,
                        lambda: self._stop_keys.is_awaited,
                        lambda: self._question,
                    ),
                    question_keys(lambda: self._question, self._answer),
                ]
            ),
            style=STYLE,
            color_depth=None if self._colour else ColorDepth.DEPTH_1_BIT,
            input=input,
            output=output,
            erase_when_done=True,
            terminal_size_polling_interval=None,
        )
        # Esc is also the beginning of other keys. Half a second in all, so that the arrow keys of a slow line are none.
        app.ttimeoutlen, app.timeoutlen = 0.25, 0.25
        app.key_processor.before_key_press += lambda _: self._before_key()
        return app

    # ---------------------------------------------------------------- effects of keys

    def _before_key(self) -> None:
        """Take the hint away, and note when a line is begun."""
        self._show_hint("")
        if not self._buffer.text:
            self._first_key = monotonic()

    def _key_effects(self) -> KeyEffects:
        return {
            KeyAction.SEND: self._send,
            KeyAction.NEW_LINE: self._break_line,
            KeyAction.CLEAR: self._buffer.reset,
            KeyAction.END_ANSWER: self._listener.on_interrupt,
            KeyAction.INTERRUPT: self._stop_keys.interrupt,
            KeyAction.STOP: self._stop_keys.stop,
            KeyAction.HINT: self._stop_keys.show_hint,
            KeyAction.SUSPEND: lambda: self._app.suspend_to_background(),  # noqa: PLW0108 made later
            KeyAction.LEAVE: self._leave,
            KeyAction.IGNORE: self._buffer.reset,
        }

    def _send(self) -> None:
        """Print the typed text above the prompt and hand it over with the files that it mentions.

        The text is echoed by printing it, since the prompt's own copy is erased. If a file cannot be sent, nothing is, and the text
        stays on the prompt to be corrected.
        """
        line = repair_unicode(self._buffer.text).strip("\n").rstrip()
        typed = self._pasted.unfold(line).rstrip()
        answer = self._questions.read(typed, first_key=self._first_key, now=monotonic())
        if answer is not None:
            self._send_answer(typed, answer)
            return
        if (copied := self._answers.read(typed)) is not None:
            self._buffer.reset()
            self._print(self._layout.notice(copied.notice, self._width))
            self._app.output.write_raw(copied.sequence)
            self._app.output.flush()
            return
        if (size := frame_bytes(typed)) > self._max_bytes:
            self._print(
                self._layout.notice(
                    f"Not sent: {size:,} bytes; the agent takes {self._max_bytes:,} at most.", self._width
                )
            )
            return
        try:
            # Of what was pasted nothing is read as the name of a file.
            line, media = read_attachments(line, self._max_bytes - size)
        except AttachmentProblem as problem:
            self._print(self._layout.notice(f"Not sent: {problem}.", self._width))
            return
        # From here on the text counts as sent: it is in the history, and the chat keeps it until the agent has accepted it.
        text = self._pasted.unfold(line).rstrip()
        self._buffer.text = typed
        self._buffer.append_to_history()
        self._buffer.reset()
        attached = "".join(f"\n{describe_attachment(file)}" for file in media)
        # Printed before it is handed over: an answer of a fast agent must not stand above its question.
        self._print(self._layout.sent(self._prompt, self._pasted.show(line) + attached))
        if is_help(text):
            self._print(self._layout.notice(KEYS_HELP, self._width))
        self._listener.on_message(text, media)

    def _send_answer(self, typed: str, answer: str | Remark) -> None:
        """Hand over the command that a letter stands for, or show why it answers nothing."""
        if isinstance(answer, str):
            self._buffer.reset()
            self._print(self._layout.sent(self._prompt, typed))
            self._listener.on_message(answer, ())
            return
        if not answer.keeps_line:
            self._buffer.reset()
        self._print(self._layout.notice(answer.text, self._width))

    def _on_text_changed(self, buffer: Buffer) -> None:
        """Have the suggestions brought up to date when somebody begins to type a command."""
        if buffer.text == "/":
            self._listener.on_slash()

    def _break_line(self) -> None:
        """Replace the backslash before the cursor by a line break."""
        self._buffer.delete_before_cursor()
        self._buffer.insert_text("\n")

    def _leave(self) -> None:
        """Leave, or ask first what becomes of the work that is running.

        If the agent would stop, the chat is asked first who else talks with it. A second Ctrl-D does not wait for that.
        """
        self._buffer.reset()  # "/exit" was typed, or nothing; Ctrl-D leaves only on an empty line
        if self._is_leaving:
            self._leave_now()
        elif self._leave_rules().stops_agent and self._status.online and self._listener.on_leaving is not None:
            self._is_leaving = True
            self._listener.on_leaving()
        else:
            self._leave_or_ask(0)

    def _leave_or_ask(self, others: int) -> None:
        """Leave, or ask first. others: chats of other clients with this agent."""
        self._is_leaving, self._others = False, others
        self._question = self._find_question(self._status)
        if self._question is None:
            self._leave_now()
        else:
            self._app.invalidate()

    def _leave_now(self) -> None:
        """Leave without a question."""
        self._is_leaving = False
        self._listener.on_leave(Leave.LEAVE)
        self._exit()

    def _find_question(self, status: ChatStatus) -> LeaveQuestion | None:
        """Return the question to ask before leaving, None for none."""
        return leave_question(status, attrs.evolve(self._leave_rules(), others=self._others))

    def _answer(self, key: str) -> None:
        """Carry out the answer to the question; a key that it does not offer is ignored."""
        question = self._question
        if question is None:
            return
        choice = Leave.LEAVE if key == Keys.ControlD else question.keys.get(key.lower(), (None, None))[1]
        if choice is None and key not in (Keys.Escape, Keys.ControlC):
            return
        self._question = None
        self._app.invalidate()
        if choice is not None:
            self._listener.on_leave(choice)
        if choice not in (None, Leave.STOP):  # the chat closes the screen when the work has been stopped
            self._exit()

    def _exit(self) -> None:
        """End the application, unless it has ended or not begun."""
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    def _exit_if_closed(self) -> None:
        """End at once if `close` was called before the loop ran."""
        if self._closed:
            self._exit()

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """End the application with an error from one of the loop's callbacks, so that `run` raises it."""
        error = context.get("exception") or RuntimeError(context["message"])
        if self._app.is_running and not self._app.is_done:
            self._app.exit(exception=error)

    # ---------------------------------------------------------------- output

    @property
    def _width(self) -> int:
        """The width of the window in columns, now."""
        return self._app.output.get_size().columns

    def _print(self, text: str) -> None:
        """Print above the prompt, which is drawn again afterwards.

        The text is written raw, because prompt_toolkit would escape rich's colours; it was neutralised when it was laid out.
        """
        output = self._app.output
        self._app.renderer.erase()
        output.write_raw(text.replace("\n", "\r\n"))
        output.flush()
        self._app.invalidate()

    def _redraw(self) -> None:
        """Forget the drawn prompt, whose lines may have wrapped differently, and draw it again."""
        self._app.renderer.erase(leave_alternate_screen=False)
        self._live.resized()
        self._app.invalidate()

    def _set_status(self, status: ChatStatus) -> None:
        """Show another status, and begin to draw it again and again if something has begun to run."""
        if status.thinking and not self._status.thinking:
            self._thinking_since = asyncio.get_running_loop().time()
        self._status = status
        if self._question is not None:  # it names what is running now
            self._question = self._find_question(status)
            if self._question is None:
                self._show_hint(f"{NOTHING_RUNS}; {LEAVING_HINT}")
        elif self._hint.startswith(NOTHING_RUNS) and (status.is_busy or status.waiting):
            self._show_hint("")
        self._app.invalidate()
        if status.is_busy and not self._ticking:
            self._tick()

    def _tick(self) -> None:
        """Draw the line again and again, as long as something runs. An idle chat has no timer and uses no CPU."""
        self._ticking = self._status.is_busy
        if self._ticking:
            self._app.invalidate()
            seconds = FRAME_SECONDS if self._status.thinking else TASK_SECONDS
            asyncio.get_running_loop().call_later(seconds, self._tick)

    def _show_hint(self, hint: str) -> None:
        """Show a hint in the status line, until the next key."""
        if hint != self._hint:
            self._hint = hint
            self._app.invalidate()

    def _status_text(self) -> StyleAndTextTuples:
        """Return the status line as prompt_toolkit wants it."""
        now = asyncio.get_running_loop().time()
        width = self._width - len(self._prompt)
        seconds = now - self._thinking_since
        line = status_line(self._status, seconds, self._hint, now=monotonic(), width=width, unicode=self._unicode)
        return [("class:status", line)]
